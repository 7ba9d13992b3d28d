"""A talk driven as keys drive it, its glides on a real event loop, and the ready talk of the lecture's notebook."""

import asyncio
import html
import itertools
import json
import re

import ipywidgets
import nbformat
import numpy as np
import oracle
import pytest
from conftest import ROOT, load_tool
from test_panels import click, find, numbers, text_of

from qkvlib import ArrowsPanel, AttentionPanel, Scene, StepsPanel, Talk, chapter, lecture, page

s, t = chapter.sentence, chapter.three_words
ZEROS = {"W_Q": np.zeros((3, 4)), "W_K": np.zeros((3, 4))}
SCENES = [
    Scene("Zeros & <ones>", "Say zeros.", "sentence", ZEROS, "All alike.", "What now?", "A quarter <each>."),
    Scene("Chapter", "Say chapter.", "sentence"),
    Scene("Arrows", "Say arrows.", "arrows", {"A: length": 2.0}),
    Scene("Words alone", "Say nothing."),
]
PANELS = {
    "sentence": lambda: AttentionPanel(s, show=("scores", "weights")),
    "arrows": lambda: ArrowsPanel(["A", "B"], [0, 90], [1, 1]),
}


@pytest.fixture
def talk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Talk(PANELS, SCENES)


@pytest.fixture(autouse=True)
def _text_size():
    yield
    while page._size:
        page.enlarge()


def weights_shown(talk):
    return numbers(talk.panel, "weights")


def weights_of(W_Q, W_K):
    return np.array(oracle.attention(s.X, W_Q, W_K, s.W_V)[1])


def test_each_scene_shows_its_state(talk):
    np.testing.assert_allclose(weights_shown(talk), 0.25)
    assert "Zeros &amp; &lt;ones&gt;" in talk._title.value
    talk.next()
    np.testing.assert_allclose(weights_shown(talk), weights_of(s.W_Q, s.W_K), atol=0.00501)
    talk.next()
    np.testing.assert_allclose(talk.panel.X, [[2, 0], [0, 1]], atol=1e-12)
    talk.next()
    assert talk.panel is None
    assert talk._stage.children == ()
    talk.next()  # there is no further one
    assert talk.at == 3
    for at in (2, 1, 0, 0):
        talk.back()
        assert talk.at == at
    np.testing.assert_allclose(weights_shown(talk), 0.25)


def test_scenes_that_name_the_same_panel_share_it(talk):
    before = talk.panel
    talk.next()
    assert talk.panel is before
    assert len(talk._panels) == 1  # what no scene has shown yet is not built


def test_a_moved_slider_survives_back_and_next_until_reset(talk):
    talk.panel.state = {"W_Q row 1 column 2": 3.0, "query": 2}
    talk.next()
    assert talk.panel.state["W_Q row 1 column 2"] == 0.23
    talk.back()
    assert talk.panel.state["W_Q row 1 column 2"] == 3.0
    assert talk.panel.state["query"] == 2
    talk.go(3)
    talk.go(0)
    assert talk.panel.state["W_Q row 1 column 2"] == 3.0
    talk.reset()
    assert talk.panel.state["W_Q row 1 column 2"] == 0
    assert talk.panel.state["query"] == 0
    talk.next()
    talk.back()
    assert talk.panel.state["W_Q row 1 column 2"] == 0


def test_the_answer_is_hidden_until_asked_and_again_in_the_next_scene(talk):
    assert "A quarter" not in text_of(talk)
    assert "What now?" in text_of(talk)
    click(talk, "Answer")
    assert "A quarter &lt;each&gt;." in text_of(talk)
    click(talk, "Answer")
    assert "A quarter" not in text_of(talk)
    click(talk, "Answer")
    click(talk, "Next")
    assert "A quarter" not in text_of(talk)
    assert "What now?" not in text_of(talk)
    (button,) = find(talk.widget, ipywidgets.Button, "Answer")
    assert button.layout.display == "none"


def test_notes_say_what_to_say_and_what_comes_next(talk):
    assert "Say zeros" not in text_of(talk)
    click(talk, "Notes")
    said = html.unescape(text_of(talk))
    assert "Say zeros." in said
    assert "Next:</b> Chapter" in said
    assert re.search(r"<b>\d\d:\d\d</b>, 0 min since the start", said)
    click(talk, "Next")
    assert "Say chapter." in text_of(talk)
    talk.go(3)
    assert "Next:</b> the end" in text_of(talk)


