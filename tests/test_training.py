"""Training against its definition written out, what it can and cannot learn, and the made-up grammar."""

import math
from itertools import islice

import numpy as np
import oracle
import pytest
from test_maths import rectangular

from qkvlib import attention, chapter, grammar
from qkvlib.gradients import attention_gradients, gradient_check
from qkvlib.training import DivergedError, class_loss, output_loss, pattern_loss, small_random, train

s, t = chapter.sentence, chapter.three_words
RING, EACH_OTHER, ITSELF = np.eye(3)[[1, 2, 0]], np.eye(3)[[2, 1, 0]], np.eye(3)


def last(steps, count):
    return next(islice(steps, count, None))


def distribution(seed, shape):
    target = np.random.default_rng(seed).uniform(size=shape)
    return target / target.sum(axis=1, keepdims=True)


# Losses


def test_the_loss_of_a_pattern_is_cross_entropy_by_loops():
    X, W_Q, W_K, W_V, context = rectangular(1)
    target = distribution(2, (5, 7))
    target[0] = np.eye(7)[3]
    _, weights, _ = oracle.attention(X, W_Q, W_K, W_V, context)
    total = 0.0
    for wanted_row, row in zip(target, weights, strict=True):
        for wanted, weight in zip(wanted_row, row, strict=True):
            total -= wanted * math.log(weight)
    loss, _ = pattern_loss(target)(attention(X, W_Q, W_K, W_V, context=context))
    assert loss == pytest.approx(total / 5, rel=1e-12)


def test_the_loss_of_an_output_and_of_classes_by_loops():
    X, W_Q, W_K, W_V, _ = rectangular(3)
    made, target, classes = attention(X, W_Q, W_K, W_V), np.arange(10.0).reshape(5, 2), [0, 1, 1, 0, 1]
    _, _, output = oracle.attention(X, W_Q, W_K, W_V)
    squares = sum(
        (a - b) ** 2 for row, want in zip(output, target, strict=True) for a, b in zip(row, want, strict=True)
    )
    assert output_loss(target)(made)[0] == pytest.approx(squares / 10, rel=1e-12)
    surprise = [math.log(sum(map(math.exp, row))) - row[right] for row, right in zip(output, classes, strict=True)]
    assert class_loss(classes)(made)[0] == pytest.approx(sum(surprise) / 5, rel=1e-12)


@pytest.mark.parametrize("loss", [pattern_loss(distribution(4, (5, 5))), output_loss(np.ones((5, 2))),
                                  class_loss([1, 0, 0, 1, 1])])  # fmt: skip
@pytest.mark.parametrize("scaled", [False, True])
def test_a_loss_says_how_fast_it_grows(loss, scaled):
    given = dict(zip(("X", "W_Q", "W_K", "W_V"), rectangular(5)[:4], strict=True))
    found = attention_gradients(**given, **loss(attention(**given, scaled=scaled))[1], scaled=scaled)
    for name in given:
        off = gradient_check(lambda at, name=name: loss(attention(**given | {name: at}, scaled=scaled))[0], given[name],
                             getattr(found, name))  # fmt: skip
        assert off < 1e-6, name


def test_a_weight_that_has_become_0_costs_a_finite_loss():
    made = attention(1000 * np.eye(2), np.eye(2), np.eye(2), np.eye(2))
    assert made.weights[0, 1] == 0
    assert pattern_loss([[0, 1], [1, 0]])(made)[0] == 1_000_000
    perfect = pattern_loss(np.eye(2))(made)[0]
    assert (perfect, math.copysign(1, perfect)) == (0, 1)


def test_a_masked_score_costs_nothing_even_where_it_is_the_largest():
    keep = np.array([[True, True, False]])
    made = attention([[1.0]], [[1.0]], [[1.0]], [[1.0]], context=[[1000.0], [0.0], [3000.0]], keep=keep)
    assert made.weights.tolist() == [[1, 0, 0]]
    assert pattern_loss([[0, 1, 0]])(made)[0] == 1000


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([[0.5, 0.4], [0, 1]], r"target, row 1 \(a\): expected weights that sum to 1, got 0.9"),
        ([[1, 0], [1.2, -0.2]], r"target, row 2 \(b\): expected weights from 0 to 1, got -0.2"),
        ([[1, 0], [math.nan, 1]], r"target, row 2 \(b\): expected weights from 0 to 1, got nan"),
        ([0.5, 0.5], r"target: expected \(n_queries, n_keys\), the weights wanted, got \(2,\)"),
    ],
)
def test_an_impossible_target_is_named(target, message):
    with pytest.raises(ValueError, match=message):
        pattern_loss(target, ["a", "b"])


