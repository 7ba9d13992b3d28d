"""What cannot be shown, or does not fit, is refused in words that name it; nothing is changed without a word."""

import re

import ipywidgets
import numpy as np
import pytest
from test_panels import find, numbers, text_of

from qkvlib import (
    ArrowsPanel,
    AttentionPanel,
    Example,
    OwnWords,
    ParameterCounter,
    ProjectionPanel,
    Scene,
    StepsPanel,
    Switch,
    Talk,
    TrainingPanel,
    attention,
    chapter,
    heatmap,
    predict,
    softmax,
)
from qkvlib.panels import MatrixSliders

s, t = chapter.sentence, chapter.three_words
LARGE = Example(["a"], [[0.5, 2.0, 0, 0]], np.eye(3, 4), np.eye(3, 4), np.eye(3, 4))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ArrowsPanel(["a"], [400], [1]),
         "a: turn, degrees: expected a number from -180 to 180, in steps of 5, got 400.0"),
        (lambda: ArrowsPanel(["a"], [41], [1]), "a: turn, degrees: .* in steps of 5, got 41.0"),
        (lambda: ArrowsPanel(["a"], [40], [9]), "a: length: expected a number from 0 to 3, in steps of 0.05, got 9.0"),
        (lambda: ArrowsPanel(["a", "b"], [40, 0], [1, 0.52], question=True), "b: length: .* got 0.52"),
        (lambda: ArrowsPanel(["a"], [np.nan], [1]), "a: turn, degrees: .* got nan"),
        (lambda: ArrowsPanel(["a", "b"], [40], [1, 1]), r"degrees: expected 2 numbers, one for each word, got \[40\]"),
        (lambda: ArrowsPanel(["a"], [40], [1, 2]), r"lengths: expected 1 numbers, one for each word, got \[1, 2\]"),
        (lambda: ArrowsPanel(["a"], [40], [1], question=True), "words: expected at least 2, got 1"),
        (lambda: ProjectionPanel(LARGE), "x: expected numbers from -1 to 1, the range of its sliders"),
        (lambda: ProjectionPanel(s), "example: expected one position, got 4: the, cat, sat, down"),
        (lambda: AttentionPanel(s, chosen=(0, 4)), r"key: expected one of \[0, 1, 2, 3\], got 4"),
        (lambda: AttentionPanel(s, chosen=("the", 0)), r"query: expected one of \[0, 1, 2, 3\], got 'the'"),
        (lambda: AttentionPanel(s, chosen=(0, 3), context=(["x"], s.X[:1])), r"key: expected one of \[0\], got 3"),
        (lambda: AttentionPanel(s, chosen=3), "chosen: expected a pair, query and key, got int 3"),
        (lambda: AttentionPanel(s, W_Q=np.eye(4)[:2]), r"W_K: expected \(2, 4\), since W_Q has d_k 2"),
        (lambda: AttentionPanel(s, W_Q=[1, 2, 3, 4]), r"W_Q: expected .* got \(4,\)"),
        (lambda: AttentionPanel(s, context=(["x", "y"], s.X)),
         "context, words: expected 4, one for each position, got 2: x, y"),
        (lambda: AttentionPanel(s, context=s.X), "context: expected a pair, words and their rows, got ndarray"),
        (lambda: AttentionPanel(s, goals=["win"]), "goals: expected a pair, text and function, got str win"),
        (lambda: AttentionPanel(s, goals=[("win", 0.5)]), "goals, win: expected a function, got 0.5"),
        (lambda: MatrixSliders("W", [1, 2], 4, print), r"W: expected \(n_rows, n_columns\), got \(2,\)"),
        (lambda: TrainingPanel(s, method="Newton"), "method: expected one of .*, got 'Newton'"),
        (lambda: TrainingPanel(s, rate=-1), "learning rate: expected a number above 0, such as 0.1, got -1"),
        (lambda: TrainingPanel(s, size=1000), "start size: expected a number from 0 to 100, got 1000"),
        (lambda: TrainingPanel(s, size=np.nan), "start size: expected a number from 0 to 100, got nan"),
        (lambda: TrainingPanel(s, seed=-1), "seed: expected 0 or more, got -1"),
        (lambda: TrainingPanel(s, steps=0), "steps: expected a whole number above 0, got 0"),
        (lambda: TrainingPanel(s, d_k=0), "d_k: expected a whole number above 0, got 0"),
        (lambda: TrainingPanel(t), "patterns, determiner to its noun: expected 3 positions from 0 to 2"),
        (lambda: TrainingPanel(s, {"up": (0, 1, 2, 4)}), "patterns, up: expected 4 positions from 0 to 3"),
        (lambda: TrainingPanel(s, {}), "patterns: expected at least one"),
        (lambda: TrainingPanel(s, {"drawn by me": (0, 1, 2, 3)}), "patterns: .* none called 'drawn by me'"),
        (lambda: ParameterCounter(heads=0), "heads: expected a whole number from 1 to 100,000, got 0"),
        (lambda: ParameterCounter(d_model=200_000), "d_model: expected a whole number .*, got 200,000"),
        (lambda: Switch("Which?", {}), "panels: expected at least one, got none"),
        (lambda: predict("Which?", ["a", "a"], "a", ""), "options: expected two or more, each another"),
        (lambda: Example(s.words[:3], s.X), "words: expected 4, one for each position, got 3: the, cat, sat"),
        (lambda: Example("abcd", s.X), "words: expected a list of words, got the text 'abcd'"),
        (lambda: Example(s.words, s.X, np.eye(3)), r"W_Q: expected \(d_k, 4\) to fit X with d_model 4, got \(3, 3\)"),
        (lambda: Example(["a"], [[1e200, 1e200]]), "Q @ K.T: the numbers are too large, .* pass 1.8e\\+308"),
        (lambda: attention([[1e200]], [[1e200]], [[1.0]], [[1.0]]), "X @ W_Q.T: the numbers are too large"),
        (lambda: attention(np.float32([[1e30]]), *np.float32([[[1e30]]] * 3)), "X @ W_Q.T: .* pass 3.4e\\+38"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("kind", [AttentionPanel, ProjectionPanel, StepsPanel, OwnWords, TrainingPanel])
@pytest.mark.parametrize("wrong", [["a", "b"], np.eye(2), None])
def test_what_is_no_example_is_named(kind, wrong):
    message = rf"example: expected an Example\(words, X, W_Q, W_K, W_V\), got {type(wrong).__name__}"
    with pytest.raises(TypeError, match=message):
        kind(wrong)


@pytest.mark.parametrize(
    "call",
    [
        lambda masked: attention(masked, np.eye(2), np.eye(2), np.eye(2)),
        lambda masked: attention(np.eye(2), np.eye(2), np.eye(2), np.eye(2), context=masked),
        lambda masked: softmax(masked),
        lambda masked: softmax(np.eye(2), masked > 0),
        lambda masked: Example(["a", "b"], masked),
        lambda masked: AttentionPanel(Example(["a", "b"], np.eye(2)), W_Q=masked),
        lambda masked: setattr(AttentionPanel(Example(["a", "b"], np.eye(2))), "W_K", masked),
        lambda masked: heatmap(None, masked),
    ],
)
def test_a_masked_array_is_refused_with_a_hint_to_keep(call):
    masked = np.ma.masked_array(np.eye(2), [[False, True], [False, False]])
    with pytest.raises(TypeError, match=r"expected an array without a mask, got a masked array.*keep=~mask"):
        call(masked)


def test_the_hint_to_keep_is_right():
    scores = np.ma.masked_array([[1.0, 2.0, 3.0]], [[False, True, False]])
    weights = softmax(scores.data, keep=~scores.mask)
    np.testing.assert_allclose(weights, [[1 / (1 + np.exp(2)), 0, np.exp(2) / (1 + np.exp(2))]])


def test_scores_far_apart_are_no_overflow():
    np.testing.assert_array_equal(softmax([[-1e308, 1e308]]), [[0, 1]])


STATES = {
    "steps": (lambda: StepsPanel(s), {"step": 6}, "step: expected a number from 0 to 5, in steps of 1, got 6"),
    "half a step": (lambda: StepsPanel(s), {"step": 1.5}, "step: expected .* in steps of 1, got 1.5"),
    "arrows": (lambda: ArrowsPanel(["a"], [0], [1]), {"a: length": 1, "a: turn, degrees": 7}, "in steps of 5, got 7"),
    "words": (lambda: ArrowsPanel(["a"], [0], [1]), {"a: length": "long"}, "a: length: .* got 'long'"),
    "query": (lambda: AttentionPanel(s), {"key": 2, "query": 4}, r"query: expected one of \[0, 1, 2, 3\], got 4"),
    "matrix": (lambda: AttentionPanel(s), {"query": 2, "W_K": np.full((3, 4), 5)}, "W_K row 1 column 1: .* -4"),
    "training": (lambda: TrainingPanel(s), {"method": "Adam"}, "state: expected some of nothing, got method"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_cannot_be_shown_is_refused_and_moves_nothing(name):
    build, state, message = STATES[name]
    panel = build()
    before = panel.state, panel.picture.png
    with pytest.raises(ValueError, match=message):
        panel.state = state
    assert (panel.state, panel.picture.png) == before


def test_a_talk_whose_scene_cannot_be_shown_says_so_and_goes_on():
    scenes = [Scene("One", "", "arrows"), Scene("Two", "", "arrows", {"A: length": 7}), Scene("Three", "", "arrows")]
    talk = Talk({"arrows": lambda: ArrowsPanel(["A"], [0], [1])}, scenes, remember=False)
    talk.next()
    assert "This scene cannot begin as it says: A: length: expected a number from 0 to 3" in text_of(talk)
    talk.next()
    assert "cannot begin" not in text_of(talk)
    assert "Three" in text_of(talk)


def test_every_start_that_a_panel_takes_is_the_one_it_shows():
    panel = ArrowsPanel(["a", "b"], [-180, 175], [0, 2.95])
    assert list(panel.state.values()) == [-180, 0, 175, 2.95]
    panel.state = {"a: length": 0.1 + 0.2}  # a sum of steps is none of them to the last bit
    assert panel.state["a: length"] == pytest.approx(0.3)


def test_a_number_typed_that_cannot_be_is_said_beside_it():
    counter = ParameterCounter()
    field = find(counter.widget, ipywidgets.IntText, "heads")[0]
    field.value = 0
    assert "heads: expected a whole number from 1 to 100,000, got 0" in text_of(counter)
    assert field.value == 0
    field.value = 2
    assert "196,608" in text_of(counter)

    panel = AttentionPanel(s)
    before = panel.state
    find(panel.widget, ipywidgets.IntText, "seed")[0].value = -3
    (random,) = find(panel.widget, ipywidgets.Button, "Random")
    random.click()
    assert "seed: expected 0 or more, got -3" in text_of(panel)
    assert panel.state == before

    training = TrainingPanel(s, steps=5)
    find(training.widget, ipywidgets.IntText, "seed")[0].value = -3
    assert training.message == "seed: expected 0 or more, got -3. The last good state is kept."


def test_a_goal_that_fails_is_named_and_the_picture_is_drawn():
    goals = [("first <one>", lambda a: a.nothing), ("second", lambda a: a.weights[0, 1] > 0.5)]
    for panel in (AttentionPanel(s, goals=goals), ArrowsPanel(["a", "b"], [0, 0], [1, 3], goals=goals)):
        assert "could not be redrawn" not in text_of(panel)
        assert "its function failed:</b> first &lt;one&gt; (AttributeError: " in text_of(panel)
        assert "✔ reached:</b> second" in text_of(panel)
        assert panel.picture.caption.startswith('"')


WORDS = {
    "two hundred letters": "w" * 200, "combining marks": "e\u0301\u0323", "right to left": "שלום", "numbers": 42,
    "arabic with a mark of direction": "سلام\u200f", "an emoji of several": "👩\u200d🔬", "two words": "New York",
    "markup": "<b>$x$</b> & 'more'",
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_a_word_of_any_script_works_in_every_panel(name):
    word, n = WORDS[name], 3
    example = Example([word, "b", word], np.eye(n))
    panel = AttentionPanel(example)
    np.testing.assert_allclose(numbers(panel, "weights"), np.full((n, n), 0.21) + 0.37 * np.eye(n), atol=0.006)
    assert f'"{word}" (3) looks mostly at "{word}" (3) (0.58)' in panel.picture.caption
    for made in (ArrowsPanel([word, "b"], [0, 90], [1, 1]), TrainingPanel(example, {"p": (0, 1, 2)}, steps=2),
                 StepsPanel(example), ProjectionPanel(Example([word], [[1.0]]))):  # fmt: skip
        assert made.picture.png
    own = OwnWords(Example(["a"], [[0.0]]))
    find(own.widget, ipywidgets.Textarea)[0].value = f"{word}; 1"
    own.use()
    assert own.panel.picture.caption == f'"{word}" looks equally at all.'


@pytest.mark.parametrize("word", ["", "   ", "two\nlines", "\u200d", "tab\there", "\x00", "\u2028"])
def test_a_word_that_cannot_be_shown_is_named(word):
    for build in (lambda: Example(["a", word], np.eye(2)), lambda: ArrowsPanel(["a", word], [0, 0], [1, 1]),
                  lambda: AttentionPanel(s, context=(["a", word], s.X[:2]))):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(f"got {word!r} as word 2")):
            build()


def test_an_empty_label_is_drawn_as_one():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    heatmap(ax, np.eye(2), ["", "b"], ["a", ""])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["", "b"]


def test_an_example_needs_words_and_rows_alone():
    X = [[1, 0.5], [-1, 2], [0, 0]]
    example = Example(["hot", "cold", 3], X)
    assert example.words == ("hot", "cold", "3")
    for given, wanted in zip(example.arrays, (X, *[np.eye(2)] * 3), strict=True):
        np.testing.assert_array_equal(given, wanted)
    panel = AttentionPanel(example)
    panel.W_Q = [[0, 1], [1, 0]]
    np.testing.assert_allclose(panel.attention.scores, np.array(X)[:, ::-1] @ np.transpose(X))
    X[0][0] = 9  # the example keeps its own
    assert example.X[0, 0] == 1
