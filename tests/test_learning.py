"""The panel in which matrices learn: buttons clicked, numbers typed, cells clicked, pictures and messages read."""

import asyncio
import html
import re

import ipywidgets
import numpy as np
import oracle
import pytest
from test_panels import click, find, numbers, text_of

from qkvlib import TrainingPanel, chapter
from qkvlib.learning import OWN, PATTERNS
from qkvlib.training import small_random

s, t = chapter.sentence, chapter.three_words


@pytest.fixture
def panel():
    return TrainingPanel(s, steps=30)


def field(panel, name):
    kinds = ipywidgets.FloatText, ipywidgets.IntText, ipywidgets.Dropdown, ipywidgets.IntSlider
    (found,) = (widget for kind in kinds for widget in find(panel.widget, kind, name))
    return found


def cells(panel):
    return [each for each in find(panel.widget, ipywidgets.FloatText) if each.description.startswith("wanted: ")]


def choice(panel):
    (radio,) = find(panel.widget, ipywidgets.RadioButtons)
    return radio


def shows(panel, at):
    """Check that picture and caption are those of a state, by the oracle."""
    state = panel.states[at]
    _, weights, _ = oracle.attention(s.X, state.W_Q, state.W_K, s.W_V)
    np.testing.assert_allclose(numbers(panel, "weights"), weights, atol=0.00501)
    for name in ("W_Q", "W_K"):  # large numbers are written with fewer digits, the largest with one
        matrix = getattr(state, name)
        digits = {"atol": 0.00501} if np.abs(matrix).max() < 9.99 else {"atol": 0.051, "rtol": 0.4}
        np.testing.assert_allclose(numbers(panel, name), matrix, **digits)
    assert panel.picture.caption.startswith(f"Step {at} of 30, loss {state.loss:.3f}: ")
    assert field(panel, "step shown").value == at
    assert panel._curve.get_markevery() == [at]
    np.testing.assert_array_equal(panel._curve.get_xdata(), range(len(panel.states)))
    np.testing.assert_array_equal(panel._curve.get_ydata(), [each.loss for each in panel.states])


def test_it_starts_small_and_nearly_uniform(panel):
    (W_Q,) = small_random(0, (3, 4), size=0.1)
    np.testing.assert_allclose(numbers(panel, "W_Q"), W_Q, atol=0.00501)
    assert np.abs(numbers(panel, "weights") - 0.25).max() < 0.02
    np.testing.assert_array_equal(numbers(panel, "wanted"), np.eye(4)[[1, 1, 2, 3]])
    shows(panel, 0)


def test_step_play_scrub_and_step_on(panel):
    click(panel, "Step")
    shows(panel, 1)
    panel.play()
    assert len(panel.states) == 31
    shows(panel, 30)
    (progress,) = find(panel.widget, ipywidgets.IntProgress)
    assert (progress.value, progress.max) == (30, 30)
    picture = panel.picture.png
    field(panel, "step shown").value = 7
    shows(panel, 7)
    assert panel.picture.png != picture
    assert progress.value == 30  # nothing that happened is lost
    click(panel, "Step")  # all steps are made
    assert len(panel.states) == 31
    panel.play()  # at the end it begins again, and comes to the same
    shows(panel, 30)
    assert panel.picture.png == picture


def test_scrubbing_past_what_happened_shows_the_newest(panel):
    click(panel, "Step")
    field(panel, "step shown").value = 20
    shows(panel, 1)


def test_reset_and_another_seed(panel):
    panel.play()
    click(panel, "Reset")
    assert len(panel.states) == 1
    shows(panel, 0)
    field(panel, "seed").value = 3
    np.testing.assert_allclose(panel.states[0].W_Q, small_random(3, (3, 4))[0])
    field(panel, "start size").value = 3
    np.testing.assert_allclose(panel.states[0].W_Q, small_random(3, (3, 4), size=3)[0])
    assert panel.states[0].loss > 1.5
    low, high = panel._axes.get_ylim()
    assert low < panel.states[0].loss < high
    assert panel.picture.png == TrainingPanel(s, steps=30, seed=3, size=3).picture.png


@pytest.mark.parametrize("name", list(PATTERNS))
def test_a_pattern_is_chosen_and_learned(name):
    panel = TrainingPanel(s, method="Adam", rate=0.1, steps=100)
    choice(panel).value = name
    assert [cell.value for cell in cells(panel)] == np.eye(4)[list(PATTERNS[name])].ravel().tolist()
    panel.play()
    np.testing.assert_array_equal(numbers(panel, "wanted"), np.eye(4)[list(PATTERNS[name])])
    assert numbers(panel, "weights").argmax(axis=1).tolist() == list(PATTERNS[name])