def test_a_target_of_another_shape_is_named():
    made = attention(s.X, s.W_Q, s.W_K, s.W_V)
    with pytest.raises(ValueError, match=r"target: expected \(4, 4\), one row a query, got \(3, 3\)"):
        pattern_loss(ITSELF)(made)
    with pytest.raises(ValueError, match=r"target: expected \(4, 3\), one row a query, got \(3, 3\)"):
        output_loss(ITSELF)(made)


# Steps


def by_hand(X, W_Q, W_K, target, rate, steps):
    """Gradient descent on W_Q and W_K by finite differences of the oracle's loss: nothing of qkvlib's."""

    def loss(W_Q, W_K):
        _, weights, _ = oracle.attention(X, W_Q, W_K, [[1.0] * X.shape[1]])
        return -sum(target[i, j] * math.log(weights[i][j]) for i, j in np.ndindex(target.shape)) / len(target)

    for _ in range(steps):
        moved = []
        for which in (0, 1):
            pair = [W_Q.copy(), W_K.copy()]
            gradient = np.empty_like(W_Q)
            for place in np.ndindex(W_Q.shape):
                kept, sides = pair[which][place], []
                for side in (1e-5, -1e-5):
                    pair[which][place] = kept + side
                    sides.append(loss(*pair))
                pair[which][place] = kept
                gradient[place] = (sides[0] - sides[1]) / 2e-5
            moved.append(gradient)
        W_Q, W_K = W_Q - rate * moved[0], W_K - rate * moved[1]
    return W_Q, W_K


def test_gradient_descent_is_what_its_name_says():
    W_Q, W_K = small_random(4, (2, 4), (2, 4), size=0.7)
    target = distribution(6, (4, 4))
    state = last(train(s.X, W_Q, W_K, s.W_V, pattern_loss(target), method="gradient descent", rate=0.3), 5)
    for got, wanted in zip((state.W_Q, state.W_K), by_hand(s.X, W_Q, W_K, target, 0.3, 5), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-8)
    np.testing.assert_array_equal(state.X, s.X)
    np.testing.assert_array_equal(state.W_V, s.W_V)


def test_adam_makes_the_steps_of_its_paper():
    # A loss whose gradient at W_V is known: the output is W_V's only row times the mean of X, and grows without bound.
    X, W_V, rate = np.array([[1.0, 2.0]]), np.array([[0.5, -0.5]]), 0.01
    steps = train(X, [[1.0, 0.0]], [[1.0, 0.0]], W_V, output_loss([[3.0]]), learn=["W_V"], method="Adam", rate=rate)
    W, m, v = W_V[0].tolist(), [0.0, 0.0], [0.0, 0.0]
    for time in range(1, 8):
        error = W[0] * 1.0 + W[1] * 2.0 - 3.0
        for i, x in enumerate((1.0, 2.0)):
            g = error * x
            m[i] = 0.9 * m[i] + (1 - 0.9) * g
            v[i] = 0.999 * v[i] + (1 - 0.999) * g * g
            W[i] -= rate * (m[i] / (1 - 0.9**time)) / (math.sqrt(v[i] / (1 - 0.999**time)) + 1e-8)
    np.testing.assert_allclose(last(steps, 7).W_V, [W], rtol=1e-10)


def test_the_first_state_is_the_start_and_every_state_is_kept():
    W_Q, W_K = small_random(1, (3, 4), (3, 4))
    before = W_Q.copy()
    states = list(islice(train(s.X, W_Q, W_K, s.W_V, pattern_loss(np.eye(4))), 30))
    np.testing.assert_array_equal(states[0].W_Q, before)
    np.testing.assert_array_equal(W_Q, before)
    assert [state.step for state in states] == list(range(30))
    assert len({state.W_Q.tobytes() for state in states}) == 30
    for state in states:
        expected = oracle.attention(s.X, state.W_Q, state.W_K, s.W_V)[1]
        np.testing.assert_allclose(state.attention.weights, expected, atol=1e-12)
    again = last(train(s.X, *small_random(1, (3, 4), (3, 4)), s.W_V, pattern_loss(np.eye(4))), 29)
    np.testing.assert_array_equal(again.W_K, states[-1].W_K)
    assert not np.array_equal(small_random(2, (3, 4))[0], W_Q)


