"""Questions to commit to before the answer shows."""

import html
from typing import ClassVar

import ipywidgets as widgets

from qkvlib import page


class Prediction:
    """A question to commit to before the answer shows; made by `predict`."""

    # Question and option chosen: running a notebook again must not lose what a learner chose.
    _chosen: ClassVar[dict] = {}

    def __init__(self, question, options, answer, why):
        if len(options) < 2 or len(set(options)) < len(options):
            raise ValueError(f"options: expected two or more, each another, got {list(options)}")
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
