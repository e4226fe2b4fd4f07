"""Schedules of the step size: the same on one machine, in pipelines and after resuming, beside optax by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dorylax.config import RunConfig
from dorylax.errors import DorylaxError
from dorylax.program.model.loss import masked_loss
from dorylax.trainer import Trainer, prepare_data
from dorylax.trainer.from_config import build_model

GIVEN = {
    "data.size": "tiny",
    "model.dropout": 0.0,
    "train.epochs": 8,
    "optimizer.weight_decay": 0.0,
    "optimizer.weight_decay_on": "all",
    "optimizer.learning_rate": 0.05,
    "optimizer.schedule": "cosine",
    "optimizer.warmup_epochs": 3,
    "optimizer.final_share": 0.1,
}


def _by_hand(config: RunConfig) -> Any:
    """Parameters after optax's Adam with the schedule written out, of the plain model."""
    data = prepare_data(config.data)
    graphdef, params, rest = nnx.split(build_model(config, data), nnx.Param, ...)
    rising = [0.05 * (epoch + 1) / 4 for epoch in range(3)]
    falling = [float(optax.cosine_decay_schedule(0.05, 5, alpha=0.1)(epoch)) for epoch in range(5)]
    x, labels, mask = map(jnp.asarray, (data.features, data.labels, data.train_mask))

    @jax.jit
    @jax.grad
    def gradient(params: Any) -> Any:
        return masked_loss(nnx.merge(graphdef, params, rest)(data.graph, x), labels, mask)

    adam = optax.scale_by_adam()
    state = adam.init(params)
    for rate in [*rising, *falling]:
        updates, state = adam.update(gradient(params), state)
        params = jax.tree.map(lambda value, update, rate=rate: value - rate * update, params, updates)
    return params


PIPELINES: dict[str, dict[str, Any]] = {
    "one machine": {},
    "plain": {"single.optimize": False},
    "pipe": {"pipeline.mode": "pipe", "pipeline.servers": 2, "pipeline.intervals": 2},
    "two parameter servers": {"pipeline.mode": "pipe", "pipeline.servers": 2, "pipeline.parameter_servers": 2},
}


@pytest.mark.parametrize("way", PIPELINES)
def test_every_way_to_train_has_the_step_sizes_of_optax(way: str) -> None:
    config = RunConfig.resolve({**GIVEN, **PIPELINES[way]})
    found = Trainer.from_config(config).fit().last_params
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(_by_hand(config)), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-4)


def test_more_epochs_alone_would_be_another_schedule(tmp_path: Any) -> None:
    Trainer.from_config(RunConfig.resolve(GIVEN), run_directory=tmp_path / "run").fit()
    longer = RunConfig.resolve(GIVEN, {"train.epochs": 9})
    with pytest.raises(DorylaxError, match=r"optimizer\.schedule_epochs: 8 there, 9 here"):
        Trainer.from_config(longer, run_directory=tmp_path / "run", resume=True).fit()
