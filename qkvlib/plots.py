"""Heatmaps and their numbers: draws on a given Axes, returns the artists, never shows.

Everything a picture says twice (colour and number, outline and caption) is said so that
it can be read in grey, by people who see colours differently, and from the back row.
"""

import base64
import html
import io
import warnings
from contextlib import contextmanager

import numpy as np
from matplotlib import colormaps, font_manager
from matplotlib.artist import Artist
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from qkvlib.maths import unmasked

MOST_NUMBERS = 16  # past this many rows or columns a number no longer fits its cell
BLACK_INK = 0.179  # on cells of more luminance than this, black has the higher contrast; at least 4.5 : 1
MASKED, NOT_A_NUMBER = "#c8c8c8", "#4d4d4d"
# Fonts that have emoji, Chinese, Japanese, Korean or Hebrew, where the machine has them.
_WISHED = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC", "Hiragino Sans",
           "Noto Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Noto Sans Hebrew")  # fmt: skip


class Heatmap:
    """A drawn matrix: its cells, its numbers and the outline round a chosen cell.

    Attributes
    ----------
    cells : AxesImage with the colour of each cell, (n_rows, n_columns, 4).
    numbers : list of Text, row by row; empty past 16 rows or columns.
    """

    def __init__(self, ax, shape, kind, limit):
        self.ax, self.shape, self.limit = ax, shape, limit
        self._colours = colormaps["viridis" if kind == "weights" else "RdBu_r"]
        self._lowest = 0 if kind == "weights" else -limit
        self.cells = ax.imshow(np.zeros((*shape, 4), np.uint8), interpolation="nearest", aspect="auto")
        small = max(shape) <= MOST_NUMBERS
        width, height = (points / cells for points, cells in zip(_points(ax), shape[::-1], strict=True))
        size = int(2 * min(14, 0.345 * width, 0.455 * height)) / 2  # in halves, so that more heatmaps share bitmaps
        self.numbers = [
            ax.text(*_whole_pixel(ax, j, i), "", ha="center", va="center", fontsize=size)
            for i in range(shape[0] if small else 0)
            for j in range(shape[1])
        ]

    @property
    def artists(self):
        """What changes when the matrix changes, in drawing order."""
        return [self.cells, *self.numbers]

    def appearances(self):
        """The numbers that may come up, in steps of 0.01, each with the ink it is written in."""
        values = np.arange(round(100 * self._lowest), round(100 * self.limit) + 1) / 100
        return [(number(value), ink) for value, ink in zip(values, _inks(self._colour(values)), strict=True)]

    def _colour(self, matrix):
        return self._colours((matrix - self._lowest) / (self.limit - self._lowest), bytes=True)

    def update(self, matrix, keep=None):
        """Show another matrix of the same shape; the scale of colours stays.

        matrix (n_rows, n_columns): real numbers, NaN allowed. keep: as in `heatmap`.
        """
        matrix = np.asarray(matrix, float)
        if matrix.shape != self.shape:
            raise ValueError(f"matrix: expected {self.shape}, the shape first drawn, got {matrix.shape}")
        colours = self._colour(matrix)
        colours[np.isnan(matrix)] = _bytes(NOT_A_NUMBER)
        if keep is not None:
            colours[~np.asarray(keep)] = _bytes(MASKED)
        self.cells.get_array()[:] = colours  # set_data would check and copy them
        self.cells.changed()
        if self.numbers:
            self._write(matrix, np.ones(self.shape, bool) if keep is None else keep, colours)

    def _write(self, matrix, keep, colours):
        values = zip(matrix.ravel(), np.ravel(keep), _inks(colours), strict=True)
        for text, (value, kept, ink) in zip(self.numbers, values, strict=True):
            written = number(value) if kept else "×"
            # Setting a colour costs more than comparing it, and most cells keep theirs.
            if text.get_text() != written:
                text.set_text(written)
            if text.get_color() != ink:
                text.set_color(ink)


