"""On the virtual clock a seed says everything, whether a run is repeated, or stopped and resumed from what was saved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from support.pipelines import make_pipeline, messy_data, one_compilation, small_data
from support.watching import draw_gates

from dorylax.graph.dataset import Dataset
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.parameters.stability import Stability
from dorylax.pipeline.run import PipelineEpoch, PipelineRun
from dorylax.pipeline.saved import Saved, stability
from dorylax.serverless.config import TensorConfig

compilation = one_compilation(40, 40)


STARTED: list[PipelineRun] = []


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    while STARTED:
        STARTED.pop().close()


def graph() -> Dataset:
    return messy_data(40, 160)


def config(**options: Any) -> PipelineConfig:
    given = {"servers": 2, "intervals": 3, "parameter_servers": 2, "clock": "virtual", "edge_chunk": 40}
    # On servers alone, asynchronous intervals hardly drift apart.
    return PipelineConfig(**{**given, "tensor": TensorConfig(placement="functions"), **options})


class Stopped(NamedTuple):
    """A run that stands before an epoch."""

    last: PipelineEpoch
    saved: Saved


def begin(model: str, options: PipelineConfig, *, seed: int = 0, after: Stopped | None = None) -> PipelineRun:
    """A run that is started anew, or where another one stopped."""
    pipeline, parts = make_pipeline(model, graph(), options, seed=seed)
    if after is None:
        started = pipeline.start(parts.params, None, parts.state)
    else:
        trees = jax.tree.map(np.asarray, (after.last.params, after.last.opt_state, after.last.state))
        started = pipeline.start(*trees, epoch=after.last.epoch + 1, saved=after.saved)
    STARTED.append(started)
    return started


def stop(started: PipelineRun, last: PipelineEpoch) -> Stopped:
    saved = started.save()
    assert saved is not None
    return Stopped(last, saved)


def bits(record: PipelineEpoch) -> list[Any]:
    """All that an epoch is, for comparing."""
    trees = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((record.params, record.opt_state, record.state))]
    return [record.epoch, record.loss, *trees]


def run(started: PipelineRun, epochs: int) -> list[PipelineEpoch]:
    return [started.run_epoch() for _ in range(epochs)]


ASYNC = [
    config(mode="async", staleness=0, update="per_interval"),
    config(mode="async", staleness=1, update="per_interval", sync_every=2),
    config(mode="async", staleness=3, update="per_interval"),
    config(mode="async", staleness=1, update="per_epoch", stability_gate=False),
    config(mode="async", staleness=0, update="per_epoch", parameter_servers=1, stability_gate=False),
    config(mode="async", staleness=1, update="per_interval", sync_every=3, parameter_servers=3),
    config(mode="async", staleness=1, freshness=0.5, predict_weights="linear", stability_gate=False),
    config(
        mode="async",
        staleness=1,
        freshness=1,
        freshness_of="server",
        smoothing=0.5,
        parameter_servers=3,
        stability_gate=False,
    ),
    config(
        mode="async", staleness=2, freshness=0.7, predict_weights="optimizer", parameter_servers=1, stability_gate=False
    ),
    config(mode="async", staleness=2, gradient_share=0.4, predict_weights="linear", stability_gate=False),
    config(mode="async", staleness=1, gradient_share=0.4, ahead_share=0.5, parameter_servers=3, stability_gate=False),
    config(mode="async", parameter_servers=3),
]
SYNCHRONOUS = [config(mode="pipe"), config(mode="no-pipe")]
MODELS = ["gcn", "sage", "drifting", "BatchNorm"]


def described(options: PipelineConfig) -> str:
    how = options.update if options.predict_weights in (None, "none") else options.predict_weights
    late = "" if options.gradient_share == 1 else "-late"
    return f"{options.mode}-{options.staleness}-{how}-{options.parameter_servers}{late}"


def with_models(every: list[PipelineConfig], first: int = 0) -> list[Any]:
    """Each configuration with each model; in an ordinary run with one, in turns from the `first` on."""
    cases = []
    for (number, model), (k, options) in itertools.product(enumerate(MODELS), enumerate(every)):
        marks = [] if (k + first) % len(MODELS) == number else [pytest.mark.exhaustive]
        cases.append(pytest.param(options, model, id=f"{described(options)}-{model}", marks=marks))
    return cases


@pytest.mark.parametrize(("options", "model"), with_models(ASYNC))
def test_a_seed_gives_the_same_bits_and_another_seed_others(options: PipelineConfig, model: str) -> None:
    found = []
    for seed in (0, 0, 1):
        started = begin(model, options, seed=seed)
        records = run(started, 4)
        found.append([[bits(record), record.seconds] for record in records])
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_latencies_have_a_part_in_what_an_asynchronous_run_learns() -> None:
    """So the equality above is not that of runs for which the order of things makes no difference."""
    found = []
    for slots in (1, 3):
        started = begin(
            "gcn",
            config(
                mode="async",
                staleness=1,
                update="per_interval",
                tensor=TensorConfig(slots=slots, placement="functions"),
            ),
        )
        found.append(bits(run(started, 4)[-1]))
    assert found[0] != found[1]


@pytest.mark.parametrize(("options", "model"), with_models([*ASYNC, *SYNCHRONOUS], first=2))
def test_going_on_from_a_checkpoint_is_as_not_having_stopped(options: PipelineConfig, model: str) -> None:
    whole = begin(model, options)
    for epoch in (4, 8):
        whole.barrier(epoch)
    first = run(whole, 4)
    stopped = stop(whole, first[-1])
    rest = run(whole, 4)

    resumed = begin(model, options, after=stopped)
    resumed.barrier(8)
    again = run(resumed, 4)
    assert [bits(record) for record in again] == [bits(record) for record in rest]
    assert [record.seconds for record in again] == [record.seconds for record in rest]
    assert resumed.counters() == whole.counters()  # virtual seconds among them


@pytest.mark.parametrize("is_open", [True, False])
def test_the_stability_gate_goes_on_from_a_checkpoint(is_open: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved open or closed, by a draw that depends on the number of gradients seen; its measurements go on, too."""
    seed = next(seed for seed in itertools.count() if (Random(repr((seed, 4))).random() < 0.5) == is_open)
    draw_gates(seed, 0.5, monkeypatch)
    options = config(mode="async", staleness=1, parameter_servers=3)
    whole = begin("gcn", options)
    for epoch in (4, 10):
        whole.barrier(epoch)
    stopped = stop(whole, run(whole, 4)[-1])
    saved = stability(stopped.saved)
    assert saved is not None
    assert bool(Stability(*saved).open) == is_open
    resumed = begin("gcn", options, after=stopped)
    resumed.barrier(10)
    found, expected = ([bits(record) for record in run(one, 6)] for one in (resumed, whole))
    assert found == expected
    assert resumed.epochs_ahead == whole.epochs_ahead
    assert 0 < resumed.epochs_ahead < 10
    again, before = (stability(stop(one, stopped.last).saved) for one in (resumed, whole))
    assert again is not None
    assert before is not None
    assert [leaf.tobytes() for leaf in again] == [leaf.tobytes() for leaf in before]


