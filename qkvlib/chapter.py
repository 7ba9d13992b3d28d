"""The words and matrices of the chapter, by name. Every array is read-only.

The chapter's matrices were chosen by hand, to make a pattern that can be seen; none was trained.
"""

import re
from dataclasses import dataclass

import numpy as np

from qkvlib.maths import attention


def _fixed(rows):
    array = np.array(rows, float)
    array.flags.writeable = False
    return array


def checked_words(words, count=None, name="words"):
    """The words as a tuple of text; ``count`` of them, where that is given.

    Raises ValueError where there are more or fewer, and for a word that has no visible letter or more than one line.

    >>> checked_words(["the", 2], 2)
    ('the', '2')
    """
    if isinstance(words, str):  # else its letters would be the words
        raise ValueError(f"{name}: expected a list of words, got the text {words[:60]!r}")
    words = tuple(map(str, words))
    if count not in (None, len(words)):
        raise ValueError(f"{name}: expected {count}, one for each position, got {len(words)}: {', '.join(words)[:60]}")
    for at, word in enumerate(words):
        seen = re.sub("[\u00a0\u200c-\u200f]", " ", word)  # joiners and marks of direction: some scripts need them
        if not seen.strip() or not seen.isprintable():
            raise ValueError(
                f"{name}: expected words of one line with a letter, a number or a sign in each, "
                f"got {word[:60]!r} as word {at + 1}"
            )
    return words


@dataclass(frozen=True, eq=False)
class Example:
    """A sequence with its three projections: what a panel shows. Of own words and numbers, or one of the chapter's.

    Parameters
    ----------
    words : one label a position.
    X : array-like (n, d_model), one row a word.
    W_Q, W_K : array-like (d_k, d_model); by default the identity, so that queries and keys are the rows of X.
    W_V : array-like (d_v, d_model); by default the identity too.

    Raises
    ------
    ValueError, TypeError
        For words that cannot be shown or do not fit X, and for what `attention` refuses.

    >>> Example(["hot", "cold"], [[1, 0], [-1, 0.5]]).W_Q
    array([[1., 0.],
           [0., 1.]])
    """

    words: tuple
    X: np.ndarray
    W_Q: np.ndarray = None
    W_K: np.ndarray = None
    W_V: np.ndarray = None

    def __post_init__(self):
        same = np.eye(np.shape(self.X)[-1] if np.ndim(self.X) else 1)
        given = {"X": self.X} | {name: same if matrix is None else matrix for name, matrix in
                                 {"W_Q": self.W_Q, "W_K": self.W_K, "W_V": self.W_V}.items()}  # fmt: skip
        attention(**given)  # says what does not fit
        made = {"words": checked_words(self.words, len(self.X))} | {name: _fixed(it) for name, it in given.items()}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    @classmethod
    def checked(cls, example):
        """The example, where it is one; else a TypeError."""
        if not isinstance(example, cls):
            raise TypeError(f"example: expected an Example(words, X, W_Q, W_K, W_V), got {type(example).__name__}")
        return example

    @property
    def arrays(self):
        """X, W_Q, W_K, W_V: what `attention` takes."""
        return self.X, self.W_Q, self.W_K, self.W_V


# Section 20.3.
projection = Example(
    words=("x",),
    X=[[0.5, -0.2, 0.8, 0.1]],
    W_Q=[[0.3, -0.1, 0.4, 0.2], [0.1, 0.5, -0.2, 0.3], [-0.2, 0.3, 0.1, -0.4]],
    W_K=[[0.2, 0.4, -0.1, 0.3], [-0.3, 0.1, 0.5, 0.2], [0.4, -0.2, 0.3, -0.1]],
    W_V=[[0.1, -0.3, 0.2, 0.5], [0.4, 0.2, -0.1, 0.3], [-0.1, 0.5, 0.3, -0.2]],
)

# Sections 20.4 and 20.6.
sentence = Example(
    words=("the", "cat", "sat", "down"),
    X=[[1.0, 0.0, 0.5, -0.2], [0.3, 0.8, -0.1, 0.6], [-0.2, 0.1, 0.9, 0.3], [0.5, -0.3, 0.2, 0.7]],
    W_Q=[[-0.54, 0.23, 1.14, 0.16], [1.01, 0.59, 3.72, -0.67], [1.27, 0.3, -1.02, 3.8]],
    W_K=[[0.92, -0.4, 0.21, 0.11], [0.16, 0.92, -0.18, 0.33], [-0.26, -0.38, 0.83, 0.78]],
    W_V=np.eye(3, 4),
)

# Section 20.5.
three_words = Example(
    words=("A", "B", "C"),
    X=[[0.9, 0.1, 0.8, 0.2], [0.8, 0.2, 0.7, 0.3], [0.1, 0.9, 0.2, 0.8]],
    W_Q=np.eye(4)[::-1],
    W_K=np.eye(4),
    # The chapter compares weights only here; with the identity the values are the embeddings themselves.
    W_V=np.eye(4),
)

# Not the chapter's: three words that have nothing in common, of which each beats the next but one.
ring = Example(words=("rock", "paper", "scissors"), X=np.eye(3))
