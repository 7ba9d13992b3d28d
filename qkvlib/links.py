"""The state of a panel as the fragment of an address, so that a link brings it back."""

import json
import re
from urllib.parse import quote, unquote

_ENTRY = re.compile(r"(.+) row (\d+) column (\d+)")


def grouped(state):
    """Values by the names of controls, with the sliders of a matrix as one matrix.

    >>> grouped({"W row 1 column 1": 0.5, "W row 1 column 2": -2.0, "query": 1})
    {'W': [[0.5, -2.0]], 'query': 1}
    """
    values = {}
    for name, value in state.items():
        entry = _ENTRY.fullmatch(name)
        if not entry:
            values[name] = value
            continue
        rows = values.setdefault(entry[1], [])
        if int(entry[2]) > len(rows):
            rows.append([])
        rows[-1].append(round(value, 4))  # a slider's steps add up to 0.23000000000000043
    return values


def fragment(cell, state):
    """The part of an address behind the page's own.

    cell: the id of the notebook's cell that makes the panel. state: values by the names of controls.

    >>> fragment("a1", {"W row 1 column 1": 0.5, "W row 1 column 2": -2.0, "query": 1})
    '#cell=a1&W=[[0.5,-2.0]]&query=1'
    """
    pairs = [f"{quote(name)}={quote(json.dumps(value, separators=(',', ':')), safe='[],')}"
             for name, value in grouped(state).items()]  # fmt: skip
    return "&".join([f"#cell={quote(cell)}", *pairs])


def cell(text):
    """The id of the cell that a fragment is for.

    >>> cell("#cell=a1&query=1")
    'a1'
    """
    return unquote(text.split("&")[0].removeprefix("#cell="))


def values(text, state):
    """What a fragment says of a panel: values by the names of its controls and matrices.

    Raises ValueError for what cannot be read, or does not fit the state that the panel has.

    >>> values("#cell=a1&W=[[1,0]]", {"W row 1 column 1": 0.5, "W row 1 column 2": -2.0, "query": 1})
    {'W': [[1, 0]]}
    """
    known = grouped(state)
    found = dict(map(_pair, text.split("&")[1:]))
    for name, value in found.items():
        if name not in known:
            raise ValueError(f"expected some of {', '.join(known)}, got {name}")
        if _shape(value) != _shape(known[name]):
            raise ValueError(f"{name}: expected {_said(known[name])}, got {json.dumps(value)}")
    return found


def _pair(part):
    name, equals, value = (unquote(each) for each in part.partition("="))
    try:
        return name, json.loads(value)
    except ValueError:
        raise ValueError(f"expected name=number or name=[[…],[…]], got {name}{equals}{value}") from None


def _shape(value):
    """Rows and columns of a matrix of numbers, () of a number; a text's and a switch's own kind; None of all else."""
    if isinstance(value, bool | str):
        return type(value)
    if isinstance(value, int | float):
        return ()
    rows = value if isinstance(value, list) else [None]
    widths = {len(row) if isinstance(row, list) and all(_shape(each) == () for each in row) else None for row in rows}
    return (len(rows), *widths) if len(widths) == 1 and None not in widths else None


def _said(value):
    shape = _shape(value)
    return f"{shape[0]} rows of {shape[1]} numbers" if shape and isinstance(shape, tuple) else f"one like {value}"
