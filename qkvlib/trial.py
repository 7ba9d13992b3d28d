"""Run a learner's function so that nothing it does can harm the notebook, and tell in words what went wrong."""

import contextlib
import contextvars
import copy
import ctypes
import inspect
import io
import random
import re
import sys
import threading
import traceback
import types
import warnings
from time import monotonic
from typing import NamedTuple

import matplotlib as mpl
import numpy as np

LIMIT = 5.0  # seconds for one call
_CELL = re.compile("ipykernel_|^<ipython-input-")  # in the name that a kernel gives to a cell's code
_ENDING = ("exit", "quit")  # in a notebook these end the kernel
_LIBRARIES = ("numpy", "matplotlib", "math", "builtins", "qkvlib")  # what is replaced in them is put back
_LATER = {
    types.CoroutineType: "a coroutine, which has not run yet: begin the function with def, not with async def",
    types.AsyncGeneratorType: "an asynchronous generator, which has not run yet: write def and return, not async def "
    "and yield",
    types.GeneratorType: "a generator, which has not computed anything yet: write return in place of yield, and square "
    "brackets around a for",
    **{kind: f"a {kind.__name__}, which has not computed anything yet: list({kind.__name__}(…)) makes a list of it"
       for kind in (map, filter, zip)},
}  # fmt: skip


class Trial(NamedTuple):
    """What a call came to.

    value: what it returned; None where it did not return. trouble: why it counts as failed, in words, or "".
    error: what it raised, or None. remarks: what else it did: printed, changed the notebook's variables or a library.
    """

    value: object
    trouble: str
    error: BaseException | None
    remarks: list


