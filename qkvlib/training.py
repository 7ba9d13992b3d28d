"""Gradient descent on the projections, one step at a time: losses, two ways to step, and the loop."""

from typing import NamedTuple

import numpy as np

from qkvlib.gradients import attention_gradients
from qkvlib.maths import Attention, attention, softmax, unmasked

METHODS = ("gradient descent", "Adam")
LARGEST = 1e6  # a number of a matrix beyond this is on its way to infinity


class DivergedError(ArithmeticError):
    """The numbers grow without end, or are no numbers any more; says at which step, and what to change."""


class State(NamedTuple):
    """Where training stands: after how many steps, with which loss, and ``X, W_Q, W_K, W_V, attention`` then."""

    step: int
    loss: float
    X: np.ndarray
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    attention: Attention


def small_random(seed, *shapes, size=0.1):
    """Random normal matrices of the given shapes, the same for the same seed.

    size : the standard deviation of their numbers. Returns a list of arrays.

    >>> [W.shape for W in small_random(0, (3, 4), (2, 4))]
    [(3, 4), (2, 4)]
    """
    random = np.random.default_rng(seed)
    return [random.normal(scale=size, size=shape) for shape in shapes]


def pattern_loss(target, words=None):
    """A loss that is small where attention has the wanted weights: cross-entropy, the mean over the queries.

    Parameters
    ----------
    target : array-like (n_queries, n_keys), the weights wanted: probabilities, each row sums to 1.
    words : one label a query, to name a row that is impossible.

    Returns
    -------
    callable, for `train`: of an `Attention` it gives the loss and ``{"d_scores": (n_queries, n_keys)}``.

    Raises
    ------
    ValueError
        For a row that no softmax can give: negative, not finite, or not summing to 1.

    Notes
    -----
    Deep Learning (Goodfellow, Bengio and Courville), section 3.13, cross-entropy. Its gradient at the scores is
    weights minus target (section 6.2.2.3), which stays useful where the softmax is saturated.

    >>> from qkvlib import attention, chapter
    >>> loss, gradient = pattern_loss(np.eye(3))(attention(*chapter.three_words.arrays))
    >>> round(loss, 3), gradient["d_scores"].shape
    (1.546, (3, 3))
    """
    target = _distribution(target, words)

    def loss(attended):
        if attended.weights.shape != target.shape:
            raise ValueError(f"target: expected {attended.weights.shape}, one row a query, got {target.shape}")
        return _cross_entropy(attended.scores, attended.weights, target), {
            "d_scores": (attended.weights - target) / len(target)
        }

    return loss


def output_loss(target):
    """A loss that is small where attention has the wanted output: half the squared distance, mean over the queries.

    target : array-like (n_queries, d_v). Returns a callable, for `train`: of an `Attention` it gives the loss and
    ``{"d_output": (n_queries, d_v)}``. Deep Learning, section 5.1.4, has the mean squared error.

    >>> from qkvlib import attention, chapter
    >>> output_loss(np.zeros((3, 4)))(attention(*chapter.three_words.arrays))[1]["d_output"].shape
    (3, 4)
    """
    target = np.array(target, float)

    def loss(attended):
        if attended.output.shape != target.shape:
            raise ValueError(f"target: expected {attended.output.shape}, one row a query, got {target.shape}")
        away = attended.output - target
        return float((away**2).sum() / (2 * len(target))), {"d_output": away / len(target)}

    return loss


def class_loss(classes):
    """A loss that is small where each query's output is largest at its class: cross-entropy of the outputs' softmax.

    classes : array-like of int (n_queries,), each from 0 to d_v - 1. Returns a callable, for `train`: of an
    `Attention` it gives the loss and ``{"d_output": (n_queries, d_v)}``. Deep Learning, section 6.2.2.3.

    >>> from qkvlib import attention, chapter
    >>> class_loss([0, 2, 1])(attention(*chapter.three_words.arrays))[1]["d_output"].shape
    (3, 4)
    """
    classes = np.array(classes)

    def loss(attended):
        target = np.eye(attended.output.shape[1])[classes]
        weights = softmax(attended.output)
        return _cross_entropy(attended.output, weights, target), {"d_output": (weights - target) / len(target)}

    return loss


