"""What holds of every run in one process (`tests/pipeline/test_properties.py`) holds of hosts, by the same witness.

Each host writes down what it does. Here nothing is simulated: who is first depends on the machine.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.in_hosts import first_in_hosts
from support.lost_hosts import hosts
from support.pipelines import compiled_once, make_hosts_pipeline, messy_data
from support.watching import told, watch
from support.witness import Witness

from dorylax.machine import CORES
from dorylax.pipeline.config import PipelineConfig
from dorylax.serverless.config import TensorConfig

pytestmark = pytest.mark.timeout(240)

EPOCHS = 8
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dorylus": ("gcn", {"staleness": 1, "freshness": 0, "predict_weights": "none", "stability_gate": False}),
    "S = 0": ("sage", {"staleness": 0, "freshness": 0.6, "parameter_servers": 2}),
    "defaults": ("drifting", {"staleness": 2, "parameter_servers": 2}),
    "per interval": (
        "gcn",
        {"servers": 3, "staleness": 3, "update": "per_interval", "sync_every": 2, "parameter_servers": 2},
    ),
    "predicted": (
        "BatchNorm",
        {"servers": 3, "staleness": 2, "predict_weights": "linear", "stability_gate": False, "freshness": 0.3},
    ),
    "late": (
        "gat",
        {
            "staleness": 2,
            "gradient_share": 0.5,
            "ahead_share": 0,
            "stability_gate": False,
            "freshness": 0.5,
            "freshness_of": "server",
        },
    ),
}


def witnessed(
    folder: Path, model: str, options: dict[str, Any], *, barrier: int = 3, switch: int | None = None
) -> Witness:
    """Trains by hosts, and lets a witness look at all that they did, in the order in which they did it."""
    given = {"servers": 2, "intervals": 3, "mode": "async", "tensor": TensorConfig(slots=2), "graph_threads": 2}
    config = PipelineConfig(hosts="processes", edge_chunk=40, **given | options)
    witness = Witness(config, EPOCHS, {barrier, EPOCHS})
    with first_in_hosts(watch, folder), compiled_once(40, 40):
        pipeline, parts = make_hosts_pipeline(model, messy_data(32, 120), config)
        run = pipeline.start(parts.params, None, parts.state)
        try:
            for epoch in (barrier, EPOCHS):
                run.barrier(epoch)
            for epoch in range(EPOCHS):
                assert run.run_epoch().epoch == epoch
                if epoch == switch:
                    witness.synchronous_from = run.synchronise()
            saved = run.save()
            assert saved is not None  # all servers have the same version, and nothing is on its way
        finally:
            run.close()
    for event, values, named in told(folder):
        getattr(witness, event)(*values, **named)
    witness.ends(saved.record["version"], settled=True)
    return witness


@pytest.mark.parametrize("case", CASES)
def test_asynchronous_however_long_it_takes(case: str, tmp_path: Path) -> None:
    """No row too old, no epoch too early, every gradient once, one weight version per interval and epoch, few stashes."""
    model, options = CASES[case]
    witness = witnessed(tmp_path, model, options)
    assert witness.predicted or case != "predicted"


def test_asynchronous_where_the_loop_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where hosts have a core each."""
    monkeypatch.setenv(CORES, "1")
    model, options = CASES["defaults"]
    witnessed(tmp_path, model, options | {"tensor": TensorConfig(slots=1), "graph_threads": 1})


@pytest.mark.parametrize("update", ["per_epoch", "per_interval"])
def test_from_the_switch_on_it_is_synchronous(update: str, tmp_path: Path) -> None:
    options = {"staleness": 2, "update": update, "parameter_servers": 2}
    # Hosts may be ahead of the driver when it asks for it, but not past the barrier: one epoch at least is to come.
    witness = witnessed(tmp_path, "gcn", options, switch=EPOCHS - 5, barrier=EPOCHS - 1)
    assert EPOCHS - 4 <= witness.synchronous_from < EPOCHS


def test_synchronous_training_reads_nothing_stale(tmp_path: Path) -> None:
    assert not witnessed(tmp_path, "sage", {"mode": "pipe", "servers": 3, "parameter_servers": 2}).stale


@pytest.mark.parametrize("victim", [0, 2], ids=["graph server", "parameter server"])
def test_all_of_it_holds_after_a_loss(victim: int, tmp_path: Path) -> None:
    """From the epoch that is run again, with a version that training had come to, bit for bit."""
    given = {"servers": 2, "intervals": 3, "mode": "async", "graph_threads": 2, "tensor": TensorConfig(slots=2)}
    given |= {"staleness": 2, "parameter_servers": 2, "freshness": 0.0, "stability_gate": False}
    config = PipelineConfig(hosts="processes", edge_chunk=40, **given)
    with first_in_hosts(watch, tmp_path), compiled_once(40, 40):
        pipeline, parts = make_hosts_pipeline("gcn", messy_data(32, 120), config)
        run = pipeline.start(parts.params, None, parts.state)
        try:
            run.barrier(EPOCHS)
            for epoch in range(EPOCHS):
                if epoch == 3:
                    os.kill(hosts()[victim], signal.SIGKILL)
                assert run.run_epoch().epoch == epoch
            saved = run.save()
            assert saved is not None
            (loss,) = run.losses
        finally:
            run.close()
    before, events = Witness(config, EPOCHS, {EPOCHS}), told(tmp_path, 1)
    for event, values, named in told(tmp_path):
        getattr(before, event)(*values, **named)
    version = before.version_of(next(values[0] for event, values, _ in events if event == "begins_with"))
    assert version in (loss.epoch, loss.epoch + 1)
    after = Witness(config, EPOCHS, {EPOCHS}, first=loss.epoch, version=version)
    for event, values, named in events:
        getattr(after, event)(*values, **named)
    after.ends(saved.record["version"], settled=True)
    assert after.stale
