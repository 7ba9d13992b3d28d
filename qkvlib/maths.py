"""The arithmetic of Query/Key/Value attention, in numpy, on one page.

Shapes: a sequence X is (n, d_model), one row a position. A weight matrix W is stored
(d_out, d_in), as linear layers in deep-learning frameworks store it, so projecting a
sequence is ``X @ W.T``. In scores and weights, rows are queries and columns are keys.
"""

from typing import NamedTuple

import numpy as np


class Attention(NamedTuple):
    """Every step of one attention: ``Q, K, V, scores, weights, output``.

    Q (n_queries, d_k), K (n_keys, d_k), V (n_keys, d_v): the projections.
    scores (n_queries, n_keys): dot products, any real number.
    weights (n_queries, n_keys): probabilities, each row sums to 1.
    output (n_queries, d_v): each row a mixture of the rows of V.
    """

    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    output: np.ndarray


def project(X, W):
    """Project every position of a sequence with the same matrix: ``X @ W.T``.

    Parameters
    ----------
    X : array-like (n, d_in)
        One row a position.
    W : array-like (d_out, d_in)
        The projection, the same for every position.

    Returns
    -------
    array (n, d_out), float64 (float32 where X and W both are).

    Raises
    ------
    ValueError
        For a shape that does not fit, an empty array, NaN, infinity, or numbers so large that a product overflows.
    TypeError
        For anything but real numbers, and for a masked array.

    Notes
    -----
    Section 20.3 of the chapter, which writes the same thing W x for one position.

    >>> project([[0.5, -0.2, 0.8, 0.1]], [[0.3, -0.1, 0.4, 0.2]]).round(2)
    array([[0.51]])
    """
    X, W = _reals(X=X, W=W)
    _check_projection("W", W, "X", X)
    return _product("X @ W.T", X, W)


def softmax(scores, keep=None):
    """Turn scores into weights: exponentials divided by their sum, over the keys.

    Parameters
    ----------
    scores : array-like (..., n_keys)
        Any finite real numbers.
    keep : array-like of bool, the shape of scores, optional
        True where a query may look. A query that may look nowhere gets weights 0.

    Returns
    -------
    array of the shape of scores: probabilities, each row sums to 1.

    Raises
    ------
    ValueError
        For NaN, infinity, an empty array, or a mask that is not boolean or does not fit.
    TypeError
        For anything but real numbers, and for a masked array.

    Notes
    -----
    Subtracting a row's largest score changes nothing in the result and keeps the
    exponentials finite (Goodfellow, Bengio and Courville, Deep Learning, section 4.1).

    >>> softmax([[0.0, 3.0, 0.0, 0.0]]).round(2)
    array([[0.04, 0.87, 0.04, 0.04]])
    """
    (scores,) = _reals(scores=scores)
    if scores.ndim == 0 or scores.size == 0:
        raise ValueError(f"scores: expected (..., n_keys) with at least one key, got {scores.shape}")
    keep = np.ones(scores.shape, bool) if keep is None else _mask(keep, scores.shape)
    largest = np.max(scores, axis=-1, keepdims=True, where=keep, initial=-np.inf)
    # Outside keep a score may be far above the largest kept one: it must not reach exp.
    with np.errstate(over="ignore"):  # so far below the largest that the weight is 0
        shifted = np.subtract(scores, largest, where=keep, out=np.zeros_like(scores))
    exponentials = np.where(keep, np.exp(shifted), 0)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(total == 0, 1, total)


