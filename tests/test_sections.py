"""The panels of single sections, driven as a kernel drives them."""

import ipywidgets
import numpy as np
import oracle
import pytest
from test_panels import click, find, numbers, text_of, written

from qkvlib import ArrowsPanel, AttentionPanel, OwnWords, ParameterCounter, ProjectionPanel, Switch, chapter, page
from qkvlib.chapter import Example
from qkvlib.sections import as_table, from_table

WORDS, DEGREES, LENGTHS = ("bank", "money", "bank"), (40, 90, -30), (1.2, 1.4, 0.5)


def test_arrows_turn_and_stretch():
    panel = ArrowsPanel(WORDS, DEGREES, LENGTHS)
    sliders = find(panel.widget, ipywidgets.FloatSlider)
    assert [each.description for each in sliders[:2]] == ["bank (1): turn, degrees", "bank (1): length"]
    sliders[2].value, sliders[3].value = 180, 2.0
    np.testing.assert_allclose(panel.X[1], [-2, 0], atol=1e-12)
    same = np.eye(2)
    scores, weights, _ = oracle.attention(panel.X, same, same, same)
    np.testing.assert_allclose(written(panel._scores), scores, atol=0.00501)
    np.testing.assert_allclose(written(panel._weights), weights, atol=0.00501)
    assert '"bank" (3)' in panel.picture.caption
    click(panel, "Reset")
    assert [each.value for each in sliders] == [40, 1.2, 90, 1.4, -30, 0.5]


def test_a_moved_arrow_is_seen_and_its_word_moves_with_it():
    panel = ArrowsPanel(["a", "b"], [0, 90], [1, 1])
    before = panel.picture.png
    find(panel.widget, ipywidgets.FloatSlider)[0].value = 180
    assert panel.picture.png != before
    assert panel._arrows._labels[0].get_position()[0] < -1


def test_a_question_asks_and_only_it_has_sliders():
    panel = ArrowsPanel(["question", "x", "y"], [0, 0, 90], [2, 1, 1], question=True)
    assert len(find(panel.widget, ipywidgets.FloatSlider)) == 2
    np.testing.assert_allclose(panel.attention.scores, [[2, 0]], atol=1e-12)
    assert panel.picture.caption == '"question" looks mostly at "x" (0.88).'


def test_arrows_judge_goals():
    panel = ArrowsPanel(["a", "b"], [0, 90], [1, 1], goals=[("alike", lambda a: a.weights[0, 1] > 0.49)])
    assert "not yet: alike" in text_of(panel)
    find(panel.widget, ipywidgets.FloatSlider)[2].value = 0
    assert "reached:</b> alike" in text_of(panel)


def test_a_projection_follows_every_slider_and_is_written_out():
    panel = ProjectionPanel(chapter.projection)
    printed = {"x": [0.5, -0.2, 0.8, 0.1], "q": [0.51, -0.18, -0.12], "k": [-0.03, 0.25, 0.47], "v": [0.32, 0.11, 0.07]}
    for letter, vector in printed.items():
        np.testing.assert_allclose(panel.vectors[letter], vector)
    (slider,) = find(panel.widget, ipywidgets.FloatSlider, "W_K row 2 column 3")
    slider.value = -1.0
    k2 = -0.3 * 0.5 + 0.1 * -0.2 + -1.0 * 0.8 + 0.2 * 0.1
    assert panel.vectors["k"][1] == pytest.approx(k2)
    assert panel._bars["k"][0][1].get_height() == pytest.approx(k2)
    assert panel._bars["k"][1][1].get_text() == f"{k2:.2f}"
    np.testing.assert_allclose(panel.vectors["q"], [0.51, -0.18, -0.12])
    (part,) = find(panel.widget, ipywidgets.Dropdown)
    part.value = ("k", "W_K", 1)
    assert "k2 = (-0.30)(0.50) + (0.10)(-0.20) + (-1.00)(0.80) + (0.20)(0.10) = <b>-0.950</b>" in text_of(panel)
    click(panel, "Reset")
    assert panel.vectors["k"][1] == pytest.approx(0.25)


