"""Panels driven as a kernel drives them: values set, buttons clicked, texts and pictures read."""

import html
import io
import re

import ipywidgets
import numpy as np
import oracle
import pytest
from PIL import Image

from qkvlib import AttentionPanel, attention, chapter, heatmap, page, predict
from qkvlib.chapter import Example
from qkvlib.panels import MatrixSliders, describe


def find(widget, kind, description=None):
    """Every widget of a kind inside another, in order."""
    named = description is None or getattr(widget, "description", None) == description
    found = [widget] if isinstance(widget, kind) and named else []
    for child in getattr(widget, "children", ()):
        found += find(child, kind, description)
    return found


def click(panel, name):
    (button,) = find(panel.widget, ipywidgets.Button, name)
    button.click()


def numbers(panel, name):
    """The numbers written in the cells of one heatmap of a panel."""
    return written(panel._heatmaps[name])


def written(drawn):
    return np.reshape([float(text.get_text()) for text in drawn.numbers], drawn.shape)


def text_of(panel):
    return " ".join(widget.value for widget in find(panel.widget, ipywidgets.HTML))


@pytest.fixture
def panel():
    return AttentionPanel(chapter.sentence)


def test_it_starts_on_the_chapters_numbers(panel):
    s = chapter.sentence
    scores, weights, _ = oracle.attention(s.X, s.W_Q, s.W_K, s.W_V)
    np.testing.assert_allclose(numbers(panel, "scores"), scores, atol=0.00501)
    np.testing.assert_allclose(numbers(panel, "weights"), weights, atol=0.00501)
    assert panel.picture.caption.startswith('"the" looks mostly at "cat" (0.87); ')


def test_sliders_stand_in_the_shape_of_their_matrix(panel):
    sliders = find(panel.widget, ipywidgets.FloatSlider)
    names = [f"{W} row {i} column {j}" for W in ("W_Q", "W_K") for i in (1, 2, 3) for j in (1, 2, 3, 4)]
    assert [slider.description for slider in sliders] == names
    values = np.reshape([slider.value for slider in sliders], (2, 3, 4))
    np.testing.assert_array_equal(values, [chapter.sentence.W_Q, chapter.sentence.W_K])


def test_a_moved_slider_moves_everything(panel):
    before, image = panel.picture.png, find(panel.widget, ipywidgets.Image)[0]
    slider = find(panel.widget, ipywidgets.FloatSlider)[4]
    slider.value = -4.0
    W_Q = chapter.sentence.W_Q.copy()
    W_Q[1, 0] = -4
    _, weights, _ = oracle.attention(chapter.sentence.X, W_Q, chapter.sentence.W_K, chapter.sentence.W_V)
    np.testing.assert_allclose(panel.attention.weights, weights)
    np.testing.assert_allclose(numbers(panel, "weights"), weights, atol=0.00501)
    assert image.value == panel.picture.png != before
    assert panel.picture.caption in text_of(panel).replace("&quot;", '"')
    assert panel.picture.caption == describe(weights, chapter.sentence.words)


@pytest.mark.parametrize("name", ["Chapter", "Identity", "Zeros", "Random", "Reset"])
def test_presets_draw_once(panel, name):
    start = np.round(np.linspace(-1, 1, 12).reshape(3, 4), 2)
    panel = AttentionPanel(chapter.sentence, W_Q=start, W_K=-start)
    expected = {
        "Chapter": (chapter.sentence.W_Q, chapter.sentence.W_K),
        "Identity": (np.eye(3, 4), np.eye(3, 4)),
        "Zeros": (np.zeros((3, 4)), np.zeros((3, 4))),
        "Reset": (start, -start),
    }
    panel.W_Q = np.full((3, 4), 0.5)
    drawn = []
    find(panel.widget, ipywidgets.Image)[0].observe(drawn.append, "value")
    click(panel, name)
    assert len(drawn) == 1
    if name != "Random":
        np.testing.assert_array_equal([panel.W_Q, panel.W_K], expected[name])


def test_random_follows_its_seed(panel):
    (seed,) = find(panel.widget, ipywidgets.IntText)
    found = []
    for value in (1, 2, 1):
        seed.value = value
        click(panel, "Random")
        found.append(np.stack([panel.W_Q, panel.W_K]))
    np.testing.assert_array_equal(found[0], found[2])
    assert np.abs(found[0] - found[1]).max() > 0.5


