"""What a notebook shows: matrix sliders beside live heatmaps, and a question to predict on."""

import html
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from qkvlib import page
from qkvlib.live import LivePicture
from qkvlib.maths import attention
from qkvlib.plots import heatmap, number

STEP = 0.01  # of a slider: fine enough for every matrix of the chapter
SHOWN = ("Q", "K", "scores", "weights")
# What the rows and the columns of each matrix are.
_AXES = {
    "W_Q": ("component", "input"), "W_K": ("component", "input"), "W_V": ("component", "input"),
    "Q": ("query", "component"), "K": ("key", "component"), "V": ("key", "component"),
    "scores": ("query", "key"), "weights": ("query", "key"), "output": ("query", "component"),
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
        self._sliders = [self._slider(i, j, matrix[i, j]) for i, j in np.ndindex(self.shape)]
        for slider in self._sliders:
            slider.observe(lambda change: changed(), "value")
        self.widget = self._grid()

    @property
    def value(self):
        """The matrix, (n_rows, n_columns); assign one to move every slider."""
        return np.round([slider.value for slider in self._sliders], 2).reshape(self.shape)

    @value.setter
    def value(self, matrix):
        matrix = self._checked(matrix)
        if matrix.shape != self.shape:
            raise ValueError(f"{self.name}: expected {self.shape}, one number a slider, got {matrix.shape}")
        for slider, entry in zip(self._sliders, matrix.ravel(), strict=True):
            slider.value = float(entry)

    def _checked(self, matrix):
        # The browser would round to the step, and clamp to the range, without a word.
        matrix = np.round(np.asarray(matrix, float), 2) + 0.0
        if not np.all(np.abs(matrix) <= self.limit):
            raise ValueError(
                f"{self.name}: expected numbers from -{self.limit:g} to {self.limit:g}, "
                f"the range of its sliders, got {matrix.tolist()}"
            )
        return matrix

    def _slider(self, i, j, entry):
        slider = widgets.FloatSlider(
            entry, min=-self.limit, max=self.limit, step=STEP, readout_format=".2f",
            description=f"{self.name} row {i + 1} column {j + 1}", layout={"width": "130px"},
        )  # fmt: skip
        slider.add_class("qkv-cell")
        return slider

    def _grid(self):
        rows, columns = self.shape
        corner = f"<b>{self.name}</b>"
        heads = [_head(corner), *(_head(str(j + 1)) for j in range(columns))]
        cells = [
            cell for i in range(rows) for cell in (_head(str(i + 1)), *self._sliders[i * columns : (i + 1) * columns])
        ]
        grid = widgets.GridBox([*heads, *cells], layout={"grid_template_columns": f"30px repeat({columns}, 130px)"})
        grid.add_class("qkv-matrix")
        return grid


class AttentionPanel:
    """Sliders for W_Q and W_K, and heatmaps that follow while they move.

    Parameters
    ----------
    example : chapter.Example
        The words, X, W_V, and the W_Q and W_K of the first preset.
    W_Q, W_K : array-like (d_k, d_model), optional
        Where the sliders start, and return to on Reset; by default the example's.
    show : two or four of "W_Q", "W_K", "W_V", "Q", "K", "V", "scores", "weights", "output"
    scaled, keep : as in `attention`
    goals : pairs (text, reached), optional
        ``reached(attention)`` says whether the `Attention` on show reaches the goal; the panel shows which do.
    chosen : (query, key)
        Indices of the positions whose score is first written out.

    Attributes
    ----------
    W_Q, W_K : arrays (d_k, d_model), what the sliders stand on; assign to move them.
    attention : the `Attention` on show.
    code : a line of Python that builds the panel as it stands.

    Raises
    ------
    ValueError
        For matrices that do not fit, or an unknown name in show.

    >>> from qkvlib import chapter
    >>> AttentionPanel(chapter.sentence).attention.weights.shape
    (4, 4)
    """

    def __init__(self, example, *, W_Q=None, W_K=None, show=SHOWN, scaled=False, keep=None,
                 goals=(), chosen=(0, 0)):  # fmt: skip
        unknown = [name for name in show if name not in _AXES]
        if unknown or len(show) not in (2, 4):
            raise ValueError(f"show: expected two or four of {', '.join(_AXES)}, got {show!r}")
        self._example, self._show, self._scaled, self._keep = example, tuple(show), scaled, keep
        self._goals = [Goal(*goal) for goal in goals]
        self._lock, self._moving = threading.RLock(), False
        self._build_sliders(example.W_Q if W_Q is None else W_Q, example.W_K if W_K is None else W_K)
        self._build_choice(chosen)
        self._build_texts()
        self._calculate()
        self._build_picture()
        self.widget = self._arranged()
        self.picture.update(self._follow)

    @property
    def W_Q(self):
        return self._sliders["W_Q"].value

    @W_Q.setter
    def W_Q(self, matrix):
        self._move(matrix, self.W_K)

    @property
    def W_K(self):
        return self._sliders["W_K"].value

    @W_K.setter
    def W_K(self, matrix):
        self._move(self.W_Q, matrix)

    @property
    def code(self):
        options = [f"W_Q={self.W_Q.tolist()}", f"W_K={self.W_K.tolist()}"]
        options += [f"show={self._show}"] if self._show != SHOWN else []
        options += ["scaled=True"] if self._scaled else []
        return f"AttentionPanel(chapter.{self._example.name}, {', '.join(options)})"

    def _ipython_display_(self):
        self.picture.display(self.widget)
        for drawn in self._heatmaps.values():
            if drawn.numbers:
                self.picture.prepare(drawn.numbers[0], drawn.appearances())

    # Controls

    def _build_sliders(self, W_Q, W_K):
        presets = [self._example.W_Q, self._example.W_K, W_Q, W_K]
        limit = max(4.0, *(float(np.ceil(np.max(np.abs(matrix)))) for matrix in presets))
        self._start = W_Q, W_K
        self._sliders = {name: MatrixSliders(name, matrix, limit, self._redraw)
                         for name, matrix in (("W_Q", W_Q), ("W_K", W_K))}  # fmt: skip

    def _build_choice(self, chosen):
        options = [(f"{i + 1} {word}", i) for i, word in enumerate(self._example.words)]
        self._query, self._key = (
            widgets.Dropdown(options=options, value=value, description=name,
                             layout={"width": "150px"}, style={"description_width": "44px"})
            for name, value in zip(("query", "key"), chosen, strict=True)
        )  # fmt: skip
        for dropdown in (self._query, self._key):
            dropdown.observe(lambda change: self._redraw(), "value")

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
        self._goals_shown = widgets.HTML()
        self._code = widgets.Textarea(rows=3, layout={"width": "96%", "display": "none"})
        self._code_wanted = widgets.ToggleButton(description="Show this state as code", layout={"width": "200px"})
        self._code_wanted.observe(self._show_code, "value")
        self._seed = widgets.BoundedIntText(0, min=0, max=9999, description="seed", layout={"width": "104px"},
                                            style={"description_width": "34px"})  # fmt: skip

    def _show_code(self, change):
        self._code.layout.display = None if change["new"] else "none"
        self._code.value = self.code

    def _buttons(self):
        shape_Q, shape_K = self._sliders["W_Q"].shape, self._sliders["W_K"].shape
        presets = {
            "Chapter": lambda: (self._example.W_Q, self._example.W_K),
            "Identity": lambda: (np.eye(*shape_Q), np.eye(*shape_K)),
            "Zeros": lambda: (np.zeros(shape_Q), np.zeros(shape_K)),
            "Random": lambda: self._random(shape_Q, shape_K),
            "Reset": lambda: self._start,
        }
        buttons = [widgets.Button(description=name, layout={"width": "auto"}) for name in presets]
        for button, preset in zip(buttons, presets.values(), strict=True):
            button.on_click(lambda _, preset=preset: self._move(*preset()))
        return widgets.HBox([*buttons[:4], self._seed, buttons[4]], layout={"grid_gap": "4px", "overflow": "visible"})

    def _random(self, *shapes):
        rng = np.random.default_rng(self._seed.value)
        limit = self._sliders["W_Q"].limit
        return [np.clip(rng.normal(size=shape), -limit, limit) for shape in shapes]

    def _arranged(self):
        grids = [sliders.widget for sliders in self._sliders.values()]
        choice = widgets.HBox([self._query, self._key], layout={"overflow": "visible"})
        left = widgets.VBox([self._buttons(), *grids, choice, self._goals_shown, self._code_wanted, self._code])
        left.add_class("qkv-controls")
        columns = widgets.HBox([left, self.picture.widget])
        columns.add_class("qkv-columns")
        return page.panel(columns)

    # What follows the controls

    @contextmanager
    def _drawing_once(self):
        """Move many controls, and draw when all have moved."""
        with self._lock:
            self._moving = True
            try:
                yield
            finally:
                self._moving = False
            self._redraw()

    def _move(self, W_Q, W_K):
        with self._drawing_once():
            self._sliders["W_Q"].value, self._sliders["W_K"].value = W_Q, W_K

    def _redraw(self):
        with self._lock:
            if not self._moving:
                self.picture.update(self._follow)

    def _calculate(self):
        example, W_Q, W_K = self._example, self.W_Q, self.W_K
        self.attention = attention(example.X, W_Q, W_K, example.W_V, scaled=self._scaled, keep=self._keep)
        self._matrices = {"W_Q": W_Q, "W_K": W_K, "W_V": example.W_V, **self.attention._asdict()}

    def _follow(self):
        self._calculate()
        for name, drawn in self._heatmaps.items():
            drawn.update(self._matrices[name], self._keep if name in ("scores", "weights") else None)
        self._outline()
        self._goals_shown.value = self._judged()
        if self._code_wanted.value:
            self._code.value = self.code
        return describe(self.attention.weights, self._example.words, self._query.value), self._written_out()

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
        self.picture = LivePicture(figure, [artist for drawn, box in pairs for artist in (*drawn.artists, box)])
        self.picture.on_click(self._choose)

    def _heatmap(self, ax, name):
        matrix, words = self._matrices[name], self._example.words
        ylabel, xlabel = _AXES[name]
        rows = None if name.startswith("W_") else words
        columns = words if xlabel == "key" else None
        if name == "weights":
            return heatmap(ax, matrix, rows, columns, title="weights (0 to 1)", ylabel=ylabel, xlabel=xlabel)
        # The scale stays: colours that change where no number did would mislead.
        limit = max(2, np.ceil(np.abs(matrix).max()))
        title = f"{name} (colours −{limit:.0f} to {limit:.0f})"
        return heatmap(ax, matrix, rows, columns, kind="signed", limit=limit, title=title,
                       ylabel=ylabel, xlabel=xlabel)  # fmt: skip

    def _outline(self):
        chosen = {"query": self._query.value, "key": self._key.value}
        for name, outline in self._outlines.items():
            of_row, of_column = _AXES[name]
            bounds = (-0.5, chosen.get(of_row, 0) - 0.5, self._matrices[name].shape[1], 1)
            if of_column == "key":
                bounds = (chosen["key"] - 0.5, chosen["query"] - 0.5, 1, 1)
            if outline.get_visible() != (of_row in chosen) or outline.get_bbox().bounds != bounds:
                outline.set(visible=of_row in chosen, bounds=bounds)

    def _written_out(self):
        i, j = self._query.value, self._key.value
        Q, K, V, scores, weights, _ = self.attention
        asking, asked = (html.escape(named(self._example.words, at)) for at in (i, j))
        products = " + ".join(f"({number(q)})({number(k)})" for q, k in zip(Q[i], K[j], strict=True))
        scale = f", divided by √{K.shape[1]}," if self._scaled else ""
        part = ", ".join(number(share) for share in weights[i, j] * V[j])
        return (
            f'<p class="qkv-sum">{asking} asks {asked}: score = q · k = {products}{scale} = <b>{scores[i, j]:.3f}</b>. '
            f"Softmax over the row of {asking}: weight <b>{weights[i, j]:.3f}</b>. "
            f"Contribution to the output of {asking}: {weights[i, j]:.3f} × v = <b>[{part}]</b>.</p>"
        )

    def _judged(self):
        items = [
            f"<li>{'<b>✔ reached:</b>' if goal.reached(self.attention) else '○ not yet:'} {html.escape(goal.text)}</li>"
            for goal in self._goals
        ]
        return f'<ul class="qkv-goals" aria-live="polite">{"".join(items)}</ul>' if items else ""


class Prediction:
    """A question to commit to before the answer shows; made by `predict`."""

    # Question and option chosen: running a notebook again must not lose what a learner chose.
    _chosen: ClassVar[dict] = {}

    def __init__(self, question, options, answer, why):
        if answer not in options:
            raise ValueError(f"answer: expected one of {list(options)}, got {answer!r}")
        self._question, self._answer, self._why, self._options = question, answer, why, list(options)
        self._radio = widgets.RadioButtons(options=self._options, value=None, layout={"width": "auto"})
        self._commit = widgets.Button(
            description="This is my prediction", layout={"width": "auto", "align_self": "flex-start"}
        )
        self._verdict = widgets.HTML()
        self._commit.on_click(lambda _: self._show_verdict())
        ask = widgets.HTML(f"<p><b>{html.escape(question)}</b></p>")
        self.widget = page.panel(ask, self._radio, self._commit, self._verdict)
        if question in self._chosen:
            self._radio.value = self._chosen[question]
            self._show_verdict()

    def _show_verdict(self):
        choice, why = self._radio.value, self._why
        if choice is None:
            verdict, why = "Choose an answer first", ""
        else:
            self._chosen[self._question] = choice
            verdict = "✔ Yes" if choice == self._answer else f"✘ Not this time. The answer: {self._answer}"
        self._verdict.value = f'<p role="status"><b>{html.escape(verdict)}.</b> {html.escape(why)}</p>'

    def _repr_mimebundle_(self, **kwargs):
        text = "\n".join([self._question, *(f"( ) {option}" for option in self._options)])
        return self.widget._repr_mimebundle_() | {"text/plain": text}


def predict(question, options, answer, why):
    """Ask for a prediction; the answer shows only once the learner has committed to one.

    Parameters
    ----------
    question, why : str
        The question, and the explanation shown with the verdict.
    options : sequence of str
    answer : one of options

    Returns
    -------
    Prediction, which a notebook shows. What was chosen outlives running the cell again.

    Raises
    ------
    ValueError
        For an answer that is not among the options.
    """
    return Prediction(question, options, answer, why)


def describe(weights, words, chosen=0):
    """A sentence that says what a heatmap of weights shows: each row, or past six rows the chosen one.

    weights (n_queries, n_keys): probabilities. words: one label a position, for queries and keys alike.

    >>> describe([[0.13, 0.87], [0.5, 0.5]], ["the", "cat"])
    '"the" looks mostly at "cat" (0.87); "cat" looks equally at all.'
    """
    rows = range(len(weights)) if len(weights) <= 6 else [chosen]
    return "; ".join(_row(np.asarray(weights[i]), named(words, i), words) for i in rows) + "."


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