def test_raw_beside_projected_and_the_slide_between():
    t = chapter.three_words
    panel = AttentionPanel(t, show=("raw scores", "raw weights", "scores", "weights"), slide=True)
    (slide,) = find(panel.widget, ipywidgets.FloatSlider, "identity → chapter")
    raw = oracle.attention(t.X, np.eye(4), np.eye(4), np.eye(4))
    np.testing.assert_allclose(numbers(panel, "raw weights"), raw[1], atol=0.00501)
    for share in (0.0, 0.3, 1.0):
        slide.value = share
        W_Q = (1 - share) * np.eye(4) + share * t.W_Q
        np.testing.assert_allclose(panel.W_Q, W_Q)
        scores, weights, _ = oracle.attention(t.X, W_Q, t.W_K, t.W_V)
        np.testing.assert_allclose(numbers(panel, "scores"), scores, atol=0.00501)
        np.testing.assert_allclose(numbers(panel, "weights"), weights, atol=0.00501)
    assert panel.picture.caption.startswith('Raw: "A" looks most at "A" (0.45)')
    assert 'Projected: "A" looks mostly at "C" (0.55)' in panel.picture.caption


def test_tied_projections_have_one_set_of_sliders():
    panel = AttentionPanel(chapter.three_words, tied=True)
    find(panel.widget, ipywidgets.FloatSlider)[5].value = 2.5
    assert len(find(panel.widget, ipywidgets.FloatSlider)) == 16
    np.testing.assert_array_equal(panel.W_K, panel.W_Q)
    np.testing.assert_allclose(panel.attention.scores, panel.attention.scores.T)
    assert "tied=True" in panel.code


def test_value_sliders_change_the_output_and_nothing_else():
    panel = AttentionPanel(chapter.sentence, sliders=("W_V",), show=("weights", "output"))
    before = panel.attention
    panel.W_V = -2 * chapter.sentence.W_V
    np.testing.assert_array_equal(panel.attention.weights, before.weights)
    np.testing.assert_allclose(panel.attention.output, -2 * before.output)
    assert "The output of &quot;the&quot; mixes the values: 0.044 × [-2.00, 0.00, -1.00] + 0.871" in text_of(panel)


def test_sliders_are_checked():
    with pytest.raises(ValueError, match="sliders: expected some of W_Q, W_K, W_V"):
        AttentionPanel(chapter.sentence, sliders=("W_O",))


def test_a_context_gives_keys_and_values():
    s, E = chapter.sentence, np.linspace(-1, 1, 20).reshape(5, 4).round(1)
    panel = AttentionPanel(Example(s.words[:3], s.X[:3], s.W_Q, s.W_K, s.W_V), context=(list("abcde"), E))
    scores, weights, _ = oracle.attention(s.X[:3], s.W_Q, s.W_K, s.W_V, context=E)
    np.testing.assert_allclose(numbers(panel, "scores"), scores, atol=0.00501)
    np.testing.assert_allclose(numbers(panel, "weights"), weights, atol=0.00501)
    assert [option[0] for option in panel._key.options] == ["1 a", "2 b", "3 c", "4 d", "5 e"]
    assert panel.picture.caption.count('"the"') == 1
    assert '"e"' in panel.picture.caption


def test_the_switch_shows_one_panel_at_a_time():
    panels = {name: ArrowsPanel([name, "b"], [0, 90], [1, 1]) for name in ("first", "second")}
    switch = Switch("Which?", panels)
    (choice,) = find(switch.widget, ipywidgets.RadioButtons)
    assert panels["first"].widget in find(switch.widget, ipywidgets.VBox)
    choice.value = "second"
    assert panels["second"].widget in find(switch.widget, ipywidgets.VBox)
    assert panels["first"].widget not in find(switch.widget, ipywidgets.VBox)