def test_its_code_rebuilds_it(panel):
    click(panel, "Random")
    panel = AttentionPanel(chapter.sentence, W_Q=panel.W_Q, show=("scores", "weights"), scaled=True)
    (wanted,) = find(panel.widget, ipywidgets.ToggleButton)
    (shown,) = find(panel.widget, ipywidgets.Textarea)
    wanted.value = True
    assert shown.layout.display is None
    panel.W_K = -panel.W_K
    again = eval(shown.value, {"AttentionPanel": AttentionPanel, "chapter": chapter})
    np.testing.assert_array_equal(again.attention.weights, panel.attention.weights)
    assert again.picture.png == panel.picture.png


def test_a_matrix_that_does_not_fit_is_refused_and_changes_nothing(panel):
    for wrong, message in (
        (np.zeros((4, 3)), r"W_Q: expected \(3, 4\), one number a slider, got \(4, 3\)"),
        (np.full((3, 4), 4.5), "W_Q: expected numbers from -4 to 4, the range of its sliders"),
        (np.full((3, 4), np.nan), "W_Q: expected numbers from -4 to 4"),
    ):
        with pytest.raises(ValueError, match=message):
            panel.W_Q = wrong
        np.testing.assert_array_equal(panel.W_Q, chapter.sentence.W_Q)
    panel.W_Q = np.zeros((3, 4))  # and it still draws
    assert "equally" in panel.picture.caption


def test_the_range_holds_every_preset():
    panel = AttentionPanel(chapter.sentence, W_K=np.full((3, 4), -7.25))
    sliders = find(panel.widget, ipywidgets.FloatSlider)
    assert {(slider.min, slider.max) for slider in sliders} == {(-8.0, 8.0)}
    np.testing.assert_array_equal(panel.W_K, np.full((3, 4), -7.25))


def test_a_chosen_pair_is_written_out_with_live_numbers(panel):
    (query,) = find(panel.widget, ipywidgets.Dropdown, "query")
    (key,) = find(panel.widget, ipywidgets.Dropdown, "key")
    query.value, key.value = 3, 2
    find(panel.widget, ipywidgets.FloatSlider)[8].value = 0.5
    result = panel.attention
    text = text_of(panel)
    assert f"<b>{result.Q[3] @ result.K[2]:.3f}</b>" in text
    assert f"<b>{result.weights[3, 2]:.3f}</b>" in text
    assert "&quot;down&quot; asks &quot;sat&quot;" in text
    part = ", ".join(f"{share:.2f}" for share in result.weights[3, 2] * result.V[2])
    assert f"<b>[{part}]</b>" in text
    outline = panel._outlines["scores"]
    assert (outline.get_x(), outline.get_y(), outline.get_width()) == (1.5, 2.5, 1)
    assert panel._outlines["Q"].get_y() == 2.5
    assert panel._outlines["K"].get_y() == 1.5


@pytest.mark.parametrize(
    ("name", "column", "row", "chosen"),
    [("weights", 2, 3, (3, 2)), ("scores", 0, 1, (1, 0)), ("Q", 1, 2, (2, 0)), ("K", 2, 3, (0, 3))],
)
def test_a_clicked_cell_is_chosen_with_one_redraw(panel, name, column, row, chosen):
    drawn = []
    find(panel.widget, ipywidgets.Image)[0].observe(drawn.append, "value")
    ax = panel._heatmaps[name].ax
    x, y = ax.figure.transFigure.inverted().transform(ax.transData.transform((column + 0.3, row - 0.3)))
    heard = find(panel.widget, ipywidgets.Text)[0]
    heard.value = f"click {x} {1 - y}"
    assert (panel._query.value, panel._key.value) == chosen
    assert len(drawn) == 1
    heard.value = "click 0.001 0.001"  # the margin
    assert (panel._query.value, panel._key.value) == chosen


