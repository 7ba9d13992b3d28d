"""A made-up language in which the next word's class depends on a word far back: something for attention to learn.

A sentence is a noun, or several with a link between them, and then comes a verb. Each noun belongs to one of three
classes, and the verb takes the class of the **first** noun. Who only looks at the last word cannot know it.
"""

from typing import NamedTuple

import numpy as np

CLASSES = ("a", "o", "i")  # by the vowel of their nouns; the verbs are "lam", "lom" and "lim"
NOUNS = {"bam": 0, "dat": 0, "gol": 1, "kos": 1, "min": 2, "tir": 2}
LINKS = ("ne", "ru")
WORDS = (*NOUNS, *LINKS)
LONGEST = 7  # words before the verb
D_MODEL = len(WORDS) + LONGEST


class Batch(NamedTuple):
    """Sentences as attention takes them: the last word of each asks, and may look at its own sentence only.

    sentences: tuples of words. X (n_sentences, d_model), the last words; context (n_words, d_model), all words of
    all sentences; keep (n_sentences, n_words), which word is in which sentence; classes (n_sentences,), of the verbs.
    """

    sentences: list
    X: np.ndarray
    context: np.ndarray
    keep: np.ndarray
    classes: np.ndarray


def embed(sentence):
    """One row a word, (n, 15): 8 numbers say which word it is, 7 at which place it stands.

    >>> embed(["gol", "ne", "bam"]).sum(axis=1)
    array([2., 2., 2.])
    """
    words = np.eye(len(WORDS))[[WORDS.index(word) for word in sentence]]
    return np.hstack([words, np.eye(LONGEST)[: len(sentence)]])


def batch(sentences):
    """The `Batch` of some sentences."""
    rows = [embed(sentence) for sentence in sentences]
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return Batch(
        list(sentences), np.array([row[-1] for row in rows]), np.vstack(rows),
        owner == np.arange(len(rows))[:, None], np.array([NOUNS[sentence[0]] for sentence in sentences]),
    )  # fmt: skip


def split(seed, learned=200, held_out=100):
    """Two batches of random sentences of two to four nouns, all different: to learn from, and to be tested on."""
    random, nouns, found = np.random.default_rng(seed), tuple(NOUNS), {}
    while len(found) < learned + held_out:
        sentence = [nouns[random.integers(6)]]
        for _ in range(random.integers(1, 4)):
            sentence += [LINKS[random.integers(2)], nouns[random.integers(6)]]
        found[tuple(sentence)] = None  # a dict keeps the order, and each sentence once
    found = list(found)
    return batch(found[:learned]), batch(found[learned:])


def accuracy(outputs, classes):
    """The share of sentences whose largest output is at the verb's class.

    outputs (n_sentences, 3): any numbers; a tie counts for the first. classes (n_sentences,).

    >>> accuracy(np.array([[0.1, 0.7, 0.2], [0.5, 0.4, 0.1]]), [1, 2])
    0.5
    """
    return float(np.mean(np.argmax(outputs, axis=1) == classes))