def attention(X, W_Q, W_K, W_V, *, context=None, scaled=False, keep=None):
    """Query/Key/Value attention: score, normalise, blend.

    Parameters
    ----------
    X : array-like (n_queries, d_model)
        The sequence whose positions ask.
    W_Q, W_K : array-like (d_k, d_model)
        Projections to queries and keys.
    W_V : array-like (d_v, d_model)
        Projection to values.
    context : array-like (n_keys, d_model), optional
        The sequence that keys and values come from; by default X itself (self-attention).
    scaled : bool
        Divide the scores by sqrt(d_k). The chapter does not; "Attention Is All You Need"
        (Vaswani et al. 2017, equation 1) does.
    keep : array-like of bool (n_queries, n_keys), optional
        True where a query may look. A query that may look nowhere gets weights and output 0.

    Returns
    -------
    Attention
        The named tuple ``Q, K, V, scores, weights, output``; float64, or float32 where
        every input is. The inputs are never changed.

    Raises
    ------
    ValueError
        For shapes that do not fit, empty sequences, NaN, infinity, or numbers so large that a product overflows;
        it names the argument.
    TypeError
        For anything but real numbers, and for a masked array.

    Notes
    -----
    Sections 20.4 and 20.6 of the chapter; with ``context``, section 20.7.

    >>> X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> attention(X, [[2.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]]).weights.round(2)
    array([[0.06, 0.47, 0.47],
           [0.33, 0.33, 0.33],
           [0.06, 0.47, 0.47]])
    """
    if context is None:
        X, W_Q, W_K, W_V = _reals(X=X, W_Q=W_Q, W_K=W_K, W_V=W_V)
        source, name = X, "X"
    else:
        X, W_Q, W_K, W_V, source = _reals(X=X, W_Q=W_Q, W_K=W_K, W_V=W_V, context=context)
        name = "context"
    _check_projection("W_Q", W_Q, "X", X)
    _check_projection("W_K", W_K, name, source)
    _check_projection("W_V", W_V, name, source)
    if len(W_Q) != len(W_K):
        raise ValueError(
            f"W_K: expected ({len(W_Q)}, {W_K.shape[1]}), since W_Q has d_k {len(W_Q)} "
            f"and a query is compared with a key number by number, got {W_K.shape}"
        )
    Q = _product("X @ W_Q.T", X, W_Q)
    K, V = _product(f"{name} @ W_K.T", source, W_K), _product(f"{name} @ W_V.T", source, W_V)
    scores = _product("Q @ K.T", Q, K)
    if scaled:
        scores /= np.sqrt(len(W_K)).astype(scores.dtype)
    weights = softmax(scores, keep)
    return Attention(Q, K, V, scores, weights, weights @ V)


def _reals(**arrays):
    """The arrays as float64, or as float32 where every one of them is; checked, never copied back."""
    found = {name: _real(name, value) for name, value in arrays.items()}
    single = all(array.dtype == np.float32 for array in found.values())
    return [array.astype(np.float32 if single else np.float64) for array in found.values()]


def unmasked(name, value):
    """The value, where it is no masked array: `numpy` would drop its mask without a word. Else a TypeError."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: expected an array without a mask, got a masked array. "
            "Where a query may look is said by keep, an array of booleans: attention(..., keep=~mask)"
        )
    return value


def _product(name, A, B):
    with np.errstate(over="ignore", invalid="ignore"):  # said below, in words
        product = A @ B.T
    if not np.isfinite(product).all():
        most = np.finfo(product.dtype).max
        raise ValueError(f"{name}: the numbers are too large, their products pass {most:.1e}, the largest there is")
    return product


def _real(name, value):
    try:
        array = np.asarray(unmasked(name, value))
    except ValueError:  # numpy's word for lists of unequal length
        raise ValueError(f"{name}: expected rows of equal length, got a ragged list") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected real numbers, got {array.dtype.name} ({str(value)[:60]!r})")
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}: expected finite numbers, got {array[where]} at {where}")
    return array


def _check_projection(w_name, W, x_name, X):
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{x_name}: expected (n, d_model), one row a position and at least one, got {X.shape}")
    if W.ndim != 2 or len(W) == 0 or W.shape[1] != X.shape[1]:
        rows = {"W": "d_out", "W_V": "d_v"}.get(w_name, "d_k")
        raise ValueError(
            f"{w_name}: expected ({rows}, {X.shape[1]}) to fit {x_name} with d_model {X.shape[1]}, got {W.shape}"
        )


def _mask(keep, shape):
    keep = np.asarray(unmasked("keep", keep))
    if keep.dtype != bool or keep.shape != shape:
        raise ValueError(
            f"keep: expected booleans of shape {shape}, True where a query may look, "
            f"got {keep.dtype.name} of shape {keep.shape}"
        )
    return keep
