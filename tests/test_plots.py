"""Heatmaps as a reader meets them: labels taken literally, numbers that can be read, cells told apart."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from qkvlib import heatmap
from qkvlib.plots import families, luminance, number

WORDS = ["$x$", "a_b", "$$", "the", "the", "\\frac", "<b>", "w" * 40, "🐱", "猫", "חתול", "100%"]


def draw(matrix, *args, size=(6, 5), **options):
    figure = Figure(size)
    canvas = FigureCanvasAgg(figure)
    drawn = heatmap(figure.add_axes((0.2, 0.2, 0.7, 0.7)), matrix, *args, **options)
    canvas.draw()
    return drawn


def contrast(a, b):
    """Contrast ratio by WCAG 2.2, from two relative luminances."""
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def test_rows_are_queries_and_columns_are_keys():
    drawn = draw([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]], ["the", "cat"], ["sat", "down", "."], title="weights")
    assert (drawn.ax.get_ylabel(), drawn.ax.get_xlabel(), drawn.ax.get_title()) == ("query", "key", "weights")
    assert [text.get_text() for text in drawn.ax.get_yticklabels()] == ["the", "cat"]
    assert [text.get_text() for text in drawn.numbers] == ["0.10", "0.20", "0.70", "0.30", "0.30", "0.40"]
    places = [text.get_position() for text in drawn.numbers]
    np.testing.assert_allclose(places, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)], atol=0.01)
    assert drawn.ax.get_ylim() == (1.5, -0.5)  # the first query stands on top


@pytest.mark.filterwarnings("ignore:Glyph .* missing from")
def test_words_are_taken_literally():
    drawn = draw(np.eye(12), WORDS, WORDS, size=(12, 8))
    rows = [text.get_text() for text in drawn.ax.get_yticklabels()]
    assert [row for row, word in zip(rows, WORDS, strict=True) if len(word) < 10] == [w for w in WORDS if len(w) < 10]
    assert rows[7] == "w" * (len(rows[7]) - 1) + "…"
    assert len(rows[7]) > 5
    labels = [*drawn.ax.get_yticklabels(), *drawn.ax.get_xticklabels(), drawn.ax.title]
    assert not any(text.get_parse_math() for text in labels)


@pytest.mark.filterwarnings("ignore:Glyph .* missing from")
@pytest.mark.parametrize("n", [1, 2, 7, 12, 16, 17, 60])
def test_labels_stay_inside_and_apart(n):
    drawn = draw(np.zeros((n, n)), (WORDS * 5)[:n], (WORDS * 5)[:n])
    for labels, side in ((drawn.ax.get_yticklabels(), "y"), (drawn.ax.get_xticklabels(), "x")):
        boxes = [text.get_window_extent() for text in labels]
        ends = sorted((getattr(box, side + "0"), getattr(box, side + "1")) for box in boxes)
        assert all(later[0] >= earlier[1] - 2 for earlier, later in itertools.pairwise(ends)), side
    assert drawn.ax.yaxis.label.get_window_extent().x0 > 0


def test_fonts_for_words_begin_with_matplotlibs_own_and_are_all_installed():
    from matplotlib.font_manager import findfont

    assert families()[0] == "DejaVu Sans"
    assert all(findfont(name, fallback_to_default=False) for name in families())


@pytest.mark.parametrize("kind", ["weights", "signed"])
def test_every_number_has_contrast_with_its_cell(kind):
    matrix = np.linspace(0 if kind == "weights" else -3, 1 if kind == "weights" else 3, 256).reshape(16, 16)
    matrix[3, 4] = np.nan
    keep = np.ones((16, 16), bool)
    keep[5, 6] = False
    drawn = draw(matrix, kind=kind, keep=keep)
    cells = luminance(drawn.cells.get_array()).ravel()
    inks = [{"black": 0.0, "white": 1.0}[text.get_color()] for text in drawn.numbers]
    assert min(contrast(cell, ink) for cell, ink in zip(cells, inks, strict=True)) >= 4.5


def test_masked_and_nan_cells_are_told_apart_by_colour_and_by_sign():
    drawn = draw([[0.5, np.nan, 0.5]], keep=[[True, True, False]])
    assert [text.get_text() for text in drawn.numbers] == ["0.50", "NaN", "×"]
    cells = drawn.cells.get_array()[0]
    assert len({tuple(cell) for cell in cells}) == 3
    assert abs(luminance(cells[1]) - luminance(cells[2])) > 0.3  # in grey, too


def test_colours_are_fixed():
    assert (draw([[0.5]]).cells.get_array() == draw([[0.5, 1]]).cells.get_array()[:, :1]).all()
    drawn = draw([[1.0, -2.0]], kind="signed")
    before = drawn.cells.get_array().copy()
    drawn.update([[1.0, -1.0]])
    after = drawn.cells.get_array()
    assert (after[0, 0] == before[0, 0]).all()
    assert not (after[0, 1] == before[0, 1]).all()
    grey = luminance(draw([[-1.0, 0.0, 1.0]], kind="signed", limit=2).cells.get_array())[0]
    assert grey[1] > max(grey[0], grey[2])  # symmetric about 0, which is lightest


@pytest.mark.parametrize(("shape", "count"), [((16, 16), 256), ((17, 2), 0), ((2, 17), 0), ((1, 1), 1)])
def test_numbers_are_left_out_past_sixteen(shape, count):
    assert len(draw(np.zeros(shape)).numbers) == count


@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (16, 16), (2, 12)])
def test_numbers_fit_their_cells(shape):
    drawn = draw(np.full(shape, -9.99), kind="signed")
    box = drawn.ax.get_window_extent()
    for text in drawn.numbers:
        extent = text.get_window_extent()
        assert extent.width <= box.width / shape[1]
        assert extent.height <= box.height / shape[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.005, "0.01"), (-0.0, "0.00"), (9.994, "9.99"), (9.996, "10.0"), (-99.96, "-100"), (-12345, "-12345")],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(matrix=[1, 2]), r"matrix: expected \(n_rows, n_columns\), got \(2,\)"),
        (dict(matrix=[[1]], kind="heat"), "kind: expected 'weights' or 'signed', got 'heat'"),
        (dict(matrix=[[1]], rows=["a", "b"]), "rows: expected 1 labels to fit the matrix, got 2"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        draw(**options)


def test_update_keeps_the_shape():
    with pytest.raises(ValueError, match=r"matrix: expected \(1, 2\), the shape first drawn, got \(2, 1\)"):
        draw([[1, 2]]).update([[1], [2]])
