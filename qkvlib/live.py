"""A matplotlib figure that redraws fast inside an Image widget.

Why not draw the figure anew: laying out and drawing text is nearly all that a redraw costs.
So what stays (frames, titles, labels) is drawn once and kept; of what changes, cells are
painted straight into the pixels and each number is drawn once, then stamped from its bitmap.
pyplot is never touched: the notebook's own backend would send its figures from other threads.
"""

import base64
import html
import io
import logging
import struct
import threading
import uuid
import warnings
import zlib
from functools import lru_cache

import ipywidgets
import numpy as np
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from PIL import Image

log = logging.getLogger("qkvlib")


class LivePicture:
    """A figure, its caption and what went wrong, as one widget that redraws fast.

    Parameters
    ----------
    figure : matplotlib Figure, made without pyplot.
    artists : the artists of the figure that change, in drawing order. Images must be drawn
        with interpolation "nearest" from colours in bytes, inside their axes; texts keep
        their place and are centred on it.

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
        self._caption, self._message = ipywidgets.HTML(), ipywidgets.HTML()
        # Hidden fields that page.js writes into: how dense the screen is, and where the picture was clicked.
        self._ratio, self._click = ipywidgets.FloatText(1.0), ipywidgets.Text()
        self._ratio.add_class("qkv-ratio")
        self._click.add_class("qkv-click")
        self._ratio.observe(self._sharpen, "value")
        self.caption, self.png = "", b""
        self.widget = ipywidgets.VBox([self._image, self._caption, self._message, self._ratio, self._click])
        self.widget.add_class("qkv-live")

    def update(self, change):
        """Run ``change()``, which alters the artists and returns the caption, and show the result.

        Where it raises, the reason is shown under the picture, which stays as it was.
        """
        with self._lock:
            try:
                caption = change()
                png = self._draw()
            except Exception as error:
                log.exception("The picture could not be redrawn")
                self._say(f"The picture could not be redrawn and shows the last good state. Reason: {error}")
                return
            self._say("")
            self.png = self._image.value = png
            if caption != self.caption:
                self.caption = caption
                self._caption.value = f'<p id="{self._caption_id}">{html.escape(caption)}</p>'

    def on_click(self, chosen):
        """Call ``chosen(ax, column, row)`` when a cell of a heatmap of the picture is clicked."""
        self._click.observe(lambda change: self._find_cell(change["new"], chosen), "value")

    def redecorate(self):
        """Forget the kept background: call it inside a change of what `artists` does not list."""
        self._background = None

    def display(self, widget):
        """Show a widget that has this picture in it, and leave picture and caption for a viewer without a kernel."""
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
            with self._lock:
                self._figure.set_dpi(dpi)
                self.redecorate()
            self.update(lambda: self.caption)

    def _draw(self):
        if self._background is None:
            with warnings.catch_warnings():
                # A word in a script that no font here has: its boxes are seen, and its position is named.
                warnings.filterwarnings("ignore", "Glyph .* missing from")
                self._canvas.draw()
            self._background = self._canvas.copy_from_bbox(self._figure.bbox)
            self._places = {
                artist: artist.get_transform().transform(artist.get_position())
                for artist in self._artists
                if isinstance(artist, Text)
            }
        self._canvas.restore_region(self._background)
        renderer = self._canvas.get_renderer()
        stamp = renderer.new_gc()
        pixels = np.asarray(self._canvas.buffer_rgba())
        for artist in self._artists:
            if isinstance(artist, AxesImage):
                _paint_cells(pixels, artist)
            elif isinstance(artist, Text):
                x, y = self._places[artist]
                string, colour, font = artist.get_text(), artist.get_color(), artist.get_fontproperties()
                bitmap, dx, dy = _bitmap(string, colour, font, self._figure.dpi, x % 1, y % 1)
                renderer.draw_image(stamp, int(x) + dx, int(y) + dy, bitmap)
            else:
                artist.axes.draw_artist(artist)
        return _png(pixels)


def _paint_cells(pixels, image):
    """Fill each cell's rectangle of pixels, as matplotlib does for a "nearest" image, 50 times faster."""
    colours = np.ascontiguousarray(image.get_array()).view(np.uint32)[..., 0]
    box = image.get_window_extent()
    left, right = round(box.x0), round(box.x1)
    top, bottom = (pixels.shape[0] - round(y) for y in (box.y1, box.y0))
    rows = (
        colours.shape[0] - 1 - _owners(bottom - top, colours.shape[0])[::-1]
    )  # counted from below, as matplotlib does
    columns = _owners(right - left, colours.shape[1])
    pixels.view(np.uint32)[top:bottom, left:right, 0] = colours[rows][:, columns]


@lru_cache(maxsize=64)
def _owners(pixels, cells):
    """Which cell each pixel of a row or column of them belongs to: the one its middle lies in."""
    return ((np.arange(pixels) + 0.5) * cells / pixels).astype(int)


@lru_cache(maxsize=4000)
def _bitmap(string, colour, font, dpi, x, y):
    """A string centred on a point, drawn once by matplotlib: its pixels, and where they start from that point.

    x and y are the point's fractions of a pixel, since glyphs are placed more finely than pixels.
    """
    height = int(3 * font.get_size_in_points() * dpi / 72)
    width = height * (2 + len(string)) // 3
    figure = Figure((width / dpi, height / dpi), dpi)
    middle = (width // 2 + x, height // 2 + y)
    text = figure.text(*middle, string, font=font, color=colour, ha="center", va="center", transform=None)
    renderer = RendererAgg(width, height, dpi)
    text.draw(renderer)
    pixels = np.asarray(renderer.buffer_rgba())
    rows, columns = (np.flatnonzero(pixels[..., 3].any(axis=axis)) for axis in (1, 0))
    if rows.size == 0:
        return np.zeros((1, 1, 4), np.uint8), 0, 0
    bitmap = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    # Renderers count y from below, and take an image from its lowest row up.
    return bitmap[::-1].copy(), columns[0] - width // 2, height - 1 - rows[-1] - height // 2


def _png(pixels):
    """A PNG of pixels (height, width, 4): zlib's fastest level, without the filters that cost more than they save."""
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 4 * width), np.uint8)  # a row begins with its filter: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">2I5B", width, height, 8, 6, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
