"""A talk: scenes to step through, each with a panel of the course, its state, notes and a question.

A scene is data. What is shown are the course's own panels, so whatever a slider can do at a desk it can do on stage.
"""

import datetime
import html
import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import ipywidgets as widgets
from IPython.display import display

from qkvlib import page
from qkvlib.live import later, running_loop
from qkvlib.panels import button, row

GLIDE, PAUSE = 0.5, 0.03  # seconds from one state of a panel to the next, and between two pictures on the way
PLACE = Path("progress-lecture.json")  # where the talk is, beside the notebook; may be deleted
KEYS = "Space, → or Page Down: next · ← or Page Up: back · R: reset the scene · A: answer · P: play · S: sliders · \
B: blank · N: notes and clock · T: text size · C: contrast"


class Scene(NamedTuple):
    """One picture of a talk, and what belongs to it.

    title: what the audience reads. say: what the lecturer reads, in the notes.
    panel: the name of one of the talk's panels; "" for a scene of words alone.
    state: what the panel shows at first, by the names of its controls: {"W_Q": matrix, "query": 2}; what is not
    named stays as the panel was made. text: what stands under the title.
    question, answer: for the audience; the answer stays hidden until asked for.
    """

    title: str
    say: str
    panel: str = ""
    state: dict = {}  # noqa: RUF012, never changed
    text: str = ""
    question: str = ""
    answer: str = ""


