"""What the notebooks tell a learner to do, done: each challenge searched by moves of a hand, each "Try this" tried."""

import ast
import functools
import itertools
import re
from types import SimpleNamespace

import ipywidgets
import nbformat
import numpy as np
import oracle
import pytest
from conftest import ROOT, load_tool
from test_panels import click, find

from qkvlib import attention, chapter
from qkvlib.training import pattern_loss, small_random, train

s = chapter.sentence
HALF = 0.5
MOVES = 8


@functools.cache
def notebook(start):
    """The one notebook whose name starts so, as its cells by id."""
    (path,) = ROOT.glob(f"notebooks/{start}_*.ipynb")
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def made(start, *ids):
    """What the last of these cells shows, when they are run one after the other; a cell runs only what it must."""
    space, shown = {}, None
    for name in ("imports", *ids):
        tree = ast.parse(notebook(start)[name].source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), space)
        shown = last and eval(compile(ast.Expression(last.value), name, "eval"), space)
    return shown


# The challenges. For each, a function of the weights gives what is lacking, a number for each wish: below 0 where it is
# granted.


def lacks(*cells):
    """What weights lack of more than half."""
    return lambda w: [HALF - w[cell] for cell in cells]


def each_other(a, b):
    return lambda w: [w[a, a] - w[a, b], w[b, b] - w[b, a]]


def favourites(count):
    """What the rows lack that come nearest to having favourites of their own."""

    def lack(w):
        behind = np.array([[np.delete(row, j).max() - row[j] for j in range(len(row))] for row in w])
        ways = itertools.product(
            itertools.combinations(range(len(w)), count), itertools.permutations(range(len(w)), count)
        )
        return min((behind[way] for way in ways), key=total)

    return lack


def total(lack):
    return np.maximum(lack, 0).sum()


RING = lacks((0, 1), (1, 2), (2, 0))
FIRST, SECOND, THIRD = lacks((0, 0)), lacks((0, 1), (1, 1), (2, 1), (3, 1)), lacks((1, 3), (3, 1))
# By notebook and cell: which goals are to be won together, and what each lacks.
WON = {
    "20_4 first": ("20_4 challenge", {0: FIRST}), "20_4 second": ("20_4 challenge", {1: SECOND}),
    "20_4 third": ("20_4 challenge", {2: THIRD}), "20_4 first and third": ("20_4 challenge", {0: FIRST, 2: THIRD}),
    "20_5 each other": ("20_5 tied-one free-one", {0: each_other(0, 2)}),
    "20_5 ring": ("20_5 raw-two free-two", {0: RING}),
    "20_9": ("20_9 scratch", {0: lacks((3, 3))}),
    "ex_2 two favourites": ("ex_2 experiment", {0: favourites(2)}),
    "ex_3": ("ex_3 experiment", {0: lambda w: min(HALF - w.T, key=total)}),
    "ex_5": ("ex_5 panel", {0: lacks((2, 3))}), "ex_6": ("ex_6 experiment", {0: lacks((3, 3))}),
}  # fmt: skip
NEVER = {
    "20_2": ("20_2 formula challenge", {0: each_other(0, 1)}),
    "20_4 first and second": ("20_4 challenge", {0: FIRST, 1: SECOND}),
    "20_4 second and third": ("20_4 challenge", {1: SECOND, 2: THIRD}),
    "20_5 tied ring": ("20_5 tied-one", {0: RING}),
    "20_5 tied": ("20_5 tied-one", {0: each_other(0, 2)}), "20_5 raw ring": ("20_5 tied-one raw-two", {0: RING}),
    "ex_2 three favourites": ("ex_2 experiment", {1: favourites(3)}),
    "ex_2 four favourites": ("ex_2 experiment", {2: favourites(4)}),
}  # fmt: skip


def challenge(case):
    cells, goals = case
    return made(*cells.split()), goals


def sliders(panel):
    return {name: part for name, part in panel._named.items() if isinstance(part, ipywidgets.FloatSlider)}


