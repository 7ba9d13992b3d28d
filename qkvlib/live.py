"""A matplotlib figure that redraws fast inside an Image widget.

Why not draw the figure anew: laying out and drawing text is nearly all that a redraw costs.
So what stays (frames, titles, labels) is drawn once and kept; of what changes, cells are
painted straight into the pixels and each number is drawn once, then stamped from its bitmap.
And why not send a PNG each time: a browser takes as long to load and decode one as the kernel
to draw it. So page.js paints the changed pixels on a canvas that covers the image, and the image
follows when all rests, for notebooks that are saved and for pages where no script may run.
pyplot is never touched: the notebook's own backend would send its figures from other threads.
"""

import asyncio
import base64
import html
import io
import json
import logging
import threading
import uuid
import zlib

import ipywidgets
import numpy as np
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.image import AxesImage
from matplotlib.text import Text
from PIL import Image

from qkvlib import page
from qkvlib.plots import any_script, saved

log = logging.getLogger("qkvlib")
MOST_BITMAPS = 2000  # of one kind, some 5 MB: twice what the sliders of a sentence bring up on their scales
_BITMAPS = {}  # by kind, then by string and colour; shared by all pictures, since numbers look alike in all


class LivePicture:
    """A figure, its caption and what went wrong, as one widget that redraws fast.

    Parameters
    ----------
    figure : matplotlib Figure, made without pyplot.
    artists : the artists of the figure that change, in drawing order. Images must be drawn
        with interpolation "nearest" from colours in bytes, inside their axes; texts keep
        their place and are centred on it. None may reach more than a tenth of an inch
        beyond its axes.

    Attributes
    ----------
    figure : the figure.
    widget : the ipywidget to show.
    caption : the sentence under the picture, also its accessible name.
    """

    def __init__(self, figure, artists):
        self.figure, self._artists = figure, list(artists)
        self._canvas, self._background, self._base_dpi = FigureCanvasAgg(figure), None, figure.dpi
        # ipykernel 7 runs widget messages in a second thread, beside the cell that is running.
        self._lock = threading.RLock()
        for artist in self._artists:
            artist.set_animated(True)
        self._build()

    def _build(self):
        width = int(self.figure.bbox.width)
        # The width is the page's, so that nothing jumps when a sharper picture comes.
        self._image = ipywidgets.Image(format="png", layout={"width": f"{width}px"})
        self._image.add_class("qkv-picture")
        self._caption_id = f"qkv-{uuid.uuid4().hex[:12]}"
        self._words, self._message = ipywidgets.HTML(), ipywidgets.HTML()
        self._words.add_class("qkv-words")
        # Hidden: the pixels that page.js is to paint, and what it tells: how dense the screen is, a click.
        self._patches, self._heard = ipywidgets.HTML(), ipywidgets.Text()
        self._patches.add_class("qkv-patches")
        self._heard.add_class("qkv-heard")
        self._heard.observe(lambda change: self._hear(*change["new"].split()), "value")
        self.caption, self._details, self._chosen = "", "", lambda *cell: None
        self._pixels, self._painting, self._painted, self._number = None, False, None, 0
        self.widget = ipywidgets.VBox([self._image, self._words, self._message, self._patches, self._heard])
        self.widget.add_class("qkv-live")

    def update(self, change):
        """Run ``change()``, which alters the artists, and show the picture; then what is said of it.

        ``change()`` returns the caption, and HTML with more to say of the picture. Where it raises, the
        reason is shown under the picture, which stays as it was.
        """
        with self._lock:
            try:
                caption, details = change()
                pixels = self._draw()
            except Exception as error:
                log.exception("The picture could not be redrawn")
                self.say(f"The picture could not be redrawn and shows the last good state. Reason: {error}")
                return
            self.say("")
            self._pixels, self.caption, self._details = pixels, caption, details
            self._show()

    @property
    def png(self):
        """The last good picture, as bytes."""
        return self._encoded(compress_level=1)

    def _encoded(self, mode="RGBA", **options):
        file, height_width = io.BytesIO(), self._pixels.shape
        image = Image.fromarray(self._pixels.view(np.uint8).reshape(*height_width, 4))
        image.convert(mode).save(file, "png", **options)
        return file.getvalue()

    def _show(self):
        self._number += 1
        if self._painting:
            self._patches.value = self._patch()
            later(0.3, self._rest, self._number)
        else:
            self._image.value = self.png
        later(0.02, self._write)  # once the page has had the time to show the picture

    def _rest(self, number):
        with self._lock:
            if number == self._number:
                self._image.value = self.png

    def _write(self):
        with self._lock:  # in one message, since each costs a dragged slider a millisecond or two
            self._words.value = f'<p id="{self._caption_id}">{html.escape(self.caption)}</p>{self._details}'

    def on_click(self, chosen):
        """Call ``chosen(ax, column, row)`` when a cell of a heatmap of the picture is clicked."""
        self._chosen = chosen

    def _hear(self, kind, *numbers):
        if kind == "click":
            self._find_cell(*map(float, numbers))
        elif self._pixels is not None:  # "screen": a page opens, or is zoomed, or has missed something
            with self._lock:
                self._painting, self._painted = True, None
                self._sharpen(float(numbers[0]))

    def _patch(self):
        """What page.js needs to turn what it shows into the picture, as JSON; everything if nothing is known of it.

        "patches" are [left, top, width, how often each row of pixels stands]; "rows" the pixels, deflated.
        """
        now, before = self._pixels, self._painted
        whole = before is None or before.shape != now.shape
        height, width = now.shape
        boxes = [(0, height, 0, width)] if whole else self._changed(now, before)
        patches, rows = [], []
        for top, end, left, right in boxes:
            cut = now[top:end, left:right]
            # Most rows equal the one above: they are cells without their numbers.
            new = np.flatnonzero(np.append(True, (cut[1:] != cut[:-1]).any(axis=1)))
            patches.append([left, top, right - left, np.diff(new, append=len(cut)).tolist()])
            rows.append(cut[new].tobytes())
        self._painted = self._pixels
        deflated = base64.b64encode(zlib.compress(b"".join(rows), 1)).decode()
        size = [width, height] if whole else None
        return json.dumps({"number": self._number, "size": size, "patches": patches, "rows": deflated})

    def _changed(self, now, before):
        """Of each axes the part in which pixels differ: top, end, left, right."""
        for rows, columns in self._moving:
            differ = now[rows, columns] != before[rows, columns]
            if differ.any():
                (top, end), (left, right) = _ends(differ.any(axis=1)), _ends(differ.any(axis=0))
                yield top + rows.start, end + rows.start, left + columns.start, right + columns.start

    def redecorate(self):
        """Forget the kept background: call it inside a change of what `artists` does not list."""
        self._background = self._painted = None

    def prepare(self, text, appearances):
        """Draw the bitmaps of numbers to come while the kernel has nothing else to do.

        text is one of the artists; appearances are pairs of a string and its colour.
        """
        waiting = list(appearances)

        def some():
            with self._lock:
                was = text.get_text(), text.get_color()
                for string, colour in waiting[-4:]:
                    text.set(text=string, color=colour)
                    self._stamp(text)
                text.set(text=was[0], color=was[1])
            del waiting[-4:]
            if waiting:
                later(0.01, some)

        if running_loop():  # where none runs, as in a script, nothing is ever idle
            later(0, some)

    def display(self, widget):
        """Show a widget that has this picture in it, and leave picture and caption for a viewer without a kernel."""
        self._write()
        display(widget._repr_mimebundle_() | self.still(), raw=True)

    def still(self):
        """Picture and caption for a viewer without a kernel, as a notebook's output keeps them."""
        return saved(self._encoded("RGB", optimize=True), self.caption)

    def _find_cell(self, across, down):
        point = across * self.figure.bbox.width, (1 - down) * self.figure.bbox.height
        for ax in self.figure.axes:
            if ax.bbox.contains(*point):
                column, row = ax.transData.inverted().transform(point).round().astype(int)
                self._chosen(ax, int(column), int(row))

    def say(self, message):
        """Say under the picture what went wrong; "" says that nothing does."""
        self._message.value = page.error(message) if message else ""

    def _sharpen(self, ratio):
        # Between 1 and 3: a page zoomed far out must not shrink the picture, nor one far in fill the memory.
        dpi = self._base_dpi * min(3.0, max(1.0, ratio))
        if dpi != self.figure.dpi:
            self.figure.set_dpi(dpi)
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
        return pixels.view(np.uint32)[..., 0].copy()  # a number a pixel is compared faster than four

    def _draw_background(self):
        with any_script():
            self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self.figure.bbox)
        width, height = self._canvas.get_width_height(physical=True)
        self._scratch = RendererAgg(width, height, self.figure.dpi)
        self._moving = [self._around(ax) for ax in {artist.axes for artist in self._artists}]
        self._kept = {}
        self._places = {artist: self._place(artist) for artist in self._artists}

    def _around(self, ax):
        """The pixels that the artists of some axes may touch: rows, columns."""
        box, margin, height = ax.get_window_extent(), self.figure.dpi / 10, self._scratch.height
        return (slice(max(0, int(height - box.y1 - margin)), int(height - box.y0 + margin)),
                slice(max(0, int(box.x0 - margin)), int(box.x1 + margin)))  # fmt: skip

    def _place(self, artist):
        if isinstance(artist, AxesImage):
            return _spread(artist, self._scratch.height)
        if isinstance(artist, Text):
            # Rounded, or noise in the last bits would make places differ whose pixels are the same.
            x, y = artist.get_transform().transform(artist.get_position()).round(3)
            # Glyphs are placed more finely than pixels, so what is known holds for these fractions only.
            kind = artist.get_fontproperties(), self.figure.dpi, x % 1, y % 1
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
        found = known.get(key)
        if found is None:
            if len(known) >= MOST_BITMAPS:
                known.pop(next(iter(known)), None)  # the oldest, if another picture's thread has not taken it
            reach = int((1 + len(key[0]) / 2) * artist.get_fontsize() * self.figure.dpi / 72)
            down = self._scratch.height - int(y)
            around = tuple(slice(max(0, at - reach), at + reach) for at in (down, int(x)))
            left, bottom, bitmap = self._cut(artist, around)
            found = known[key] = left - int(x), bottom - int(y), bitmap
        left, bottom, bitmap = found
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


def _ends(true):
    """Where the first and behind the last True stand."""
    places = np.flatnonzero(true).tolist()
    return places[0], places[-1] + 1


def running_loop():
    """The event loop that runs in this thread, as in a kernel, or None, as in a script."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def later(seconds, call, *arguments):
    """Call later; at once where no event loop runs, as in a script."""
    loop = running_loop()
    if loop:
        loop.call_later(seconds, call, *arguments)
    else:
        call(*arguments)
