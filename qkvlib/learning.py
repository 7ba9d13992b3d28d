"""The panel in which W_Q and W_K learn: a wanted pattern, Play, and what happened to scrub through."""

import html
from numbers import Integral

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure

from qkvlib import page
from qkvlib.chapter import Example
from qkvlib.live import later, running_loop
from qkvlib.panels import Panel, button, describe, grid, put, row
from qkvlib.plots import heatmap
from qkvlib.training import METHODS, DivergedError, pattern_loss, small_random, train

OWN = "drawn by me"
WIDTH = "550px"  # of the controls: the picture then stands beside them on a small screen
PAUSE = 0.03  # seconds between two steps: time to look, and for the kernel to hear that it shall stop
# For four words: what each word shall look at.
PATTERNS = {
    "determiner to its noun": (1, 1, 2, 3),
    "verb to its subject": (0, 1, 1, 3),
    "each to itself": (0, 1, 2, 3),
    "reversed": (3, 2, 1, 0),
    "a ring": (1, 2, 3, 0),
}


class TrainingPanel(Panel):
    """Choose where each word shall look, press Play, and see the matrices learn it.

    Parameters
    ----------
    example : Example
        The words, X and W_V; W_Q and W_K start as small random numbers.
    patterns : dict from a name to one position a word: where it shall look.
    d_k : int, optional
        The rows of W_Q and W_K; by default as in the example.
    tied : bool
        One matrix does both jobs, W_K is W_Q.
    raw : bool
        No matrices: attention of X with itself, and the embeddings learn.
    bound : float, optional
        A loss that cannot be reached, drawn as a line.
    method, rate, seed, size, steps :
        Where the controls stand at first: how it learns, how fast, from which random numbers of which size; and
        how many steps Play makes.

    Attributes
    ----------
    states : list of `training.State`, what happened so far.
    message : what went wrong, or "".

    Raises
    ------
    ValueError, TypeError
        For patterns that do not fit the words, and settings that cannot be.

    >>> from qkvlib import chapter
    >>> panel = TrainingPanel(chapter.sentence, {"each to itself": (0, 1, 2, 3)}, steps=50)
    >>> panel.play()  # where no event loop runs, as here, to the end
    >>> len(panel.states)
    51
    """

    STATE = ()  # what happened is its state: a talk must not set single controls of it

    def __init__(self, example, patterns=PATTERNS, *, d_k=None, tied=False, raw=False, bound=None,
                 method=METHODS[0], rate=1.0, seed=0, size=0.1, steps=200):  # fmt: skip
        super().__init__()
        self._example = Example.checked(example)
        self._patterns = {name: self._pattern(name, places) for name, places in patterns.items()}
        if not self._patterns or OWN in self._patterns:
            raise ValueError(f"patterns: expected at least one, and none called {OWN!r}, got {list(patterns)}")
        for name, count in (("d_k", 1 if d_k is None else d_k), ("steps", steps)):
            if not isinstance(count, Integral) or count < 1:
                raise ValueError(f"{name}: expected a whole number above 0, got {count!r}")
        self._d_k, self._tied, self._raw, self._steps = d_k or len(example.W_Q), tied, raw, steps
        self._run, self.message = None, ""  # _run: a mark of its own for each time that Play was pressed
        controls = [*self._build_target(), *self._build_settings(method, rate, seed, size), *self._build_player()]
        self._wanted = self._target()
        self._training = self._begin()
        self.states, self._at = [next(self._training)], 0
        self._arrange(controls, *self._draw(bound))
        self.picture.on_click(self._click)
        for control in (*self._cells, self._method, self._rate, self._seed, self._size):
            control.observe(self._settings_changed, "value")
        self._choice.observe(self._choose, "value")
        self._scrub.observe(self._scrubbed, "value")

    # Controls

    def _pattern(self, name, places):
        n = len(self._example.words)
        if len(places) != n or not all(isinstance(at, Integral) and 0 <= at < n for at in places):
            raise ValueError(f"patterns, {name}: expected {n} positions from 0 to {n - 1}, one a word, got {places!r}")
        return np.eye(n)[list(places)]

    def _build_target(self):
        words, n = self._example.words, len(self._example.words)
        asked = widgets.HTML("<p><b>Where shall each word look?</b></p>")
        self._choice = widgets.RadioButtons(options=[*self._patterns, OWN], layout={"width": WIDTH})
        self._choice.add_class("qkv-row")
        first = next(iter(self._patterns.values())).ravel()
        self._cells = [self._cell(i // n, i % n, value) for i, value in enumerate(first)]
        heads = [html.escape(word) for word in words]
        return asked, self._choice, grid("wanted", heads, heads, self._cells, 64)

    def _cell(self, row, column, value):
        words = self._example.words
        name = f"wanted: {words[row]} ({row + 1}) at {words[column]} ({column + 1})"
        made = widgets.FloatText(value, description=name, step=0.1, layout={"width": "64px"})
        made.add_class("qkv-cell")
        return made

    def _build_settings(self, method, rate, seed, size):
        def field(kind, name, width, **options):
            return kind(description=name, layout={"width": f"{width}px"}, style={"description_width": "initial"},
                        **options)  # fmt: skip

        self._method = field(widgets.Dropdown, "method", 146, options=METHODS)
        put(self._method, method)
        self._method.add_class("qkv-cell")  # its options say what it is for; a screen reader says "method"
        self._rate = field(widgets.FloatText, "learning rate", 150, value=rate, step=0.1)
        self._seed = field(widgets.IntText, "seed", 92, value=seed)
        self._size = field(widgets.FloatText, "start size", 128, value=size, step=0.1)
        layout = {"flex_flow": "row wrap", "align_items": "center", "width": WIDTH}
        return (row(self._method, self._rate, self._seed, self._size, **layout),)

    def _build_player(self):
        self._play_button = button("Play", self.play, width="90px")
        self._play_button.icon = "play"
        buttons = [self._play_button, button("Step", self.step), button("Reset", self.reset)]
        self._progress = widgets.IntProgress(0, min=0, max=self._steps, layout={"width": "200px"})
        # Its range stays: a page whose slider gets another one sends the value back, as if it had been dragged.
        self._scrub = widgets.IntSlider(0, min=0, max=self._steps, description="step shown", layout={"width": "470px"})
        self._said = widgets.HTML(layout={"width": WIDTH})
        return row(*buttons, self._progress), self._scrub, self._said

    # What is wanted

    def _target(self):
        n = len(self._example.words)
        return np.reshape([cell.value for cell in self._cells], (n, n))

    def _choose(self, change):
        if change["new"] in self._patterns and not self._moving:
            self._want(self._patterns[change["new"]])

    def _click(self, ax, column, row):
        """A clicked cell of the wanted weights gets all the weight of its row."""
        if ax is self._heatmaps["wanted"].ax:
            target = self._target()
            target[row] = np.eye(len(target))[column]
            self._want(target)

    def _want(self, target):
        with self._unheard():
            for cell, value in zip(self._cells, target.ravel(), strict=True):
                cell.value = float(value)
        self._settings_changed()

    def _settings_changed(self, change=None):
        if self._moving:
            return
        now = self._target()
        with self._unheard():
            self._choice.value = next((name for name, own in self._patterns.items() if (now == own).all()), OWN)
        self.reset()

    # Training

    def _begin(self):
        X, W_V, d_model = self._example.X, self._example.W_V, self._example.X.shape[1]
        if not 0 <= self._size.value <= 100:
            raise ValueError(f"start size: expected a number from 0 to 100, got {self._size.value:g}")
        if self._seed.value < 0:
            raise ValueError(f"seed: expected 0 or more, got {self._seed.value}")
        shapes = [X.shape] if self._raw else [(self._d_k, d_model)] * 2
        made = small_random(self._seed.value, *shapes, size=self._size.value)
        start = (made[0], *[np.eye(d_model)] * 3) if self._raw else (X, *made, W_V)
        loss = pattern_loss(self._target(), self._example.words)
        return train(*start, loss, learn=["X"] if self._raw else ["W_Q"] if self._tied else ["W_Q", "W_K"],
                     tied=self._tied, method=self._method.value, rate=self._rate.value)  # fmt: skip

    def reset(self):
        """Start again, with the controls as they stand; where they ask for what cannot be, say so and keep all."""
        with self._lock:
            self.pause()
            try:
                training = self._begin()
                first = next(training)
            except (ValueError, DivergedError) as error:
                self._training = None
                self._say(f"{error}. The last good state is kept.")
                return
            self._training, self.states, self._wanted = training, [first], self._target()
            self._say("")
            self._show(0)

    def step(self):
        """Pause, and make one step from the newest state."""
        with self._lock:
            self.pause()
            self._advance()

    def play(self):
        """Make step after step while the kernel does other things too; pressed again, pause."""
        with self._lock:
            if self._run:
                return self.pause()
            if self._training and len(self.states) > self._steps:
                self.reset()
            if not self._training:  # what is wrong has been said
                return None
            self._run = object()
            self._play_button.description, self._play_button.icon = "Pause", "pause"
            if running_loop():
                return self._tick(self._run)
            while self._advance():
                pass
            return self.pause()

    def pause(self):
        """Stop at once: no further step is made."""
        with self._lock:
            self._run = None
            self._play_button.description, self._play_button.icon = "Play", "play"

    def _tick(self, run):
        with self._lock:
            if run is not self._run:
                return
            if self._advance():
                later(PAUSE, self._tick, run)
            else:
                self.pause()

    def _advance(self):
        """Make one step; says whether another one may follow."""
        if not self._training or len(self.states) > self._steps:
            return False
        try:
            self.states.append(next(self._training))
        except (DivergedError, ValueError) as error:
            self._training = None
            self._say(f"{error} The last good state is kept; Reset starts again.")
            return False
        self._show(len(self.states) - 1)
        return len(self.states) <= self._steps

    def _say(self, message):
        self.message = message
        self._said.value = page.error(message) if message else ""

    # The picture

    def _show(self, at):
        self._at = at
        with self._drawing_once():
            self._scrub.value = at
            self._progress.value = len(self.states) - 1

    def _scrubbed(self, change):
        with self._lock:  # which the thread that moves it has already
            if not self._moving:
                self.pause()
                self._show(min(change["new"], len(self.states) - 1))

    def _matrices(self):
        state = self.states[self._at]
        shown = {"X": state.X} if self._raw else {"W_Q": state.W_Q}
        shown |= {"scores": state.attention.scores} if self._raw or self._tied else {"W_K": state.W_K}
        return shown | {"weights": state.attention.weights, "wanted": self._wanted}

    def _draw(self, bound):
        figure = Figure((6, 5.2), dpi=100)
        self._heatmaps, places = {}, [(64, 364), (366, 364), (64, 184), (366, 184)]
        for (name, matrix), (left, bottom) in zip(self._matrices().items(), places, strict=True):
            ax = figure.add_axes((left / 600, bottom / 520, 228 / 600, 132 / 520))
            self._heatmaps[name] = self._heatmap(ax, name, matrix)
        self._axes = figure.add_axes((64 / 600, 38 / 520, 522 / 600, 94 / 520))
        self._axes.set(xlim=(-0.01 * self._steps, 1.01 * self._steps), ylim=(-0.05, 1.5))
        self._axes.set_title("loss, step by step", fontsize=11)
        self._axes.set_xlabel("step", fontsize=10, labelpad=1)
        self._axes.tick_params(labelsize=9)
        if bound is not None:
            self._axes.axhline(bound, color="#8f3400", linewidth=1.5, linestyle=(0, (5, 2)))
            self._axes.text(self._steps, bound, f"cannot be less than {bound:.2f}", ha="right", va="bottom", fontsize=9,
                            color="#8f3400")  # fmt: skip
        (self._curve,) = self._axes.plot([], [], color="#0b3d91", linewidth=2, marker="o", markersize=7)
        return figure, [*(artist for drawn in self._heatmaps.values() for artist in drawn.artists), self._curve]

    def _heatmap(self, ax, name, matrix):
        words = self._example.words
        if name in ("weights", "wanted"):
            return heatmap(ax, matrix, words, words, title=f"{name} (0 to 1)", xlabel="")
        rows, columns, ylabel, limit = {
            "X": (words, None, "word", 4), "scores": (words, words, "query", 8),
        }.get(name, (None, None, "component", 4))  # fmt: skip
        title = f"{name} (colours −{limit} to {limit})"
        return heatmap(ax, matrix, rows, columns, kind="signed", limit=limit, title=title, ylabel=ylabel, xlabel="")

    def _follow(self):
        state, losses = self.states[self._at], [each.loss for each in self.states]
        top = max(1.5, np.ceil(2.2 * losses[0]) / 2)
        if top != self._axes.get_ylim()[1]:
            self._axes.set_ylim(-0.04 * top, top)
            self.picture.redecorate()
        for name, matrix in self._matrices().items():
            self._heatmaps[name].update(matrix)
        self._curve.set(data=(range(len(losses)), losses), markevery=[self._at])
        said = describe(state.attention.weights, self._example.words)
        return f"Step {state.step} of {self._steps}, loss {state.loss:.3f}: {said}", ""