def weighed(panel):
    """A function from values of the panel's sliders to the weights; the arithmetic without the drawing."""
    words = panel.state.keys() - sliders(panel).keys()

    def weights(values):
        if not words:
            degrees, lengths = np.reshape(list(values.values()), (-1, 2)).T
            X = lengths[:, None] * np.column_stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
            return attention(X, *[np.eye(2)] * 3).weights
        example, W = panel._example, {name: getattr(panel, name) for name in ("W_Q", "W_K")}
        for name in W:
            numbers = [value for slider, value in values.items() if slider.startswith(name)]
            W[name] = np.reshape(numbers, W[name].shape) if numbers else W[name]
        if panel._tied:
            W["W_K"] = W["W_Q"]
        return attention(example.X, *W.values(), example.W_V, context=panel._context and panel._context[1]).weights

    return weights


def lacking(goals, w):
    return np.concatenate([lack(w) for lack in goals.values()])


def moved(panel, values, goals):
    """The values after the one move that leaves least to do: one slider, to some 30 places of its range."""
    weights, best = weighed(panel), (np.inf, values)
    for name, part in sliders(panel).items():
        stride = part.step * max(1, round((part.max - part.min) / part.step / 32))
        for value in np.arange(part.min, part.max + stride / 2, stride).round(2).tolist():
            tried = values | {name: value}
            best = min(best, (total(lacking(goals, weights(tried))), tried), key=lambda pair: pair[0])
    return best[1]


def search(panel, goals, values):
    """The moves, each the best at its time, until the goals are reached or MOVES are made; and the last values."""
    for moves in range(MOVES + 1):
        if (lacking(goals, weighed(panel)(values)) < 0).all():
            return moves, values
        before, values = values, moved(panel, values, goals)
        if values == before:  # no move helps
            break
    return None, values


def reached(panel):
    return [goal.reached(panel.attention) for goal in panel._goals]


@pytest.mark.parametrize("case", WON.values(), ids=WON)
def test_a_challenge_is_won_in_a_few_moves_of_a_hand(case):
    panel, goals = challenge(case)
    start = {name: part.value for name, part in sliders(panel).items()}
    moves, values = search(panel, goals, start)
    assert 1 <= moves <= MOVES
    panel.state = values
    assert all(reached(panel)[at] for at in goals)
    assert panel._goals_shown.value.count("✔ reached:") == sum(reached(panel)) >= len(goals)


@pytest.mark.parametrize("case", NEVER.values(), ids=NEVER)
def test_a_challenge_that_cannot_be_won_is_not(case):
    panel, goals = challenge(case)
    parts, random = sliders(panel), np.random.default_rng(0)
    assert search(panel, goals, {name: part.value for name, part in parts.items()})[0] is None
    weights = weighed(panel)
    for _ in range(300):
        values = {name: part.min + part.step * random.integers(round((part.max - part.min) / part.step) + 1)
                  for name, part in parts.items()}  # fmt: skip
        found = SimpleNamespace(weights=weights(values))
        assert not all(panel._goals[at].reached(found) for at in goals)
        assert lacking(goals, found.weights).max() > -1e-9  # a tie is no win, and rounding may hide it
    assert search(panel, goals, values)[0] is None
    panel.state = {name: round(value, 2) for name, value in values.items()}
    assert not all(reached(panel)[at] for at in goals)


def test_a_tie_that_rounding_hides_is_no_win():
    """With these columns the queries of A and C are the same but for rounding, and so would be the scores."""
    panel = made("20_5", "tied-one")
    panel.W_Q = np.repeat([[-3.13, 1.4], [-3.27, -1.31], [-1.89, -1.47], [-1.53, -3.35]], 2, axis=1)
    weights = panel.attention.weights
    assert weights[0, 2] > weights[0, 0]
    assert weights[2, 0] > weights[2, 2]
    assert reached(panel) == [False]


def test_raw_attention_is_met_by_one_press_and_by_a_second_way():
    panel = made("ex_1", "experiment")
    assert reached(panel) == [False]
    click(panel, "Identity")
    assert reached(panel) == [True]
    click(panel, "Reset")
    panel.W_K = panel.W_Q  # both reverse: eight sliders
    assert reached(panel) == [True]


