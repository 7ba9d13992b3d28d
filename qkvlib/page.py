"""What a panel needs of the page it stands in: its style, and a few lines of script."""

from html import escape
from importlib.resources import files

import ipywidgets

_STYLE = files("qkvlib").joinpath("page.css").read_text("utf-8")
_SCRIPT = files("qkvlib").joinpath("page.js").read_text("utf-8")


def panel(*children):
    """Stack widgets as a panel of the course: with its style, names for screen readers and its own arrow keys."""
    style = ipywidgets.HTML(f"<style>{_STYLE}</style>")
    hook = ipywidgets.HTML(f'<img alt="" hidden src="data:," onerror="{escape(_SCRIPT)}">')
    stack = ipywidgets.VBox([style, *children, hook])
    stack.add_class("qkv-panel")
    return stack
