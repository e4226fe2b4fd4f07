"""Predicted weights, for intervals that run ahead of the newest version: a way to predict a file."""

from dorylax.pipeline.parameters.prediction.base import Prediction
from dorylax.pipeline.parameters.prediction.choose import choose

__all__ = ["Prediction", "choose"]
