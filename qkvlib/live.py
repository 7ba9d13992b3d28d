"""A matplotlib figure that redraws fast inside an Image widget.

Why not draw the figure anew: laying out and drawing text is nearly all that a redraw costs.
So what stays (frames, titles, labels) is drawn once and kept; of what changes, cells are
painted straight into the pixels and each number is drawn once, then stamped from its bitmap.
pyplot is never touched: the notebook's own backend would send its figures from other threads.
"""

import asyncio
import base64
import html
import io
import itertools
import logging
import struct
import threading
import uuid
import warnings
import zlib

import ipywidgets
import numpy as np
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.image import AxesImage
from matplotlib.text import Text
from PIL import Image

log = logging.getLogger("qkvlib")
MOST_BITMAPS = 3000  # of one kind, some 3 MB: every number that the sliders of a sentence bring up
_BITMAPS = {}  # by kind, then by string and colour; shared by all pictures, since numbers look alike in all


class LivePicture:
    """A figure, its caption and what went wrong, as one widget that redraws fast.

    Parameters
    ----------
    figure : matplotlib Figure, made without pyplot.
    artists : the artists of the figure that change, in drawing order. Images must be drawn
        with interpolation "nearest" from colours in bytes, inside their axes; texts keep
        their place and are centred on it. None may reach more than a tenth of an inch
        above or below its axes.

    Attributes
    ----------
    widget : the ipywidget to show.
    caption : the sentence under the picture, also its accessible name.
    png : the last good picture, as bytes.
    """

    def __init__(self, figure, artists):
        self._figure, self._artists = figure, list(artists)
        self._canvas, self._background, self._base_dpi = FigureCanvasAgg(figure), None, figure.dpi
        # ipykernel 7 runs widget messages in a second thread, beside the cell that is running.
        self._lock = threading.RLock()
        for artist in self._artists:
            artist.set_animated(True)
        self._build()

    def _build(self):
        width = int(self._figure.bbox.width)
        # The width is the page's, so that nothing jumps when a sharper picture comes.
        self._image = ipywidgets.Image(format="png", layout={"width": f"{width}px"})
        self._image.add_class("qkv-picture")
        self._caption_id = f"qkv-{uuid.uuid4().hex[:12]}"
        self._words, self._message = ipywidgets.HTML(), ipywidgets.HTML()
        self._words.add_class("qkv-words")
        # Hidden fields that page.js writes into: how dense the screen is, and where the picture was clicked.
        self._ratio, self._click = ipywidgets.FloatText(1.0), ipywidgets.Text()
        self._ratio.add_class("qkv-ratio")
        self._click.add_class("qkv-click")
        self._ratio.observe(self._sharpen, "value")
        self.caption, self._details, self.png = "", "", b""
        self.widget = ipywidgets.VBox([self._image, self._words, self._message, self._ratio, self._click])
        self.widget.add_class("qkv-live")

    def update(self, change):
        """Run ``change()``, which alters the artists, and show the picture; then what is said of it.

        ``change()`` returns the caption, and HTML with more to say of the picture. Where it raises, the
        reason is shown under the picture, which stays as it was.
        """
        with self._lock:
            try:
                caption, details = change()
                png = self._draw()
            except Exception as error:
                log.exception("The picture could not be redrawn")
                self._say(f"The picture could not be redrawn and shows the last good state. Reason: {error}")
                return
            self._say("")
            self.png, self.caption, self._details = png, caption, details
            self._image.value = png
            _soon(self._write)

    def _write(self):
        with self._lock:  # in one message, since each costs a dragged slider a millisecond or two
            self._words.value = f'<p id="{self._caption_id}">{html.escape(self.caption)}</p>{self._details}'

    def on_click(self, chosen):
        """Call ``chosen(ax, column, row)`` when a cell of a heatmap of the picture is clicked."""
        self._click.observe(lambda change: self._find_cell(change["new"], chosen), "value")

    def redecorate(self):
        """Forget the kept background: call it inside a change of what `artists` does not list."""
        self._background = None

    def prepare(self, text, appearances):
        """Draw the bitmaps of numbers to come while the kernel has nothing else to do.

        text is one of the artists; appearances are pairs of a string and its colour.
        """
        loop, waiting = asyncio.get_running_loop(), list(appearances)

        def some():
            with self._lock:
                was = text.get_text(), text.get_color()
                for string, colour in waiting[-4:]:
                    text.set(text=string, color=colour)
                    self._stamp(text)
                text.set(text=was[0], color=was[1])
            del waiting[-4:]
            if waiting:
                loop.call_later(0.01, some)

        loop.call_soon(some)

    def display(self, widget):
        """Show a widget that has this picture in it, and leave picture and caption for a viewer without a kernel."""
        self._write()
        smaller = io.BytesIO()
        Image.open(io.BytesIO(self.png)).convert("RGB").save(smaller, "png", optimize=True)
        picture, caption = base64.b64encode(smaller.getvalue()).decode(), html.escape(self.caption)
        source = f"data:image/png;base64,{picture}"
        figure = f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>'
        saved = {"text/html": figure, "image/png": picture, "text/plain": self.caption}
        display(widget._repr_mimebundle_() | saved, raw=True)

    def _find_cell(self, place, chosen):
        across, down = map(float, place.split())
        point = across * self._figure.bbox.width, (1 - down) * self._figure.bbox.height
        for ax in self._figure.axes:
            if ax.bbox.contains(*point):
                column, row = ax.transData.inverted().transform(point).round().astype(int)
                chosen(ax, int(column), int(row))

    def _say(self, message):
        self._message.value = f'<p class="qkv-error" role="alert">{html.escape(message)}</p>' if message else ""

    def _sharpen(self, change):
        # Between 1 and 3: a page zoomed far out must not shrink the picture, nor one far in fill the memory.
        dpi = self._base_dpi * min(3.0, max(1.0, change["new"]))
        if dpi != self._figure.dpi:
            with self._lock:  # throughout: numbers being prepared must not meet half a change
                self._figure.set_dpi(dpi)
                self.redecorate()
                self.update(lambda: (self.caption, self._details))

    def _draw(self):
        if self._background is None:
            self._draw_background()
        self._canvas.restore_region(self._background)
        renderer = self._canvas.get_renderer()
        plain = renderer.new_gc()
        pixels = np.asarray(self._canvas.buffer_rgba())
        for artist in self._artists:
            if isinstance(artist, AxesImage):
                _paint(pixels, artist, self._places[artist])
            elif artist.get_visible():
                renderer.draw_image(plain, *self._stamp(artist))
        return self._encoder.encode(pixels)

    def _draw_background(self):
        with warnings.catch_warnings():
            # A word in a script that no font here has: its boxes are seen, and its position is named.
            warnings.filterwarnings("ignore", "Glyph .* missing from")
            self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self._figure.bbox)
        width, height = self._canvas.get_width_height(physical=True)
        self._scratch = RendererAgg(width, height, self._figure.dpi)
        self._encoder = _Encoder(np.asarray(self._canvas.buffer_rgba()), self._moving_rows(height))
        self._kept = {}
        self._places = {artist: self._place(artist) for artist in self._artists}

    def _moving_rows(self, height):
        """Which rows of pixels the artists may touch: those of their axes and of a margin for outlines."""
        moving, margin = np.zeros(height, bool), int(self._figure.dpi / 10)
        for box in (ax.get_window_extent() for ax in {artist.axes for artist in self._artists}):
            moving[max(0, int(height - box.y1) - margin) : int(height - box.y0) + margin] = True
        return moving

    def _place(self, artist):
        if isinstance(artist, AxesImage):
            return _spread(artist, self._scratch.height)
        if isinstance(artist, Text):
            # Rounded, or noise in the last bits would make places differ whose pixels are the same.
            x, y = artist.get_transform().transform(artist.get_position()).round(3)
            # Glyphs are placed more finely than pixels, so what is known holds for these fractions only.
            kind = artist.get_fontproperties(), self._figure.dpi, x % 1, y % 1
            return x, y, _BITMAPS.setdefault(kind, {})
        return None

    def _stamp(self, artist):
        """Where an artist's bitmap stands, and the bitmap; drawn only if neither is known."""
        if not isinstance(artist, Text):
            if artist.stale or artist not in self._kept:  # stale: matplotlib's word for changed since it was drawn
                self._kept[artist] = self._cut(artist, (slice(None), slice(None)))
                artist.stale = False
            return self._kept[artist]
        x, y, known = self._places[artist]
        key = artist.get_text(), artist.get_color()
        if key not in known:
            if len(known) >= MOST_BITMAPS:
                known.clear()
            reach = int((1 + len(key[0]) / 2) * artist.get_fontsize() * self._figure.dpi / 72)
            down = self._scratch.height - int(y)
            around = tuple(slice(max(0, at - reach), at + reach) for at in (down, int(x)))
            left, bottom, bitmap = self._cut(artist, around)
            known[key] = left - int(x), bottom - int(y), bitmap
        left, bottom, bitmap = known[key]
        return int(x) + left, int(y) + bottom, bitmap

    def _cut(self, artist, around):
        """Draw an artist on an empty sheet and cut it out; looks only around the pixels named."""
        artist.draw(self._scratch)
        sheet = np.asarray(self._scratch.buffer_rgba())[around]
        rows, columns = (np.flatnonzero(sheet[..., 3].any(axis=axis)) for axis in (1, 0))
        if rows.size == 0:
            return 0, 0, np.zeros((1, 1, 4), np.uint8)
        # Renderers count y from below, and take an image from its lowest row up.
        bitmap = sheet[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1][::-1].copy()
        sheet[:] = 0
        left, top = columns[0] + (around[1].start or 0), rows[-1] + (around[0].start or 0)
        return left, self._scratch.height - 1 - top, bitmap