class Talk:
    """Scenes with Next and Back, by button and by key.

    Parameters
    ----------
    panels : dict from a name to a function that makes a `Panel`; scenes that name the same one share it.
    scenes : list of `Scene`
    remember : bool
        Keep in a small file beside the notebook where the talk is, so that it opens there again.

    Attributes
    ----------
    at : the index of the scene on show.
    panel : the `Panel` on show, or None.

    >>> talk = Talk({}, [Scene("One", "Say one."), Scene("Two", "Say two.")], remember=False)
    >>> talk.next()
    >>> talk.at
    1
    """

    def __init__(self, panels: dict[str, Callable], scenes, *, remember=True):
        self.scenes, self._makers, self._remember = list(scenes), dict(panels), remember
        missing = [scene.panel for scene in self.scenes if scene.panel and scene.panel not in panels]
        if missing or not self.scenes:
            raise ValueError(f"scenes: expected some, with panels from {sorted(panels)}, got {missing or 'none'}")
        self._panels, self._first, self._kept, self._glide = {}, {}, {}, None
        self._began = datetime.datetime.now()
        self._build()
        self.at = None
        self.go(0)
        self._cover = self.panel.picture.still() if self.panel else {}  # what is saved, wherever the talk opens
        self.go(self._where())

    # What is on the page

    def _build(self):
        self._title, self._text, self._asked, self._told = (widgets.HTML() for _ in range(4))
        self._stage, self._notes = widgets.VBox(), widgets.HTML()
        self._stage.add_class("qkv-stage")
        self._notes.add_class("qkv-notes")
        names = [f"{i + 1} {scene.title}" for i, scene in enumerate(self.scenes)]
        self._jump = widgets.Dropdown(options=[(name, i) for i, name in enumerate(names)], description="scene",
                                      layout={"width": "330px"}, style={"description_width": "44px"})  # fmt: skip
        self._jump.observe(lambda change: self.go(change["new"]), "value")
        self._answer_button = self._key_button("a", "Answer", self.answer)
        buttons = row(
            self._key_button("back", "Back", self.back), self._key_button("next", "Next", self.next), self._jump,
            self._key_button("r", "Reset", self.reset), self._key_button("p", "Play", self.play),
            self._key_button("s", "Sliders", lambda: self._turn("qkv-bare")),
            self._key_button("b", "Blank", lambda: self._turn("qkv-blank")),
            self._key_button("n", "Notes", self.notes), self._key_button("t", "Text size", page.enlarge),
            self._key_button("c", "Contrast", lambda: self._turn("qkv-contrast")),
            flex_flow="row wrap",
        )  # fmt: skip
        asking = widgets.HBox([self._asked, self._answer_button, self._told])
        asking.add_class("qkv-asking")
        foot = widgets.VBox([asking, self._notes])
        foot.add_class("qkv-foot")
        heard, pulse = widgets.Text(), widgets.HTML("0")  # page.js asks whether anybody is here
        heard.add_class("qkv-heard")
        pulse.add_class("qkv-pulse")
        heard.observe(lambda change: setattr(pulse, "value", change["new"].split()[-1]), "value")
        self.widget = page.panel(buttons, self._title, self._text, self._stage, foot, heard, pulse)
        self.widget.add_class("qkv-talk")
        page.sized(self.widget)

    def _key_button(self, key, name, pressed):
        """A button that a key presses too: page.js finds it by its class."""
        made = button(name, pressed)
        made.add_class(f"qkv-key-{key}")
        return made

    def _turn(self, style):
        (self.widget.remove_class if style in self.widget._dom_classes else self.widget.add_class)(style)

    def _ipython_display_(self):
        display(self.widget._repr_mimebundle_() | self._cover, raw=True)

    # Moving through it

    @property
    def panel(self):
        """The panel on show, or None."""
        return self._panels.get(self.scenes[self.at].panel)

    def next(self):
        """Show the next scene, if there is one."""
        self.go(min(self.at + 1, len(self.scenes) - 1))

    def back(self):
        """Show the scene before, if there is one."""
        self.go(max(self.at - 1, 0))

    def go(self, at):
        """Show a scene as it was left, or, the first time, as it begins."""
        if at == self.at:
            return
        if self.at is not None:
            self._settle()
            self._keep()
        before, self.at = self.at, at
        scene = self.scenes[at]
        panel = self._show_panel(scene)
        self._write()
        if panel:
            same = before is not None and self.scenes[before].panel == scene.panel
            self._begin(panel, smoothly=same)
        self._jump.value = at
        if before is not None:
            self._save()

    def reset(self):
        """Bring the scene back to how it begins."""
        self._kept.pop(self.at, None)
        if self.panel:
            self._settle()
            if hasattr(self.panel, "reset"):  # training: its state is what happened
                self.panel.reset()
            self._begin(self.panel, smoothly=True)
        self._hide_answer()

    def answer(self):
        """Show the answer to the scene's question, or hide it again."""
        if self._told.value:
            self._hide_answer()
        else:
            self._told.value = f'<p role="status">{html.escape(self.scenes[self.at].answer)}</p>'

    def play(self):
        """Press Play on a panel that has it: the steps of attention, or training."""
        if hasattr(self.panel, "play"):
            self.panel.play()

    def notes(self):
        """Show or hide what to say, the next scene's title and the clock."""
        self._turn("qkv-noted")
        self._write_notes()

    def _show_panel(self, scene):
        if not scene.panel:
            self._stage.children = []
            return None
        if scene.panel not in self._panels:
            self._panels[scene.panel] = made = self._makers[scene.panel]()
            self._first[scene.panel] = made.state
        panel = self._panels[scene.panel]
        if self._stage.children != (panel.widget,):
            self._stage.children = [panel.widget]
            panel.prepare()
        return panel

    def _start(self, scene):
        """The state that a scene begins with: what it names, and else what its panel was made with."""
        return self._first[scene.panel] | self._panels[scene.panel].named(scene.state)

    def _begin(self, panel, smoothly):
        """Bring the panel to how the scene was left, or else to how it begins."""
        scene = self.scenes[self.at]
        try:
            self._move(panel, self._kept.get(self.at) or self._start(scene), smoothly)
        except ValueError as error:
            self._text.value = page.error(f"This scene cannot begin as it says: {error}")

    def _keep(self):
        if self.panel:
            self._kept[self.at] = self.panel.state

    # Smoothly

    def _move(self, panel, end, smoothly):
        start = panel.state
        if not (smoothly and running_loop() and start != end):
            panel.state = end
            return
        self._glide = panel, start, end
        self._frame(self._glide, monotonic())

    def _frame(self, glide, began):
        if glide is not self._glide:  # something else was asked for meanwhile
            return
        panel, start, end = glide
        share = (monotonic() - began) / GLIDE
        if share >= 1:
            self._settle()
            return
        share = share * share * (3 - 2 * share)  # slow, fast, slow
        panel.pass_by({name: start[name] + share * (value - start[name]) for name, value in end.items()
                       if isinstance(value, float) and value != start[name]})  # fmt: skip
        later(PAUSE, self._frame, glide, began)

    def _settle(self):
        """End a glide where it was going."""
        if self._glide:
            panel, _, end = self._glide
            self._glide = None
            panel.state = end

    # Words

    def _write(self):
        scene = self.scenes[self.at]
        self._title.value = (f'<h2 class="qkv-title"><span class="qkv-count">{self.at + 1} / {len(self.scenes)}</span> '
                             f"{html.escape(scene.title)}</h2>")  # fmt: skip
        self._text.value = f"<p>{html.escape(scene.text)}</p>" if scene.text else ""
        self._asked.value = f"<p><b>{html.escape(scene.question)}</b></p>" if scene.question else ""
        self._answer_button.layout.display = None if scene.question else "none"
        self._hide_answer()
        self._write_notes()

    def _hide_answer(self):
        self._told.value = ""

    def _write_notes(self, ticking=None):
        if "qkv-noted" not in self.widget._dom_classes or (ticking is not None and ticking is not self._ticking):
            return
        scene, now = self.scenes[self.at], datetime.datetime.now()
        follows = self.scenes[self.at + 1].title if self.at + 1 < len(self.scenes) else "the end"
        minutes = int((now - self._began).total_seconds() // 60)
        self._notes.value = (f"<p>{html.escape(scene.say)}</p><p><b>Next:</b> {html.escape(follows)} · "
                             f"<b>{now:%H:%M}</b>, {minutes} min since the start</p><p>{KEYS}</p>")  # fmt: skip
        if running_loop():
            self._ticking = object()
            later(10, self._write_notes, self._ticking)

    # Coming back

    def _where(self):
        if not (self._remember and PLACE.exists()):
            return 0
        try:
            at = json.loads(PLACE.read_text("utf-8"))["scene"]
        except (ValueError, TypeError, KeyError):
            return 0  # a damaged file only means the first scene; it is written anew
        return at if isinstance(at, int) and 0 <= at < len(self.scenes) else 0

    def _save(self):
        if self._remember:
            PLACE.write_text(json.dumps({"scene": self.at}), "utf-8")