@pytest.mark.parametrize(("name", "style"), [("Blank", "qkv-blank"), ("Sliders", "qkv-bare"),
                                             ("Contrast", "qkv-contrast"), ("Notes", "qkv-noted")])  # fmt: skip
def test_a_button_turns_something_on_and_off(talk, name, style):
    for there in (True, False):
        click(talk, name)
        assert (style in talk.widget._dom_classes) == there


def test_jump_by_the_list(talk):
    (jump,) = find(talk.widget, ipywidgets.Dropdown, "scene")
    jump.value = 2
    assert talk.at == 2
    talk.back()
    assert jump.value == 1


def test_it_opens_where_it_was(talk):
    talk.go(2)
    assert Talk(PANELS, SCENES).at == 2
    assert Talk(PANELS, SCENES, remember=False).at == 0
    assert Talk(PANELS, SCENES[:2]).at == 0  # there is no such scene in this one
    for damaged in ("", "[1]", '{"scene": "x"}', '{"scene": -1}', "{}"):
        lecture.PLACE.write_text(damaged)
        assert Talk(PANELS, SCENES).at == 0
    lecture.PLACE.write_text('{"scene": 1}')
    opened = Talk(PANELS, SCENES)
    opened.next()
    assert json.loads(lecture.PLACE.read_text()) == {"scene": 2}
    assert opened._cover["text/plain"].count("looks equally at all") == 4  # of the first scene, wherever it opens


def test_what_does_not_fit_is_named():
    with pytest.raises(
        ValueError, match=r"scenes: expected some, with panels from \['arrows', 'sentence'\], got \['x'\]"
    ):
        Talk(PANELS, [Scene("a", "b", "x")])
    with pytest.raises(ValueError, match=r"scenes: .* got none"):
        Talk(PANELS, [])


@pytest.mark.parametrize("at", [0, 1])
def test_a_scene_that_cannot_begin_says_so_and_shows_its_panel(at):
    scenes = [Scene("a", "b", "sentence"), Scene("a", "b", "sentence")]
    scenes[at] = Scene("a", "b", "sentence", {"W_X": 1.0})
    talk = Talk(PANELS, scenes, remember=False)
    talk.go(at)
    assert "cannot begin as it says: state: expected some of W_Q row 1 column 1," in talk._text.value
    assert "got W_X" in talk._text.value
    np.testing.assert_allclose(weights_shown(talk), weights_of(s.W_Q, s.W_K), atol=0.00501)
    talk.go(1 - at)
    assert not talk._text.value


def test_between_two_states_the_matrices_move_smoothly_for_half_a_second(talk, monkeypatch):
    clock, seen, drawn = itertools.count(), [], talk.panel._heatmaps["weights"].update
    monkeypatch.setattr(lecture, "monotonic", lambda: next(clock) / 20)  # a twentieth of a second for each picture
    slider = talk.panel._named["W_Q row 2 column 3"]

    def update(weights, *rest):
        drawn(weights, *rest)
        seen.append((weights[1, 2], slider.value))

    async def scene():
        talk.next()
        monkeypatch.setattr(talk.panel._heatmaps["weights"], "update", update)
        while talk._glide:
            await asyncio.sleep(0.01)

    asyncio.run(scene())
    weights, values = zip(*seen, strict=True)
    assert len(seen) == 9  # the first of the ten was drawn at once; the last shows where it arrives
    assert all(before < after for before, after in itertools.pairwise(weights))
    assert values[:-1] == (0,) * 8  # the sliders follow when the picture has arrived
    assert values[-1] == 3.72
    np.testing.assert_allclose(weights_shown(talk), weights_of(s.W_Q, s.W_K), atol=0.00501)


def test_a_key_pressed_during_a_glide_loses_nothing(talk):
    async def scene():
        talk.next()
        await asyncio.sleep(0.1)
        talk.next()
        while talk._glide:
            await asyncio.sleep(0.01)
        assert talk.panel.state["A: length"] == 2.0
        talk.back()
        assert talk.panel.state["W_Q row 2 column 3"] == 3.72
        talk.back()
        await asyncio.sleep(0.1)
        talk.reset()
        while talk._glide:
            await asyncio.sleep(0.01)

    asyncio.run(scene())
    np.testing.assert_allclose(weights_shown(talk), 0.25)