def call(function, *arguments):
    """Call a function with copies of the arguments, for at most LIMIT seconds, and return a `Trial`.

    What it prints is counted and not shown; variables of the notebook, functions of libraries and settings of numpy
    and matplotlib that it changes are put back; and exit() ends the call alone.

    >>> call(lambda x: x + 1, 1).value
    2
    >>> call(lambda x: 1 / x, 0).trouble
    'it stopped with ZeroDivisionError: division by zero'
    """
    given, found, printed = copy.deepcopy(arguments), {}, _Printed()

    def work():
        try:
            found["value"] = function(*given)
        except BaseException as error:  # SystemExit and what stops it, too
            found["error"] = error

    with (
        _variables_kept(function) as changed,
        _libraries_kept() as (replaced, space),
        warnings.catch_warnings(action="ignore"),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        late, alive = (_watched if sys.platform == "emscripten" else _threaded)(lambda: space.run(work))
    error = None if late else found.get("error")
    value = None if error or late else found["value"]
    trouble = _trouble(late, alive, error) or _altered(arguments, given) or _not_computed(value)
    return Trial(value, trouble, error, [*printed.remarks(), *changed, *replaced])


def _threaded(work):
    """Run in a thread, for that can be stopped on every system; a signal would not reach it in Windows.

    Returns whether it took too long, and whether it still runs.
    """
    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
        thread.join(LIMIT)
        late = thread.is_alive()
    finally:  # also where the learner presses Stop
        _stop(thread)
    return late, thread.is_alive()


def _watched(work):
    """The same where there are no threads, as in a browser: look at the clock at every line (needs Python 3.14)."""
    watch, end = sys.monitoring, monotonic() + LIMIT

    def look(code, *_):
        if code.co_filename == look.__code__.co_filename:  # this file: what ends the call must not be ended itself
            return watch.DISABLE
        if monotonic() > end:
            raise _Stopped
        return None

    events = watch.events.LINE, watch.events.JUMP
    watch.use_tool_id(watch.PROFILER_ID, __name__)
    for event in events:
        watch.register_callback(watch.PROFILER_ID, event, look)
    try:
        watch.set_events(watch.PROFILER_ID, sum(events))
        work()
    finally:
        watch.free_tool_id(watch.PROFILER_ID)
    return monotonic() > end, False


def _trouble(late, alive, error):
    if alive:
        return (f"it took longer than {LIMIT:g} seconds and cannot be stopped; choose Kernel, Restart Kernel "
                "before you go on. Does a loop never end?")  # fmt: skip
    if late:
        return f"it took longer than {LIMIT:g} seconds and was stopped. Does a loop never end?"
    if isinstance(error, SystemExit):
        return "it called exit(), which would end the notebook's kernel; a function ends with return"
    if isinstance(error, RecursionError):
        return "it calls itself without end"
    if error:
        return f"it stopped with {type(error).__name__}: {str(error)[:200]}{_line(error)}"
    return ""


def _line(error):
    """Where in the learner's cell it happened."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _CELL.search(frame.filename)]
    return f" (line {frames[-1].lineno} of its cell: {frames[-1].line})" if frames else ""


def _altered(arguments, given):
    changed = [i for i, (before, now) in enumerate(zip(arguments, given, strict=True), 1) if not same(before, now)]
    if not changed:
        return ""
    return f"it changes the array it was given (argument {changed[0]}); whoever calls it still needs the old numbers"


def _not_computed(value):
    """What is wrong with a result that holds work instead of numbers, or ""."""
    later = [part for part in (value if isinstance(value, tuple | list) else [value]) if type(part) in _LATER]
    for part in later:
        if isinstance(part, types.CoroutineType):
            part.close()  # else Python warns that nobody waited for it
    return f"it returns {_LATER[type(later[0])]}" if later else ""


def same(a, b):
    """Whether two arguments (arrays, numbers, tuples of them) are equal, NaN to NaN too.

    >>> same((np.array([1.0, np.nan]), 1), (np.array([1.0, np.nan]), 1)), same(1, 2)
    (True, False)
    """
    if isinstance(a, tuple):
        return all(map(same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


class _Printed(io.TextIOBase):
    """Takes what is printed, and keeps its beginning alone."""

    def __init__(self):
        self.lines, self.start = 0, ""

    def write(self, text):
        self.lines += text.count("\n")
        if len(self.start) < 60:
            self.start += text[:60]
        return len(text)

    def remarks(self):
        if not self.start:
            return []
        if self.lines <= 100:
            return ["It prints something; that is no fault, and not shown here."]
        return [f"It printed {self.lines:,} lines, which are not shown here. The first: {self.start.splitlines()[0]}"]


class _Stopped(BaseException):
    pass


def _stop(thread):
    """Raise in the thread until it ends; a bare `except` may catch the first few. In C code it does not arrive."""
    for _ in range(200):
        if not thread.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped))
        thread.join(0.01)


@contextlib.contextmanager
def _variables_kept(function):
    """Put the variables of the function's notebook back as they were; yields a list that will name the changed ones."""
    space, said = getattr(inspect.unwrap(function), "__globals__", {}), []
    before = dict(space)
    copies = {name: value.copy() for name, value in before.items() if isinstance(value, list | dict | np.ndarray)}
    space.update(dict.fromkeys(_ENDING, _exit))
    try:
        yield said
    finally:
        changed = {name for name in before.keys() | space.keys() if before.get(name, ...) is not space.get(name, ...)}
        for name in changed:
            space.pop(name, None)
        space.update({name: before[name] for name in changed if name in before})
        inside = {name for name, kept in copies.items() if _content(before[name]) != _content(kept)}
        for name in inside:
            _refill(before[name], copies[name])
        if names := ", ".join(sorted((changed | inside) - set(_ENDING))):
            said.append(f"It changes variables of the notebook ({names}); they have been put back.")


@contextlib.contextmanager
def _libraries_kept():
    """Put functions and settings of libraries back; yields a list that will name the changed ones, and a context.

    What runs in that context has numpy's warnings off; most of numpy's settings belong to a context, and end with it.
    """
    said, context = [], contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    before, settings, inside = _public(), _settings(), context.run(_numpy_settings)
    printing = np.get_printoptions()
    with mpl.rc_context():
        try:
            yield said, context
        finally:
            replaced = _put_back(before)
            changed = _differing(settings, _settings())
            with contextlib.suppress(RuntimeError):  # what cannot be stopped is still in there
                changed += _differing(inside, context.run(_numpy_settings))
            np.random.set_state(settings["np.random's state"])
            random.setstate(settings["random's state"])
            np.set_printoptions(**printing)  # which numpy before 2.2 keeps for everybody
    if names := ", ".join([*sorted(replaced), *changed]):
        said.append(f"It changes libraries or their settings ({names}); they have been put back.")


def _settings():
    kind, numbers, *rest = np.random.get_state()
    drawing = dict.copy(mpl.rcParams)  # as it is; read one by one, the backend is chosen at once
    del drawing["backend"]  # matplotlib chooses it at the first figure
    return {"np.random's state": (kind, numbers.tolist(), *rest), "random's state": random.getstate(),
            "matplotlib's rcParams": drawing}  # fmt: skip


def _numpy_settings():
    return {"np.seterr": np.geterr(), "np.set_printoptions": np.get_printoptions()}


def _differing(before, after):
    return [name for name, value in after.items() if value != before[name]]


def _public():
    """What the modules of the libraries hold under public names, by module."""
    modules = [module for name, module in list(sys.modules.items())
               if name.partition(".")[0] in _LIBRARIES and name != "matplotlib.backends"]  # fmt: skip
    return {module: {name: value for name, value in vars(module).items() if name[0] != "_"} for module in modules}


def _put_back(before):
    """Give modules what they held; returns the names of what was changed. Submodules imported meanwhile stay."""
    changed = []
    for module, held in before.items():
        space = vars(module)
        new = [name for name, value in space.items()
               if name[0] != "_" and name not in held and not isinstance(value, types.ModuleType)]  # fmt: skip
        other = [name for name, value in held.items() if space.get(name, ...) is not value]
        for name in new:
            del space[name]
        space.update({name: held[name] for name in other})
        changed += [f"{module.__name__}.{name}" for name in (*new, *other)]
    return changed


def _content(value):
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return [*map(id, value)], [*map(id, value.values())] if isinstance(value, dict) else []


def _refill(value, kept):
    if isinstance(value, np.ndarray):
        value[...] = kept
        return
    value.clear()
    value.update(kept) if isinstance(value, dict) else value.extend(kept)


def _exit(*arguments):
    raise SystemExit