def heatmap(ax, matrix, rows=None, columns=None, *, kind="weights", limit=None, keep=None,
            title="", ylabel="query", xlabel="key"):  # fmt: skip
    """Draw a matrix as coloured cells with a number in each.

    Parameters
    ----------
    ax : matplotlib Axes to draw on.
    matrix : array-like (n_rows, n_columns); NaN is shown as such. Rows are queries, columns are keys.
    rows, columns : labels, one each row or column, taken literally; by default 1, 2, 3, ...
    kind : "weights" (probabilities, colours fixed from 0 to 1) or "signed" (symmetric about 0).
    limit : for "signed", the number at the ends of the scale; by default the largest absolute value.
    keep : array-like of bool (n_rows, n_columns), optional; cells outside it are shown masked, with a ×.
    title, ylabel, xlabel : literal text.

    Returns
    -------
    Heatmap
        The artists, with ``update(matrix)`` to show another matrix on the same scale.

    Raises
    ------
    ValueError
        For a matrix without two dimensions, an unknown kind, or labels of the wrong number.
    TypeError
        For a masked array.

    >>> from matplotlib.figure import Figure
    >>> drawn = heatmap(Figure().subplots(), [[0.25, 0.75]], ["the"], ["cat", "sat"])
    >>> [text.get_text() for text in drawn.numbers]
    ['0.25', '0.75']
    """
    matrix = np.asarray(unmasked("matrix", matrix), float)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"matrix: expected (n_rows, n_columns), got {matrix.shape}")
    if kind not in ("weights", "signed"):
        raise ValueError(f"kind: expected 'weights' or 'signed', got {kind!r}")
    _label(ax.yaxis, "rows", rows, len(matrix))
    _label(ax.xaxis, "columns", columns, matrix.shape[1])
    drawn = Heatmap(ax, matrix.shape, kind, 1 if kind == "weights" else limit or _largest(matrix))
    drawn.update(matrix, keep)
    ax.set_title(title, fontsize=11, parse_math=False)
    ax.set_ylabel(ylabel, fontsize=10, parse_math=False)
    ax.set_xlabel(xlabel, fontsize=10, parse_math=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return drawn


class Arrows(Artist):
    """Vectors in the plane, from the origin, each with its word at the tip; drawn as one artist.

    ax is made square and reaches from -limit to limit; points (n, 2) are set by ``update``. An arrow in
    ``asking`` is thicker and dashed.
    """

    def __init__(self, ax, words, limit, asking=()):
        super().__init__()
        ax.set(xlim=(-limit, limit), ylim=(-limit, limit), xticks=[], yticks=[])
        ax.axhline(0, color="#8a8a8a", linewidth=0.8)
        ax.axvline(0, color="#8a8a8a", linewidth=0.8)
        self._arrows = [
            FancyArrowPatch((0, 0), (1, 0), arrowstyle="-|>", mutation_scale=14, shrinkA=0, shrinkB=0, clip_on=True,
                            linewidth=2.6 if i in asking else 1.8, linestyle=(0, (4, 2)) if i in asking else "-",
                            color="#8f3400" if i in asking else "#0b3d91")
            for i in range(len(words))
        ]  # fmt: skip
        self._labels = [Text(text=word, fontsize=11, fontfamily=families(), parse_math=False, clip_on=True,
                             ha="center", va="center", path_effects=[withStroke(linewidth=3, foreground="white")])
                        for word in words]  # fmt: skip
        ax.add_artist(self)
        for part in (*self._arrows, *self._labels):
            part.set_transform(ax.transData)
            part.set_figure(ax.figure)
            part.axes = ax
            part.set_clip_path(ax.patch)

    def update(self, points):
        for arrow, label, point in zip(self._arrows, self._labels, np.asarray(points, float), strict=True):
            arrow.set_positions((0, 0), point)
            length = np.hypot(*point)
            beyond = 0.13 * self.axes.get_xlim()[1]
            label.set_position(point * (1 + beyond / length) if length > 1e-9 else (0, beyond))
        self.stale = True

    def draw(self, renderer):
        with any_script():
            for part in (*self._arrows, *self._labels):
                part.draw(renderer)
        self.stale = False


def saved(image, caption):
    """A picture (PNG, bytes) with its caption, for a viewer without a kernel: what a notebook's output keeps."""
    encoded, said = base64.b64encode(image).decode(), html.escape(caption)
    source = f"data:image/png;base64,{encoded}"
    figure = f'<figure><img alt="{said}" src="{source}"><figcaption>{said}</figcaption></figure>'
    return {"text/html": figure, "image/png": encoded, "text/plain": caption}


class Picture:
    """A figure that stays as it is, with a caption that is its alternative text; a notebook shows it."""

    def __init__(self, figure, caption):
        self.figure, self.caption = figure, caption

    def _repr_mimebundle_(self, **kwargs):
        file = io.BytesIO()
        with any_script():
            self.figure.savefig(file, format="png", dpi=100)
        return saved(file.getvalue(), self.caption)


def number(value):
    """A number as short as a cell needs it: 0.87, -12.3, 4567, 1e+06, NaN.

    >>> number(-0.001), number(0.8706), number(-12.34), number(1e6)
    ('0.00', '0.87', '-12.3', '1e+06')
    """
    if np.isnan(value):
        return "NaN"
    size = abs(value)
    form = ".2f" if size < 9.995 else ".1f" if size < 99.95 else ".0f" if size < 99999 else ".0e"
    text = format(value, form)
    return text[1:] if text.startswith("-") and float(text) == 0 else text


def luminance(colours):
    """Relative luminance (WCAG 2.2) of colours (..., 3 or 4) in bytes: 0 is black, 1 is white.

    >>> luminance([[255, 255, 255, 255]]).round(3)
    array([1.])
    """
    shares = np.asarray(colours)[..., :3] / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def _inks(colours):
    """For each of the colours (..., 4), in order, the ink that can be read on it."""
    return np.where(luminance(colours) > BLACK_INK, "black", "white").ravel().tolist()


def families():
    """The font families to write words in: matplotlib's own, then those here that have other scripts."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _WISHED if name in installed)]


@contextmanager
def any_script():
    """Draw words in a script that no font here has without a warning: its boxes are seen, its position is named."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def fitted(ax, word, points):
    """The word, or its longest beginning with an ellipsis, so that it is no wider than so many points."""
    text, short = ax.text(0, 0, "", fontsize=10, fontfamily=families(), parse_math=False), word
    for letters in range(min(len(word), 40), 0, -1):
        short = word if letters == len(word) else word[:letters] + "…"
        text.set_text(short)
        with any_script():
            width = text.get_window_extent().width
        if width * 72 / ax.figure.dpi <= points:
            break
    text.remove()
    return short


def _label(axis, name, labels, count):
    labels = [str(i + 1) for i in range(count)] if labels is None else [str(label) for label in labels]
    if len(labels) != count:
        raise ValueError(f"{name}: expected {count} labels to fit the matrix, got {len(labels)}")
    width, height = _points(axis.axes)
    if name == "rows":
        every = int(np.ceil(14 * count / height))  # a line of text is 14 points high
        room = _margin(axis.axes) - 16  # beside the axis' own name
    else:
        every = int(np.ceil(min(3, max(map(len, labels))) * 9 * count / width))  # room for three letters at least
        room = every * width / count - 3
    shown = range(0, count, every)
    axis.set_ticks(shown, [fitted(axis.axes, labels[i], room) for i in shown], fontsize=10, fontfamily=families())
    for text in axis.get_ticklabels():
        text.set_parse_math(False)


def _whole_pixel(ax, x, y):
    """The whole pixel next to a point of the axes: there, equal numbers look equal and can share one bitmap."""
    return ax.transData.inverted().transform(ax.transData.transform((x, y)).round())


def _margin(ax):
    """The free width, in points, left of the axes."""
    left = ax.get_window_extent().x0
    others = [other.get_window_extent().x1 for other in ax.figure.axes]
    return (left - max((right for right in others if right <= left), default=0)) * 72 / ax.figure.dpi


def _points(ax):
    box = ax.get_window_extent()
    return box.width * 72 / ax.figure.dpi, box.height * 72 / ax.figure.dpi


def _largest(matrix):
    finite = np.abs(matrix[np.isfinite(matrix)])
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def _bytes(colour):
    return np.multiply(to_rgba(colour), 255).astype(np.uint8)