def test_tied_matrices_stay_one_and_follow_both_gradients():
    W = small_random(3, (2, 4), size=0.5)[0]
    loss = pattern_loss(distribution(1, (3, 3)))
    steps = train(t.X, W, None, t.W_V, loss, learn=["W_Q"], tied=True, method="gradient descent", rate=0.2)
    first, second = islice(steps, 2)
    off = gradient_check(lambda W: loss(attention(t.X, W, W, t.W_V))[0], W, (first.W_Q - second.W_Q) / 0.2)
    assert off < 1e-6
    np.testing.assert_array_equal(second.W_Q, second.W_K)


def test_only_what_shall_learn_changes():
    start = dict(zip(("X", "W_Q", "W_K", "W_V"), rectangular(8)[:4], strict=True))
    for name in start:
        state = last(train(*start.values(), output_loss(np.zeros((5, 2))), learn=[name]), 3)
        changed = [other for other, value in start.items() if not np.array_equal(getattr(state, other), value)]
        assert changed == [name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0}, "learning rate: expected a number above 0, such as 0.1, got 0"),
        ({"rate": -1}, "learning rate: .* got -1"),
        ({"rate": math.nan}, "learning rate: .* got nan"),
        ({"method": "newton"}, "method: expected 'gradient descent' or 'Adam', got 'newton'"),
        ({"learn": ["W_O"]}, r"learn: expected some of X, W_Q, W_K, W_V, got \('W_O',\)"),
        ({"learn": []}, r"learn: .* got \(\)"),
    ],
)
def test_bad_settings_are_named_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        train(s.X, s.W_Q, s.W_K, s.W_V, pattern_loss(np.eye(4)), **options)


def test_running_away_stops_with_what_to_do_and_all_states_before_are_good():
    W_Q, W_K = small_random(0, (3, 4), (3, 4))
    states, steps = [], train(s.X, W_Q, W_K, s.W_V, pattern_loss(np.eye(4)), method="gradient descent", rate=100)
    with pytest.raises(DivergedError, match=r"Step \d+: .*The learning rate 100 is too high; try 10"):
        states.extend(steps)
    assert 1 < len(states) < 50
    assert all(np.isfinite(state.loss) and np.isfinite(state.W_Q).all() for state in states)


def test_a_loss_that_is_no_number_stops_it():
    def odd(attended):
        return math.nan, {"d_scores": np.zeros((4, 4))}

    with pytest.raises(DivergedError, match="Step 0: the loss is nan"):
        next(train(s.X, s.W_Q, s.W_K, s.W_V, odd))


# What can be learned, and what cannot


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("method", "rate"), [("Adam", 0.1), ("gradient descent", 1.0)])
@pytest.mark.parametrize("pattern", [(1, 1, 2, 3), (0, 1, 1, 3), (0, 1, 2, 3), (3, 2, 1, 0), (1, 2, 3, 0)])
def test_separate_matrices_learn_every_pattern_of_the_panel(pattern, method, rate, seed):
    start = small_random(seed, (3, 4), (3, 4))
    state = last(train(s.X, *start, s.W_V, pattern_loss(np.eye(4)[list(pattern)]), method=method, rate=rate), 200)
    assert state.attention.weights.argmax(axis=1).tolist() == list(pattern)
    assert state.loss < 0.01


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("target", [RING, EACH_OTHER], ids=["ring", "each other"])
def test_raw_and_tied_attention_stay_above_what_is_proved(target, seed):
    floor = math.log(2) / 3
    made = small_random(seed, (4, 4), size=0.5)[0]
    tied = train(t.X, made, None, t.W_V, pattern_loss(target), learn=["W_Q"], tied=True)
    raw = train(small_random(seed, (3, 4), size=0.5)[0], *[np.eye(4)] * 3, pattern_loss(target), learn=["X"])
    for steps in (tied, raw):
        assert min(state.loss for state in islice(steps, 600)) > floor
    assert last(train(t.X, *small_random(seed, (4, 4), (4, 4)), t.W_V, pattern_loss(target)), 600).loss < 0.01