def _spread(image, height):
    """The pixels of a "nearest" image, and which row and column of cells each belongs to: where its middle lies.

    Matplotlib draws the same, 50 times slower.
    """
    box, (rows, columns) = image.get_window_extent(), image.get_array().shape[:2]
    left, right, low, high = (round(edge) for edge in (box.x0, box.x1, box.y0, box.y1))
    # Rows are counted from below, as matplotlib does: it matters where a cell's edge is the middle of a pixel.
    row = rows - 1 - ((np.arange(high - low) + 0.5) * rows / (high - low)).astype(int)[::-1]
    column = ((np.arange(right - left) + 0.5) * columns / (right - left)).astype(int)
    return slice(height - high, height - low), slice(left, right), row, column


def _paint(pixels, image, place):
    """Fill the pixels of each cell with its colour, four bytes at a time."""
    down, across, row, column = place
    colours = np.ascontiguousarray(image.get_array()).view(np.uint32)[..., 0]
    pixels.view(np.uint32)[down, across, 0] = colours[row][:, column]


def _soon(call):
    """Call once the page has had the time to show the picture; at once where no event loop runs, as in a script."""
    try:
        asyncio.get_running_loop().call_later(0.02, call)
    except RuntimeError:
        call()


class _Encoder:
    """Turns pixels into a PNG, four times as fast as matplotlib: zlib's fastest level, no filters, and rows that
    stay as they are in the background are compressed once, as segments of their own (RFC 1951 lets them be joined).
    """

    def __init__(self, background, moving):
        height, width = background.shape[:2]
        self._head = _chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 6, 0, 0, 0))
        self._rows = np.zeros((height, 1 + 4 * width), np.uint8)  # a row begins with its filter: 0, none
        self._rows[:, 1:] = background.reshape(height, -1)
        edges = np.flatnonzero(np.diff(moving, prepend=~moving[0], append=~moving[-1]))
        self._bands = [(slice(top, end), None if moving[top] else _deflate(self._rows[top:end]))
                       for top, end in itertools.pairwise(edges)]  # fmt: skip

    def encode(self, pixels):
        segments = []
        for band, still in self._bands:
            if still is None:
                self._rows[band, 1:] = pixels[band].reshape(band.stop - band.start, -1)
            segments.append(still or _deflate(self._rows[band]))
        # A zlib stream: its two bytes, the segments, an empty last one, the checksum of it all (RFC 1950).
        data = b"".join([b"\x78\x01", *segments, b"\x03\x00", struct.pack(">I", zlib.adler32(self._rows))])
        return b"\x89PNG\r\n\x1a\n" + self._head + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _deflate(rows):
    compressor = zlib.compressobj(1, wbits=-15)
    return compressor.compress(rows) + compressor.flush(zlib.Z_FULL_FLUSH)


def _chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
