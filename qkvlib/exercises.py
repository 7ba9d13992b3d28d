"""What an exercise notebook uses: check an answer, ask for help, reveal the solution, see what has been passed."""

import base64
import datetime
import html
import json
import os
import re
from pathlib import Path

import ipywidgets as widgets
from IPython import get_ipython

from qkvlib import page
from qkvlib.hints import HINTS
from qkvlib.judge import RIGHT, UNTRIED, WRONG, picture
from qkvlib.panels import button
from qkvlib.tasks import EXERCISES

BEGIN, END, STUB = "### BEGIN SOLUTION", "### END SOLUTION", "# your code here"
# In the folder that the notebook is in; the kernel runs there.
PROGRESS = Path("progress.json")
SOLUTIONS = Path("..", "solutions")
BUNDLED = Path(__file__).with_name("solutions")  # in the browser edition, which may be unable to reach other files
RELEASE = "release.txt"
FORGOTTEN = (
    "This page was opened over plain HTTP, where a browser keeps no files: 20.9 will not know that you passed, so "
    "note it yourself."
)
_MARKS = {RIGHT: "✔", WRONG: "✘", UNTRIED: "○"}


class Report:
    """What `check` found. A notebook shows it; ``passed`` says whether all was right."""

    def __init__(self, number, findings):
        self.number, self.findings, self.remark = number, findings, ""
        states = {finding.state for finding in findings}
        self.passed = states == {RIGHT}
        self.verdict = "passed" if self.passed else UNTRIED if states == {UNTRIED} else "not yet"

    def __repr__(self):
        lines = [f"{_MARKS[part]} {name}: {part}{says and ' – '}{says}" for name, part, says, _ in self.findings]
        title = f"Exercise {self.number}, {EXERCISES[self.number].title}: {self.verdict}"
        return "\n".join([title, *lines, *filter(None, [self.remark])])

    def _repr_html_(self):
        title, *lines = map(html.escape, repr(self).splitlines())
        drawn = [picture(*comparison) for part in self.findings for comparison in part.comparisons]
        pictures = [each._repr_mimebundle_()["text/html"] for each in drawn]
        said = "".join(f"<p>{line}</p>" for line in lines)
        return f'<div role="status"><p><b>{title}</b></p>{said}</div>{"".join(pictures)}'


def check(number, *answers):
    """Say what is right in the answers to an exercise, what is wrong and why.

    Parameters
    ----------
    number : 1 to 6
    answers : what the exercise asks for, in the order of its check cell: functions, numbers, arrays.
        ``...`` stands for what has not been attempted yet.

    Returns
    -------
    Report, which a notebook shows. What has been passed is noted in progress.json beside the notebook.

    Raises
    ------
    ValueError
        For another number, or another number of answers than the exercise has.

    >>> check(3, ...)
    Exercise 3, Cross-attention: not attempted yet
    ○ cross_attention: not attempted yet
    """
    exercise = _exercise(number)
    if len(answers) != len(exercise.answers):
        call = f"check({number}, {', '.join(exercise.answers)})"
        raise ValueError(f"answers: expected {call}, got {len(answers)} of {len(exercise.answers)} answers")
    report = Report(number, exercise.judge(*answers))
    if report.passed:
        report.remark = _note(number)
    return report


def _exercise(number):
    if number not in EXERCISES:
        raise ValueError(f"number: expected an exercise from 1 to {len(EXERCISES)}, got {number!r}")
    return EXERCISES[number]


# Progress