def test_the_outline_is_seen(panel):
    def picture():
        return np.asarray(Image.open(io.BytesIO(panel.picture.png))).astype(int)

    before = picture()
    (key,) = find(panel.widget, ipywidgets.Dropdown, "key")
    key.value = 3
    assert (np.abs(picture() - before).max(axis=2) > 100).sum() > 500


def test_goals_are_judged_from_the_weights():
    goals = [("all alike", lambda a: np.ptp(a.weights) < 0.01), ("<never>", lambda a: False)]
    panel = AttentionPanel(chapter.sentence, goals=goals)
    assert "not yet: all alike" in text_of(panel).replace("○ ", "")
    click(panel, "Zeros")
    assert "✔ reached:</b> all alike" in text_of(panel)
    assert "&lt;never&gt;" in text_of(panel)


def rectangle(words, keep=None):
    """An example of three positions with a repeated word, d_model 2, d_k 2, d_v 1."""
    X, W = np.array([[1.0, 0], [0, 1], [1, 0]]), np.array([[1.0, 2], [0, 1]])
    return AttentionPanel(Example(words, X, W, W.T, W[:1]), keep=keep)


def test_words_are_literal_and_positions_are_indices():
    panel = rectangle(("<i>$x$</i>", "b", "<i>$x$</i>"))
    assert [option[0] for option in panel._query.options] == ["1 <i>$x$</i>", "2 b", "3 <i>$x$</i>"]
    assert "&lt;i&gt;$x$&lt;/i&gt;&quot; (1) asks" in text_of(panel)
    assert '"<i>$x$</i>" (3)' in panel.picture.caption


def test_a_mask_is_shown_and_obeyed():
    keep = np.tri(3, dtype=bool)
    keep[1] = False
    panel = rectangle(("a", "b", "c"), keep)
    crosses = [text.get_text() == "×" for text in panel._heatmaps["weights"].numbers]
    np.testing.assert_array_equal(np.reshape(crosses, (3, 3)), ~keep)
    assert '"b" may look nowhere' in panel.picture.caption


def test_a_failing_redraw_leaves_the_panel_usable(panel, monkeypatch):
    good = panel.picture.png
    slider = find(panel.widget, ipywidgets.FloatSlider)[0]
    with monkeypatch.context() as patched:
        patched.setattr("qkvlib.panels.attention", lambda *args, **options: 1 / 0)
        slider.value = 1.0
        assert "could not be redrawn" in text_of(panel)
        assert panel.picture.png == good
    slider.value = 2.0
    assert "could not be redrawn" not in text_of(panel)
    assert panel.picture.png != good


@pytest.mark.parametrize("show", [("Q",), ("Q", "K", "heat", "weights"), ()])
def test_what_to_show_is_checked(show):
    with pytest.raises(ValueError, match="show: expected two or four of"):
        AttentionPanel(chapter.sentence, show=show)


def test_any_matrix_can_be_shown():
    panel = AttentionPanel(chapter.sentence, show=("W_V", "V", "W_Q", "output"))
    np.testing.assert_allclose(numbers(panel, "output"), panel.attention.output, atol=0.00501)
    np.testing.assert_allclose(numbers(panel, "W_Q"), panel.W_Q, atol=0.00501)


def test_sliders_round_to_their_step_before_the_browser_does():
    sliders = MatrixSliders("W", [[0.123456, -0.001]], 4, print)
    np.testing.assert_array_equal(sliders.value, [[0.12, 0.0]])
    assert not np.signbit(sliders.value).any()


def test_a_prediction_is_committed_to_before_the_answer_shows():
    question = predict("Which <word>?", ["cat", "sat"], "cat", "Because.")
    (radio,) = find(question.widget, ipywidgets.RadioButtons)
    (commit,) = find(question.widget, ipywidgets.Button)
    assert radio.value is None
    commit.click()
    assert "Choose an answer first." in text_of(question)
    assert "Because." not in text_of(question)
    radio.value = "sat"
    assert "Because." not in text_of(question)
    commit.click()
    assert "Not this time. The answer: cat." in text_of(question)
    assert "Because." in text_of(question)

    again = predict("Which <word>?", ["cat", "sat"], "cat", "Because.")
    assert find(again.widget, ipywidgets.RadioButtons)[0].value == "sat"
    assert "Because." in text_of(again)


