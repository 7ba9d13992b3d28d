"""Judge an answer: right, wrong and why, or not attempted yet."""

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from qkvlib import trial
from qkvlib.plots import Picture, heatmap

UNTRIED, RIGHT, WRONG = "not attempted yet", "right", "wrong"
_MISFIT = re.compile(r"matmul|aligned|broadcast|mismatch|inhomogeneous|zip\(\)")  # in numpy's and Python's words
_ADVICE = (
    "Two shapes do not fit. A matrix is stored (d_out, d_in), so a sequence is multiplied by its transpose; and values "
    "come from the same sequence as keys. Print the shapes on the way."
)


class Finding(NamedTuple):
    """What is found about one part of an exercise: its name, one of the three states, and why, in words.

    comparisons: what `picture` is to show: a name, what came out, what should have.
    """

    part: str
    state: str
    says: str = ""
    comparisons: tuple = ()


class Task(NamedTuple):
    """A function to write.

    name: what it is called. returns: the names of what it returns. expected: computes that.
    probes: for each test the arguments. mistakes: pairs of words and a function that makes that mistake.
    shown: whether a right answer is shown beside the expected one too. cases: see `each`.
    """

    name: str
    returns: tuple
    expected: Callable
    probes: tuple
    mistakes: tuple
    shown: bool = False
    cases: bool = False


def function(answer, task):
    """Judge a function: call it on every probe and compare what it returns."""
    if answer is ...:
        return Finding(task.name, UNTRIED)
    if not callable(answer):
        return wrong(task.name, f"expected the function itself, without brackets behind its name, got {_kind(answer)}")
    asked, values, remarks, misfit = _over_cases(answer) if task.cases else answer, [], {}, ""
    for arguments in task.probes:
        came = trial.call(asked, *arguments)
        remarks |= dict.fromkeys(came.remarks)
        if _MISFIT.search(str(came.error)):
            misfit = misfit or came.trouble
            values.append(None)
            continue
        if came.trouble:
            return wrong(task.name, came.trouble, remarks)
        if _unfinished(came.value):
            return Finding(task.name, UNTRIED)
        if malformed := _malformed(task, came.value):
            return wrong(task.name, malformed, remarks)
        values.append(_results(task, came.value))
    if misfit:
        return wrong(task.name, f"{misfit}. {_known(task, values, range(len(values))) or _ADVICE}", remarks)
    says, comparisons = _compare(task, values)
    if says:
        return wrong(task.name, says, remarks, comparisons)
    return Finding(task.name, RIGHT, " ".join(remarks), comparisons if task.shown else ())


def each(name, expected, cases, mistakes):
    """A `Task` for a function that returns one number or truth a case; all the cases make one probe.

    ``expected`` and the mistakes are functions of one case.
    """
    spread = tuple((says, _over_cases(mistake)) for says, mistake in mistakes)
    return Task(name, (f"what {name} returns",), _over_cases(expected), ((cases,),), spread, cases=True)


def _over_cases(function):
    @functools.wraps(function)  # by which trial.call finds the notebook's variables
    def called(cases):
        return [function(*case) for case in cases]

    return called


def wrong(name, says, remarks=(), comparisons=()):
    """The finding that a part is wrong; what is said becomes a sentence."""
    says = says if says.endswith((".", "?")) else f"{says}."
    return Finding(name, WRONG, " ".join([says, *remarks]), comparisons)


def _malformed(task, value):
    if value is None or (task.cases and any(result is None for result in value)):
        return "it returns None: is there a return at its end?"
    if _results(task, value) is None:
        return f"expected {len(task.returns)} things, {' and '.join(task.returns)}, got {_kind(value)}"
    return ""


def _compare(task, values):
    """What is wrong with the values that the probes gave, or "", and what to show of it."""
    wanted = [_results(task, task.expected(*arguments)) for arguments in task.probes]
    faults = [[fault(*parts) for parts in zip(task.returns, *pair, strict=True)]
              for pair in zip(values, wanted, strict=True)]  # fmt: skip
    failing = [i for i, found in enumerate(faults) if any(found)]
    i = failing[0] if failing else 0
    comparisons = [
        (name, *pair) for name, *pair in zip(task.returns, values[i], wanted[i], strict=True) if _drawable(*pair)
    ]
    if not failing:
        return "", tuple(comparisons)
    at = next(at for at, found in enumerate(faults[i]) if found)
    shown = tuple(comparison for comparison in comparisons if comparison[0] == task.returns[at])
    if says := _known(task, values, failing) or _known(task, values, failing, at):
        return says, shown
    if i > 0 and all(map(_alike, values[i], values[0])):
        return "it returns the same whatever it is given. Does it use its arguments?", ()
    return faults[i][at], shown


