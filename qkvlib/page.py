"""What a panel needs of the page it stands in: its style, and a few lines of script."""

import sys
import weakref
from html import escape
from importlib.resources import files
from pathlib import Path

import ipywidgets
from IPython import get_ipython

IN_BROWSER = sys.platform == "emscripten"  # where the kernel is: there, Python is Pyodide
# JupyterLite shows a kernel the notebook's folder under /drive, where the page's address allows a service worker.
FILES_ARE_KEPT = not IN_BROWSER or Path("/drive").exists()
_SIZES, _size = ("qkv-size-1", "qkv-size-2", "qkv-size-3"), 0
_SIZED = weakref.WeakSet()  # panels that follow the text size
_BUILT = {}  # by cell: in which run, and what
_STYLE = files("qkvlib").joinpath("page.css").read_text("utf-8")
_SCRIPT = files("qkvlib").joinpath("page.js").read_text("utf-8")


def panel(*children):
    """Stack widgets as a panel of the course: with its style, names for screen readers and its own arrow keys."""
    style = ipywidgets.HTML(f"<style>{_STYLE}</style>")
    hook = ipywidgets.HTML(f'<img alt="" hidden src="data:," onerror="{escape(_SCRIPT)}">')
    stack = ipywidgets.VBox([style, *children, hook])
    stack.add_class("qkv-panel")
    _listen(stack)
    _keep(stack)
    return stack


def parts(widget):
    """A widget and all that is in it, in order."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def sized(stack):
    """Let a panel follow the text size; returns it."""
    _SIZED.add(stack)
    stack.add_class(_SIZES[_size])
    return stack


def enlarge():
    """The next of three text sizes, or the first again, for every panel: those here, and those still to come."""
    global _size
    _size = (_size + 1) % len(_SIZES)
    for stack in list(_SIZED):
        for name in _SIZES:
            stack.remove_class(name)
        stack.add_class(_SIZES[_size])


def running_cell():
    """The id of the cell that runs, and of its run; None for each where none does, or in no notebook."""
    kernel = getattr(get_ipython(), "kernel", None)
    request = kernel.get_parent() if kernel else {}
    return request.get("metadata", {}).get("cellId"), request.get("header", {}).get("msg_id")


def error(message):
    """What went wrong, as HTML that a screen reader says at once."""
    return f'<p class="qkv-error" role="alert">{escape(str(message))}</p>'


def close(widget):
    """Close a widget and all that is in it, in the kernel and in the page."""
    parts = [getattr(widget, name, None) for name in ("layout", "style")]
    for part in (*getattr(widget, "children", ()), *filter(None, parts)):
        close(part)
    widget.close()


def _listen(widget):
    """Let each message be handled by the thread it was sent to.

    ipykernel 7.4 hands a widget's messages to the thread that spoke for the widget last: one never touched has
    only the main thread, and would be deaf while a cell runs. No public name leads to this; older kernels lack it.
    """
    for part in parts(widget):
        if hasattr(part.comm, "_reply_subshell_for"):
            part.comm._reply_subshell_for = lambda data, addressed: addressed


def _keep(stack):
    """A cell that runs again replaces what it built before: ipywidgets would keep the old sliders for ever."""
    cell, run = running_cell()
    if cell is None:  # no notebook, or a button's callback, whose owner looks after it
        return
    before, stacks = _BUILT.get(cell, (run, []))
    if before != run:
        while stacks:
            close(stacks.pop())
    _BUILT[cell] = run, [*stacks, stack]