def test_the_answer_must_be_an_option():
    with pytest.raises(ValueError, match="answer: expected one of"):
        predict("Which?", ["a", "c"], "b", "")


def test_describe():
    weights = [[0.0, 0.0, 0.0], [0.334, 0.333, 0.333], [0.45, 0.35, 0.2]]
    assert describe(weights, ["x", "y", "x"]) == (
        '"x" (1) may look nowhere; "y" looks equally at all; "x" (3) looks most at "x" (1) (0.45).'
    )


def test_a_long_sequence_is_described_by_its_chosen_row():
    assert describe(np.eye(7), "abcdefg", 2) == '"c" looks mostly at "c" (1.00).'


def test_the_package_exports_what_the_notebooks_use():
    import qkvlib

    assert all(hasattr(qkvlib, name) for name in qkvlib.__all__)
    assert {heatmap, attention, predict} <= {getattr(qkvlib, name) for name in qkvlib.__all__ if name != "chapter"}


# Links, in the browser edition


@pytest.fixture
def linkable(monkeypatch):
    monkeypatch.setattr(page, "IN_BROWSER", True)
    monkeypatch.setattr(page, "running_cell", lambda: ("lab", "run"))
    return AttentionPanel(chapter.sentence)


def follow(panel, fragment):
    """Hand a panel the page's fragment, as page.js does, and return what it says of it."""
    (linked,) = (part for part in find(panel.widget, ipywidgets.HTML) if "qkv-linked" in part._dom_classes)
    (heard,) = (part for part in find(panel.widget.children[-2], ipywidgets.Text) if "qkv-heard" in part._dom_classes)
    heard.value = fragment
    return html.unescape(linked.value)


def test_a_link_restores_what_it_was_made_from(linkable):
    s = chapter.sentence
    linkable.W_Q, linkable.state = -s.W_Q, {"query": 3}
    click(linkable, "Link to this state")
    fragment = re.search('data-fragment="([^"]*)"', follow(linkable, ""))[1]
    linkable.W_Q, linkable.state = s.W_Q, {"query": 0}
    assert "As the link has it." in follow(linkable, fragment)
    np.testing.assert_allclose(linkable.W_Q, -s.W_Q)
    assert linkable.state["query"] == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [("W_Q=[[1,2", "expected name=number or name=[[…],[…]], got W_Q=[[1,2"),
     ("W_Q=[[1,2]]", "W_Q: expected 3 rows of 4 numbers, got [[1, 2]]"),
     ("W_Q=[[1],[1,2]]", "W_Q: expected 3 rows of 4 numbers, got [[1], [1, 2]]"),
     ('W_Q={"a":1}', 'W_Q: expected 3 rows of 4 numbers, got {"a": 1}'),
     ("W_Z=[[1]]", "expected some of W_Q, W_K, query, key, got W_Z"),
     ("query=77", "query: expected one of [0, 1, 2, 3], got 77"),
     ("query=true", "query: expected one like 0, got true"),
     ("W_Q=[[9,0,0,0],[0,0,0,0],[0,0,0,0]]", "from -4 to 4, in steps of 0.01, got 9"),
     ("W_Q=[[NaN,0,0,0],[0,0,0,0],[0,0,0,0]]", "W_Q row 1 column 1: expected a number from -4 to 4, in steps of 0.01"),
     ("query=1&W_Q=5", "W_Q: expected 3 rows of 4 numbers, got 5"), ("", "expected name=number")],
)  # fmt: skip
def test_a_malformed_link_is_told_and_changes_nothing(linkable, values, message):
    before = linkable.state
    said = follow(linkable, f"#cell=lab&{values}")
    assert message in said
    assert 'role="alert"' in said
    assert linkable.state == before


def test_a_link_to_another_cell_is_not_this_panels(linkable):
    assert follow(linkable, "#cell=other&W_Q=1") == ""


def test_where_no_cell_makes_a_panel_no_link_is_offered(monkeypatch):
    monkeypatch.setattr(page, "IN_BROWSER", True)
    monkeypatch.setattr(page, "running_cell", lambda: (None, None))
    panel = AttentionPanel(chapter.sentence)
    assert find(panel.widget, ipywidgets.Button, "Link to this state") == []