def _known(task, values, tried, at=None):
    """The words for the mistake that gives these values on the probes tried, or, in one result alone; or "".

    None for a value says that shapes did not fit there; so they must not with the mistake.
    """
    for says, mistake in task.mistakes if any(values) else ():
        made = [_tried(task, mistake, i) for i in tried]
        if all(map(functools.partial(_same_results, at), [values[i] for i in tried], made)):
            return says
    return ""


def _tried(task, function, i):
    """What a function of ours gives on a probe; None where shapes do not fit."""
    try:
        return _results(task, function(*task.probes[i]))
    except ValueError:
        return None


def _same_results(at, got, made):
    if got is None or made is None:
        return got is made
    pairs = list(zip(got, made, strict=True))
    return all(_alike(*pair) for pair in (pairs if at is None else pairs[at : at + 1]))


def fault(name, got, wanted):
    """What is wrong with an array, in words, or ""."""
    got, problem = numbers(name, got)
    if problem:
        return problem
    wanted = np.asarray(wanted, float)
    if got.shape != wanted.shape:
        return f"{name} has the shape {got.shape}, expected {wanted.shape}"
    if not np.isfinite(got).all():
        where = tuple(int(i) + 1 for i in np.argwhere(~np.isfinite(got))[0])
        return f"{name} has {got[~np.isfinite(got)][0]} in it (place {', '.join(map(str, where))})"
    if np.allclose(got, wanted, rtol=1e-4, atol=1e-5):
        return ""
    if got.ndim == 1:
        return f"{name} should be {_row(wanted)}, got {_row(got)}"
    worst = np.unravel_index(np.argmax(np.abs(got - wanted)), got.shape)
    place = " ".join(f"{axis} {i + 1}" for axis, i in zip(("row", "column"), worst, strict=False))
    return f"{name} is off, most in {place}: expected {wanted[worst]:.3f}, got {got[worst]:.3f}".replace("  ", " ")


def numbers(name, value):
    """An answer as an array of floats and "", or None and what is wrong with it."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # numpy's words for lists of unequal length
        return None, f"{name}: expected rows of equal length, got a ragged list"
    if array.dtype.kind not in "iufb":
        return None, f"{name}: expected real numbers, got {_kind(value)}"
    if array.size == 0:
        return None, f"{name} is empty, of shape {array.shape}"
    return array.astype(float), ""


def _alike(got, made):
    return not fault("", got, made)


def _results(task, value):
    """A returned value as a list of results, or None where there are not so many."""
    count = len(task.returns)
    if count == 1:
        return [value]
    return list(value) if isinstance(value, tuple | list) and len(value) == count else None


def _unfinished(value):
    return value is ... or (isinstance(value, tuple | list) and any(part is ... for part in value))


def _drawable(got, wanted):
    array, problem = numbers("", got)
    return not problem and array.ndim == 2 and array.shape == np.shape(wanted) and bool(np.isfinite(array).all())


def picture(name, got, wanted):
    """What came out beside what should have, and the difference."""
    got, wanted = np.asarray(got, float), np.asarray(wanted, float)
    figure, shown = Figure((9, 2.4), dpi=80), {"yours": got, "expected": wanted, "difference": got - wanted}
    limit = max(1.0, np.abs(wanted).max())
    for ax, (title, matrix) in zip(figure.subplots(1, 3), shown.items(), strict=True):
        heatmap(ax, matrix, kind="signed", limit=limit, title=f"{name}: {title}", ylabel="row", xlabel="column")
    figure.subplots_adjust(0.06, 0.2, 0.99, 0.86, 0.25)
    gap = np.abs(got - wanted).max()
    return Picture(figure, f"{name}: yours beside what was expected; the largest difference is {gap:.1e}.")


def _row(values):
    return "[" + ", ".join(f"{value:g}" for value in values.round(3)) + "]"


def _kind(value):
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {str(value)[:40]!r}"
