"""The words and matrices of the chapter, by name. Every array is read-only.

The chapter's matrices were chosen by hand, to make a pattern that can be seen; none was trained.
"""

from typing import NamedTuple

import numpy as np


def _fixed(rows):
    array = np.array(rows, float)
    array.flags.writeable = False
    return array


class Example(NamedTuple):
    """A sequence with its three projections.

    name, section: what a notebook calls it and where the chapter has it.
    words: one label a position. X (n, d_model). W_Q, W_K (d_k, d_model). W_V (d_v, d_model).
    """

    name: str
    section: str
    words: tuple
    X: np.ndarray
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray


projection = Example(
    name="projection",
    section="20.3",
    words=("x",),
    X=_fixed([[0.5, -0.2, 0.8, 0.1]]),
    W_Q=_fixed([[0.3, -0.1, 0.4, 0.2], [0.1, 0.5, -0.2, 0.3], [-0.2, 0.3, 0.1, -0.4]]),
    W_K=_fixed([[0.2, 0.4, -0.1, 0.3], [-0.3, 0.1, 0.5, 0.2], [0.4, -0.2, 0.3, -0.1]]),
    W_V=_fixed([[0.1, -0.3, 0.2, 0.5], [0.4, 0.2, -0.1, 0.3], [-0.1, 0.5, 0.3, -0.2]]),
)

sentence = Example(
    name="sentence",
    section="20.4 and 20.6",
    words=("the", "cat", "sat", "down"),
    X=_fixed([[1.0, 0.0, 0.5, -0.2], [0.3, 0.8, -0.1, 0.6], [-0.2, 0.1, 0.9, 0.3], [0.5, -0.3, 0.2, 0.7]]),
    W_Q=_fixed([[-0.54, 0.23, 1.14, 0.16], [1.01, 0.59, 3.72, -0.67], [1.27, 0.3, -1.02, 3.8]]),
    W_K=_fixed([[0.92, -0.4, 0.21, 0.11], [0.16, 0.92, -0.18, 0.33], [-0.26, -0.38, 0.83, 0.78]]),
    W_V=_fixed(np.eye(3, 4)),
)

three_words = Example(
    name="three_words",
    section="20.5",
    words=("A", "B", "C"),
    X=_fixed([[0.9, 0.1, 0.8, 0.2], [0.8, 0.2, 0.7, 0.3], [0.1, 0.9, 0.2, 0.8]]),
    W_Q=_fixed(np.eye(4)[::-1]),
    W_K=_fixed(np.eye(4)),
    # The chapter compares weights only here; with the identity the values are the embeddings themselves.
    W_V=_fixed(np.eye(4)),
)

# Not the chapter's: found by gradient descent from random matrices, then rounded. A looks mostly at B, B at C, C at A.
ring = three_words._replace(
    name="ring",
    W_Q=_fixed([[4.0, -4.0, -4.0, 4.0], [4.0, -4.0, 4.0, -4.0], [4.0, -1.3, 4.0, -4.0], [-4.0, 4.0, 4.0, -4.0]]),
    W_K=_fixed([[-4.0, 4.0, -4.0, 4.0], [3.9, -3.9, -4.0, 4.0], [4.0, -4.0, -3.9, 4.0], [4.0, -4.0, 4.0, -4.0]]),
)