def train(X, W_Q, W_K, W_V, loss, *, learn=("W_Q", "W_K"), tied=False, method="Adam", rate=0.1, **options):
    """Change matrices step by step so that a loss falls; an endless iterator, to stop, step and go back in.

    Parameters
    ----------
    X, W_Q, W_K, W_V : as for `attention`: where training starts. They are not changed.
    loss : callable that of an `Attention` gives a number, and how fast it grows, as keywords of
        `attention_gradients`; `pattern_loss`, `output_loss` and `class_loss` make one.
    learn : which of "X", "W_Q", "W_K", "W_V" change.
    tied : bool
        W_K is W_Q, at the start and after every step; the two gradients add up.
    method : "gradient descent" or "Adam" (Kingma and Ba 2015, Algorithm 1, with its defaults but for the rate)
    rate : the learning rate, above 0.
    options : context, scaled and keep, as for `attention`

    Yields
    ------
    State
        First that of the start, then one after each step. The same start gives the same states.

    Raises
    ------
    ValueError
        For an unknown name, a rate that is not above 0, or what `attention` and the loss refuse.
    DivergedError
        When a number of a matrix passes a million or the loss is no longer finite. The states before stay good.

    >>> from qkvlib import chapter
    >>> steps = train(*chapter.three_words.arrays, pattern_loss(np.eye(3)), rate=0.5)
    >>> losses = [next(steps).loss for _ in range(50)]
    >>> losses[-1] < losses[0]
    True
    """
    learn = tuple(learn)
    if not learn or set(learn) - {"X", "W_Q", "W_K", "W_V"}:
        raise ValueError(f"learn: expected some of X, W_Q, W_K, W_V, got {learn!r}")
    if method not in METHODS:
        raise ValueError(f"method: expected {' or '.join(map(repr, METHODS))}, got {method!r}")
    if not 0 < rate < np.inf:
        raise ValueError(f"learning rate: expected a number above 0, such as 0.1, got {rate:g}")
    values = {"X": X, "W_Q": W_Q, "W_K": W_Q if tied else W_K, "W_V": W_V}
    values = {name: np.array(unmasked(name, value), float) for name, value in values.items()}
    return _steps(values, loss, learn, tied, _Adam(rate) if method == "Adam" else _Descent(rate), options)


def _steps(values, loss, learn, tied, method, options):
    for step in range(10**9):
        attended = attention(**values, **options)
        value, wanted = loss(attended)
        if not np.isfinite(value):
            raise _diverged(step, f"the loss is {value}", method.rate)
        yield State(step, value, **values, attention=attended)
        gradients = attention_gradients(**values, **wanted, **options, made=attended)._asdict()
        if tied:
            gradients["W_Q"] = gradients["W_Q"] + gradients["W_K"]
        for name in learn:
            values[name] = values[name] + method.step(name, gradients[name])
        if tied:
            values["W_K"] = values["W_Q"]
        largest = max(np.abs(array).max() for array in values.values())
        if not largest < LARGEST:  # NaN too
            raise _diverged(step + 1, f"a matrix has the number {largest:.0e}", method.rate)


def _diverged(step, says, rate):
    advice = f"The learning rate {rate:g} is too high; try {rate / 10:g}."
    return DivergedError(f"Step {step}: {says}, training runs away. {advice}")


class _Descent:
    """Plain gradient descent: downhill by the rate times the gradient (Deep Learning, equation 4.5)."""

    def __init__(self, rate):
        self.rate = rate

    def step(self, name, gradient):
        return -self.rate * gradient


class _Adam:
    """Steps of about the rate each, whatever the size of the gradient (Kingma and Ba 2015, Algorithm 1)."""

    def __init__(self, rate):
        self.rate, self._means = rate, {}

    def step(self, name, gradient):
        mean, square, count = self._means.get(name, (0.0, 0.0, 0))
        mean, square, count = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2, count + 1
        self._means[name] = mean, square, count
        return -self.rate * mean / (1 - 0.9**count) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)


def _cross_entropy(scores, weights, target):
    """The mean over the rows of -sum(target * log softmax(scores)), finite where a weight has become 0."""
    # Two weights of a row differ by the factor exp of the difference of their scores. The largest weight of a row
    # is never 0, and never a masked one.
    largest = weights.argmax(axis=1, keepdims=True)
    above = scores - np.take_along_axis(scores, largest, axis=1)
    logarithms = above + np.log(np.take_along_axis(weights, largest, axis=1))
    return float(-(target * logarithms).sum() / len(target)) + 0.0  # never -0.0


def _distribution(target, words):
    target = np.array(target, float)
    if target.ndim != 2 or 0 in target.shape:
        raise ValueError(f"target: expected (n_queries, n_keys), the weights wanted, got {target.shape}")
    for i, row in enumerate(target):
        name = f"target, row {i + 1}{f' ({words[i]})' if words else ''}"
        if not np.isfinite(row).all() or row.min() < 0:
            bad = row[~(np.isfinite(row) & (row >= 0))][0]
            raise ValueError(f"{name}: expected weights from 0 to 1, got {bad:g}")
        if abs(row.sum() - 1) > 1e-6:
            raise ValueError(f"{name}: expected weights that sum to 1, got {row.sum():g}")
    return target
