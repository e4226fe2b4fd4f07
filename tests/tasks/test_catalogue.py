"""Tasks by name, with the options that they have."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from dorylax.config import RunConfig
from dorylax.config.tasks import SPECS, TaskConfig
from dorylax.settings.errors import ConfigError
from dorylax.tasks import GraphPrediction, LinkPrediction, VertexPrediction, make_task


def test_every_name_is_a_task_with_options_of_the_configuration() -> None:
    names = typing.get_args(typing.get_args(TaskConfig.model_fields["name"].annotation)[0])
    assert set(names) == SPECS.keys()
    for name, spec in SPECS.items():
        assert spec.options.keys() <= TaskConfig.options().keys()
        task = make_task(RunConfig.resolve({"task.name": name}).task)
        assert task.of_vertices == spec.of_vertices
        assert task == make_task(TaskConfig(name=name))  # what resolving fills in is what the task does by itself


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, VertexPrediction()),
        ({"task.name": "vertex-regression"}, VertexPrediction("targets")),
        ({"task.name": "graph-regression", "task.readout": "sum"}, GraphPrediction("sum", "targets")),
        (
            {"task.name": "link-prediction", "task.negatives": "fixed", "task.apart": 0.5, "task.embedding": 4},
            LinkPrediction(7, apart=0.5, redrawn=False, embedding=4),
        ),
    ],
)
def test_options_reach_the_task(given: dict[str, Any], expected: Any) -> None:
    assert make_task(RunConfig.resolve(given).task, 7 if "link" in given.get("task.name", "") else 0) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task.readout": "sum"}, "task.readout is not an option of a task without a name: give task.name"),
        (
            {"task.name": "link-prediction", "task.readout": "sum"},
            "task.readout is not an option of task link-prediction, whose options are embedding, val_fraction",
        ),
        ({"task.name": "vertex-regression", "task.apart": 0.1}, "task vertex-regression, which has no options"),
        ({"task.name": "links"}, "task.name must be one of vertex-classification"),
        (
            {"task.name": "link-prediction", "pipeline.mode": "pipe"},
            "task.name=link-prediction and pipeline.mode exclude each other: a pipeline predicts for each vertex",
        ),
        ({"train.metric": "mae", "train.target_accuracy": 0.5}, "needs an accuracy: with metric mae give train.target"),
        ({"train.target": 0.5, "train.target_accuracy": 0.5}, "exclude each other"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig.resolve(given)


def test_a_task_has_its_recipe_and_what_is_given_wins() -> None:
    links = RunConfig.resolve({"task.name": "link-prediction"})
    assert (links.model.hidden_features, links.model.dropout, links.optimizer.weight_decay) == (32, 0.0, 0.0)
    assert RunConfig.resolve({"task.name": "link-prediction", "model.dropout": 0.3}).model.dropout == 0.3
    assert RunConfig.resolve({"task.name": "graph-classification", "model.name": "mlp"}).model.dropout == 0.0


def test_a_run_without_a_task_is_the_run_that_it_was() -> None:
    assert "task" not in RunConfig.resolve({}).to_dict()
    assert RunConfig.resolve({}).key() == "bd75ddf3f0ae"
    assert RunConfig.from_yaml(RunConfig.resolve({"task.name": "link-prediction"}).to_yaml()).task.name is not None