# Each "Try this": what it says, and whether it is so. None stands where a learner is only told what to do, or asked.


def in_20_1():
    panel = made("20_1", "panel")
    turn, length = sliders(panel)

    def weights(degrees, long):
        panel.state = {turn: degrees, length: long}
        return panel.attention.weights[0]

    yield "Turn the question all the way round", None
    flat = weights(30, 0)
    yield "every score is 0 and all words get the same", not panel.attention.scores.any() and np.ptp(flat) == 0
    yield "comes close to choosing a single word (0.99)", round(weights(75, 3)[0], 2) == 0.99
    yield 'the same length is not enough: "money" gets 0.67', round(weights(30, 3)[0], 2) == 0.67
    yield '"river" lies nearly as close', weights(30, 3)[1] > 0.3


def in_20_2():
    panel, random = made("20_2", "formula", "panel"), np.random.default_rng(0)
    symmetric = []
    for _ in range(20):
        panel.state = {name: random.choice(np.arange(part.min, part.max, part.step)).round(2).item()
                       for name, part in sliders(panel).items()}  # fmt: skip
        symmetric.append(np.array_equal(panel.attention.scores, panel.attention.scores.T))
    yield "The score matrix stays symmetric whatever you do", all(symmetric)
    click(panel, "Reset")
    before = panel.attention.scores
    panel.state = {"bank: turn, degrees": 75}
    now = panel.attention.scores
    yield 'now it is far from "river"', now[0, 1] > before[0, 1] and now[0, 2] < before[0, 2] / 2
    yield 'The one vector cannot be close to "money" for one question and', None


def in_20_3():
    panel = made("20_3", "panel")

    def follow(name, value):
        before = panel.vectors
        panel.state = {name: value}
        return {letter for letter in "qkv" if not np.array_equal(before[letter], panel.vectors[letter])}

    yield "Move a number of `W_K`: only k follows", follow("W_K row 2 column 1", 0.9) == {"k"}
    yield "Move a number of x: everything follows", follow("x row 1 column 1", 0.9) == {"q", "k", "v"}
    panel.state = {"x": np.zeros((1, 4))}
    yield "Set x to all zeros: so are its projections", not any(panel.vectors[letter].any() for letter in "qkv")


def in_20_4():
    panel = made("20_4", "lab")
    click(panel, "Zeros")
    yield "every score is 0, so each word looks everywhere alike", np.ptp(panel.attention.weights) == 0
    click(panel, "Identity")
    short = chapter.sentence.X[:, :3]
    yield "only the first three numbers of each embedding count", np.allclose(panel.attention.scores, short @ short.T)
    click(panel, "Chapter")
    rows = []
    for value in np.arange(1.01, -4.01, -0.5):
        panel.state = {"W_Q row 2 column 1": round(value, 2)}
        rows.append(panel.attention.weights[0, 1])
    yield 'watch the row of "the" let go of "cat"', rows[0] > 0.87 and rows[-1] < 0.06 and rows == sorted(rows)[::-1]


def in_20_5():
    panel = made("20_5", "panel")
    long, at = sliders(panel)["identity → chapter"], {}
    long.value = 0
    yield "below and above are alike", np.array_equal(panel._shown["raw weights"], panel.attention.weights)
    for step in range(101):
        long.value = step / 100
        at[step] = panel.attention.weights[0]
    away = [at[step][0] + at[step][1] for step in at]
    yield "watch the row of A let go of A and B", away == sorted(away)[::-1] and away[0] > 0.8 and away[-1] < 0.5
    nearest = min(at, key=lambda step: np.ptp(at[step]))
    yield "At which setting are the three weights of A nearly the same", nearest == 51 and np.ptp(at[51]) < 0.02


TARGET = np.eye(4)[[1, 1, 2, 3]]


