"""The chapter's matrices are the book's, and qkvlib reproduces every number that the book prints."""

import json
from pathlib import Path

import numpy as np
import pytest

from qkvlib import attention, chapter, project

NUMBERS = json.loads((Path(__file__).parent / "chapter_numbers.json").read_text())
EXAMPLES = {name: getattr(chapter, name) for name in ("projection", "sentence", "three_words")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_inputs_are_the_books(name):
    example, inputs = EXAMPLES[name], NUMBERS[name]["inputs"]
    if "x" in inputs:
        np.testing.assert_array_equal(example.X, [inputs["x"]])
    else:
        np.testing.assert_array_equal(example.X, inputs["X"])
        assert list(example.words) == inputs["words"]
    for matrix in ("W_Q", "W_K", "W_V"):
        if matrix in inputs:
            np.testing.assert_array_equal(getattr(example, matrix), inputs[matrix])


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_in_the_chapter_can_be_changed(name):
    for array in EXAMPLES[name].arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 7


def test_projection():
    example, numbers = chapter.projection, NUMBERS["projection"]
    for letter, W in zip("qkv", example.arrays[1:], strict=True):
        got = project(example.X, W)[0]
        np.testing.assert_allclose(got, numbers["exact"][letter], rtol=0, atol=1e-8)
        np.testing.assert_array_equal(got.round(2), numbers["printed"][letter])


def test_sentence():
    example, numbers = chapter.sentence, NUMBERS["sentence"]
    result = attention(*example.arrays)
    for part, got in result._asdict().items():
        np.testing.assert_allclose(got, numbers["exact"][part], rtol=0, atol=1e-8, err_msg=part)
    printed = numbers["printed"]
    np.testing.assert_array_equal(result.weights.round(2), printed["weights_2dp"])
    np.testing.assert_array_equal(result.weights.round(3), printed["weights_3dp"])
    np.testing.assert_array_equal(result.output.round(3), printed["output_3dp"])
    assert [example.words[j] for j in result.weights.argmax(axis=1)] == printed["strongest"]
    assert example.W_Q.size + example.W_K.size + example.W_V.size == printed["parameters"]


@pytest.mark.parametrize("kind", ["raw", "projected"])
def test_three_words(kind):
    example, numbers = chapter.three_words, NUMBERS["three_words"]
    identity = np.eye(4)
    W_Q, W_K = (example.W_Q, example.W_K) if kind == "projected" else (identity, identity)
    result = attention(example.X, W_Q, W_K, example.W_V)
    for part, wanted in numbers["exact"][kind].items():
        np.testing.assert_allclose(getattr(result, part), wanted, rtol=0, atol=1e-8, err_msg=part)
    np.testing.assert_array_equal(result.weights.round(3), numbers["printed"][kind])


def test_the_numbers_are_those_the_course_was_given():
    given = Path(__file__).resolve().parents[2] / "shared" / "chapter_numbers.json"
    if not given.exists():
        pytest.skip("the chapter's own file is not beside this checkout; the copy in tests/ is used")
    assert json.loads(given.read_text()) == NUMBERS