@pytest.mark.parametrize("options", [*ASYNC, *SYNCHRONOUS], ids=described)
def test_a_drained_run_can_be_saved_and_gone_on_with(options: PipelineConfig) -> None:
    started = begin("gcn", options)
    records = run(started, 2)
    if options.mode == "async":
        assert started.save() is None  # intervals are in the middle of epochs
    end = started.drain()
    assert 2 <= end <= 3 + (options.staleness or 0)
    records += run(started, end - 2)
    stopped = stop(started, records[-1])
    assert stopped.last.epoch == end - 1
    found = []
    for _ in range(2):
        resumed = begin("gcn", options, after=stopped)
        found.append([bits(record) for record in run(resumed, 2)])
    assert found[0] == found[1]
    assert [epoch for epoch, *_ in found[0]] == [end, end + 1]


@pytest.mark.parametrize("update", ["per_epoch", "per_interval"])
def test_a_run_that_went_over_to_synchronous_epochs_resumes_as_such(update: Any) -> None:
    options = config(mode="async", staleness=2, update=update)
    whole = begin("drifting", options)
    records = run(whole, 2)
    first = whole.synchronise()
    whole.barrier(first + 1)
    records += run(whole, first - 1)
    stopped = stop(whole, records[-1])
    whole.barrier(first + 3)
    rest = run(whole, 2)
    resumed = begin("drifting", options, after=stopped)
    resumed.barrier(first + 3)
    assert [bits(record) for record in run(resumed, 2)] == [bits(record) for record in rest]
    assert resumed.counters() == whole.counters()


def test_without_what_was_saved_the_first_epoch_fills_the_ghosts() -> None:
    started = begin("gcn", config(mode="async", staleness=1, update="per_interval"))
    started.barrier(3)
    stopped = stop(started, run(started, 3)[-1])
    bare = begin(
        "gcn",
        config(mode="async", staleness=1, update="per_interval"),
        after=Stopped(stopped.last, Saved({}, stopped.saved.record)),
    )
    before = bare.counters()["stale_rows"]
    bare.barrier(4)
    assert run(bare, 1)[0].epoch == 3
    assert bare.counters()["stale_rows"] == before


def test_a_tenth_of_the_rows_is_stale_on_the_default_cluster() -> None:
    """Staleness that does not occur cannot be studied: GCN, 4 servers with 8 intervals each, S = 1."""
    options = PipelineConfig(mode="async", staleness=1, servers=4, intervals=8, clock="virtual", stability_gate=False)
    pipeline, parts = make_pipeline("gcn", small_data(), options)
    started = pipeline.start(parts.params, None, parts.state)
    STARTED.append(started)
    run(started, 6)
    counters = started.counters()
    share = counters["stale_rows"] / counters["rows_read"]
    print(f"stale: {share:.1%} of {counters['rows_read']} rows")
    assert share >= 0.1
    assert max(map(int, started.rows_by_lag())) <= 2
