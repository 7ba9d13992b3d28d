"""The arithmetic against an oracle written with loops, its properties, and what it says of bad input."""

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qkvlib import attention, project, softmax

FORMS = {
    "lists": lambda a: a.tolist(),
    "read-only": lambda a: _frozen(a),
    "transposed": lambda a: np.asfortranarray(a),
    "big-endian": lambda a: a.astype(">f8"),
}


def _frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def rectangular(seed, n_q=5, n_k=7, d_model=4, d_k=3, d_v=2):
    """X, W_Q, W_K, W_V, context: all sizes differ, nothing is symmetric, and a token is there twice."""
    random = np.random.default_rng(seed)
    shapes = [(n_q, d_model), (d_k, d_model), (d_k, d_model), (d_v, d_model), (n_k, d_model)]
    X, W_Q, W_K, W_V, context = (random.normal(size=shape) for shape in shapes)
    X[-1], context[-1] = X[0], context[1]
    return X, W_Q, W_K, W_V, context


def check(result, expected):
    for name, got, wanted in zip(("scores", "weights", "output"), result[3:], expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_loops(seed, scaled, cross, masked):
    X, W_Q, W_K, W_V, context = rectangular(seed)
    context = context if cross else None
    n_keys = len(X if context is None else context)
    keep = np.random.default_rng(seed).random((len(X), n_keys)) < 0.6 if masked else None
    if masked:
        keep[2] = False
    result = attention(X, W_Q, W_K, W_V, context=context, scaled=scaled, keep=keep)
    check(result, oracle.attention(X, W_Q, W_K, W_V, context, scaled, keep))


def test_every_size_may_differ():
    X, W_Q, W_K, W_V, context = rectangular(0, n_q=2, n_k=3, d_model=5, d_k=6, d_v=7)
    result = attention(X, W_Q, W_K, W_V, context=context)
    assert [part.shape for part in result] == [(2, 6), (3, 6), (3, 7), (2, 3), (2, 3), (2, 7)]


def test_a_query_with_no_key_gets_zeros_and_leaves_the_others_alone():
    X, W_Q, W_K, W_V, _ = rectangular(1)
    keep = np.ones((5, 5), bool)
    keep[3] = False
    with_mask, without = attention(X, W_Q, W_K, W_V, keep=keep), attention(X, W_Q, W_K, W_V)
    assert not with_mask.weights[3].any()
    assert not with_mask.output[3].any()
    others = [0, 1, 2, 4]
    np.testing.assert_array_equal(with_mask.weights[others], without.weights[others])


SCORES = arrays(float, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.floats(-1e4, 1e4))


@given(SCORES)
def test_rows_sum_to_one_and_stay_finite(scores):
    weights = softmax(scores)
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1)


@given(SCORES.filter(lambda scores: abs(scores).max() < 50), st.floats(-50, 50))
def test_a_constant_added_to_a_row_changes_nothing(scores, constant):
    shifted = scores.copy()
    shifted[0] += constant
    np.testing.assert_allclose(softmax(shifted), softmax(scores), atol=1e-12)


@settings(deadline=None)
@given(st.integers(0, 1000), st.permutations(range(5)))
def test_permuting_the_sequence_permutes_the_result(seed, order):
    X, W_Q, W_K, W_V, _ = rectangular(seed)
    plain, permuted = attention(X, W_Q, W_K, W_V), attention(X[order], W_Q, W_K, W_V)
    np.testing.assert_allclose(permuted.weights, plain.weights[order][:, order])
    np.testing.assert_allclose(permuted.output, plain.output[order])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", range(4))
def test_any_form_of_array_and_none_is_changed(form, where):
    plain = list(rectangular(2)[:4])
    given_ = [FORMS[form](array) if place == where else array for place, array in enumerate(plain)]
    before = [np.array(array) for array in given_]
    check(attention(*given_), oracle.attention(*plain))
    for array, kept in zip(given_, before, strict=True):
        np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("kind", [int, bool, np.int8, np.uint8])
def test_whole_numbers_are_not_truncated(kind):
    X = np.array([[1, 0, 1], [0, 1, 1]]).astype(kind)
    W = [[0.5, 0.25, 0.125]]
    np.testing.assert_array_equal(project(X, W), [[0.625], [0.375]])
    np.testing.assert_allclose(softmax(np.array([[1, 0]]).astype(kind)), [[np.e / (1 + np.e), 1 / (1 + np.e)]])
    ones = np.ones((1, 3), kind)
    np.testing.assert_allclose(attention(X, ones, ones, ones).scores, [[4, 4], [4, 4]])


