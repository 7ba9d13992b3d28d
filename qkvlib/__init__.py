"""Query/Key/Value attention, visible and playable: the names the notebooks use."""

from qkvlib import chapter, grammar
from qkvlib.chapter import Example
from qkvlib.exercises import check, explain, hint, progress, reveal
from qkvlib.learning import TrainingPanel
from qkvlib.lecture import Scene, Talk
from qkvlib.maths import Attention, attention, project, softmax
from qkvlib.panels import AttentionPanel
from qkvlib.plots import Picture, heatmap
from qkvlib.questions import predict
from qkvlib.sections import ArrowsPanel, OwnWords, ParameterCounter, ProjectionPanel, StepsPanel, Switch

__all__ = [
    "ArrowsPanel", "Attention", "AttentionPanel", "Example", "OwnWords", "ParameterCounter", "Picture",
    "ProjectionPanel", "Scene", "StepsPanel", "Switch", "Talk", "TrainingPanel", "attention", "chapter", "check",
    "explain", "grammar", "heatmap", "hint", "predict", "progress", "project", "reveal", "softmax",
]  # fmt: skip
