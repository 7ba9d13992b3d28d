"""The backward pass against finite differences of an oracle written with loops, and against PyTorch where it is."""

import itertools

import numpy as np
import oracle
import pytest
from test_maths import rectangular

from qkvlib import gradients
from qkvlib.gradients import attention_gradients, gradient_check, numeric_gradient

WAYS = list(itertools.product((False, True), repeat=3))
NAMES = ("X", "W_Q", "W_K", "W_V", "context")


def masked(n_queries, n_keys):
    """Who may look where: uneven, and the second query may look nowhere."""
    keep = np.add.outer(np.arange(n_queries), 2 * np.arange(n_keys)) % 3 > 0
    keep[1] = False
    return keep


def case(seed, context, scaled, keep):
    """What attention takes, by name, and how fast the loss grows with each number of scores, weights and output."""
    X, W_Q, W_K, W_V, other = rectangular(seed)
    given = {"X": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V} | ({"context": other} if context else {})
    n_queries, n_keys = len(X), len(other if context else X)
    options = {"scaled": scaled, "keep": masked(n_queries, n_keys) if keep else None}
    shapes = {"d_scores": (n_queries, n_keys), "d_weights": (n_queries, n_keys), "d_output": (n_queries, len(W_V))}
    random = np.random.default_rng(seed + 100)
    return given, options, {name: random.normal(size=shape) for name, shape in shapes.items()}


def loss_of(given, options, upstream):
    """A loss that grows so fast with scores, weights and output, by the oracle's loops."""
    lists = {name: value.tolist() for name, value in (given | options).items() if isinstance(value, np.ndarray)}
    made = oracle.attention(**lists, scaled=options["scaled"])
    return sum((upstream[name] * np.array(part)).sum() for name, part in zip(upstream, made, strict=True))


@pytest.mark.parametrize(("context", "scaled", "keep"), WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_every_gradient_against_finite_differences(seed, context, scaled, keep):
    given, options, upstream = case(seed, context, scaled, keep)
    found = attention_gradients(**given, **upstream, **options)
    assert (found.context is None) == (not context)
    for name, value in given.items():
        off = gradient_check(lambda at, name=name: loss_of(given | {name: at}, options, upstream), value,
                             getattr(found, name))  # fmt: skip
        assert off < 1e-6, name


@pytest.mark.parametrize("alone", ["d_scores", "d_weights", "d_output"])
def test_a_loss_may_depend_on_one_step_only(alone):
    given, options, upstream = case(7, context=True, scaled=True, keep=False)
    only = {name: value if name == alone else 0 * value for name, value in upstream.items()}
    found = attention_gradients(**given, **{alone: upstream[alone]}, **options)
    for name, value in given.items():
        numeric = numeric_gradient(lambda at, name=name: loss_of(given | {name: at}, options, only), value)
        np.testing.assert_allclose(getattr(found, name), numeric, rtol=1e-6, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(("context", "scaled", "keep"), WAYS)
def test_every_gradient_against_pytorch(context, scaled, keep):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; finite differences check the same")
    given, options, upstream = case(11, context, scaled, keep)
    X, W_Q, W_K, W_V, *other = (torch.tensor(value, requires_grad=True) for value in given.values())
    source = other[0] if context else X
    scores = (X @ W_Q.T) @ (source @ W_K.T).T * (len(W_K) ** -0.5 if scaled else 1)
    may = torch.tensor(options["keep"] if keep else np.ones(scores.shape, bool))
    weights = torch.softmax(torch.where(may, scores, -1e30), dim=1) * may
    parts = zip(upstream.values(), (scores, weights, weights @ (source @ W_V.T)), strict=True)
    sum((torch.tensor(factor) * part).sum() for factor, part in parts).backward()
    found = attention_gradients(**given, **upstream, **options)
    for name, tensor in zip(NAMES, (X, W_Q, W_K, W_V, *other), strict=False):
        np.testing.assert_allclose(getattr(found, name), tensor.grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


def test_moving_all_scores_of_a_row_changes_no_weight():
    random = np.random.default_rng(3)
    weights = oracle.attention(*(random.normal(size=shape).tolist() for shape in ((4, 3), (2, 3), (2, 3), (5, 3))))[1]
    back = gradients.through_softmax(np.array(weights), random.normal(size=(4, 4)))
    np.testing.assert_allclose(back.sum(axis=1), 0, atol=1e-12)
    assert np.abs(back).max() > 0.01


def test_inputs_stay_as_they_are_and_may_be_lists():
    given, options, upstream = case(5, context=True, scaled=False, keep=True)
    kept = {name: value.copy() for name, value in (given | upstream).items()}
    found = attention_gradients(**given, **upstream, **options)
    for name, value in kept.items():
        np.testing.assert_array_equal((given | upstream)[name], value)
    lists = {name: value.tolist() for name, value in kept.items()}
    again = attention_gradients(**lists, **options)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(found, name), getattr(again, name))


@pytest.mark.parametrize(
    ("upstream", "message"),
    [
        ({}, "d_scores, d_weights, d_output: expected at least one of them, got none"),
        ({"d_output": np.zeros((2, 5))}, r"d_output: expected \(5, 2\), the shape of the output, got \(2, 5\)"),
        ({"d_weights": 1.0}, r"d_weights: expected \(5, 5\), the shape of the weights, got \(\)"),
    ],
)
def test_what_does_not_fit_is_named(upstream, message):
    with pytest.raises(ValueError, match=message):
        attention_gradients(*rectangular(0)[:4], **upstream)


def test_the_check_sees_a_wrong_gradient():
    def loss(x):
        return (x**3).sum()

    at = np.array([[1.0, -2.0], [0.5, 3.0]])
    assert gradient_check(loss, at, 3 * at**2) < 1e-8
    assert gradient_check(loss, at, 3.01 * at**2) > 1e-4
    assert gradient_check(loss, at, (3 * at**2).T) > 0.1
    assert gradient_check(lambda x: 0.0, at, 0 * at) == 0
    with pytest.raises(ValueError, match=r"gradient: expected \(2, 2\), one number for each of the inputs, got \(2,\)"):
        gradient_check(loss, at, [1.0, 2.0])