TABLE = as_table(chapter.sentence.words, chapter.sentence.X)


@pytest.mark.parametrize("mark", [", ", ";", "\t", ","])
def test_tables_from_a_spreadsheet_are_read(mark):
    rows = [["the", "1", "0.5"], ["<b>$x$</b>", "-2", "1e-2"], ["the", "0", "3"]]
    words, X = from_table("\n".join(mark.join(row) for row in rows) + "\n\n", 2)
    assert words == ("the", "<b>$x$</b>", "the")
    np.testing.assert_array_equal(X, [[1, 0.5], [-2, 0.01], [0, 3]])


def test_decimal_commas_are_read():
    assert from_table("a\t0,5\t-1,25", 2)[1].tolist() == [[0.5, -1.25]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 1 to 12 rows, one a word, got 0"),
        ("\n".join(["a, 1, 2, 3, 4"] * 13), "expected 1 to 12 rows, one a word, got 13"),
        ("a, 1, 2, 3", "Row 1: expected a word and 4 numbers, got 'a,1,2,3'"),
        ("a, 1, 2, 3, 4\nb, 1, 2, 3, 4, 5", "Row 2: expected a word and 4 numbers"),
        (", 1, 2, 3, 4", "Row 1: expected a word"),
        ("a, 1, 2, x, 4", "Row 1: expected a number from -100 to 100, got 'x'"),
        ("a, 1, 2, nan, 4", "got 'nan'"),
        ("a, 1, 2, 1e9, 4", "got '1e9'"),
    ],
)
def test_a_malformed_table_gets_a_message_and_the_last_good_state_stays(text, message):
    own = OwnWords(chapter.sentence)
    own.panel.W_Q = np.ones((3, 4))
    (table,) = (area for area in find(own.widget, ipywidgets.Textarea) if area.rows == 6)
    good, table.value = own.panel, text
    click(own, "Use these words")
    assert message in text_of(own).replace("&#x27;", "'")
    assert own.panel is good
    table.value = "x, 1, 0, 0, 0"
    click(own, "Use these words")
    assert own.panel.picture.caption == '"x" looks equally at all.'
    np.testing.assert_array_equal(own.panel.W_Q, np.ones((3, 4)))
    assert message not in text_of(own).replace("&#x27;", "'")


def test_rows_are_added_and_removed():
    own = OwnWords(chapter.sentence)
    click(own, "Add a row")
    click(own, "Use these words")
    assert own.panel.attention.weights.shape == (5, 5)
    click(own, "Remove the last row")
    click(own, "Remove the last row")
    click(own, "Use these words")
    assert own.panel._example.words == ("the", "cat", "sat")
    click(own, "Chapter's words")
    assert own.panel.attention.weights.shape == (4, 4)


def test_the_table_reads_its_own_writing():
    words, X = from_table(TABLE, 4)
    assert words == chapter.sentence.words
    np.testing.assert_array_equal(X, chapter.sentence.X)


def test_parameters_are_counted():
    counter = ParameterCounter(d_model=4, d_k=3, d_v=3)
    assert counter.total == 36
    fields = find(counter.widget, ipywidgets.IntText)
    for field, value in zip(fields, (512, 64, 32, 8), strict=True):
        field.value = value
    total = sum(512 for _ in range(8) for width in (64, 64, 32) for _ in range(width))
    assert counter.total == total
    assert f"{total:,}" in text_of(counter)


def test_closing_leaves_no_widget_behind():
    before = set(ipywidgets.widgets.widget._instances)
    panel = AttentionPanel(chapter.sentence)
    assert len(set(ipywidgets.widgets.widget._instances) - before) > 100
    page.close(panel.widget)
    left = set(ipywidgets.widgets.widget._instances) - before
    assert [ipywidgets.widgets.widget._instances[key] for key in left] == []