@pytest.mark.parametrize("seed", range(3))
def test_one_number_has_two_favourites_and_two_numbers_three(seed):
    losses = {}
    for d_k in (1, 2):
        start = small_random(seed, (d_k, 4), (d_k, 4))
        losses[d_k] = last(train(t.X, *start, t.W_V, pattern_loss(ITSELF)), 600).loss
    assert losses[1] > math.log(2) / 3 > 0.02 > losses[2]


def test_a_wanted_output_is_learned():
    X, W_Q, W_K, W_V, context = rectangular(2, d_v=3)
    wanted = attention(X, W_Q, W_K, W_V, context=context).output
    start = small_random(0, W_Q.shape, W_K.shape, W_V.shape, size=0.3)
    steps = train(X, *start, output_loss(wanted), learn=("W_Q", "W_K", "W_V"), rate=0.05, context=context)
    losses = [state.loss for state in islice(steps, 1500)]
    assert losses[-1] < 0.02 * losses[0]


# The grammar


def test_the_verb_takes_the_class_of_the_first_noun():
    learned, held_out = grammar.split(0)
    vowels = {"a": 0, "o": 1, "i": 2}
    for batch in (learned, held_out):
        for sentence, verb in zip(batch.sentences, batch.classes, strict=True):
            assert verb == vowels[sentence[0][1]]
            assert len(sentence) in (3, 5, 7)
            assert all((word in grammar.LINKS) == (i % 2 == 1) for i, word in enumerate(sentence))
    assert not set(learned.sentences) & set(held_out.sentences)
    assert len(set(learned.sentences)) == 200
    assert len(set(held_out.sentences)) == 100


def test_a_batch_asks_with_each_last_word_and_looks_at_its_own_sentence_only():
    batch = grammar.batch([("bam", "ne", "min"), ("gol", "ru", "dat", "ne", "tir")])
    assert batch.keep.astype(int).tolist() == [[1] * 3 + [0] * 5, [0] * 3 + [1] * 5]
    np.testing.assert_array_equal(batch.X, batch.context[[2, 7]])
    assert batch.context.shape == (8, grammar.D_MODEL) == (8, 15)
    assert [np.flatnonzero(row).tolist() for row in batch.context[:3]] == [[0, 8], [6, 9], [4, 10]]
    assert batch.classes.tolist() == [0, 1]


def test_one_step_on_a_batch_is_the_mean_over_its_sentences():
    sentences = grammar.split(3)[0].sentences[:5]
    batch, start = grammar.batch(sentences), small_random(2, (4, 15), (4, 15), (3, 15), size=0.5)
    together = class_loss(batch.classes)(attention(batch.X, *start, context=batch.context, keep=batch.keep))[0]
    losses = []
    for sentence, right in zip(sentences, batch.classes, strict=True):
        rows = grammar.embed(sentence)
        (output,) = oracle.attention(rows[-1:], *start, context=rows)[2]
        losses.append(math.log(sum(map(math.exp, output))) - output[right])
    assert together == pytest.approx(sum(losses) / 5, rel=1e-12)


def test_held_out_sentences_need_all_three_matrices():
    learned, held_out = grammar.split(0)
    start = small_random(1, (4, 15), (4, 15), (3, 15))
    right = {}
    for learn in (("W_V",), ("W_Q", "W_K"), ("W_Q", "W_K", "W_V")):
        steps = train(learned.X, *start, class_loss(learned.classes), learn=learn, context=learned.context,
                      keep=learned.keep)  # fmt: skip
        made = attention(held_out.X, *last(steps, 100)[3:6], context=held_out.context, keep=held_out.keep)
        right[learn] = grammar.accuracy(made.output, held_out.classes)
    assert right["W_Q", "W_K", "W_V"] == 1
    assert 0.4 < right["W_V",] < 0.75
    assert 0.4 < right["W_Q", "W_K"] < 0.95
