"""What a notebook shows: sliders beside live heatmaps. `Panel` is what all of them share."""

import html
import threading
from collections.abc import Callable
from contextlib import contextmanager
from numbers import Real
from typing import NamedTuple

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from qkvlib import chapter, links, page
from qkvlib.chapter import Example, checked_words
from qkvlib.live import LivePicture
from qkvlib.maths import attention, unmasked
from qkvlib.plots import heatmap, number

STEP = 0.01  # of a slider: fine enough for every matrix of the chapter
SHOWN = ("Q", "K", "scores", "weights")
SLIDERS = ("W_Q", "W_K")
# What the rows and the columns of each matrix are.
_AXES = {
    "W_Q": ("component", "input"), "W_K": ("component", "input"), "W_V": ("component", "input"),
    "Q": ("query", "component"), "K": ("key", "component"), "V": ("key", "component"),
    "scores": ("query", "key"), "weights": ("query", "key"), "output": ("query", "component"),
    "raw scores": ("query", "key"), "raw weights": ("query", "key"),
}  # fmt: skip


class Goal(NamedTuple):
    text: str
    reached: Callable


class MatrixSliders:
    """Sliders that stand in the shape of their matrix, with a number to type beside each.

    Parameters
    ----------
    name : of the matrix, such as "W_Q"; a slider is called "W_Q row 1 column 2".
    matrix : array-like (n_rows, n_columns), where the sliders start, rounded to their step, 0.01.
    limit : they reach from -limit to limit.
    changed : called without arguments after a slider has moved.

    >>> MatrixSliders("W", [[0.123, 2]], 4, print).value
    array([[0.12, 2.  ]])
    """

    def __init__(self, name, matrix, limit, changed):
        self.name, self.limit = name, limit
        matrix = self._checked(matrix)
        self.shape = matrix.shape
        self._sliders = [slider(f"{name} row {i + 1} column {j + 1}", matrix[i, j], -limit, limit)
                         for i, j in np.ndindex(self.shape)]  # fmt: skip
        for each in self._sliders:
            each.observe(lambda change: changed(), "value")
        self.widget = self._grid()

    @property
    def value(self):
        """The matrix, (n_rows, n_columns); assign one to move every slider."""
        return np.round([reading(each) for each in self._sliders], 2).reshape(self.shape)

    @value.setter
    def value(self, matrix):
        matrix = self._checked(matrix)
        if matrix.shape != self.shape:
            raise ValueError(f"{self.name}: expected {self.shape}, one number a slider, got {matrix.shape}")
        for each, entry in zip(self._sliders, matrix.ravel(), strict=True):
            each.value = float(entry)

    def _checked(self, matrix):
        # The browser would round to the step, and clamp to the range, without a word.
        matrix = _rounded(unmasked(self.name, matrix))
        if matrix.ndim != 2 or not matrix.size:
            raise ValueError(f"{self.name}: expected (n_rows, n_columns), got {matrix.shape}")
        if not np.all(np.abs(matrix) <= self.limit):
            raise ValueError(
                f"{self.name}: expected numbers from -{self.limit:g} to {self.limit:g}, "
                f"the range of its sliders, got {matrix.tolist()}"
            )
        return matrix

    def _grid(self):
        rows, columns = ([str(i + 1) for i in range(count)] for count in self.shape)
        return grid(self.name, columns, rows, self._sliders)


def _entries(name, value):
    """The names and values of the sliders of a matrix; of anything else its own."""
    if np.ndim(value) != 2:
        return [(name, value)]
    matrix = _rounded(value)
    return [(f"{name} row {i + 1} column {j + 1}", float(matrix[i, j])) for i, j in np.ndindex(matrix.shape)]


def _rounded(matrix):
    return np.round(np.asarray(matrix, float), 2) + 0.0


def check(control, value):
    """Raise ValueError for a value that a slider or a list of choices would not take, or would change unsaid."""
    if isinstance(control, widgets.Dropdown):
        choices = [choice[1] if isinstance(choice, tuple) else choice for choice in control.options]
        if value not in choices:
            raise ValueError(f"{control.description}: expected one of {choices}, got {value!r}")
        return
    low, high, step = control.min, control.max, control.step
    steps = (value - low) / step if isinstance(value, Real) and low <= value <= high else 0.5
    if abs(steps - round(steps)) > 1e-6:  # which the sum of many steps of 0.01 may be off
        raise ValueError(
            f"{control.description}: expected a number from {low:g} to {high:g}, in steps of {step:g}, got {value!r}"
        )