def losses(target=TARGET, *, seed=0, size=0.1, rate=1.0):
    """The losses of the panel's 200 steps."""
    start = small_random(seed, (3, 4), (3, 4), size=size)
    steps = train(s.X, *start, s.W_V, pattern_loss(target), rate=rate, method="gradient descent")
    return [state.loss for state in itertools.islice(steps, 201)]


def learned_at(found):
    """At which step the loss is below 0.1, or never."""
    return next((step for step, loss in enumerate(found) if loss < 0.1), np.inf)


def in_20_5b():
    yield "Which pattern is learned in the fewest steps", None
    yield "Another seed: do the weights come out the same", None
    small, large = ([learned_at(losses(seed=seed, size=size)) for seed in range(8)] for size in (0.1, 3))
    yield "A start size of 3", all(late > soon for late, soon in zip(small, large, strict=True))
    yield "And with a start size of 0", np.ptp(losses(size=0)) == 0
    yield "The first is slow", learned_at(losses(rate=0.1)) > 3 * small[0]
    messages = []
    for rate in (10, 100):
        panel = made("20_5b", "panel")
        (field,) = (part for part in find(panel.widget, ipywidgets.FloatText) if part.description == "learning rate")
        field.value = rate
        panel.play()
        messages.append(panel.message)
    yield (
        "the other two are too fast for their own good, and the panel says so",
        all(f"learning rate {rate} is too high" in said for rate, said in zip((10, 100), messages, strict=True)),
    )
    halves = TARGET.copy()
    halves[0] = 0, 0.5, 0.5, 0
    half = losses(halves)
    yield "Let a row look half at one word and half at another", np.log(2) / 4 < min(half) < np.log(2) / 4 + 0.01
    yield "cannot be less than $\\log 2$, and there the gradient is 0", np.ptp(half[-20:]) < 1e-3


def in_20_6():
    panel = made("20_6", "panel")
    weights, output = panel.attention.weights, panel.attention.output
    click(panel, "Zeros")
    yield "there is nothing to mix", not panel.attention.output.any()
    click(panel, "Chapter")
    panel.state = {"W_V row 2 column 2": panel.W_V[1, 1] + 1}
    moves = np.abs(panel.attention.output - output)
    yield "the second component of every output follows", (moves[:, 1] > 0).all() and not moves[:, [0, 2]].any()
    most = set(np.argsort(moves[:, 1])[2:]) == set(np.argsort(weights[:, 1])[2:])
    yield 'most of all where "cat" has the weight', most
    yield "The weights never move", np.array_equal(panel.attention.weights, weights)


def in_20_7():
    switch = made("20_7", "sequences", "panel")
    (cross,), (causal,) = ([panel for name, panel in switch.panels.items() if name.startswith(kind)]
                           for kind in ("cross", "causal"))  # fmt: skip

    def moves(name, axis):
        """Of each slider, whether all columns, or all rows, of the scores change with it."""
        found = []
        for slider_name in (each for each in sliders(cross) if each.startswith(name)):
            click(cross, "Reset")
            before = cross.attention.scores
            cross.state = {slider_name: cross.state[slider_name] + 0.5}
            found.append((np.abs(cross.attention.scores - before) > 1e-9).any(axis=axis).all())
        return found

    yield "most do", all(np.mean(moves(*which)) > 0.5 for which in (("W_K", 0), ("W_Q", 1)))
    yield "Why?", None
    rows = []
    for seed in range(5):
        causal.W_Q = np.random.default_rng(seed).normal(size=(3, 4)).round(2)
        rows.append(causal.attention.weights[0].tolist())
    yield '"le" can only look at itself: its row never changes', rows == [[1, 0, 0]] * 5


TRIED = {name[3:]: tried for name, tried in globals().items() if name.startswith("in_20_")}


@pytest.mark.parametrize("start", TRIED)
def test_what_a_learner_is_told_to_try_is_so(start):
    text = re.sub("<!-- .+? -->", "", notebook(start)["try"].source)
    told = dict(TRIED[start]())
    assert [says for says in told if says not in text] == []
    assert [says for says, holds in told.items() if holds is not None and not holds] == []