def test_a_pattern_is_drawn_by_clicks_and_by_typing(panel):
    assert choice(panel).value == "determiner to its noun"
    panel._click(panel._heatmaps["wanted"].ax, 0, 2)
    assert choice(panel).value == OWN
    np.testing.assert_array_equal(numbers(panel, "wanted"), np.eye(4)[[1, 1, 0, 3]])
    panel._click(panel._heatmaps["weights"].ax, 3, 0)  # not what is wanted
    np.testing.assert_array_equal(numbers(panel, "wanted"), np.eye(4)[[1, 1, 0, 3]])
    panel._click(panel._heatmaps["wanted"].ax, 2, 2)
    assert choice(panel).value == "determiner to its noun"  # the same again
    cells(panel)[0].value = 0.25
    assert "the): expected weights that sum to 1, got 1.25" in panel.message
    cells(panel)[1].value = 0.75
    assert panel.message == ""
    assert numbers(panel, "wanted")[0].tolist() == [0.25, 0.75, 0, 0]


def test_what_cannot_be_is_said_and_the_last_good_state_stays(panel):
    click(panel, "Step")
    picture, caption = panel.picture.png, panel.picture.caption
    for name, value, said in (
        ("learning rate", 0, "learning rate: expected a number above 0, such as 0.1, got 0"),
        ("start size", -1, "start size: expected a number from 0 to 100, got -1"),
        ("wanted: sat (3) at cat (2)", -0.2, "target, row 3 (sat): expected weights from 0 to 1, got -0.2"),
    ):
        good = field(panel, name).value
        field(panel, name).value = value
        assert panel.message == f"{said}. The last good state is kept."
        assert f'role="alert">{panel.message}' in html.unescape(text_of(panel))
        for button in ("Play", "Step"):
            click(panel, button)
            assert len(panel.states) == 2
        assert (panel.picture.png, panel.picture.caption) == (picture, caption)
        panel._moving = True  # the good value comes back without a new start
        field(panel, name).value = good
        panel._moving = False
    click(panel, "Reset")
    assert panel.message == ""


def test_running_away_is_said_and_the_states_before_can_be_looked_at(panel):
    field(panel, "learning rate").value = 100
    panel.play()
    assert re.match(r"Step \d+: .* The learning rate 100 is too high; try 10. The last good state", panel.message)
    newest = len(panel.states) - 1
    assert 1 < newest < 30
    shows(panel, newest)
    field(panel, "step shown").value = 1
    shows(panel, 1)
    field(panel, "learning rate").value = 1
    assert panel.message == ""


def test_play_leaves_the_loop_to_others_and_pause_stops_at_once(panel):
    async def scene():
        ticks = []

        async def other():
            while True:
                ticks.append(len(panel.states))
                await asyncio.sleep(0.01)

        task = asyncio.create_task(other())
        click(panel, "Play")
        while len(panel.states) < 6:
            await asyncio.sleep(0.01)
        made = len(panel.states)
        click(panel, "Pause")
        await asyncio.sleep(0.3)
        task.cancel()
        return made, ticks

    made, ticks = asyncio.run(scene())
    assert len(panel.states) == made
    assert sorted(set(ticks)) == list(range(2, made + 1))  # it came to its turn after every single step
    assert find(panel.widget, ipywidgets.Button)[0].description == "Play"


@pytest.mark.parametrize("act", ["Step", "Reset", "step shown", "seed", "a ring"])
def test_whatever_is_touched_while_it_plays_pauses_it(panel, act):
    async def scene():
        click(panel, "Play")
        while len(panel.states) < 4:
            await asyncio.sleep(0.01)
        if act in PATTERNS:
            choice(panel).value = act
        elif act in ("seed", "step shown"):
            field(panel, act).value = 2
        else:
            click(panel, act)
        made = len(panel.states)
        await asyncio.sleep(0.2)
        return made

    assert asyncio.run(scene()) == len(panel.states)


def test_tied_has_one_matrix_and_raw_none():
    tied = TrainingPanel(t, {"a ring": (1, 2, 0)}, tied=True, steps=20, bound=0.23)
    assert list(tied._heatmaps) == ["W_Q", "scores", "weights", "wanted"]
    tied.play()
    np.testing.assert_array_equal(tied.states[-1].W_Q, tied.states[-1].W_K)
    scores, *_ = oracle.attention(t.X, tied.states[-1].W_Q, tied.states[-1].W_Q, t.W_V)
    np.testing.assert_allclose(numbers(tied, "scores"), scores, atol=0.00501)
    raw = TrainingPanel(t, {"a ring": (1, 2, 0)}, raw=True, steps=20)
    assert list(raw._heatmaps) == ["X", "scores", "weights", "wanted"]
    raw.play()
    same, X = np.eye(4), raw.states[-1].X
    assert not np.allclose(X, raw.states[0].X)
    np.testing.assert_allclose(numbers(raw, "weights"), oracle.attention(X, same, same, same)[1], atol=0.00501)


def test_width_one_has_one_row():
    panel = TrainingPanel(t, {"each to itself": (0, 1, 2)}, d_k=1, steps=5)
    assert panel.states[0].W_Q.shape == (1, 4)
    assert numbers(panel, "W_K").shape == (1, 4)