def test_float32_stays_float32_only_where_all_is():
    single = [array.astype(np.float32) for array in rectangular(3)]
    X, W_Q, W_K, W_V, context = single
    result = attention(X, W_Q, W_K, W_V, context=context, scaled=True)
    assert {part.dtype for part in result} == {np.dtype(np.float32)}
    assert attention(X, W_Q, W_K, W_V.astype(float)).output.dtype == np.float64
    assert project(X, W_Q).dtype == softmax(X).dtype == np.float32
    assert softmax(X.tolist()).dtype == np.float64
    np.testing.assert_allclose(result.output, attention(*rectangular(3)[:4], context=context, scaled=True).output, 1e-4)


def test_huge_scores_under_a_mask_do_not_reach_the_exponential():
    with np.errstate(all="raise"):
        weights = softmax([[1e4, 0.0, 1.0]], [[False, True, True]])
    np.testing.assert_allclose(weights, [[0, 1 / (1 + np.e), np.e / (1 + np.e)]])


X, W_Q, W_K, W_V, CONTEXT = rectangular(4)
BAD = {
    "W_Q turned": (dict(W_Q=W_Q.T), ValueError, r"W_Q: expected \(d_k, 4\) to fit X with d_model 4, got \(4, 3\)"),
    "W_V turned": (dict(W_V=W_V.T), ValueError, r"W_V: expected \(d_v, 4\) to fit X with d_model 4, got \(4, 2\)"),
    "W_K for another context": (
        dict(context=CONTEXT[:, :3]),
        ValueError,
        r"W_K: expected \(d_k, 3\) to fit context with d_model 3, got \(3, 4\)",
    ),
    "W_K narrower": (dict(W_K=W_K[:2]), ValueError, r"W_K: expected \(3, 4\).*d_k 3.*got \(2, 4\)"),
    "W_Q of one dimension": (dict(W_Q=W_Q[0]), ValueError, r"W_Q: expected \(d_k, 4\).*got \(4,\)"),
    "W_Q empty": (dict(W_Q=W_Q[:0]), ValueError, r"W_Q: expected \(d_k, 4\).*got \(0, 4\)"),
    "X of one dimension": (dict(X=X[0]), ValueError, r"X: expected \(n, d_model\).*got \(4,\)"),
    "X empty": (dict(X=X[:0]), ValueError, r"X: .*at least one, got \(0, 4\)"),
    "context empty": (dict(context=[]), ValueError, r"context: .*got \(0,\)"),
    "X ragged": (dict(X=[[1, 2, 3, 4], [1, 2]]), ValueError, "X: expected rows of equal length, got a ragged list"),
    "X of words": (dict(X=[["the", "cat"]]), TypeError, "X: expected real numbers, got str"),
    "W_K of None": (dict(W_K=[[None] * 4] * 3), TypeError, "W_K: expected real numbers, got object"),
    "X complex": (dict(X=X + 1j), TypeError, "X: expected real numbers, got complex128"),
    "X with NaN": (
        dict(X=np.where(X[1, 2] == X, np.nan, X)),
        ValueError,
        r"X: expected finite numbers, got nan at \(1, 2\)",
    ),
    "W_V with inf": (
        dict(W_V=np.where(W_V[1, 3] == W_V, np.inf, W_V)),
        ValueError,
        r"W_V: expected finite.*inf at \(1, 3\)",
    ),
    "mask of numbers": (dict(keep=np.ones((5, 5))), ValueError, r"keep: expected booleans.*got float64"),
    "mask of another shape": (
        dict(keep=np.ones((5, 4), bool)),
        ValueError,
        r"keep: .*shape \(5, 5\).*got bool of shape \(5, 4\)",
    ),
    "mask that would broadcast": (dict(keep=np.ones((1, 5), bool)), ValueError, r"keep: .*got bool of shape \(1, 5\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    changed, kind, message = BAD[case]
    with pytest.raises(kind, match=message):
        attention(**(dict(X=X, W_Q=W_Q, W_K=W_K, W_V=W_V) | changed))


@pytest.mark.parametrize(("scores", "got"), [([], r"\(0,\)"), ([[], []], r"\(2, 0\)"), (3.0, r"\(\)")])
def test_softmax_needs_a_key(scores, got):
    with pytest.raises(ValueError, match=f"scores: expected .*, got {got}"):
        softmax(scores)


def test_project_names_its_own_arguments():
    with pytest.raises(ValueError, match=r"W: expected \(d_out, 4\) to fit X with d_model 4, got \(4, 3\)"):
        project(X, W_Q.T)
