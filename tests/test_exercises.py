"""Every exercise against wrong answers, each of which must hear its own name, and right ones of any form."""

import gc
import json
import math
import random
import shutil
import subprocess
import sys
import time

import matplotlib as mpl
import nbformat
import numpy as np
import oracle
import pytest
from conftest import ROOT

from qkvlib import chapter, check, exercises, explain, hint, judge, progress, reveal, tasks, trial
from qkvlib.judge import RIGHT, UNTRIED, WRONG, Task
from qkvlib.tasks import EXERCISES


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """Progress is kept in the folder of the notebook."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")


def solved(number):
    """What the solution notebook defines."""
    (path,) = ROOT.glob(f"solutions/ex_{number}_*.ipynb")
    space = {"np": np}
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code" and exercises.BEGIN in cell.source:
            exec(cell.source, space)
    return {name: space[name] for name in EXERCISES[number].answers}


def tried(number, **answers):
    """The report on a solution with some answers replaced."""
    return check(number, *(solved(number) | answers).values())


def findings(report):
    return {part.part: part for part in report.findings}


# Attention, as learners write it


def rows_softmax(scores):
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def by_lists(X, C, W_Q, W_K, W_V):
    _, weights, output = oracle.attention(X.tolist(), W_Q.tolist(), W_K.tolist(), W_V.tolist(), C.tolist())
    return weights, output


def keys_first(X, C, W_Q, W_K, W_V):
    print("hello")
    keys = np.einsum("nd,kd->nk", C, W_K)
    values = np.stack([W_V @ row for row in C])
    q = (W_Q @ X.T).T
    s = q.dot(keys.T)
    s = s - s.max(axis=-1)[:, None]
    w = np.exp(s)
    w /= w.sum(-1)[:, None]
    return [w, np.dot(w, values)]


def single(X, C, W_Q, W_K, W_V):
    X, C, W_Q, W_K, W_V = (np.float32(part) for part in (X, C, W_Q, W_K, W_V))
    w = rows_softmax(X @ W_Q.T @ W_K @ C.T)
    return w, w @ C @ W_V.T


def by_loops(X, C, W_Q, W_K, W_V):
    weights, output = np.zeros((len(X), len(C))), np.zeros((len(X), len(W_V)))
    for i in range(len(X)):
        for j in range(len(C)):
            weights[i, j] = math.exp(np.dot(W_Q @ X[i], W_K @ C[j]))
        weights[i] = weights[i] / sum(weights[i])
        for j in range(len(C)):
            output[i] += weights[i, j] * (W_V @ C[j])
    return weights, output


def attend(X, C, W_Q, W_K, W_V, wrong):
    Q, K, V = X @ W_Q.T, C @ W_K.T, C @ W_V.T
    if wrong == "swapped":
        Q, K = X @ W_K.T, C @ W_Q.T
    s = Q @ K.T
    s = s / math.sqrt(len(W_Q)) if wrong == "scaled" else s
    w = rows_softmax(s)
    if wrong == "columns":
        w = rows_softmax(s.T).T
    if wrong == "whole":
        w = np.exp(s) / np.exp(s).sum()
    if wrong == "scores":
        w = s
    if wrong == "turned":
        return w.T, w @ V
    if wrong == "order":
        return w @ V, w
    return w, w @ {"raw": C, "keys": K}.get(wrong, V)


NAMED = {
    "columns": "softmax runs down the columns", "whole": "all the weights together sum to 1",
    "scaled": "a scale was added", "scores": "softmax is missing", "raw": "V is not projected",
    "keys": "mixes the keys", "swapped": "Q and K have changed places", "turned": "rows and columns have changed",
    "order": "two results have changed places",
}  # fmt: skip
RIGHT_WAYS = [by_lists, keys_first, single, by_loops]


def untransposed(X, C, W_Q, W_K, W_V):
    return attend(X, C, W_Q, W_K, W_V.T, "")


def untransposed_where_square(X, C, W_Q, W_K, W_V):
    turn = (lambda W: W.T) if len(W_Q) == len(W_V) else (lambda W: W)
    return attend(X, C, turn(W_Q), turn(W_K), turn(W_V), "")


def reshaped(X, C, W_Q, W_K, W_V):
    Q, K, V = (part @ W.reshape(part.shape[1], -1) for part, W in ((X, W_Q), (C, W_K), (C, W_V)))
    w = rows_softmax(Q @ K.T)
    return w, w @ V


def nan(X, C, W_Q, W_K, W_V):
    w, o = by_loops(X, C, W_Q, W_K, W_V)
    w[0, 0] = np.nan
    return w, o


BY_HAND = (
    [(lambda X, *W, wrong=wrong: attend(X, X, *W, wrong), says) for wrong, says in NAMED.items()]
    + [(lambda X, *W, f=f: f(X, X, *W), says) for f, says in (
        (untransposed, "multiplied by its transpose"), (untransposed_where_square, "not transposed"),
        (reshaped, "not transposed"), (nan, "weights has nan in it"),
        (lambda *a: 0.2, "expected 2 things, weights and output, got float"),
        (lambda *a: (0.2, 0.2), "weights has the shape (), expected (5, 5)"),
        (lambda *a: None, "is there a return"), (lambda *a: (None, None), "expected real numbers, got NoneType"),
        (lambda *a: ([], []), "weights is empty"), (lambda *a: ("a", "b"), "expected real numbers, got str"),
        (lambda X, C, *W: (by_loops(X, C, *W)[0][:, :1], 1), "weights has the shape (5, 1), expected (5, 5)"),
        (lambda X, C, *W: (by_loops(X, C, *W)[0], 2 * by_loops(X, C, *W)[1]), "output is off, most in row"),
        (lambda *a: ([[1, 2], [3]], 1), "ragged"),
    )]
)  # fmt: skip


@pytest.mark.parametrize(("wrong", "says"), BY_HAND)
def test_1_wrong(wrong, says):
    found = findings(tried(1, attention_by_hand=wrong))
    assert found["attention_by_hand"].state == WRONG
    assert says in found["attention_by_hand"].says
    assert found["W"].state == RIGHT


@pytest.mark.parametrize("way", RIGHT_WAYS)
def test_1_right(way):
    assert tried(1, attention_by_hand=lambda X, *W: way(X, X, *W)).passed


def test_the_first_answer_returned_for_every_input_is_refused():
    kept = []

    def lazy(X, *W):
        kept.append(by_loops(X, X, *W))
        return kept[0]

    assert "the same whatever it is given" in findings(tried(1, attention_by_hand=lazy))["attention_by_hand"].says


MATRICES = [
    (np.eye(3, 4), "expected 4 x 4"), (2 * np.eye(4), "2 times the right matrix"), (np.ones((4, 4)), "only ones"),
    (np.eye(4)[::-1], "only turns or flips"), (1, "expected 4 x 4"), (None, "expected real numbers, got NoneType"),
    ([], "W is empty"), (np.full((4, 4), np.nan), "finite"), (np.arange(16).reshape(4, 4), "on the diagonal"),
    ("eye", "expected real numbers, got str 'eye'"), (np.zeros((4, 4)), "0 times the right matrix"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "says"), MATRICES)
def test_1_wrong_matrix(wrong, says):
    found = findings(tried(1, W=wrong))["W"]
    assert (found.state, says in found.says) == (WRONG, True), found.says


@pytest.mark.parametrize(
    "W",
    [np.eye(4).tolist(), np.identity(4, np.float32), np.diag([1, 1, 1, 1]), tuple(map(tuple, np.eye(4, dtype=int)))],
)
def test_1_right_matrix(W):
    assert tried(1, W=W).passed


# Favourites


def scan(q, k):
    found = []
    for number in q:
        best = 0
        for j in range(len(k)):
            if number * k[j] > number * k[best]:
                best = j
        found.append(best)
    return found


@pytest.mark.parametrize(
    "way",
    [scan, lambda q, k: np.argmax(np.outer(q, k), axis=1), lambda q, k: np.where(q > 0, k.argmax(), k.argmin()),
     lambda q, k: tuple(float(list(k).index(max(k) if one > 0 else min(k))) for one in q)],
)  # fmt: skip
def test_2_right(way):
    assert tried(2, favourites=way, most=2.0).passed


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda q, k: [int(k.argmax()) for _ in q], "sign of the query is ignored"),
        (lambda q, k: [int(k.argmin() if one > 0 else k.argmax()) for one in q], "two signs have changed places"),
        (lambda q, k: [int(np.abs(k).argmax()) for _ in q], "largest |k|"),
        (lambda q, k: np.full(len(q), k.argmin()), "always takes the smallest"),
        (lambda q, k: np.array(scan(q, k)) + 1, "counts from 1"),
        (lambda q, k: [k[j] for j in scan(q, k)], "returns the keys themselves"),
        (lambda q, k: np.outer(q, k).argmax(axis=0), "goes through the keys"),
        (lambda q, k: sorted(set(scan(q, k))), "who is a favourite at all"),
        (lambda q, k: 1, "favourites has the shape (), expected (5,)"),
        (lambda q, k: [0, 1, 2, 3, 0], "favourites should be"),
        (lambda q, k: [1, 2, 1, 2, 1], "the same whatever it is given"),
        (lambda q, k: None, "is there a return"),
        (lambda q, k: [], "empty"),
        (scan(np.ones(2), np.ones(2)), "expected the function itself, without brackets behind its name, got list of 2"),
    ],
)
def test_2_wrong(wrong, says):
    found = findings(tried(2, favourites=wrong))["favourites"]
    assert (found.state, says in found.says) == (WRONG, True), found.says


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(1, "There can be more"), (3, "a tie"), (4, "may have the same one"), (10, "Count in the picture"),
     ("two", "expected real numbers, got str"), (True, "expected one number, got True"), (None, "got NoneType"),
     ([2, 2], "expected one number"), (np.nan, "finite")],
)  # fmt: skip
def test_2_wrong_most(wrong, says):
    found = findings(tried(2, most=wrong))["most"]
    assert (found.state, says in found.says) == (WRONG, True), found.says


# Cross-attention


@pytest.mark.parametrize("way", RIGHT_WAYS)
def test_3_right(way):
    assert tried(3, cross_attention=way).passed


CROSS = [(lambda *parts, wrong=wrong: attend(*parts, wrong), says) for wrong, says in NAMED.items()] + [
    (lambda D, E, *W: attend(E, E, *W, ""), "context is used for Q"),
    (lambda D, E, *W: attend(D, D, *W, ""), "decoder's attention to itself"),
    (lambda D, E, *W: attend(E, D, *W, ""), "decoder and encoder have changed places"),
    (lambda D, E, q, k, v: (lambda w: (w, w @ (D @ v.T)))(attend(D, E, q, k, v, "")[0]), "values come from the same"),
    (untransposed, "multiplied by its transpose"),
    (nan, "nan"), (lambda *a: None, "return"), (lambda *a: (1, 1), "shape (), expected (3, 5)"),
    (lambda *a: (np.full((3, 5), 0.2), np.zeros((3, 3))), "weights is off"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "says"), CROSS)
def test_3_wrong(wrong, says):
    (found,) = tried(3, cross_attention=wrong).findings
    assert (found.state, says in found.says) == (WRONG, True), found.says


# Counting


def counted(d_model, d_k, d_v):
    return sum(1 for rows in (d_k, d_k, d_v) for _ in range(rows) for _ in range(d_model))


@pytest.mark.parametrize(
    "answers",
    [
        {"attention_parameters": counted, "ratio": 3, "ratio_with_bias": 98304 / 32832, "grows": "None"},
        {"attention_parameters": lambda d, k, v: d * (k + k + v) * 1.0, "ratio": np.float32(3), "grows": " neither "},
        {"dense_parameters": lambda n, m, bias: np.zeros((n + bias, m)).size, "ratio_with_bias": 2.994},
        {"dense_parameters": lambda a, b, c: np.int64((a + 1) * b if c else a * b), "ratio": np.array(3.0)},
    ],
)
def test_4_right(answers):
    assert tried(4, **answers).passed


@pytest.mark.parametrize(
    ("part", "wrong", "says"),
    [
        ("attention_parameters", lambda d, k, v: counted(d, k, v) + 2 * k + v, "biases are counted"),
        ("attention_parameters", lambda d, k, v: counted(d, k, v) * 4, "wrong unit: this is the number of bytes"),
        ("attention_parameters", lambda d, k, v: counted(d, k, v) / 1000, "wrong unit: thousands"),
        ("attention_parameters", lambda d, k, v: d * k + d * v, "only two matrices"),
        ("attention_parameters", lambda d, k, v: d * k, "only one matrix"),
        ("attention_parameters", lambda d, k, v: d * k * 3, "equally large"),
        ("attention_parameters", lambda d, k, v: d * k + d * v * 2, "d_k and d_v have changed places"),
        ("attention_parameters", lambda d, k, v: 3 * d + 2 * k + v, "adds rows and columns"),
        ("attention_parameters", lambda d, k, v: counted(d, k, v) + d * v, "a fourth matrix"),
        ("attention_parameters", lambda d, k, v: 98304, "should be [42"),
        ("attention_parameters", lambda d, k, v: None, "is there a return"),
        ("attention_parameters", lambda d, k, v: [1, 2], "has the shape (4, 2), expected (4,)"),
        ("dense_parameters", lambda n, m, bias: n * m, "never counts the bias"),
        ("dense_parameters", lambda n, m, bias: n * m + m, "always counts the bias"),
        ("dense_parameters", lambda n, m, bias: n * m if bias else n * m + m, "have changed places"),
        ("dense_parameters", lambda n, m, bias: n * m + (n if bias else 0), "a bias for every input"),
        ("dense_parameters", lambda n, m, bias: n * m + int(bias), "counted as one number"),
        ("dense_parameters", lambda n, m, bias: 4 * (n * m + (m if bias else 0)), "bytes"),
        ("ratio", 1 / 3, "wrong way up"), ("ratio", 2.994, "This is the ratio with the bias"),
        ("ratio", 98304, "Divide what attention has"), ("ratio", 300, "per cent"), ("ratio", "3", "got str"),
        ("ratio_with_bias", 3.0, "This is the ratio without the bias"), ("ratio_with_bias", 2.99, "three digits"),
        ("ratio_with_bias", np.inf, "finite"),
        ("grows", "both", "Which numbers are learned?"), ("grows", "attention", "Which numbers are learned?"),
        ("grows", "dense", "one position at a time"), ("grows", None, "expected one of the words"),
        ("grows", [], "expected one of the words"),
    ],
)  # fmt: skip
def test_4_wrong(part, wrong, says):
    found = findings(tried(4, **{part: wrong}))
    assert (found[part].state, says in found[part].says) == (WRONG, True), found[part].says
    assert [name for name, other in found.items() if other.state != RIGHT] == [part]


# The backward pass


def softmax_by_jacobian(weights, d_weights):
    rows = []
    for w, d in zip(weights, d_weights, strict=True):
        jacobian = [[w[i] * ((i == j) - w[j]) for j in range(len(w))] for i in range(len(w))]
        rows.append([sum(jacobian[i][j] * d[j] for j in range(len(w))) for i in range(len(w))])
    return rows


@pytest.mark.parametrize(
    "answers",
    [
        {"through_softmax": softmax_by_jacobian, "into_projection": lambda g, X: np.einsum("nk,nd->kd", g, X)},
        {"through_softmax": lambda w, g: np.float32(w * g) - w * np.einsum("ij,ij->i", w, g)[:, None]},
        {"through_dot_product": lambda g, K, c: [[c * sum(g[i, j] * K[j, m] for j in range(len(K)))
                                                  for m in range(K.shape[1])] for i in range(len(g))]},
        {"into_projection": lambda g, X: (X.T @ g).T, "through_dot_product": lambda g, K, c: (K.T @ (c * g).T).T},
        {"into_projection": lambda g, X: sum(np.outer(a, b) for a, b in zip(g, X, strict=True))},
    ],
)  # fmt: skip
def test_5_right(answers):
    report = tried(5, **answers)
    assert report.passed
    assert report._repr_html_().count('<img alt="d_') == 3  # analytic beside numeric


@pytest.mark.parametrize(
    ("part", "wrong", "says"),
    [
        ("through_softmax", lambda w, g: w * g, "second term of the softmax's Jacobian is missing"),
        ("through_softmax", lambda w, g: w * g - w * w * g, "only the Jacobian's diagonal"),
        ("through_softmax", lambda w, g: w * (g - (w * g).sum(axis=0)), "down the columns"),
        ("through_softmax", lambda w, g: w * (g - np.sum(w * g)), "runs over everything"),
        ("through_softmax", lambda w, g: w * (g - np.mean(w * g, axis=1)[:, None]), "a mean in place of the sum"),
        ("through_softmax", lambda w, g: g - np.sum(w * g, axis=1)[:, None], "factor in front is missing"),
        ("through_softmax", lambda w, g: -np.array(softmax_by_jacobian(w, g)), "sign is turned round"),
        ("through_softmax", lambda w, g: np.transpose(softmax_by_jacobian(w, g)), "gradient is transposed"),
        ("through_softmax", lambda w, g: 0.0, "shape (), expected (3, 5)"),
        ("through_dot_product", lambda g, K, c: g @ K, "scale is left out"),
        ("through_dot_product", lambda g, K, c: g @ K / c, "divided by the scale"),
        ("through_dot_product", lambda g, K, c: c * g @ K / len(K), "a mean over the keys"),
        ("through_dot_product", lambda g, K, c: (c * g @ K).T, "gradient is transposed"),
        ("through_dot_product", lambda g, K, c: c * c * g @ K, "used twice"),
        ("through_dot_product", lambda g, K, c: g.T @ K, "Two shapes do not fit"),
        (
            "through_dot_product",
            lambda g, K, c: c * (g if len(g) != len(K) else g.T) @ K,
            "Q and K have changed places",
        ),
        ("into_projection", lambda g, X: X.T @ g, "gradient is transposed"),
        ("into_projection", lambda g, X: g.T @ X / len(X), "a mean over the positions"),
        ("into_projection", lambda g, X: np.outer(g[-1], X[-1]), "only the last position"),
        ("into_projection", lambda g, X: np.outer(g[0], X[0]), "only the first position"),
        ("into_projection", lambda g, X: np.outer(g.sum(0), X.sum(0)), "summed up before they meet"),
        ("into_projection", lambda g, X: np.full((2, 4), np.nan), "nan"),
        ("into_projection", lambda g, X: None, "is there a return"),
    ],
)
def test_5_wrong(part, wrong, says):
    found = findings(tried(5, **{part: wrong}))
    assert (found[part].state, says in found[part].says) == (WRONG, True), found[part].says
    assert [name for name, other in found.items() if other.state != RIGHT] == [part]


# Looking at oneself

S = chapter.sentence
SCORES, WEIGHTS, _ = map(np.array, oracle.attention(S.X, S.W_Q, S.W_K, S.W_V))
ALONE = oracle.attention(S.X, np.eye(1, 4, 3), np.eye(1, 4, 3), S.W_V)[1][3][3]  # by the last component alone
RAW = np.array(oracle.attention(S.X, np.eye(4), np.eye(4), np.eye(4))[1])
SCALED = np.array(oracle.attention(S.X, S.W_Q, S.W_K, S.W_V, scaled=True)[1])


@pytest.mark.parametrize(
    "answers",
    [
        {"self_weights": WEIGHTS.diagonal(), "mostly_itself": lambda s, i: bool(rows_softmax(s)[i, i] > 0.5)},
        {"self_weights": (0.044, 0.034, 0.037, 0.263), "mostly_itself": lambda s, i: int(rows_softmax(s)[i][i] > 0.5)},
        {"W_Q": 4 * np.eye(1, 4, 3), "W_K": [[0, 0, 0, 4]], "how_many": 0.0},
        {"W_Q": np.float32(3 * np.eye(4)), "W_K": 3 * np.eye(4, dtype=int),
         "mostly_itself": lambda s, i: s[i, i] > math.log(sum(math.exp(x) for j, x in enumerate(s[i]) if j != i))},
    ],
)  # fmt: skip
def test_6_right(answers):
    assert tried(6, **answers).passed


@pytest.mark.parametrize(
    ("part", "wrong", "says"),
    [
        ("self_weights", [0.04, 0.03, 0.04, 0.26], "three digits"),
        ("self_weights", 100 * WEIGHTS.diagonal(), "per cent"),
        ("self_weights", SCORES.diagonal(), "these are scores"),
        ("self_weights", RAW.diagonal(), "raw attention"),
        ("self_weights", SCALED.diagonal(), "a scale was added"),
        ("self_weights", (np.exp(SCORES) / np.exp(SCORES).sum(axis=0)).diagonal(), "down the columns"),
        ("self_weights", WEIGHTS.max(axis=1), "largest weights of the rows"),
        ("self_weights", WEIGHTS.diagonal()[::-1], "from the last word"),
        ("self_weights", 0.263, "expected four numbers"),
        ("self_weights", WEIGHTS, "expected four numbers"),
        ("self_weights", [0.25] * 4, "look at the diagonal"),
        ("how_many", 1, "more than half?"), ("how_many", 4, "Mostly means"), ("how_many", [], "empty"),
        ("how_many", None, "NoneType"),
    ],
)  # fmt: skip
def test_6_wrong_reading(part, wrong, says):
    found = findings(tried(6, **{part: wrong}))[part]
    assert (found.state, says in found.says) == (WRONG, True), found.says


@pytest.mark.parametrize(
    ("W_Q", "W_K", "says"),
    [
        (S.W_Q, S.W_K, '"down" looks most at "sat" and gives itself 0.263'),
        (np.eye(1, 4, 3), np.eye(1, 4, 3), f"at itself, but gives itself only {ALONE:.3f}"),
        (np.zeros((3, 4)), np.zeros((3, 4)), "gives itself"),
        (np.eye(4, 3), np.eye(4, 3), "W_Q: expected (d_k, 4) to fit X"),
        (np.eye(3, 4), np.eye(2, 4), "W_K: expected (3, 4)"),
        (3, 4, "W_Q: expected (d_k, 4)"),
        (np.full((3, 4), np.nan), np.eye(3, 4), "W_Q: expected finite"),
        ("W", "W", "W_Q: expected real numbers"),
        (None, None, "W_Q: expected real numbers"),
        (4 * np.eye(1, 4), 4 * np.eye(1, 4), '"the" looks mostly at itself, but "down" was asked for'),
        ([[1, 1, 1, 1]], [[-9, 9, 9, -9]], 'gives itself'),
    ],
)  # fmt: skip
def test_6_wrong_matrices(W_Q, W_K, says):
    found = findings(tried(6, W_Q=W_Q, W_K=W_K))["W_Q and W_K"]
    assert (found.state, says in found.says) == (WRONG, True), found.says


def other(s, i):
    return [s[i, j] for j in range(len(s)) if j != i]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda s, i: np.argmax(s[i]) == i, "being the favourite is not enough"),
        (lambda s, i: s[i, i] > sum(other(s, i)), "sum of the other scores"),
        (lambda s, i: math.exp(s[i, i]) > np.mean(np.exp(other(s, i))), "mean of the other exponentials"),
        (lambda s, i: s[i, i] > np.mean(other(s, i)), "mean of the other scores"),
        (lambda s, i: s[i, i] > 0, "a positive score is not enough"),
        (lambda s, i: rows_softmax(s.T)[i, i] > 0.5, "down the column"),
        (lambda s, i: s[i, i] > 0.5, "takes the scores for weights"),
        (lambda s, i: rows_softmax(s)[i, i] < 0.5, "turned round"),
        (lambda s, i: True, "should be"),
        (lambda s, i: False, "should be"),
        (lambda s, i: None, "is there a return"),
        (lambda s, i: rows_softmax(s)[i] > 0.5, "ragged"),
        (lambda s, i: "yes", "expected real numbers"),
    ],
)
def test_6_wrong_condition(wrong, says):
    found = findings(tried(6, mostly_itself=wrong))["mostly_itself"]
    assert (found.state, says in found.says) == (WRONG, True), found.says


# All of them


@pytest.mark.parametrize("number", EXERCISES)
def test_solutions_pass_twice_and_dots_are_not_attempted(number):
    answers = solved(number).values()
    first, again = check(number, *answers), check(number, *answers)
    assert first.passed
    assert repr(first) == repr(again)
    untried = check(number, *[...] * len(answers))
    assert {part.state for part in untried.findings} == {UNTRIED}
    assert untried.verdict == "not attempted yet"
    assert not untried.passed


TASKS = (tasks._HAND, tasks._FAVOURITES, tasks._CROSS, tasks._ATTENTION_COUNT, tasks._DENSE_COUNT, tasks._MOSTLY,
         *tasks._STEPS)  # fmt: skip


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_listed_mistake_is_heard_by_its_name(task):
    """Each mistake gives other numbers than the right answer and than the mistakes listed before it."""
    for says, wrong in task.mistakes:
        assert says in judge.function(wrong.__wrapped__ if task.cases else wrong, task).says, says


def chosen(ways, scale=None):
    """Attention written by a learner who made queries, keys and values in these ways, and scaled the scores."""

    def attention(X, C, q, k, v):
        W = {"q": q, "k": k, "v": v, "-": np.eye(X.shape[1])}
        Q, K, V = (np.einsum("nd,kd->nk", rows, W[way]) for rows, way in zip((X, C, C), ways, strict=True))
        scores = np.array([[sum(a * b for a, b in zip(x, y, strict=True)) for y in K] for x in Q])
        weights = rows_softmax(scores if scale is None else scale(scores, X, C, q, v))
        return weights, weights @ V

    return attention


MISUSED = {
    "-kv": "W_Q is not used: the queries are the rows that came in",
    "q-v": "W_K is not used: the keys are the rows that came in",
    "qk-": "V is not projected",
    "--v": "W_Q, W_K are not used: the queries are the rows that came in and the keys are the rows that came in",
    "-k-": "W_Q, W_V are not used", "q--": "W_K, W_V are not used", "---": "W_Q, W_K, W_V are not used",
    "qqv": "W_K is not used: the keys are made with W_Q", "kkv": "W_Q is not used: the queries are made with W_K",
    "qkq": "W_V is not used: the values are made with W_Q", "vkv": "W_Q is not used: the queries are made with W_V",
    "qqq": "W_K, W_V are not used", "kkk": "W_Q, W_V are not used", "vvv": "W_Q, W_K are not used",
    "kqv": "Q and K have changed places", "qvk": "the keys are made with W_V and the values are made with W_K",
}  # fmt: skip
SCALED = {
    "divided by √d_k,": lambda s, X, C, q, v: s / len(q) ** 0.5, "divided by d_k,": lambda s, X, C, q, v: s / len(q),
    "divided by √d_model,": lambda s, X, *_: s / math.sqrt(X.shape[1]),
    "divided by d_model,": lambda s, X, *_: s / len(X[0]),
    "divided by √d_v,": lambda s, X, C, q, v: s / np.sqrt(len(v)), "divided by d_v,": lambda s, X, C, q, v: s / len(v),
    "divided by √the number of keys,": lambda s, *_: s / s.shape[1] ** 0.5,
    "divided by the number of keys,": lambda s, *_: s / s.shape[1],
    "multiplied by √d_k,": lambda s, X, C, q, v: s * len(q) ** 0.5,
    "multiplied by d_k,": lambda s, X, C, q, v: s * len(q),
    "multiplied by √d_model,": lambda s, X, *_: s * X.shape[1] ** 0.5,
    "multiplied by d_model,": lambda s, X, *_: s * X.shape[1],
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(chosen(ways), says) for ways, says in MISUSED.items()]
    + [(chosen("qkv", scale), says) for says, scale in SCALED.items()],
    ids=[*MISUSED, *SCALED],
)
def test_every_scale_and_every_matrix_left_unused_is_named(wrong, says):
    assert says in judge.function(lambda X, *W: wrong(X, X, *W), tasks._HAND).says
    assert says in judge.function(wrong, tasks._CROSS).says


def test_no_message_has_a_line_of_the_solution():
    said = []
    for number, cases in ((1, BY_HAND), (3, CROSS)):
        name = EXERCISES[number].answers[0]
        said += [findings(tried(number, **{name: wrong}))[name].says for wrong, _ in cases]
    said += [says for task in vars(tasks).values() if isinstance(task, Task)
             for says, _ in task.mistakes]  # fmt: skip
    for number in EXERCISES:
        (path,) = ROOT.glob(f"solutions/ex_{number}_*.ipynb")
        lines = {line.strip() for cell in nbformat.read(path, 4).cells if exercises.BEGIN in cell.source
                 for line in cell.source.split(exercises.BEGIN)[1].splitlines()}  # fmt: skip
        for line in filter(lambda line: len(line) > 5, lines):
            assert not [text for text in said if line in text]


@pytest.mark.parametrize(("number", "answers"), [(0, ()), (7, ()), ("1", ()), (1, (...,)), (3, (..., ...))])
def test_a_call_that_cannot_be_meant_is_an_error(number, answers):
    with pytest.raises(ValueError, match=r"^(number: expected an exercise from 1 to 6|answers: expected check\()"):
        check(number, *answers)


# Code that misbehaves

GLOBAL, ARRAY, NAMES = 1, np.arange(3.0), ["a"]


def loops(*_):
    while True:
        pass


def loops_and_catches(*_):
    while True:
        try:  # noqa: SIM105
            pass
        except:  # noqa: E722
            pass


def prints_for_ever(*_):
    while True:
        print("line")


def prints_a_million(X, *W):
    print("\n".join("line" for _ in range(1_000_000)))
    for _ in range(100):
        print("more")
    return by_loops(X, X, *W)


def exits(*_):
    exit()


def leaves(*_):
    sys.exit(1)


def changes_its_input(X, W_Q, W_K, W_V):
    X -= X.mean()
    return by_loops(X, X, W_Q, W_K, W_V)


def changes_globals(X, *W):
    global GLOBAL, NEW
    GLOBAL, NEW = 5, 6
    ARRAY[0] = 7
    NAMES.append("b")
    globals()["np_"] = None
    return by_loops(X, X, *W)


def recurses(*a):
    return recurses(*a)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (loops, "longer than 0.5 seconds and was stopped"), (loops_and_catches, "was stopped"),
        (prints_for_ever, "was stopped"), (exits, "called exit()"), (leaves, "called exit()"),
        (changes_its_input, "changes the array it was given (argument 1)"), (recurses, "calls itself without end"),
        (lambda *a: 1 / 0, "stopped with ZeroDivisionError: division by zero"),
        (lambda X: X, "stopped with TypeError"), (lambda *a: undefined, "NameError: name 'undefined'"),  # noqa: F821
    ],
)  # fmt: skip
def test_bad_code_harms_nothing_and_is_told(bad, says, capfd, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT", 0.5)
    began = time.monotonic()
    found = findings(tried(1, attention_by_hand=bad))["attention_by_hand"]
    assert time.monotonic() - began < 10
    assert (found.state, says in found.says) == (WRONG, True), found.says
    assert capfd.readouterr() == ("", "")
    assert tried(1).passed


def test_a_million_lines_are_counted_and_not_shown(capfd, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT", 60)  # a browser's Python may take longer to print them than a call may
    report = tried(1, attention_by_hand=prints_a_million)
    assert report.passed
    assert "It printed 1,000,100 lines" in repr(report)
    assert len(repr(report)) < 500
    assert capfd.readouterr() == ("", "")


def test_variables_of_the_notebook_are_put_back():
    before = dict(globals())
    report = tried(1, attention_by_hand=changes_globals)
    assert report.passed
    assert "changes variables of the notebook (ARRAY, GLOBAL, NAMES, NEW, np_); they have been put back" in repr(report)
    assert globals() == before
    assert (GLOBAL, ARRAY.tolist(), NAMES) == (1, [0, 1, 2], ["a"])


def changes_libraries(X, W_Q, W_K, W_V):
    weights, output = by_loops(X, X, W_Q, W_K, W_V)
    np.exp, np.own = np.sin, 1
    del np.linalg.norm
    math.pi, tasks.attention = 3, None
    np.random.seed(1)
    random.seed(1)
    np.seterr(all="raise")
    np.set_printoptions(precision=2)
    mpl.rcParams["lines.linewidth"] = 9
    return weights, output


def libraries():
    functions = np.exp, hasattr(np, "own"), np.linalg.norm, math.pi, tasks.attention
    settings = np.geterr(), np.get_printoptions(), dict(mpl.rcParams)
    return *functions, *settings, random.getstate(), [np.array(part).tolist() for part in np.random.get_state()]


def test_what_is_changed_in_libraries_is_put_back_and_said():
    before = libraries()
    report = tried(1, attention_by_hand=changes_libraries)
    assert report.passed
    assert (
        "It changes libraries or their settings (math.pi, numpy.exp, numpy.linalg.norm, numpy.own, "
        "qkvlib.tasks.attention, np.random's state, random's state, matplotlib's rcParams, np.seterr, "
        "np.set_printoptions); they have been put back." in repr(report)
    )
    assert libraries() == before
    assert "libraries" not in repr(tried(1))


DRAWS = """
import matplotlib.pyplot as plt
from qkvlib import trial
print(trial.call(lambda: 1).remarks, trial.call(lambda: plt.close(plt.figure())).remarks)
"""


@pytest.mark.skipif(sys.platform == "emscripten", reason="a browser starts no other Python")
def test_a_first_picture_is_no_change_of_a_library():
    """In a new Python, where matplotlib has not yet chosen what draws."""
    done = subprocess.run([sys.executable, "-c", DRAWS], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


async def waits(X, W_Q, W_K, W_V):
    return by_loops(X, X, W_Q, W_K, W_V)


def yields(X, W_Q, W_K, W_V):
    yield from by_loops(X, X, W_Q, W_K, W_V)


async def yields_and_waits(X, W_Q, W_K, W_V):
    yield by_loops(X, X, W_Q, W_K, W_V)


async def favourite(q, k):
    return 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("number", "answers", "says"),
    [
        (1, {"attention_by_hand": waits}, "returns a coroutine, which has not run yet: begin the function with def"),
        (1, {"attention_by_hand": lambda *all: (waits(*all), waits(*all))}, "returns a coroutine"),
        (1, {"attention_by_hand": yields}, "returns a generator, which has not computed anything yet"),
        (1, {"attention_by_hand": yields_and_waits}, "returns an asynchronous generator"),
        (2, {"favourites": favourite}, "returns a coroutine"),
        (2, {"favourites": lambda q, k: (0 for _ in q)}, "returns a generator"),
        (2, {"favourites": lambda q, k: map(int, q)}, "anything yet: list(map(…)) makes a list of it"),
        (4, {"attention_parameters": lambda d, k, v: (n for n in (d, k))}, "returns a generator"),
        (6, {"mostly_itself": lambda scores, i: filter(None, scores)}, "returns a filter"),
    ],
)  # fmt: skip
def test_a_result_that_is_yet_to_be_computed_is_named(number, answers, says, capfd):
    found = findings(tried(number, **answers))[next(iter(answers))]
    gc.collect()
    assert (found.state, says in found.says) == (WRONG, True), found.says
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform == "emscripten", reason="a browser has no thread that could tell in time")
def test_what_cannot_be_stopped_is_told_in_time(monkeypatch):
    monkeypatch.setattr(trial, "LIMIT", 0.2)
    found = findings(tried(1, attention_by_hand=lambda *a: time.sleep(5)))["attention_by_hand"]
    assert "cannot be stopped; choose Kernel, Restart Kernel" in found.says


def test_checks_do_not_know_the_learners_variables():
    space = {"np": None, "X": 0, "attention": 2, "W_Q": "mine", "lists": by_lists}
    exec("def by_hand(X, W_Q, W_K, W_V):\n    return lists(X, X, W_Q, W_K, W_V)", space)
    assert tried(1, attention_by_hand=space["by_hand"]).passed


# Progress


def test_progress_is_noted_and_shown():
    assert "✔" not in progress().widget.children[1].value
    tried(3)
    tried(2, most=5)
    noted = json.loads(exercises.PROGRESS.read_text())
    assert list(noted) == ["3"]
    table = progress().widget.children[1].value
    assert table.count("✔ passed on ") == 1
    assert f"<td>Cross-attention</td><td>easy</td><td>✔ passed on {noted['3']}" in table
    tried(1)
    assert list(json.loads(exercises.PROGRESS.read_text())) == ["3", "1"]
    exercises.PROGRESS.unlink()
    assert "✔" not in progress().widget.children[1].value


@pytest.mark.parametrize(
    "damage", [b"{", b"\xff\xfe", b"[]", b'{"1": "soon"}', b'{"one": "2026-12-24"}', b"", b'{"1": 3}']
)
def test_damaged_progress_is_set_aside_and_named(damage):
    exercises.PROGRESS.write_bytes(damage)
    shown = progress().widget.children[2].value
    assert "progress.json could not be read and has been set aside as progress-damaged-1.json" in shown
    assert (exercises.PROGRESS.parent / "progress-damaged-1.json").read_bytes() == damage
    exercises.PROGRESS.write_bytes(damage)
    report = tried(1)
    assert "set aside as progress-damaged-2.json" in repr(report)
    assert list(json.loads(exercises.PROGRESS.read_text())) == ["1"]


def test_progress_that_cannot_be_written_is_told(monkeypatch):
    monkeypatch.setattr(exercises, "PROGRESS", exercises.Path("no_such_folder", "progress.json"))
    report = tried(1)
    assert report.passed
    assert "could not be written, so 20.9 will not know of it" in repr(report)


# Help


def buttons(shown):
    row = shown.widget.children[1]
    return row.children if hasattr(row, "children") else [row]


def passed_on(shown):
    """What the page is to show and then forget, decoded."""
    carrier = shown.widget.children[-2].children[0]
    return exercises.base64.b64decode(carrier.value).decode()


@pytest.fixture
def released(tmp_path):
    folder = tmp_path / "solutions"
    shutil.copytree(ROOT / "solutions", folder, ignore=shutil.ignore_patterns("progress*", ".ipynb_checkpoints"))
    return folder


@pytest.mark.parametrize("number", EXERCISES)
def test_three_steps_of_help_open_in_turn(number, released):
    help_ = hint(number)
    nudge, stronger, solution = buttons(help_)
    said = help_.widget.children[2:4]
    assert [step.disabled for step in (nudge, stronger, solution)] == [False, True, True]
    nudge.click()
    assert len(said[0].value) > 80
    assert (said[1].value, stronger.disabled, solution.disabled) == ("", False, True)
    stronger.click()
    assert len(said[1].value) > 80
    assert not solution.disabled
    assert passed_on(help_) == ""
    solution.click()
    assert "<pre>" in passed_on(help_)
    assert exercises.BEGIN not in passed_on(help_)
    assert exercises.STUB not in passed_on(help_)


@pytest.mark.parametrize("number", EXERCISES)
def test_the_revealed_solution_passes_and_leaves_the_widget(number, released):
    code = exercises._code(number)
    space = {"np": np}
    exec(code, space)
    assert check(number, *(space[name] for name in EXERCISES[number].answers)).passed
    shown = reveal(number)
    first = code.splitlines()[0]
    assert exercises.html.escape(first) in passed_on(shown)
    assert len(passed_on(shown).split("</pre>")[1]) > 200  # the explanation
    shown.widget.children[-2].children[1].value = "taken 1"  # as page.js says it
    assert passed_on(shown) == ""
    answer = explain(number)
    buttons(answer)[0].click()
    assert len(passed_on(answer)) > 200


def test_a_solution_can_be_put_into_a_cell(released, monkeypatch):
    class Shell:
        set_next_input = staticmethod(lambda code: put.append(code))

    put = []
    monkeypatch.setattr(exercises, "get_ipython", lambda: Shell)
    reveal(2, insert=True)
    (code,) = put
    assert "def favourites(q, k):" in code
    assert exercises.STUB not in code


TOMORROW = (exercises.datetime.date.today() + exercises.datetime.timedelta(1)).isoformat()


@pytest.mark.parametrize(
    ("date", "says"),
    [(None, "Not released yet: your teacher has the solutions."),
     (TOMORROW, "Not released yet: the solutions open on "),
     ("24 December", "should have a date such as 2026-12-24, and has '24 December'"), ("", "should have a date")],
)  # fmt: skip
def test_solutions_can_be_held_back(date, says, released, monkeypatch):
    monkeypatch.setattr(exercises, "BUNDLED", released / "none")
    if date is None:
        shutil.rmtree(released)
    else:
        (released / exercises.RELEASE).write_text(date)
    put = []
    monkeypatch.setattr(exercises, "get_ipython", lambda: type("Shell", (), {"set_next_input": put.append}))
    assert says in exercises.html.unescape(passed_on(reveal(1)))
    assert says in exercises.html.unescape(passed_on(reveal(1, insert=True)))
    assert put == []
    assert "<pre>" not in passed_on(reveal(1))
    answer = explain(1)
    buttons(answer)[0].click()
    assert says in exercises.html.unescape(passed_on(answer))
    help_ = hint(1)
    for step in buttons(help_):
        step.click()
    assert says in exercises.html.unescape(passed_on(help_))


def test_where_no_file_can_be_reached_they_come_with_the_package(released, monkeypatch, tmp_path):
    shutil.copytree(released, tmp_path / "bundled")
    shutil.rmtree(released)
    monkeypatch.setattr(exercises, "BUNDLED", tmp_path / "bundled")
    assert "<pre>" in passed_on(reveal(1))


def test_what_is_forgotten_is_said(released, monkeypatch):
    monkeypatch.setattr(exercises.page, "FILES_ARE_KEPT", False)
    assert "20.9 will not know that you passed" in exercises._note(1)


@pytest.mark.parametrize("date", ["2026-01-02", exercises.datetime.date.today().isoformat()])
def test_a_date_that_has_come_opens_them(date, released):
    (released / exercises.RELEASE).write_text(f"{date}\n")
    assert "<pre>" in passed_on(reveal(1))


def test_help_is_plain_words_and_code():
    """What `_written` knows: paragraphs and backticks."""
    texts = [text for pair in exercises.HINTS.values() for text in pair]
    for path in ROOT.glob("solutions/*.ipynb"):
        texts += [cell.source for cell in nbformat.read(path, 4).cells if cell.metadata.get("tags")]
    assert len(texts) == 24
    for text in texts:
        assert not exercises.re.search(r"^[#>|*-]|\*\*|\$|\]\(|```", text, exercises.re.MULTILINE)
        assert text.count("`") % 2 == 0
        assert "!--" not in exercises._written(text)