def progress():
    """A table of the exercises and when each was passed, from progress.json beside the notebook.

    The file may be deleted at any time: what it notes is lost, and nothing else.
    """
    passed, remark = _read()
    rows = "".join(
        f"<tr><td>{number}</td><td>{exercise.title}</td><td>{exercise.difficulty}</td>"
        f"<td>{'✔ passed on ' + passed[str(number)] if str(number) in passed else 'not yet'}</td></tr>"
        for number, exercise in EXERCISES.items()
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("", "exercise", "difficulty", "passed"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return _Shown([widgets.HTML(table), widgets.HTML(html.escape(remark))], "Your progress: run this cell to see it.")


def _read():
    """What has been passed, {"1": "2026-12-24"}, and a remark where the file was damaged."""
    try:
        found = json.loads(PROGRESS.read_text("utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no table")
        return {str(int(number)): datetime.date.fromisoformat(day).isoformat() for number, day in found.items()}, ""
    except FileNotFoundError:
        return {}, ""
    except (ValueError, TypeError):  # JSON's and Unicode's errors are ValueErrors
        aside = next(
            path for i in range(1, 10_000) if not (path := PROGRESS.with_name(f"progress-damaged-{i}.json")).exists()
        )
        PROGRESS.rename(aside)
        return {}, f"{PROGRESS} could not be read and has been set aside as {aside}; a new one begins."


def _note(number):
    passed, remark = _read()
    if str(number) in passed:
        return remark
    passed[str(number)] = datetime.date.today().isoformat()
    new = PROGRESS.with_name("progress-new.json")
    try:
        new.write_text(json.dumps(passed, indent=1), "utf-8")
        os.replace(new, PROGRESS)
    except OSError as error:
        return f"Passed, but {PROGRESS} could not be written, so 20.9 will not know of it: {error}."
    return remark if page.FILES_ARE_KEPT else f"{remark} {FORGOTTEN}".strip()


# Help


class _Shown:
    """Widgets of the course, and a text for where none can be shown."""

    def __init__(self, children, text):
        self.widget, self.text = page.panel(*children), text

    def _repr_mimebundle_(self, **kwargs):
        return self.widget._repr_mimebundle_() | {"text/plain": self.text}


class _Passing:
    """HTML that the page shows and that no saved notebook has: page.js takes it out of the widget and says so."""

    def __init__(self):
        self._carrier, self._heard = widgets.HTML(), widgets.Text()
        self._carrier.add_class("qkv-passing")
        self._heard.add_class("qkv-heard")
        self._heard.observe(self._taken, "value")
        self.widget = widgets.VBox([self._carrier, self._heard])

    def show(self, text):
        self._carrier.value = base64.b64encode(text.encode()).decode()

    def _taken(self, change):
        self._carrier.value = ""


def hint(number):
    """Help with an exercise, in three steps: a nudge, a stronger hint, the solution. One opens the next."""
    _exercise(number)
    texts, solution = [widgets.HTML() for _ in HINTS[number]], _Passing()

    def press(step):
        if step < len(texts):
            texts[step].value = f'<div role="status">{_written(HINTS[number][step])}</div>'
            steps[step + 1].disabled = False
        else:
            solution.show(_unless_held_back(_solution_html, number))

    names = ("1. A nudge", "2. A stronger hint", "3. The solution")
    steps = [button(name, lambda step=step: press(step)) for step, name in enumerate(names)]
    for later in steps[1:]:
        later.disabled = True
    row = widgets.HBox(steps, layout={"grid_gap": "6px", "overflow": "visible"})
    return _Shown([row, *texts, solution.widget], "Help: a nudge, a stronger hint, the solution. Each opens the next.")


def reveal(number, insert=False):
    """Show the solution of an exercise, from the folder solutions/, beside the one with the notebook.

    Parameters
    ----------
    number : 1 to 6
    insert : bool
        Put its code into a new cell below in place of showing it; only then is it saved with the notebook.
    """
    _exercise(number)
    passing = _Passing()
    passing.show(_unless_held_back(_inserted if insert else _solution_html, number))
    return _Shown([passing.widget], "The solution: shown while the notebook is open, not saved with it.")


def explain(number):
    """A button that shows a model answer to the exercise's question."""
    _exercise(number)
    answer = _Passing()
    ask = button(
        "Show a model answer",
        lambda: answer.show(_unless_held_back(_tagged_html, number, "model answer")),
        align_self="flex-start",
    )
    return _Shown([ask, answer.widget], "A model answer: shown at the press of a button.")


class NotReleasedError(Exception):
    """Why a solution may not be seen."""


def _unless_held_back(make, *arguments):
    try:
        return make(*arguments)
    except NotReleasedError as why:
        return f"<p><b>Not released yet: {html.escape(str(why))}</b></p>"


def _solution_html(number):
    insert = f"<p>To have it in a cell of your own, run <code>reveal({number}, insert=True)</code>.</p>"
    return f"<pre>{html.escape(_code(number))}</pre>{_tagged_html(number, 'explanation')}{insert}"


def _inserted(number):
    get_ipython().set_next_input(_code(number))
    return "<p>The solution is in the cell below.</p>"


def _code(number):
    """The cells of a solution that the learner is to write, without markers and stubs."""
    sources = ["".join(cell["source"]) for cell in _cells(number)]
    solved = [source.splitlines() for source in sources if BEGIN in source]
    kept = [[line for line in lines if line.strip() not in (BEGIN, END) and STUB not in line] for lines in solved]
    return "\n\n\n".join("\n".join(lines) for lines in kept)


def _tagged_html(number, tag):
    texts = ["".join(cell["source"]) for cell in _cells(number) if tag in cell["metadata"].get("tags", ())]
    return "".join(map(_written, texts))


def _cells(number):
    """The cells of a solution notebook, unless the teacher keeps the folder or has set a date that is to come."""
    folder = SOLUTIONS if SOLUTIONS.exists() else BUNDLED
    path = next(folder.glob(f"ex_{number}_*.ipynb"), None)
    if path is None:
        raise NotReleasedError("your teacher has the solutions.")
    if (release := folder / RELEASE).exists():
        text = release.read_text("utf-8").strip()
        try:
            day = datetime.date.fromisoformat(text)
        except ValueError:
            raise NotReleasedError(
                f"{release.name} should have a date such as 2026-12-24, and has {text[:40]!r}."
            ) from None
        if datetime.date.today() < day:
            raise NotReleasedError(f"the solutions open on {day.day} {day:%B %Y}.")
    return json.loads(path.read_text("utf-8"))["cells"]


def _written(text):
    """Paragraphs of words and `code` as HTML; a comment, which tells the tests where a number is from, is left out."""
    plain = html.escape(re.sub("<!--.*?-->", "", text), quote=False)
    marked = re.sub(r"`(.+?)`", r"<code>\1</code>", plain)
    return "".join(f"<p>{part}</p>" for part in marked.split("\n\n"))