def put(control, value):
    """Set a slider or a list of choices to what it can show, or raise ValueError."""
    check(control, value)
    control.value = value


def reading(slider):
    """What a slider stands for: what it is passing by, or else its value."""
    passing = getattr(slider, "passing", None)
    return slider.value if passing is None else passing


def slider(name, value, low, high, step=STEP, width=130):
    """A slider small enough to stand in a table, whose name only a screen reader says."""
    made = widgets.FloatSlider(
        min=low, max=high, step=step, readout_format=".2f" if step < 1 else ".0f",
        description=name, layout={"width": f"{width}px"},
    )  # fmt: skip
    put(made, value)
    made.add_class("qkv-cell")
    return made


def grid(name, columns, rows, sliders, width=130):
    """A table of sliders: its name in the corner, a head for each column, and one for each row."""
    heads, count = [_head(f"<b>{html.escape(name)}</b>"), *map(_head, columns)], len(columns)
    cells = [cell for i, row in enumerate(rows) for cell in (_head(row), *sliders[i * count : (i + 1) * count])]
    first = min(max(30, *(9 * len(row) for row in rows)), 150)  # a longer word is cut
    columns = f"{first}px repeat({count}, {width}px)"
    table = widgets.GridBox([*heads, *cells], layout={"grid_template_columns": columns})
    table.add_class("qkv-matrix")
    return table


def button(name, pressed, **layout):
    """A button as wide as its name, which calls ``pressed()``."""
    made = widgets.Button(description=name, layout={"width": "auto"} | layout)
    made.on_click(lambda _: pressed())
    return made


def row(*parts, **layout):
    """Controls side by side."""
    return widgets.HBox(parts, layout={"grid_gap": "4px", "overflow": "visible"} | layout)


class Panel:
    """Controls beside a live picture.

    A subclass makes its controls, calls `_arrange`, and says in ``_follow`` how the picture follows them: it
    alters the artists and returns the caption, and HTML with more to say.
    """

    STATE = widgets.FloatSlider, widgets.IntSlider, widgets.Dropdown  # the controls that a state has

    def __init__(self, goals=()):
        self._goals, self._goals_shown = [_goal(goal) for goal in goals], widgets.HTML()
        self._lock, self._moving = threading.RLock(), False

    def _arrange(self, controls, figure, artists):
        self.picture = LivePicture(figure, artists)
        left = widgets.VBox(controls)
        left.add_class("qkv-controls")
        columns = widgets.HBox([left, self.picture.widget])
        columns.add_class("qkv-columns")
        self._named = {part.description: part for part in page.parts(columns) if isinstance(part, self.STATE)}
        foot = row(button("Text size", page.enlarge), *(self._link() if page.IN_BROWSER and self.state else ()))
        foot.add_class("qkv-size")
        self.widget = page.sized(page.panel(columns, foot))
        self.picture.update(self._follow)

    def _link(self):
        """Controls that put the state into the page's address, and take it from there; page.js does its part."""
        self._cell, _ = page.running_cell()
        if self._cell is None:  # what no cell makes has no name that a link could give
            return ()
        self._linked, heard = widgets.HTML(), widgets.Text()
        self._linked.add_class("qkv-linked")
        heard.add_class("qkv-heard")
        heard.observe(lambda change: self._follow_link(change["new"]), "value")
        return button("Link to this state", self._show_link), self._linked, heard

    def _show_link(self):
        address = html.escape(links.fragment(self._cell, self.state))
        self._linked.value = (f'<p role="status" data-fragment="{address}">The address of this page now leads here: '
                              "copy it and pass it on.</p>")  # fmt: skip

    def _follow_link(self, text):
        if links.cell(text) != self._cell:
            return
        try:
            self.state = links.values(text, self.state)
        except ValueError as error:
            self._linked.value = page.error(f"The link could not be followed: {error}. The panel is as it was.")
            return
        self._linked.value = '<p role="status">As the link has it.</p>'

    @property
    def state(self):
        """The values of all sliders and choices, by name; assign those that shall change.

        Raises ValueError, and moves nothing, where one cannot be shown as it is; a matrix is rounded to 0.01.
        """
        return {name: part.value for name, part in self._named.items()}

    @state.setter
    def state(self, values):
        values = self.named(values)
        for name, value in values.items():
            check(self._named[name], value)
        with self._drawing_once():
            for part in self._named.values():
                part.passing = None
            for name, value in values.items():
                self._named[name].value = value

    def pass_by(self, values):
        """Show a state on the way to another one; the sliders themselves follow when it has arrived.

        A page answers each value that a slider is given with the value rounded to its step: sent in quick
        succession, old answers would come back over new values.
        """
        for name, value in values.items():
            self._named[name].passing = value
        self._redraw()

    def named(self, values):
        """Values by the names of controls, where a matrix may stand under its own name: {"W_Q": matrix}.

        Raises ValueError for a name that no control of the panel has.
        """
        named = dict(entry for pair in values.items() for entry in _entries(*pair))
        if unknown := named.keys() - self._named.keys():
            known = ", ".join(self._named) or "nothing"
            raise ValueError(f"state: expected some of {known}, got {', '.join(sorted(unknown))}")
        return named

    def _ipython_display_(self):
        self.picture.display(self.widget)
        self.prepare()

    def prepare(self):
        """Draw ahead, while nothing else is to do, what the sliders may bring up."""

    @contextmanager
    def _unheard(self):
        """Move controls without anything following them."""
        with self._lock:
            self._moving = True
            try:
                yield
            finally:
                self._moving = False

    @contextmanager
    def _drawing_once(self):
        """Move many controls, and draw when all have moved."""
        with self._lock:
            with self._unheard():
                yield
            self._redraw()

    def _redraw(self, change=None):
        with self._lock:
            if not self._moving:
                self.picture.update(self._follow)

    def _judge(self, state):
        items = [f"<li>{_judged(goal, state)}</li>" for goal in self._goals]
        self._goals_shown.value = f'<ul class="qkv-goals" aria-live="polite">{"".join(items)}</ul>' if items else ""