def test_text_size_is_one_for_all_panels_and_those_to_come():
    first = AttentionPanel(s)
    page.enlarge()
    second = AttentionPanel(s)
    assert [panel.widget._dom_classes[-1] for panel in (first, second)] == ["qkv-size-2", "qkv-size-2"]
    click(second, "Text size")
    assert [panel.widget._dom_classes[-1] for panel in (first, second)] == ["qkv-size-3", "qkv-size-3"]
    click(first, "Text size")
    assert first.widget._dom_classes == second.widget._dom_classes == ("qkv-panel", "qkv-size-1")


# Step by step


def test_the_steps_of_attention_by_the_oracle():
    panel, keep = StepsPanel(s), np.tri(4, dtype=bool)
    scores, weights, output = map(np.array, oracle.attention(s.X, s.W_Q, s.W_K, s.W_V, scaled=True, keep=keep))
    Q, K = s.X @ s.W_Q.T, s.X @ s.W_K.T
    masked, shares = np.where(keep, scores, np.nan), np.where(keep, weights, np.nan)
    expected = [(Q, K), (Q, scores * 3**0.5), (scores * 3**0.5, scores), (scores, masked), (masked, shares),
                (shares, output)]  # fmt: skip
    pictures = set()
    for step, pair in enumerate(expected):
        panel.step = step
        for ax, matrix in zip(panel.picture.figure.axes, pair, strict=True):
            shown = [np.nan if text.get_text() == "×" else float(text.get_text()) for text in ax.texts]
            np.testing.assert_allclose(np.reshape(shown, matrix.shape), matrix, atol=0.00501, err_msg=str(step))
        assert panel.picture.caption.lower().startswith(StepsPanel.NAMES[step])
        pictures.add(panel.picture.png)
    assert len(pictures) == 6


def test_play_goes_through_the_steps_and_stops(monkeypatch):
    monkeypatch.setattr(StepsPanel, "SECONDS", 0.02)
    panel = StepsPanel(s, causal=False)

    async def scene():
        seen = []
        panel._step.observe(lambda change: seen.append(change["new"]), "value")
        panel.play()
        while panel._run:
            await asyncio.sleep(0.01)
        panel.play()  # from the first again
        panel.play()  # stop
        at = panel.step
        await asyncio.sleep(0.3)
        assert panel.step == at
        return seen

    assert asyncio.run(scene()) == [1, 2, 3, 4, 5, 0]
    panel.step = 3
    assert panel.picture.caption.startswith("Mask: none here")


# The ready talk


def test_the_ready_talk_reaches_every_scene_and_takes_45_minutes():
    talk = load_tool("handout").scenes(ROOT / "notebooks" / "lecture.ipynb")
    assert len(talk.scenes) == 15
    captions = []
    for at, scene in enumerate(talk.scenes):
        talk.go(at)
        assert all((scene.say, scene.text, scene.question, scene.answer))
        assert talk.panel.picture._message.value == ""
        captions.append(talk.panel.picture.caption)
    assert captions[5].count("looks equally at all") == 4
    assert captions[10].startswith('"A" looks most at "A"')
    assert captions[11].startswith('"A" looks mostly at "C"')
    rows = re.findall(
        r"^\| (\d+) (.+?) \|.*\| (\d+) \|$", (ROOT / "notebooks/for_lecturers.md").read_text("utf-8"), re.M
    )
    assert [int(number) for number, *_ in rows] == list(range(1, 16))
    assert sum(int(minutes) for *_, minutes in rows) == 45
    for (_, name, _), scene in zip(rows, talk.scenes, strict=True):
        assert scene.title.startswith(name)


def test_the_handout_has_everything_and_asks_for_nothing(tmp_path):
    text = load_tool("handout").handout()
    notebooks = [*ROOT.glob("notebooks/20_*.ipynb"), *ROOT.glob("notebooks/ex_*.ipynb")]
    for path in notebooks:
        assert f'<section id="{path.stem}">' in text
        for cell in nbformat.read(path, 4).cells:
            for output in cell.get("outputs", ()):
                if "image/png" in output.get("data", {}):
                    assert output["data"]["image/png"].strip() in text.replace("\n", "")
    assert text.count("<article>") == 15
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert "<script" not in text
    assert not re.search(r"\$[^$\n<]*\\", text)  # no formula left as LaTeX
    assert all(re.search(r"""alt=("[^"]{20,}"|'[^']{20,}')""", image) for image in re.findall(r"<img [^>]*>", text))
    targets = set(re.findall(r'href="#([^"]+)"', text))
    assert targets <= set(re.findall(r'id="([^"]+)"', text))
