"""The backward pass of attention, one function a step, and finite differences to check a derivation against.

Every ``d_something`` has the shape of ``something`` and says how fast the loss grows with each of its numbers.
"""

from typing import NamedTuple

import numpy as np

from qkvlib.maths import attention


class Gradients(NamedTuple):
    """How fast a loss grows with each number of each input of `attention`, in the shapes of those inputs.

    context is None where there was none; X then has the share of its keys and values in it too.
    """

    X: np.ndarray
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    context: np.ndarray | None


def through_softmax(weights, d_weights):
    """Back from weights to scores: ``weights * (d_weights - sum over the row of weights * d_weights)``.

    weights, d_weights (n_queries, n_keys). Returns d_scores, the same shape; each of its rows adds up to 0.
    Deep Learning (Goodfellow, Bengio and Courville), section 6.2.2.3, has the function whose derivative this is.

    >>> through_softmax(np.array([[0.25, 0.75]]), np.array([[1.0, 0.0]]))
    array([[ 0.1875, -0.1875]])
    """
    shared = (weights * d_weights).sum(axis=-1, keepdims=True)
    return weights * (d_weights - shared)


def through_dot_product(d_scores, Q, K, scale=1.0):
    """Back from ``scores = scale * Q @ K.T`` to queries and keys: each adds up what all its partners send back.

    d_scores (n_queries, n_keys), Q (n_queries, d_k), K (n_keys, d_k). Returns d_Q and d_K.

    >>> through_dot_product(np.array([[1.0, 2.0]]), np.array([[3.0]]), np.array([[5.0], [7.0]]))
    (array([[19.]]), array([[3.],
           [6.]]))
    """
    return scale * d_scores @ K, scale * d_scores.T @ Q


def into_projection(d_projected, X, W):
    """Back from ``X @ W.T`` to its matrix, whose gradient adds up over the positions, and to the sequence.

    d_projected (n, d_out), X (n, d_in), W (d_out, d_in). Returns d_W and d_X.

    >>> into_projection(np.array([[2.0], [1.0]]), np.array([[1.0, 0.0], [3.0, 1.0]]), np.array([[5.0, 4.0]]))
    (array([[5., 1.]]), array([[10.,  8.],
           [ 5.,  4.]]))
    """
    return d_projected.T @ X, d_projected @ W


def attention_gradients(X, W_Q, W_K, W_V, *, d_scores=None, d_weights=None, d_output=None,
                        context=None, scaled=False, keep=None, made=None):  # fmt: skip
    """The backward pass of `attention`, for a loss that depends on its scores, weights or output.

    Parameters
    ----------
    X, W_Q, W_K, W_V, context, scaled, keep : as for `attention`
    d_scores, d_weights : array-like (n_queries, n_keys), optional
    d_output : array-like (n_queries, d_v), optional
        How fast the loss grows with each number of that step directly; at least one of the three. They add up.
    made : Attention, optional
        What `attention` gave for the same inputs, where that is known; by default it is computed.

    Returns
    -------
    Gradients
        The named tuple ``X, W_Q, W_K, W_V, context``.

    Raises
    ------
    ValueError
        As `attention` does; also where none of the three is given, or one does not fit.

    Notes
    -----
    The chain rule through `through_softmax`, `through_dot_product` and `into_projection`: exercise 5 of the chapter.

    >>> X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> W = [[2.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]]
    >>> attention_gradients(X, *W, d_output=[[1.0], [0.0], [0.0]]).W_V.round(2)
    array([[0.53, 0.94]])
    """
    made = made or attention(X, W_Q, W_K, W_V, context=context, scaled=scaled, keep=keep)
    source = np.asarray(X if context is None else context)
    given = {"scores": d_scores, "weights": d_weights, "output": d_output}
    if all(each is None for each in given.values()):
        raise ValueError("d_scores, d_weights, d_output: expected at least one of them, got none")
    d_scores, d_weights, d_output = (_like(name, each, getattr(made, name)) for name, each in given.items())
    d_V = made.weights.T @ d_output
    d_weights = d_weights + d_output @ made.V.T
    # Where a query may not look, its weight is 0 and stays 0: nothing comes back through the softmax.
    d_scores = d_scores + through_softmax(made.weights, d_weights)
    scale = len(made.K[0]) ** -0.5 if scaled else 1.0
    d_Q, d_K = through_dot_product(d_scores, made.Q, made.K, scale)
    d_W_Q, d_X = into_projection(d_Q, np.asarray(X), np.asarray(W_Q))
    d_W_K, d_source = into_projection(d_K, source, np.asarray(W_K))
    d_W_V, d_values = into_projection(d_V, source, np.asarray(W_V))
    if context is None:
        return Gradients(d_X + d_source + d_values, d_W_Q, d_W_K, d_W_V, None)
    return Gradients(d_X, d_W_Q, d_W_K, d_W_V, d_source + d_values)


def _like(name, given, made):
    given = np.zeros(made.shape) if given is None else np.asarray(given, float)
    if given.shape != made.shape:
        raise ValueError(f"d_{name}: expected {made.shape}, the shape of the {name}, got {given.shape}")
    return given


def numeric_gradient(loss, at, step=1e-6):
    """The gradient of a scalar loss, by central differences.

    Parameters
    ----------
    loss : callable, which takes an array of the shape of ``at`` and returns a number.
    at : array-like, any shape
    step : how far each number is moved, to both sides.

    Returns
    -------
    array of the shape of ``at``: how fast the loss grows with each number.

    Notes
    -----
    Deep Learning (Goodfellow, Bengio and Courville), section 11.5, equation 11.5 onwards, on finite differences.

    >>> numeric_gradient(lambda x: (x**2).sum(), [[1.0, -3.0]]).round(6)
    array([[ 2., -6.]])
    """
    at = np.array(at, float)
    gradient = np.empty_like(at)
    for place in np.ndindex(at.shape):
        kept = at[place]
        at[place] = kept + step
        above = loss(at)
        at[place] = kept - step
        gradient[place] = (above - loss(at)) / (2 * step)
        at[place] = kept
    return gradient


def gradient_check(loss, at, gradient, step=1e-6):
    """How far a gradient is from central differences, as a share of their length: below 1e-6 it is right.

    loss, at, step : as for `numeric_gradient`. gradient : array-like of the shape of ``at``, what was derived.
    Returns a number, 0 or more; where both are 0 everywhere it is 0. Raises ValueError for another shape.

    >>> gradient_check(lambda x: (x**2).sum(), [1.0, -3.0], [2.0, -6.0]) < 1e-6
    True
    """
    numeric, gradient = numeric_gradient(loss, at, step), np.asarray(gradient, float)
    if gradient.shape != numeric.shape:
        raise ValueError(f"gradient: expected {numeric.shape}, one number for each of the inputs, got {gradient.shape}")
    length = np.linalg.norm(numeric) + np.linalg.norm(gradient)
    return float(np.linalg.norm(gradient - numeric) / length) if length else 0.0