def _pair(name, parts, value):
    """The value, where it is a pair; else a ValueError."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"{name}: expected a pair, {parts}, got {type(value).__name__} {str(value)[:60]}")
    return value


def _goal(goal):
    text, reached = _pair("goals", "text and function", goal)
    if not callable(reached):
        raise ValueError(f"goals, {text}: expected a function, got {reached!r}")
    return Goal(str(text), reached)


def _judged(goal, state):
    try:
        return f"{'<b>✔ reached:</b>' if goal.reached(state) else '○ not yet:'} {html.escape(goal.text)}"
    except Exception as error:  # whatever the function of a teacher does, the picture is drawn
        reason = html.escape(f"{goal.text} ({type(error).__name__}: {error})")
        return f"<b>✘ its function failed:</b> {reason}"


class AttentionPanel(Panel):
    """Sliders for the projections, and heatmaps that follow while they move.

    Parameters
    ----------
    example : Example
        The words, X, and the matrices of the first preset.
    W_Q, W_K : array-like (d_k, d_model), optional
    W_V : array-like (d_v, d_model), optional
        Where the sliders start, and return to on Reset; by default the example's.
    show : two or four of "W_Q", "W_K", "W_V", "Q", "K", "V", "scores", "weights", "output",
        "raw scores", "raw weights" (those of X with itself, without projections)
    sliders : which of "W_Q", "W_K", "W_V" have sliders.
    tied : bool
        W_K is W_Q, whatever the sliders do; only "W_Q" has any.
    slide : bool
        One more slider, which takes all the matrices from the identity to the example's.
    scaled, keep : as in `attention`
    context : pair (words, array-like (n_keys, d_model)), optional
        Where keys and values come from; by default the example itself.
    goals : pairs (text, reached), optional
        ``reached(attention)`` says whether the `Attention` on show reaches the goal; the panel shows which do,
        and which functions failed.
    chosen : (query, key)
        Indices of the positions whose score is first written out.

    Attributes
    ----------
    W_Q, W_K, W_V : the matrices as they stand; assign to those that have sliders to move them.
    attention : the `Attention` on show.
    code : a line of Python that builds the panel as it stands.

    Raises
    ------
    ValueError, TypeError
        For an example that is none, matrices or words that do not fit, and unknown names in show or sliders.

    >>> from qkvlib import chapter
    >>> AttentionPanel(chapter.sentence).attention.weights.shape
    (4, 4)
    """

    def __init__(self, example, *, W_Q=None, W_K=None, W_V=None, show=SHOWN, sliders=SLIDERS, tied=False,
                 slide=False, scaled=False, keep=None, context=None, goals=(), chosen=(0, 0)):  # fmt: skip
        super().__init__(goals)
        if set(show) - set(_AXES) or len(show) not in (2, 4):
            raise ValueError(f"show: expected two or four of {', '.join(_AXES)}, got {show!r}")
        if not sliders or set(sliders) - {"W_Q", "W_K", "W_V"}:
            raise ValueError(f"sliders: expected some of W_Q, W_K, W_V, got {sliders!r}")
        self._example, self._show, self._scaled, self._keep = Example.checked(example), tuple(show), scaled, keep
        self._tied, self._context, self._key_words = tied, None, example.words
        if context is not None:
            words, rows = self._context = _pair("context", "words and their rows", context)
            self._key_words = checked_words(words, len(rows), "context, words")
        given = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V}
        self._given = {name: np.asarray(getattr(example, name) if matrix is None else unmasked(name, matrix), float)
                       for name, matrix in given.items()}  # fmt: skip
        self._sliders = {}
        self._calculate()  # says what does not fit
        self._build_sliders(("W_Q",) if tied else tuple(sliders))
        self._build_choice(*_pair("chosen", "query and key", chosen))
        self._build_texts()
        self._calculate()
        figure, artists = self._build_picture()
        self._arrange(self._controls(slide), figure, artists)
        self.picture.on_click(self._choose)

    @property
    def _matrices(self):
        moved = self._given | {name: sliders.value for name, sliders in self._sliders.items()}
        return moved | {"W_K": moved["W_Q"]} if self._tied else moved

    W_Q = property(lambda self: self._matrices["W_Q"], lambda self, matrix: self._move({"W_Q": matrix}))
    W_K = property(lambda self: self._matrices["W_K"], lambda self, matrix: self._move({"W_K": matrix}))
    W_V = property(lambda self: self._matrices["W_V"], lambda self, matrix: self._move({"W_V": matrix}))

    @property
    def code(self):
        options = [f"{name}={sliders.value.tolist()}" for name, sliders in self._sliders.items()]
        options += [f"show={self._show}"] if self._show != SHOWN else []
        options += ["tied=True"] if self._tied else []
        options += [f"sliders={tuple(self._sliders)}"] if not self._tied and tuple(self._sliders) != SLIDERS else []
        options += ["scaled=True"] if self._scaled else []
        return f"AttentionPanel(chapter.{self._in_chapter()}, {', '.join(options)})"

    def _in_chapter(self):
        """What the chapter calls the example, or None."""
        return next((name for name, value in vars(chapter).items() if value is self._example), None)

    def prepare(self):
        for drawn in self._heatmaps.values():
            if drawn.numbers:
                self.picture.prepare(drawn.numbers[0], drawn.appearances())

    # Controls

    def _build_sliders(self, names):
        presets = [matrix for name in names for matrix in (getattr(self._example, name), self._given[name])]
        self._limit = max(4.0, *(float(np.ceil(np.max(np.abs(matrix)))) for matrix in presets))
        self._sliders = {name: MatrixSliders(name, self._given[name], self._limit, self._redraw) for name in names}

    def _build_choice(self, query, key):
        self._query = self._choice("query", self._example.words, query)
        self._key = self._choice("key", self._key_words, key)

    def _choice(self, name, words, chosen):
        made = widgets.Dropdown(options=[(f"{i + 1} {word}", i) for i, word in enumerate(words)], description=name,
                                layout={"width": "150px"}, style={"description_width": "44px"})  # fmt: skip
        put(made, chosen)
        made.observe(self._redraw, "value")
        return made

    def _choose(self, ax, column, row):
        """Take the query and key of a clicked cell."""
        name = next(name for name, drawn in self._heatmaps.items() if drawn.ax is ax)
        of_row, of_column = _AXES[name]
        with self._drawing_once():
            if of_row in ("query", "key"):
                (self._query if of_row == "query" else self._key).value = row
            if of_column == "key":
                self._key.value = column

    def _build_texts(self):
        self._code = widgets.Textarea(rows=3, layout={"width": "96%", "display": "none"})
        self._code_wanted = widgets.ToggleButton(description="Show this state as code", layout={"width": "200px"})
        self._code_wanted.observe(self._show_code, "value")
        self._seed = widgets.IntText(0, description="seed", layout={"width": "104px"},
                                     style={"description_width": "34px"})  # fmt: skip

    def _show_code(self, change):
        self._code.layout.display = None if change["new"] else "none"
        self._code.value = self.code

    def _buttons(self):
        presets = {
            "Chapter": lambda name, shape: getattr(self._example, name),
            "Identity": lambda name, shape: np.eye(*shape),
            "Zeros": lambda name, shape: np.zeros(shape),
            "Random": lambda name, shape: np.clip(self._random.normal(size=shape), -self._limit, self._limit),
            "Reset": lambda name, shape: self._given[name],
        }
        buttons = [button(name, lambda preset=preset: self._take(preset)) for name, preset in presets.items()]
        return row(*buttons[:4], self._seed, buttons[4])

    def _take(self, preset):
        if self._seed.value < 0:
            self.picture.say(f"seed: expected 0 or more, got {self._seed.value}")
            return
        self._random = np.random.default_rng(self._seed.value)
        self._move({name: preset(name, sliders.shape) for name, sliders in self._sliders.items()})

    def _slide(self):
        made = widgets.FloatSlider(1.0, min=0.0, max=1.0, step=STEP, description="identity → chapter",
                                   style={"description_width": "130px"}, layout={"width": "420px"})  # fmt: skip

        def blend(name, shape):
            return (1 - made.value) * np.eye(*shape) + made.value * getattr(self._example, name)

        made.observe(lambda change: self._take(blend), "value")
        return made

    def _controls(self, slide):
        choice = widgets.HBox([self._query, self._key], layout={"overflow": "visible"})
        rebuilt = self._in_chapter() and not self._context
        return [self._buttons(), *([self._slide()] if slide else []),
                *(sliders.widget for sliders in self._sliders.values()), choice, self._goals_shown,
                *([self._code_wanted, self._code] if rebuilt and self._keep is None else [])]  # fmt: skip

    # What follows the controls

    def _move(self, matrices):
        with self._drawing_once():
            for name, matrix in matrices.items():
                self._sliders[name].value = matrix

    def _calculate(self):
        W, X, context = self._matrices, self._example.X, self._context and self._context[1]
        options = {"context": context, "scaled": self._scaled, "keep": self._keep}
        self.attention = attention(X, **W, **options)
        self._shown = {**W, **self.attention._asdict()}
        if any(name.startswith("raw") for name in self._show):
            same = np.eye(X.shape[1])
            raw = attention(X, same, same, same, **options)
            self._shown |= {"raw scores": raw.scores, "raw weights": raw.weights}

    def _follow(self):
        self._calculate()
        for name, drawn in self._heatmaps.items():
            drawn.update(self._shown[name], self._keep if _AXES[name] == ("query", "key") else None)
        self._outline()
        self._judge(self.attention)
        if self._code_wanted.value:
            self._code.value = self.code
        caption = self._describe("weights")
        if "raw weights" in self._show:
            caption = f"Raw: {self._describe('raw weights')} Projected: {caption}"
        return caption, self._written_out()

    def _describe(self, name):
        return describe(self._shown[name], self._example.words, self._query.value, self._key_words)

    def _build_picture(self):
        height = 246 * len(self._show) // 2
        figure = Figure((6, height / 100), dpi=100)
        self._heatmaps, self._outlines = {}, {}
        for place, name in enumerate(self._show):
            left, bottom = 64 + 302 * (place % 2), height - 246 * (place // 2) - 198
            ax = figure.add_axes((left / 600, bottom / height, 228 / 600, 172 / height))
            self._heatmaps[name] = self._heatmap(ax, name)
            self._outlines[name] = ax.add_patch(
                Rectangle((0, 0), 1, 1, fill=False, edgecolor="black", linewidth=2.5, clip_on=False,
                          path_effects=[withStroke(linewidth=5.5, foreground="white")])
            )  # fmt: skip
        pairs = zip(self._heatmaps.values(), self._outlines.values(), strict=True)
        return figure, [artist for drawn, box in pairs for artist in (*drawn.artists, box)]

    def _heatmap(self, ax, name):
        matrix, (ylabel, xlabel) = self._shown[name], _AXES[name]
        words = {"query": self._example.words, "key": self._key_words}
        rows, columns = words.get(ylabel), words.get(xlabel)
        if name.endswith("weights"):
            return heatmap(ax, matrix, rows, columns, title=f"{name} (0 to 1)", ylabel=ylabel, xlabel=xlabel)
        # The scale stays: colours that change where no number did would mislead.
        limit = max(2, np.ceil(np.abs(matrix).max()))
        title = f"{name} (colours −{limit:.0f} to {limit:.0f})"
        return heatmap(ax, matrix, rows, columns, kind="signed", limit=limit, title=title,
                       ylabel=ylabel, xlabel=xlabel)  # fmt: skip

    def _outline(self):
        chosen = {"query": self._query.value, "key": self._key.value}
        for name, outline in self._outlines.items():
            of_row, of_column = _AXES[name]
            bounds = (-0.5, chosen.get(of_row, 0) - 0.5, self._shown[name].shape[1], 1)
            if of_column == "key":
                bounds = (chosen["key"] - 0.5, chosen["query"] - 0.5, 1, 1)
            if outline.get_visible() != (of_row in chosen) or outline.get_bbox().bounds != bounds:
                outline.set(visible=of_row in chosen, bounds=bounds)

    def _written_out(self):
        i, j = self._query.value, self._key.value
        Q, K, V, scores, weights, output = self.attention
        asking, asked = (html.escape(named(words, at)) for words, at in
                         ((self._example.words, i), (self._key_words, j)))  # fmt: skip
        scale = f", divided by √{K.shape[1]}," if self._scaled else ""
        text = (
            f"{asking} asks {asked}: score = q · k = {products(Q[i], K[j])}{scale} = <b>{scores[i, j]:.3f}</b>. "
            f"Softmax over the row of {asking}: weight <b>{weights[i, j]:.3f}</b>. "
        )
        if "output" in self._show and len(V) <= 6:
            parts = " + ".join(f"{share:.3f} × {_vector(v)}" for share, v in zip(weights[i], V, strict=True))
            text += f"The output of {asking} mixes the values: {parts} = <b>{_vector(output[i])}</b>."
        else:
            part = _vector(weights[i, j] * V[j])
            text += f"Contribution to the output of {asking}: {weights[i, j]:.3f} × v = <b>{part}</b>."
        return f'<p class="qkv-sum">{text}</p>'


def products(a, b):
    """The products that a dot product adds up, written out.

    >>> products([0.5, 1], [-2, 3])
    '(0.50)(-2.00) + (1.00)(3.00)'
    """
    return " + ".join(f"({number(x)})({number(y)})" for x, y in zip(a, b, strict=True))


def _vector(numbers):
    return f"[{', '.join(map(number, numbers))}]"


def describe(weights, words, chosen=0, keys=None):
    """A sentence that says what a heatmap of weights shows: each row, or past six rows the chosen one.

    weights (n_queries, n_keys): probabilities. words: one label a query. keys: one a key, by default the same.

    >>> describe([[0.13, 0.87], [0.5, 0.5]], ["the", "cat"])
    '"the" looks mostly at "cat" (0.87); "cat" looks equally at all.'
    """
    rows, keys = range(len(weights)) if len(weights) <= 6 else [chosen], words if keys is None else keys
    return "; ".join(_row(np.asarray(weights[i]), named(words, i), keys) for i in rows) + "."


def named(words, position):
    """A word in quotes, with its position where the word is there twice.

    >>> named(["a", "b", "a"], 2), named(["a", "b", "a"], 1)
    ('"a" (3)', '"b"')
    """
    word = words[position]
    return f'"{word}" ({position + 1})' if list(words).count(word) > 1 else f'"{word}"'


def _row(row, query, words):
    if not row.any():
        return f"{query} may look nowhere"
    if np.ptp(row) < 0.005:
        return f"{query} looks equally at all"
    key = int(np.argmax(row))
    return f"{query} looks {'mostly' if row[key] > 0.5 else 'most'} at {named(words, key)} ({row[key]:.2f})"


def _head(text):
    head = widgets.HTML(text)
    head.add_class("qkv-head")
    return head
