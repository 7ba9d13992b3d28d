"""The six exercises: what is asked, on which inputs it is tried, and the usual mistakes by name.

Inputs are rectangular, asymmetric and unsaturated, so that each mistake gives other numbers than the right answer.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from qkvlib import chapter, judge
from qkvlib.gradients import numeric_gradient
from qkvlib.judge import RIGHT, UNTRIED, WRONG, Finding, Task
from qkvlib.maths import attention, softmax


class Exercise(NamedTuple):
    """title, difficulty, minutes; answers: the names of what `check` takes; judge: finds what is right and wrong."""

    title: str
    difficulty: str
    minutes: int
    answers: tuple
    judge: Callable


def _random(seed, *shapes):
    random = np.random.default_rng(seed)
    return tuple(random.normal(size=shape).round(2) for shape in shapes)


def _attend(Q, K, V, axis=1, scale=1.0):
    powers = np.exp(Q @ K.T * scale)
    weights = powers / powers.sum(axis=axis, keepdims=True)
    return weights, (weights if weights.shape[1] == len(V) else weights.T) @ V


_SIZES = {
    "d_k": lambda X, C, q, v: len(q), "d_model": lambda X, C, q, v: X.shape[1], "d_v": lambda X, C, q, v: len(v),
    "the number of keys": lambda X, C, q, v: len(C), "the number of queries": lambda X, C, q, v: len(X),
}  # fmt: skip
_POWERS = {"divided by √": -0.5, "divided by ": -1, "multiplied by √": 0.5, "multiplied by ": 1}


def _scales(*names):
    return tuple(
        (f"a scale was added: the scores are {how}{name}, and this chapter leaves that out",
         _scaled(_SIZES[name], power))
        for how, power in _POWERS.items() for name in names
    )  # fmt: skip


def _scaled(size, power):
    return lambda X, C, q, k, v: _attend(X @ q.T, C @ k.T, C @ v.T, scale=float(size(X, C, q, v)) ** power)


def _made_with(*chosen):
    """Attention with other matrices than W_Q, W_K, W_V in their places: 0, 1, 2 for these, None for none."""

    def attend(X, C, *W):
        return _attend(*(rows if at is None else rows @ W[at].T for rows, at in zip((X, C, C), chosen, strict=True)))

    return attend


def _misused(chosen):
    """What `_made_with` does, in words."""
    names, parts = ("W_Q", "W_K", "W_V"), ("queries", "keys", "values")
    unused = [name for at, name in enumerate(names) if at not in chosen]
    says = [
        f"the {part} are {'the rows that came in' if at is None else f'made with {names[at]}'}"
        for right, (part, at) in enumerate(zip(parts, chosen, strict=True))
        if at != right
    ]
    return f"{', '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used: " * bool(unused) + " and ".join(says)


_NAMED = {
    (0, 1, None): "V is not projected: the output mixes the rows that came in, not their values. Which matrix makes "
    "values?",
    (0, 1, 1): "the output mixes the keys. What is retrieved are the values",
    (1, 0, 2): "Q and K have changed places: W_Q makes queries, W_K makes keys",
}  # fmt: skip
_MATRICES = tuple(
    (_NAMED.get(chosen) or _misused(chosen), _made_with(*chosen))
    for chosen in itertools.product((0, 1, 2, None), repeat=3) if chosen != (0, 1, 2)
)  # fmt: skip
# What is wrong with attention, and attention with that fault; X asks, C (the context) is asked.
_ATTENTION_MISTAKES = (
    ("the softmax runs down the columns. A query shares itself out among the keys, so each row must sum to 1",
     lambda X, C, q, k, v: _attend(X @ q.T, C @ k.T, C @ v.T, axis=0)),
    ("all the weights together sum to 1. Each row must, on its own",
     lambda X, C, q, k, v: _attend(X @ q.T, C @ k.T, C @ v.T, axis=None)),
    ("the softmax is missing: these weights are still scores",
     lambda X, C, q, k, v: (X @ q.T @ (C @ k.T).T, X @ q.T @ (C @ k.T).T @ (C @ v.T))),
    ("a matrix W is not transposed. It is stored (d_out, d_in), so that a sequence is multiplied by its transpose",
     lambda X, C, q, k, v: _attend(_turned(X, q), _turned(C, k), _turned(C, v))),
    ("rows and columns have changed places: queries are the rows, keys are the columns",
     lambda X, C, q, k, v: tuple(part.T for part in _attend(X @ q.T, C @ k.T, C @ v.T))),
    ("the two results have changed places: weights first, then the output",
     lambda X, C, q, k, v: _attend(X @ q.T, C @ k.T, C @ v.T)[::-1]),
    *_scales("d_k", "d_model", "d_v", "the number of keys"),
    *_MATRICES,
)  # fmt: skip


def _turned(X, W):
    """A sequence with W not transposed; where that would not fit, with W poured into the other shape."""
    return X @ (W if W.shape[0] == W.shape[1] else W.reshape(W.shape[::-1]))


# 1: the identity

_HAND = Task(
    "attention_by_hand", ("weights", "output"),
    lambda X, W_Q, W_K, W_V: attention(X, W_Q, W_K, W_V)[-2:],
    (_random(11, (5, 4), (3, 4), (3, 4), (2, 4)), _random(12, (3, 4), (4, 4), (4, 4), (4, 4))),
    tuple((says, lambda X, q, k, v, wrong=wrong: wrong(X, X, q, k, v)) for says, wrong in _ATTENTION_MISTAKES),
)  # fmt: skip


def _identity(W):
    matrix, problem = _array("W", W)
    if matrix is None:
        return Finding("W", *problem)
    if matrix.shape != (4, 4):
        says = f"expected 4 x 4, since X has 4 columns and raw attention compares all of them, got {matrix.shape}"
    elif np.allclose(matrix, np.eye(4)):
        return Finding("W", RIGHT)
    elif np.allclose(matrix, matrix[0, 0] * np.eye(4)):
        says = f"{matrix[0, 0]:g} times the right matrix: the vectors change their length, and the scores with them"
    elif np.allclose(matrix, 1):
        says = "only ones: every component becomes the sum of all. Which matrix leaves a vector as it is?"
    elif np.allclose(matrix @ matrix.T, np.eye(4)):
        says = "the scores stay as they were, for it only turns or flips the vectors; but it does so to the values too"
    else:
        says = "it does not leave a vector as it is. What must stand on the diagonal, and what beside it?"
    return judge.wrong("W", says)


# 2: one number for a query and a key


def _ranked(q, k):
    return [int(np.argmax(k) if one > 0 else np.argmin(k)) for one in q]


_FAVOURITES = Task(
    "favourites", ("favourites",), _ranked,
    tuple((np.array(q), np.array(k)) for q, k in (
        ([0.7, -1.2, 0.1, -0.3, 2.0], [0.9, 1.4, -1.8, 0.2]), ([-0.5, 0.4, -2.0], [0.3, 1.1, 0.6, 2.2, 0.8]),
        ([1.5, 0.2, -0.1, -0.9], [-1.0, -0.4, -2.5]))),
    (
        ("the sign of the query is ignored: with a negative query the order of the keys turns round",
         lambda q, k: [int(np.argmax(k))] * len(q)),
        ("the two signs have changed places: a positive query prefers the largest key",
         lambda q, k: _ranked(-q, k)),
        ("it looks for the largest |k|. A large negative key is no favourite of a positive query",
         lambda q, k: [int(np.argmax(np.abs(k)))] * len(q)),
        ("it always takes the smallest key: with a positive query that comes last",
         lambda q, k: [int(np.argmin(k))] * len(q)),
        ("it counts from 1; Python counts positions from 0", lambda q, k: [at + 1 for at in _ranked(q, k)]),
        ("it returns the keys themselves. Where do they stand?", lambda q, k: [k[at] for at in _ranked(q, k)]),
        ("it goes through the keys. Each query has a favourite: one result for every number in q",
         lambda q, k: _ranked(k, q)),
        ("it returns who is a favourite at all. What is asked is the favourite of each query, in order",
         lambda q, k: sorted(set(_ranked(q, k)))),
    ),
)  # fmt: skip


def _most(answer):
    return _count("most", answer, 2, {
        1: "There can be more: let one query be positive and another one negative",
        3: "Three were never all favourites at once. Look again: a tie (q = 0, or two equal keys) is no favourite",
        4: "Every word has a favourite, but different words may have the same one. Count the columns that win a row",
    }, "Count in the picture the columns that have the largest weight of some row")  # fmt: skip


# 3: cross-attention

_CROSS = Task(
    "cross_attention", ("weights", "output"),
    lambda D, E, W_Q, W_K, W_V: attention(D, W_Q, W_K, W_V, context=E)[-2:],
    (_random(31, (3, 4), (5, 4), (2, 4), (2, 4), (3, 4)), _random(32, (4, 3), (2, 3), (3, 3), (3, 3), (3, 3))),
    (
        ("the context is used for Q: queries come from the decoder, one row of weights for each of its positions",
         lambda D, E, q, k, v: _attend(E @ q.T, E @ k.T, E @ v.T)),
        ("this is the decoder's attention to itself: keys and values must come from the encoder",
         lambda D, E, q, k, v: _attend(D @ q.T, D @ k.T, D @ v.T)),
        ("decoder and encoder have changed places: the decoder asks, the encoder is asked",
         lambda D, E, q, k, v: _attend(E @ q.T, D @ k.T, D @ v.T)),
        *_ATTENTION_MISTAKES,
        *_scales("the number of queries"),  # of one sequence there are as many as keys
    ),
)  # fmt: skip

# 4: counting

_COUNTS = ((6, 2, 3), (10, 4, 4), (8, 5, 1), (7, 1, 6))
_ATTENTION_COUNT = judge.each(
    "attention_parameters", lambda d, k, v: (2 * k + v) * d, _COUNTS,
    (
        ("biases are counted; the projections of this chapter have none", lambda d, k, v: (2 * k + v) * (d + 1)),
        ("counted in the wrong unit: this is the number of bytes at 4 bytes each. How many numbers are there?",
         lambda d, k, v: 4 * (2 * k + v) * d),
        ("counted in the wrong unit: thousands. How many single numbers are there?",
         lambda d, k, v: (2 * k + v) * d / 1000),
        ("only two matrices are counted. There are three", lambda d, k, v: (k + v) * d),
        ("only one matrix is counted. There are three", lambda d, k, v: k * d),
        ("it takes all three matrices for equally large; W_V has d_v rows", lambda d, k, v: 3 * k * d),
        ("d_k and d_v have changed places: two matrices have d_k rows, one has d_v",
         lambda d, k, v: (2 * v + k) * d),
        ("it adds rows and columns. A matrix has rows times columns numbers", lambda d, k, v: 2 * (k + d) + v + d),
        ("a fourth matrix is counted, which takes the output back to d_model; this chapter has none",
         lambda d, k, v: (2 * k + 2 * v) * d),
    ),
)  # fmt: skip
_DENSE_COUNT = judge.each(
    "dense_parameters", lambda n, m, bias: n * m + m * bias,
    ((6, 2, True), (6, 2, False), (5, 7, True), (3, 4, False)),
    (
        ("it never counts the bias", lambda n, m, bias: n * m),
        ("it always counts the bias", lambda n, m, bias: n * m + m),
        ("with a bias and without have changed places", lambda n, m, bias: n * m + m * (not bias)),
        ("it has a bias for every input. There is one for every output", lambda n, m, bias: n * m + n * bias),
        ("the bias is counted as one number. There is one for every output", lambda n, m, bias: n * m + bias),
        ("counted in the wrong unit: bytes at 4 bytes each", lambda n, m, bias: 4 * (n * m + m * bias)),
    ),
)  # fmt: skip


def _ratio(name, answer, right, other):
    value, problem = _number(name, answer)
    if value is None:
        return Finding(name, *problem)
    if abs(value - right) < 0.0006:
        return Finding(name, RIGHT)
    says = "Divide what attention has by what the layer has, at d_model 512 and d_k = d_v = 64"
    if abs(value - 1 / right) < 0.0006:
        says = "The wrong way up: attention divided by the layer, not the layer by attention"
    elif abs(value - other) < 0.0006:
        says = f"This is the ratio {'without' if right < other else 'with'} the bias of the layer"
    elif abs(value - right) < 0.006 or round(value) == round(right):
        says = "Nearly. Give three digits after the point"
    elif abs(value / right - 100) < 0.1:
        says = "Counted in the wrong unit: per cent. How many times as many are there?"
    return judge.wrong(name, says)


def _grows(answer):
    if answer is ...:
        return Finding("grows", UNTRIED)
    said = answer.strip().lower() if isinstance(answer, str) else answer
    if said in ("none", "neither"):
        return Finding("grows", RIGHT)
    says = 'expected one of the words "attention", "dense", "both", "none", in quotes'
    if said in ("attention", "both"):
        says = "a longer sequence gives more scores and weights, but those are computed. Which numbers are learned?"
    elif said == "dense":
        says = "the layer takes one position at a time, as the projections do"
    return judge.wrong("grows", says)


# 5: the backward pass. Expected is always what finite differences give, never a formula.


def _softmax_probe(seed, shape):
    scores, d_weights = _random(seed, shape, shape)
    return softmax(scores), d_weights


def _into_scores(weights, d_weights):
    scores = np.log(weights)  # any scores with these weights will do: a constant in a row changes nothing
    return numeric_gradient(lambda moved: (softmax(moved) * d_weights).sum(), scores)


_STEPS = (
    Task(
        "through_softmax", ("d_scores",), _into_scores,
        (_softmax_probe(51, (3, 5)), _softmax_probe(52, (4, 2))),
        (
            ("the second term of the softmax's Jacobian is missing: a score that rises takes weight from the others",
             lambda w, d: w * d),
            ("only the Jacobian's diagonal is used: each score changes every weight of its row",
             lambda w, d: w * (1 - w) * d),
            ("the sum runs down the columns. A softmax knows only its own row",
             lambda w, d: w * (d - (w * d).sum(axis=0, keepdims=True))),
            ("the sum runs over everything. A softmax knows only its own row", lambda w, d: w * (d - (w * d).sum())),
            ("a mean in place of the sum", lambda w, d: w * (d - (w * d).mean(axis=1, keepdims=True))),
            ("the factor in front is missing: the Jacobian's row is multiplied by the weight itself",
             lambda w, d: d - (w * d).sum(axis=1, keepdims=True)),
            ("the sign is turned round", lambda w, d: w * ((w * d).sum(axis=1, keepdims=True) - d)),
            ("the gradient is transposed: it has the shape of the scores", lambda w, d: _into_scores(w, d).T),
        ), shown=True,
    ),
    Task(
        "through_dot_product", ("d_Q",),
        lambda d, K, scale: numeric_gradient(lambda Q: (d * (scale * Q @ K.T)).sum(), np.zeros((len(d), K.shape[1]))),
        ((*_random(53, (3, 5), (5, 2)), 0.5), (*_random(54, (4, 4), (4, 3)), 3.0)),
        (
            ("the scale is left out: a score is scale times q · k, and changes as much", lambda d, K, scale: d @ K),
            ("divided by the scale in place of multiplied", lambda d, K, scale: d @ K / scale),
            ("a mean over the keys in place of the sum", lambda d, K, scale: scale * d @ K / len(K)),
            ("the gradient is transposed: it has the shape of Q", lambda d, K, scale: scale * (d @ K).T),
            ("the scale is used twice", lambda d, K, scale: scale**2 * d @ K),
            ("the sign is turned round", lambda d, K, scale: -scale * d @ K),
            ("Q and K have changed places: rows of d_scores are queries, columns are keys",
             lambda d, K, scale: scale * (d.T if len(d) == len(K) else d) @ K),
        ), shown=True,
    ),
    Task(
        "into_projection", ("d_W_Q",),
        lambda d, X: numeric_gradient(lambda W: (d * (X @ W.T)).sum(), np.zeros((d.shape[1], X.shape[1]))),
        (_random(55, (5, 2), (5, 4)), _random(56, (3, 3), (3, 3))),
        (
            ("the gradient is transposed: it has the shape of W_Q, which is (d_k, d_model)", lambda d, X: X.T @ d),
            ("a mean over the positions in place of the sum", lambda d, X: d.T @ X / len(X)),
            ("only the last position is used; all of them share W_Q, so their shares add up",
             lambda d, X: np.outer(d[-1], X[-1])),
            ("only the first position is used; all of them share W_Q, so their shares add up",
             lambda d, X: np.outer(d[0], X[0])),
            ("the positions are summed up before they meet: first multiply, then add up",
             lambda d, X: np.outer(d.sum(axis=0), X.sum(axis=0))),
            ("the sign is turned round", lambda d, X: -d.T @ X),
        ), shown=True,
    ),
)  # fmt: skip


# 6: who looks mostly at itself

_SELF = 3  # "down"


def _self_weights(answer):
    name, s = "self_weights", chapter.sentence
    got, problem = _array(name, answer)
    if got is None:
        return Finding(name, *problem)
    a, raw = attention(s.X, s.W_Q, s.W_K, s.W_V), attention(s.X, np.eye(4), np.eye(4), np.eye(4))
    right = a.weights.diagonal()
    if got.shape != (4,):
        says = f"expected four numbers, the weight of each word on itself, got the shape {got.shape}"
    elif np.allclose(got, right, atol=0.0006, rtol=0):
        return Finding(name, RIGHT)
    else:
        mistakes = (
            ("give three digits after the point", right.round(2)),
            ("counted in the wrong unit: per cent. Weights lie between 0 and 1", 100 * right),
            ("these are scores. Which numbers come out of the softmax?", a.scores.diagonal()),
            ("this is raw attention. Use the chapter's W_Q and W_K", raw.weights.diagonal()),
            ("a scale was added: the scores are divided by √d_k, and this chapter leaves that out",
             attention(*s.arrays, scaled=True).weights.diagonal()),
            ("the softmax runs down the columns, or Q and K have changed places", softmax(a.scores.T).diagonal()),
            ("these are the largest weights of the rows. Where does a word meet itself?", a.weights.max(axis=1)),
            ("these run from the last word to the first", right[::-1]),
        )  # fmt: skip
        found = [says for says, wrong in mistakes if np.allclose(got, wrong, atol=0.0006, rtol=1e-3)]
        says = [*found, "look at the diagonal of the weights of 20.6: row and column of the same word"][0]
    return judge.wrong(name, says)


def _how_many(answer):
    return _count("how_many", answer, 0, {
        1: 'You may think of "down", whose weight on itself is the largest of the four. Is it more than half?',
        4: "Each word has some weight on itself. Mostly means more than half",
    }, "Mostly means more than half: compare each of the four weights with 0.5")  # fmt: skip


def _matrices(W_Q, W_K):
    name, s = "W_Q and W_K", chapter.sentence
    if W_Q is ... or W_K is ...:
        return Finding(name, UNTRIED)
    try:
        weights = attention(s.X, W_Q, W_K, s.W_V).weights
        turned = attention(s.X, W_K, W_Q, s.W_V).weights
    except (ValueError, TypeError) as error:
        return judge.wrong(name, str(error))
    own, favourite = weights[_SELF, _SELF], int(weights[_SELF].argmax())
    if own > 0.5:
        return Finding(name, RIGHT, f'"down" gives itself {own:.3f}.')
    says = f'"down" looks most at "{s.words[favourite]}" and gives itself {own:.3f}'
    if favourite == _SELF:
        says = f'"down" looks most at itself, but gives itself only {own:.3f}. Mostly means more than half'
    elif turned[_SELF, _SELF] > 0.5:
        says = "Q and K have changed places: the other way round these two would do it"
    elif any(weights[i, i] > 0.5 for i in range(4)):
        at = next(i for i in range(4) if weights[i, i] > 0.5)
        says = f'"{s.words[at]}" looks mostly at itself, but "down" was asked for, and gives itself {own:.3f}'
    return judge.wrong(name, says)


def _others(scores, i):
    return np.delete(scores[i], i)


_SCORES = (*_random(61, (4, 4)), *(1.5 * scores for scores in _random(62, (4, 4), (3, 3))),
           np.array([[0.3, 0.1, 0.1], [-1.0, -0.9, -0.8], [1.2, -3.0, 2.4]]))  # fmt: skip
_MOSTLY = judge.each(
    "mostly_itself", lambda scores, i: np.exp(scores[i, i]) > np.exp(_others(scores, i)).sum(),
    tuple((scores, i) for scores in _SCORES for i in range(len(scores))),
    (
        ("being the favourite is not enough: three others together may still get more than half",
         lambda scores, i: scores[i, i] > _others(scores, i).max()),
        ("it compares with the sum of the other scores. Not scores are added up in a softmax, but their exponentials",
         lambda scores, i: scores[i, i] > _others(scores, i).sum()),
        ("it compares with the mean of the other exponentials. They count together",
         lambda scores, i: np.exp(scores[i, i]) > np.exp(_others(scores, i)).mean()),
        ("it compares with the mean of the other scores", lambda scores, i: scores[i, i] > _others(scores, i).mean()),
        ("a positive score is not enough: what counts is how far it stands above the others of its row",
         lambda scores, i: scores[i, i] > 0),
        ("it looks down the column. Where a word looks stands in its row",
         lambda scores, i: np.exp(scores[i, i]) > np.exp(_others(scores.T, i)).sum()),
        ("it takes the scores for weights: before the softmax, 0.5 means nothing",
         lambda scores, i: scores[i, i] > 0.5),
        ("it is turned round: it says True where the word looks mostly elsewhere",
         lambda scores, i: np.exp(scores[i, i]) < np.exp(_others(scores, i)).sum()),
    ),
)  # fmt: skip


# Answers that are numbers


def _array(name, answer):
    """An answer as a finite array, or None and (state, why)."""
    if answer is ...:
        return None, (UNTRIED,)
    matrix, problem = judge.numbers(name, answer)
    if problem:
        return None, (WRONG, f"{problem}.")
    if not np.isfinite(matrix).all():
        return None, (WRONG, f"expected finite numbers, got {matrix[~np.isfinite(matrix)][0]}.")
    return matrix, ()


def _number(name, answer):
    matrix, problem = _array(name, answer)
    if matrix is not None and (matrix.shape != () or isinstance(answer, bool)):
        return None, (WRONG, f"expected one number, got {answer!r}.")
    return matrix if matrix is None else float(matrix), problem


def _count(name, answer, right, known, otherwise):
    """Judge a number that was counted; ``known`` has what to say of the wrong ones that can be guessed."""
    value, problem = _number(name, answer)
    if value is None:
        return Finding(name, *problem)
    return Finding(name, RIGHT) if value == right else judge.wrong(name, known.get(value, otherwise))


_WITHOUT, _WITH = 98304 / 32768, 98304 / 32832
EXERCISES = {
    1: Exercise("The identity gives raw attention", "easy", 10, ("attention_by_hand", "W"),
                lambda by_hand, W: [judge.function(by_hand, _HAND), _identity(W)]),
    2: Exercise("One number for a query and a key", "medium", 20, ("most", "favourites"),
                lambda most, favourites: [_most(most), judge.function(favourites, _FAVOURITES)]),
    3: Exercise("Cross-attention", "easy", 15, ("cross_attention",),
                lambda cross_attention: [judge.function(cross_attention, _CROSS)]),
    4: Exercise("Counting parameters", "easy", 10,
                ("attention_parameters", "dense_parameters", "ratio", "ratio_with_bias", "grows"),
                lambda attention_parameters, dense_parameters, ratio, ratio_with_bias, grows: [
                    judge.function(attention_parameters, _ATTENTION_COUNT),
                    judge.function(dense_parameters, _DENSE_COUNT),
                    _ratio("ratio", ratio, _WITHOUT, _WITH),
                    _ratio("ratio_with_bias", ratio_with_bias, _WITH, _WITHOUT),
                    _grows(grows)]),
    5: Exercise("The backward pass for W_Q", "hard", 45, tuple(step.name for step in _STEPS),
                lambda *steps: [judge.function(*pair) for pair in zip(steps, _STEPS, strict=True)]),
    6: Exercise("Who looks mostly at itself", "medium", 20,
                ("self_weights", "how_many", "W_Q", "W_K", "mostly_itself"),
                lambda self_weights, how_many, W_Q, W_K, mostly_itself: [
                    _self_weights(self_weights), _how_many(how_many), _matrices(W_Q, W_K),
                    judge.function(mostly_itself, _MOSTLY)]),
}  # fmt: skip
