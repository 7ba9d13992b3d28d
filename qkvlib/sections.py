"""Panels that single sections need: arrows, one projection, own words, a switch, a counter of parameters."""

import csv
import html

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure

from qkvlib import page
from qkvlib.chapter import Example, checked_words
from qkvlib.live import later, running_loop
from qkvlib.maths import attention, project
from qkvlib.panels import AttentionPanel, MatrixSliders, Panel, button, describe, grid, products, put, reading, slider
from qkvlib.plots import Arrows, heatmap, number

MOST_WORDS = 12
_OUTPUTS = (("q", "W_Q", "query"), ("k", "W_K", "key"), ("v", "W_V", "value"))


class ArrowsPanel(Panel):
    """Vectors in the plane, turned and stretched by sliders, and the attention of their plain dot products.

    Parameters
    ----------
    words : one label a vector.
    degrees, lengths : where each vector points and how long it is, at the start: -180 to 180 in steps of 5, and
        0 to 3 in steps of 0.05.
    question : bool
        Only the first vector asks, and only it has sliders; the others are what it may look at.
    goals : pairs (text, reached), as in `AttentionPanel`.

    Attributes
    ----------
    X : array (n, 2), the vectors.
    attention : the `Attention` on show.

    Raises
    ------
    ValueError
        For a start that its sliders cannot show, and for words that cannot be shown.

    >>> ArrowsPanel(["a", "b"], [0, 90], [1, 2]).X.round(2)
    array([[1., 0.],
           [0., 2.]])
    """

    def __init__(self, words, degrees, lengths, *, question=False, goals=()):
        super().__init__(goals)
        words = checked_words(words)
        if len(words) < 1 + question:
            raise ValueError(f"words: expected at least {1 + question}, got {len(words)}")
        for name, numbers in (("degrees", degrees), ("lengths", lengths)):
            if np.shape(numbers) != (len(words),):
                raise ValueError(f"{name}: expected {len(words)} numbers, one for each word, got {numbers!r}")
        self._words, self._question = words, question
        self._asking, self._asked = (words[:1], words[1:]) if question else (words, words)
        self._start = np.array([degrees, lengths], float)
        # Those that do not move must be such as others may be, too.
        sliders = [self._pair(i) for i in range(len(words))][: 1 if question else None]
        self._sliders = [made for pair in sliders for made in pair]
        for each in self._sliders:
            each.observe(self._redraw, "value")
        reset = button("Reset", self._reset, align_self="flex-start")
        heads = [html.escape(word) for word in words[: len(sliders)]]
        table = grid("", ["turn (°)", "length"], heads, self._sliders, 190)
        self._arrange([reset, table, self._goals_shown], *self._draw())

    def _pair(self, i):
        (degrees, length), word = self._start[:, i].tolist(), self._words[i]
        if self._words.count(word) > 1:  # each slider has a name of its own
            word = f"{word} ({i + 1})"
        return (slider(f"{word}: turn, degrees", degrees, -180, 180, 5, 190),
                slider(f"{word}: length", length, 0, 3, 0.05, 190))  # fmt: skip

    @property
    def X(self):
        degrees, lengths = self._start.copy()
        moved = np.reshape([reading(each) for each in self._sliders], (-1, 2))
        degrees[: len(moved)], lengths[: len(moved)] = moved.T
        return lengths[:, None] * np.column_stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])

    def _reset(self):
        with self._drawing_once():
            for each, value in zip(self._sliders, self._start.T.ravel(), strict=False):
                each.value = value

    def _draw(self):
        figure, rows, columns = Figure((6, 4.2), dpi=100), self._asking, self._asked
        ax = figure.add_axes((0.01, 0.19, 0.46, 0.46 * 6 / 4.2))
        ax.set_title("the vectors", fontsize=11)
        self._arrows = Arrows(ax, self._words, 2.2, asking=[0] if self._question else [])
        empty = np.zeros((len(rows), len(columns)))
        places = [(0.64, 0.62, 0.35, 0.29), (0.64, 0.13, 0.35, 0.29)]
        scores, weights = (figure.add_axes(place) for place in places)
        self._scores = heatmap(scores, empty, rows, columns, kind="signed", limit=4,
                               title="scores (colours −4 to 4)", xlabel="")  # fmt: skip
        self._weights = heatmap(weights, empty, rows, columns, title="weights (0 to 1)")
        return figure, [self._arrows, *self._scores.artists, *self._weights.artists]

    def _follow(self):
        X, same = self.X, np.eye(2)
        asking, context = (X[:1], X[1:]) if self._question else (X, None)
        self.attention = attention(asking, same, same, same, context=context)
        self._arrows.update(X)
        self._scores.update(self.attention.scores)
        self._weights.update(self.attention.weights)
        self._judge(self.attention)
        return describe(self.attention.weights, self._asking, keys=self._asked), ""


