"""Gradients by moving each number a little: slow, simple, and what a derivation is checked against."""

import numpy as np


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
