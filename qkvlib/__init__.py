"""Query/Key/Value attention, visible and playable: the names the notebooks use."""

from qkvlib import chapter
from qkvlib.maths import Attention, attention, project, softmax
from qkvlib.panels import AttentionPanel, predict
from qkvlib.plots import heatmap

__all__ = ["Attention", "AttentionPanel", "attention", "chapter", "heatmap", "predict", "project", "softmax"]