class ProjectionPanel(Panel):
    """One vector x through W_Q, W_K and W_V: sliders for all four, bars for x, q, k and v.

    Parameters
    ----------
    example : Example with one position.

    Attributes
    ----------
    vectors : dict of x (d_model,), q, k (d_k,) and v (d_v,).

    >>> from qkvlib import chapter
    >>> ProjectionPanel(chapter.projection).vectors["q"].round(2)
    array([ 0.51, -0.18, -0.12])
    """

    LIMIT = 1.0  # of the sliders; the bars reach to 2

    def __init__(self, example):
        super().__init__()
        if len(Example.checked(example).X) != 1:
            raise ValueError(f"example: expected one position, got {len(example.X)}: {', '.join(example.words)}")
        starts = {"x": example.X, "W_Q": example.W_Q, "W_K": example.W_K, "W_V": example.W_V}
        self._sliders = {name: MatrixSliders(name, matrix, self.LIMIT, self._redraw)
                         for name, matrix in starts.items()}  # fmt: skip
        parts = [(f"{letter}{i + 1}, a component of the {role}", (letter, name, i))
                 for letter, name, role in _OUTPUTS for i in range(len(starts[name]))]  # fmt: skip
        self._part = widgets.Dropdown(options=parts, description="written out", style={"description_width": "80px"})
        self._part.observe(self._redraw, "value")
        reset = button("Reset", lambda: self._reset(starts), align_self="flex-start")
        self._project()
        tables = [sliders.widget for sliders in self._sliders.values()]
        self._arrange([reset, *tables, self._part], *self._draw())

    def _reset(self, starts):
        with self._drawing_once():
            for name, matrix in starts.items():
                self._sliders[name].value = matrix

    def _project(self):
        x = self._sliders["x"].value
        self.vectors = {"x": x[0]} | {letter: project(x, self._sliders[name].value)[0] for letter, name, _ in _OUTPUTS}

    def _draw(self):
        figure, self._bars = Figure((6, 4.2), dpi=100), {}
        titles = {"x": "x, the input"} | {letter: f"{letter}, the {role}" for letter, _, role in _OUTPUTS}
        for place, (letter, vector) in enumerate(self.vectors.items()):
            ax = figure.add_axes((0.08 + 0.5 * (place % 2), 0.56 - 0.5 * (place // 2), 0.4, 0.36))
            at = np.arange(len(vector))
            bars = ax.bar(at, vector, width=0.7, color="#0b3d91")
            numbers = [ax.text(i, 1.72, "", ha="center", va="center", fontsize=11) for i in at]
            ax.axhline(0, color="black", linewidth=0.8)
            ax.set(ylim=(-2, 2), xlim=(-0.6, len(vector) - 0.4))
            ax.set_xticks(at, [f"{letter}{i + 1}" for i in at], fontsize=10)
            ax.set_title(titles[letter], fontsize=11)
            self._bars[letter] = bars.patches, numbers
        return figure, [artist for bars, numbers in self._bars.values() for artist in (*bars, *numbers)]

    def _follow(self):
        self._project()
        for letter, (bars, numbers) in self._bars.items():
            for bar, text, value in zip(bars, numbers, self.vectors[letter], strict=True):
                if bar.get_height() != value:
                    bar.set_height(value)
                text.set_text(number(value))
        letter, name, i = self._part.value
        row, x = self._sliders[name].value[i], self.vectors["x"]
        caption = "; ".join(f"{letter} = ({', '.join(map(number, vector))})" for letter, vector in self.vectors.items())
        part = f"{letter}{i + 1} = {products(row, x)} = <b>{self.vectors[letter][i]:.3f}</b>"
        return caption + ".", f'<p class="qkv-sum">row {i + 1} of {name} with x: {part}.</p>'


class StepsPanel(Panel):
    """Attention one step at a time: queries and keys, score, scale, mask, softmax, blend; each beside the one before.

    Parameters
    ----------
    example : Example
    causal : bool
        The mask lets each word look at itself and at those before it; without it the mask lets all through.

    Attributes
    ----------
    step : 0 to 5, the step on show; assign one.

    >>> from qkvlib import chapter
    >>> panel = StepsPanel(chapter.sentence)
    >>> panel.step = 4
    >>> panel.picture.caption[:8]
    'Softmax:'
    """

    SECONDS = 2.5  # that Play shows each step
    NAMES = ("project", "score", "scale", "mask", "softmax", "blend")

    def __init__(self, example, *, causal=True):
        super().__init__()
        self._example, n = Example.checked(example), len(example.words)
        keep = np.tri(n, dtype=bool) if causal else np.ones((n, n), bool)
        self._made = attention(*example.arrays, scaled=True, keep=keep)
        self._keep, self._run = keep, None
        self._step = widgets.IntSlider(0, min=0, max=5, description="step", layout={"width": "330px"})
        self._step.observe(self._redraw, "value")
        names = widgets.HTML(f"<p>{' · '.join(f'{i} {name}' for i, name in enumerate(self.NAMES))}</p>")
        row = widgets.HBox([button("Play", self.play), self._step], layout={"overflow": "visible"})
        self._arrange([row, names], Figure((6, 2.75), dpi=100), [])

    step = property(lambda self: self._step.value, lambda self, value: put(self._step, value))

    def play(self):
        """Show step after step, from the first again where the last is on show; pressed again, stop."""
        if self._run:
            self._run = None
            return
        self._run = object()
        self.step = (self.step + 1) % len(self.NAMES)
        if running_loop():
            later(self.SECONDS, self._go_on, self._run)

    def _go_on(self, run):
        if run is not self._run:
            return
        if self.step == len(self.NAMES) - 1:
            self._run = None
            return
        self.step += 1
        later(self.SECONDS, self._go_on, run)

    def _steps(self):
        """For each step the two matrices on show (what it is called, kind, numbers, mask), and what is said of it."""
        made, root = self._made, np.sqrt(self._made.K.shape[1])
        queries, keys = ("Q", "signed", made.Q, None), ("K", "signed", made.K, None)
        scores = "Q Kᵀ", "signed", made.scores * root, None
        scaled = f"Q Kᵀ / √{made.K.shape[1]}", "signed", made.scores, None
        masked = "masked", "signed", made.scores, self._keep
        weights = "weights", "weights", made.weights, self._keep
        blended = "weights · V", "signed", made.output, None
        return (
            (queries, keys, "Project: every word makes a query and a key, with the same two matrices."),
            (queries, scores, "Score: each query meets each key; a row for each query, a column for each key."),
            (scores, scaled, "Scale: divided by the root of d_k, so that large widths do not saturate the softmax."),
            (scaled, masked, "Mask: a word may look at itself and at those before it (×: it may not)."
             if not self._keep.all() else "Mask: none here, every word may look at every word."),
            (masked, weights, "Softmax: each row becomes shares that sum to 1."),
            (weights, blended, "Blend: each output mixes the rows of V by the shares of its row."),
        )  # fmt: skip

    def _follow(self):
        figure, words = self.picture.figure, self._example.words
        *matrices, said = self._steps()[self.step]
        figure.clear()
        for left, (name, kind, matrix, keep) in zip((64, 366), matrices, strict=True):
            ax = figure.add_axes((left / 600, 40 / 275, 228 / 600, 195 / 275))
            square = matrix.shape == self._keep.shape and name not in ("Q", "K")
            limit = None if kind == "weights" else 6
            heatmap(ax, matrix, words, words if square else None, kind=kind, limit=limit, keep=keep, title=name,
                    ylabel="key" if name == "K" else "query", xlabel="key" if square else "component")  # fmt: skip
        self.picture.redecorate()
        return said, ""


class Switch:
    """Several panels, of which one shows: choose by a row of radio buttons.

    panels : dict from what the choice is called to a `Panel`.
    """

    def __init__(self, question, panels):
        self.panels = dict(panels)
        if not self.panels:
            raise ValueError("panels: expected at least one, got none")
        self._choice = widgets.RadioButtons(options=list(self.panels), layout={"width": "auto"})
        self._place = widgets.VBox(layout={"overflow": "visible"})
        self._choice.observe(lambda change: self._show(), "value")
        self._choice.add_class("qkv-row")
        asked = widgets.HTML(f"<p><b>{html.escape(question)}</b></p>")
        row = widgets.HBox([asked, self._choice], layout={"align_items": "center"})
        self.widget = page.panel(row, self._place)
        self._show()

    def _show(self):
        panel = self.panels[self._choice.value]
        self._place.children = [panel.widget]
        panel.prepare()

    def _ipython_display_(self):
        self.panels[self._choice.value].picture.display(self.widget)


class OwnWords:
    """The learner's own words and embeddings, from a table that can be typed or pasted from a spreadsheet.

    Parameters
    ----------
    example : Example
        Where the table starts; its matrices are used for the own words too.
    options : as for `AttentionPanel`

    Attributes
    ----------
    panel : the `AttentionPanel` of the last good table.
    """

    def __init__(self, example, **options):
        self._example, self._options = Example.checked(example), options
        self._table = widgets.Textarea(as_table(example.words, example.X), rows=6, description="words",
                                       layout={"width": "390px"}, style={"description_width": "50px"})  # fmt: skip
        self._message, self._place = widgets.HTML(), widgets.VBox(layout={"overflow": "visible"})
        buttons = [button(name, call) for name, call in (
            ("Use these words", self.use), ("Add a row", self._add), ("Remove the last row", self._remove),
            ("Chapter's words", self._restore))]  # fmt: skip
        label = widgets.HTML("<p>A row for each word: the word, then its numbers.</p>")
        side = widgets.VBox([*buttons, self._message])
        self.widget = page.panel(label, widgets.HBox([self._table, side]), self._place)
        self.use()

    def use(self):
        """Read the table; what is wrong with it is said beside it, and the last good panel stays."""
        try:
            _, *matrices = self._example.arrays
            words, X = from_table(self._table.value, matrices[0].shape[1])
            example, moved = Example(words, X, *matrices), {}
        except ValueError as error:
            self._message.value = page.error(error)
            return
        if self._place.children:
            moved = {name: getattr(self.panel, name) for name in ("W_Q", "W_K", "W_V")}
        old = self._place.children
        self.panel = AttentionPanel(example, **(self._options | moved))
        self._place.children = [self.panel.widget]
        for widget in old:
            page.close(widget)
        self.panel.prepare()
        self._message.value = f"<p>{len(words)} word{'s' * (len(words) > 1)} in use.</p>"

    def _add(self):
        numbers = ["0"] * self._example.X.shape[1]
        self._table.value = "\n".join([*self._table.value.rstrip().splitlines(), ", ".join(["word", *numbers])])

    def _remove(self):
        self._table.value = "\n".join(self._table.value.rstrip().splitlines()[:-1])

    def _restore(self):
        self._table.value = as_table(self._example.words, self._example.X)
        self.use()

    def _ipython_display_(self):
        self.panel.picture.display(self.widget)


def as_table(words, X):
    """Words and embeddings as comma-separated lines.

    >>> as_table(["a"], [[1.0, 0.5]])
    'a, 1, 0.5'
    """
    return "\n".join(", ".join([word, *(f"{value:g}" for value in row)]) for word, row in zip(words, X, strict=True))


def from_table(text, d_model):
    """The words and the embeddings (n, d_model) of a table, one line a word: the word, then its numbers.

    Tabs (a spreadsheet's clipboard), semicolons or commas part the columns; with the first two a number may
    have a decimal comma. Raises ValueError with the line that is wrong.

    >>> from_table("chat; 1; 0,5", 2)
    (('chat',), array([[1. , 0.5]]))
    """
    part = next((mark for mark in "\t;" if mark in text), ",")
    lines = [line for line in csv.reader(text.strip().splitlines(), delimiter=part, skipinitialspace=True) if line]
    if not 1 <= len(lines) <= MOST_WORDS:
        raise ValueError(f"The table: expected 1 to {MOST_WORDS} rows, one a word, got {len(lines)}.")
    words, X = [], []
    for at, (word, *numbers) in enumerate(lines, 1):
        if not word.strip() or len(numbers) != d_model:
            raise ValueError(f"Row {at}: expected a word and {d_model} numbers, got {part.join([word, *numbers])!r}.")
        words.append(word.strip())
        X.append([_entry(at, entry if part == "," else entry.replace(",", ".")) for entry in numbers])
    return tuple(words), np.array(X)


def _entry(row, text):
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not abs(value) <= 100:  # NaN too
        raise ValueError(f"Row {row}: expected a number from -100 to 100, got {text.strip()!r}.")
    return value


class ParameterCounter:
    """How many numbers attention learns, for any d_model, d_k, d_v and number of heads.

    Raises ValueError for a number that is not from 1 to 100,000; typed later, it is said beside the fields.

    >>> ParameterCounter().total
    98304
    """

    def __init__(self, d_model=512, d_k=64, d_v=64, heads=1):
        starts = {"d_model": d_model, "d_k": d_k, "d_v": d_v, "heads": heads}
        self._fields = {name: widgets.IntText(value, description=name) for name, value in starts.items()}
        self._said = widgets.HTML()
        self.text()  # says what cannot be
        for field in self._fields.values():
            field.observe(lambda change: self._say(), "value")
        self.widget = page.panel(*self._fields.values(), self._said)
        self._say()

    def _widths(self):
        for name, field in self._fields.items():
            if not 1 <= field.value <= 100_000:
                raise ValueError(f"{name}: expected a whole number from 1 to 100,000, got {field.value:,}")
        return [field.value for field in self._fields.values()]

    @property
    def total(self):
        d_model, d_k, d_v, heads = self._widths()
        return heads * (2 * d_k + d_v) * d_model

    def text(self):
        d_model, d_k, d_v, heads = self._widths()
        return (f"{heads} × (2 × {d_k} + {d_v}) × {d_model} = {self.total:,} numbers in W_Q, W_K and W_V, "
                "whatever the length of the sequence.")  # fmt: skip

    def _say(self):
        try:
            self._text = self.text()
            self._said.value = f'<p role="status">{self._text}</p>'
        except ValueError as error:
            self._text, self._said.value = str(error), page.error(error)

    def _repr_mimebundle_(self, **kwargs):
        return self.widget._repr_mimebundle_() | {"text/plain": self._text}