def test_every_try_this_is_tried():
    told = [path for path in ROOT.glob("notebooks/*.ipynb") if "**Try this" in path.read_text("utf-8")]
    assert sorted(told) == sorted(path for start in TRIED for path in ROOT.glob(f"notebooks/{start}_*.ipynb"))


# What single sentences say of panels.


def test_bank_stretched_to_twice_its_length_is_looked_at_more():
    panel = made("20_2", "formula", "panel")
    before = panel.attention.weights[1, 0]
    panel.state = {"bank: length": 2.4}
    assert panel.attention.weights[1, 0] > before


def test_between_two_sequences_raw_attention_may_make_a_ring():
    """20.2: a decoder's states can be such that no symmetry is left."""
    E = 3 * np.eye(3)
    w = np.array(oracle.attention(E[[1, 2, 0]], *[np.eye(3)] * 3, context=E)[1])
    assert max(RING(w)) < 0


def test_the_hint_of_exercise_5_leads_downhill():
    panel = made("ex_5", "panel")
    start, a = panel.W_Q, panel.attention
    gradient = np.outer((a.weights[2] - np.eye(4)[3]) @ a.K, s.X[2])  # of -log of the weight of "sat" on "down"
    for i, j in np.ndindex(start.shape):
        weights = []
        for step in (-0.05, 0.05):
            moved_one = start.copy()
            moved_one[i, j] += step
            panel.W_Q = moved_one
            weights.append(panel.attention.weights[2, 3])
        assert np.sign(weights[0] - weights[1]) == np.sign(gradient[i, j])


def test_the_scenes_answers_are_so():
    """What the lecture says while a scene is on show."""
    talk = load_tool("handout").scenes(ROOT / "notebooks" / "lecture.ipynb")

    def shown(number):
        talk.go(number - 1)
        return talk.panel.attention

    scores = shown(2).scores
    assert scores[0, 2] < 0 < scores[0, 0]
    weights = shown(3).weights
    assert weights[1, 0] > weights[1, 1]
    assert max(RING(shown(4).weights)) > 0
    assert (shown(6).weights == 0.25).all()
    made_same = shown(7)
    assert np.array_equal(made_same.scores, made_same.scores.T)
    assert not np.allclose(made_same.weights, made_same.weights.T)
    weights = shown(8).weights
    assert weights[0].argmax() == 1
    talk.panel.state = {"W_Q row 2 column 1": -4}
    assert talk.panel.attention.weights[0, 1] < 0.1
    weights = shown(9).weights
    assert weights.diagonal().max() == weights[3, 3] < weights[3, 2]
    assert round(weights[3, 3], 2) == 0.26
    weights = shown(11).weights
    assert weights[0, 2] < min(weights[0, :2])
    assert max(each_other(0, 2)(shown(12).weights)) < 0
    assert shown(14).weights.shape == (3, 5)


def test_minutes_add_up():
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| \[(\S+) .*?\]\(notebooks/.*?\) \| (\d+) \|", readme, re.MULTILINE))
    minutes = {name: int(number) for name, number in rows.items()}
    assert len(minutes) == 16
    for name, number in minutes.items():
        start = name.replace(".", "_") if "." in name else f"ex_{name}"
        assert re.search(rf"\b{number} minutes", notebook(start)["title"].source) or name == "20.9", name
    assert sum(minutes[name] for name in ("20.1", "20.2", "20.4", "20.5", "20.6")) == 90
    assert sum(number for name, number in minutes.items() if "." in name) <= 180
    page = (ROOT / "notebooks" / "for_lecturers.md").read_text("utf-8")
    scenes = dict(re.findall(r"^\| (\d+) .+?\|.*\| (\d+) \|$", page, re.MULTILINE))
    short = re.search(r"\*\*20 minutes\*\*: scenes ([\d, ]+)", page)[1].split(", ")
    assert sum(int(scenes[number]) for number in short) == 20
    assert sum(map(int, scenes.values())) + 2 * 10 + 15 + 10 == 90
