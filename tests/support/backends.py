"""Every backend of tensor tasks, opened on the same stages, and tasks of these stages; a new backend is one more entry.

The stages are exported as they are for workers: the small one of `support.handler_events`, which reads and writes all that
there is, and those of two models.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from dorylax.clock import Clock, RealClock, VirtualClock
from dorylax.cost import DEFAULT_CLUSTER, TimeModel
from dorylax.jax_internals import size_at, type_of
from dorylax.net.keys import RunKeys
from dorylax.net.server import DataServer
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.prepare import prepare
from dorylax.program.artefact import stage_file
from dorylax.program.artefact.stage_file import StageReference, sha256_of
from dorylax.program.jaxpr.symbols import SYMBOLS
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget, cut
from dorylax.program.tracing.spec import DataSpec
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected
from dorylax.serverless.backends.base import Backend, Invoker
from dorylax.serverless.backends.emulator.pool import emulated_functions
from dorylax.serverless.backends.inline import InlineBackend
from dorylax.serverless.backends.local.pool import local_workers
from dorylax.serverless.backends.ray.pool import ray_workers
from dorylax.serverless.backends.remote import RemoteBackend
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.task import TaskKey, TensorTask
from support.handler_events import KEY, OPERANDS, RESULTS, SCALE, UNUSED, W, rows_of, small_stage
from support.pipelines import make_model, messy_data
from support.ray_cluster import RayCluster
from support.rie import need_emulator

SERVERS = 2
SIZE = 8
"""Rows of each call."""

SMALL = KEY.stage


class Opened(NamedTuple):
    """A backend, and the clock that its tasks live on."""

    backend: Backend
    clock: Clock

    def run(self, *tasks: TensorTask, attempts: Sequence[int] = ()) -> list[Any]:
        """Runs tasks at the same time; gives a result or an exception for each."""
        numbers = attempts or [0] * len(tasks)

        async def all_tasks() -> list[Any]:
            calls = [self.backend.run(task, number) for task, number in zip(tasks, numbers, strict=True)]
            return await asyncio.gather(*calls, return_exceptions=True)

        return self.clock.run(all_tasks())


class StageCase(NamedTuple):
    """A stage: how it is called, and what it reads for so many rows (operands, and all weights)."""

    reference: StageReference
    content: bytes
    sources: tuple[OperandSource, ...]
    targets: tuple[ResultTarget, ...]
    operands: Callable[[int], tuple[list[Any], tuple[Any, ...]]]


def _small_operands(count: int) -> tuple[list[Any], tuple[Any, ...]]:
    x, g = rows_of(count)
    return [x, W, np.asarray(SCALE), g], (UNUSED, W)


def _values(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    if np.issubdtype(dtype, np.floating):
        return rng.uniform(0.1, 1.0, shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def _of_model(name: str) -> list[tuple[int, StageCase]]:
    data = messy_data(60, 240)
    parts = take_apart(make_model(name, data))
    local = PipelineConfig(tensor=TensorConfig(backend="local"))
    prepared = prepare(parts, DataSpec.of(data), local.passes)
    stages = prepared.artefacts
    weights = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(parts.params))
    found = []
    for step in prepared.plan.epoch:
        if not step.on_worker:
            continue

        def operands(count: int, step: Any = step) -> tuple[list[Any], tuple[Any, ...]]:
            rng = np.random.default_rng(count)
            at = {SYMBOLS[step.space]: count}
            values = []
            for var, source in zip(step.reads, step.sources, strict=True):
                aval = type_of(var)
                shape = [int(size_at(dim, at)) for dim in aval.shape]
                values.append(
                    weights[source.leaf] if source.source == "weights" else _values(rng, shape, np.dtype(aval.dtype))
                )
            return values, weights

        reference = stages.stages[step.index]
        content = stages.artefacts[reference.sha256]
        found.append((step.index, StageCase(reference, content, step.sources, step.targets, operands)))
    return found


@functools.cache
def stages() -> dict[int, StageCase]:
    """All stages, by number: the small one, those of GIN from 100 on, those of GAT from 200 on."""
    reference = StageReference(sha256_of(small_stage()), (0, 1, 2, 3), (), False, (0, 1, 2, 3))
    found = {SMALL: StageCase(reference, small_stage(), OPERANDS, RESULTS, _small_operands)}
    for start, model in ((100, "gin"), (200, "gat")):
        found.update((start + index, case) for index, case in _of_model(model))
    return found


STAGES = (SMALL, 101, 105, 203, 204)
"""Their numbers, for `parametrize`; a test checks them."""


def task(number: int, count: int, interval: int = 0, **changed: Any) -> TensorTask:
    """A task of a stage on so many rows."""
    case = stages()[number]
    operands, weights = case.operands(count)
    fields: dict[str, Any] = {
        "key": TaskKey(3, interval, number, 0),
        "server": interval % SERVERS,
        "version": 7 + number,  # stages of two models share no weights
        "weights": weights,
        "operands": tuple(operands),
        "sources": case.sources,
        "targets": case.targets,
        "count": count,
        "size": SIZE,
        "flops": 1000,
        "bytes_in": 1000,
        "bytes_out": 1000,
    }
    return TensorTask(**fields | changed)


def expected(asked: TensorTask) -> list[np.ndarray]:
    """What a task of at least one row, not padded, gives: the stage called on just these rows."""
    case = stages()[asked.key.stage]
    return [np.asarray(value) for value in case.reference.call(_loaded(case.content), asked.operands, asked.count)]


@functools.cache
def _loaded(content: bytes) -> stage_file.Stage:
    return stage_file.load(content)


def connect(name: str, request: pytest.FixtureRequest) -> AbstractContextManager[Any]:
    """Connects this process to the cluster of all tests where a backend needs one."""
    if name != "ray":
        return contextlib.nullcontext()
    cluster: RayCluster = request.getfixturevalue("ray_cluster")
    return connected(cluster.config())


# The backends.


@contextlib.contextmanager
def _inline(make: Callable[[], Clock]) -> Iterator[Opened]:
    def function(case: StageCase) -> Callable[..., Sequence[Any]]:
        return lambda *operands: case.reference.call(_loaded(case.content), operands, SIZE)

    with make() as clock:
        times = TimeModel(DEFAULT_CLUSTER, 0) if clock.kind == "virtual" else None
        functions = {number: function(case) for number, case in stages().items()}
        backend = InlineBackend(functions, clock, slots=2, num_servers=SERVERS, times=times)
        yield Opened(backend, clock)
        backend.close()


def _local(transport: str, *, streaming: bool) -> AbstractContextManager[Opened]:
    keys = RunKeys.make()
    return remote(keys, local_workers(keys, workers=1), transport, streaming=streaming)


@contextlib.contextmanager
def _emulator() -> Iterator[Opened]:
    need_emulator()
    keys = RunKeys.make()
    with remote(keys, emulated_functions(keys, workers=1, timeout=300.0), "tcp") as opened:
        yield opened


@contextlib.contextmanager
def _aws() -> Iterator[Opened]:
    """One function whose sandbox the emulator runs, invoked through boto3; its stages lie in S3."""
    # Late: moto takes seconds to import.
    from dorylax.serverless.backends.aws.make import make_functions, publish_artefacts
    from support.aws import Sandboxes, cloud
    from support.rie import emulated

    with cloud() as found, emulated(1) as sandboxes:
        found.make_function()
        found.make_bucket()
        found.answer = Sandboxes(sandboxes)
        keys = RunKeys.make()
        invoker = make_functions(keys, function=found.function, region=None, calls=1, deadline=None)
        publish = functools.partial(publish_artefacts, location=f"s3://{found.bucket}/stages", region=None)
        with remote(keys, invoker, "tcp", publish=publish) as opened:
            yield opened


def _ray() -> AbstractContextManager[Opened]:
    """On the cluster of `ray_cluster`, to which this process is connected."""
    keys = RunKeys.make()
    return remote(keys, ray_workers(keys, RayConfig(), workers=1), "tcp", streaming=True)


@contextlib.contextmanager
def remote(
    keys: RunKeys,
    invoker: Invoker,
    transport: str = "ipc",
    *,
    streaming: bool = False,
    publish: Callable[[dict[str, bytes]], Callable[[str], str]] | None = None,
) -> Iterator[Opened]:
    """Tasks that go through an invoker, which is closed at the end; `publish` puts artefacts elsewhere."""
    artefacts = {case.reference.sha256: case.content for case in stages().values()}
    backend = RemoteBackend(
        run=keys.run,
        invoker=invoker,
        # Small chunks, so that artefacts take many.
        data=DataServer(keys, transport=transport),
        references={number: case.reference for number, case in stages().items()},
        artefacts={} if publish else artefacts,
        locate=publish(artefacts) if publish else None,
        clock=(clock := RealClock()),
        num_servers=SERVERS,
        num_parameter_servers=2,
        timeout=300.0,
        streaming=streaming,
    )
    try:
        yield Opened(backend, clock)
    finally:
        clock.close()
        backend.close()


BACKENDS: dict[str, Callable[[], AbstractContextManager[Opened]]] = {
    "inline-real": functools.partial(_inline, RealClock),
    "inline-virtual": functools.partial(_inline, VirtualClock),
    "local-ipc": functools.partial(_local, "ipc", streaming=False),
    "local-tcp": functools.partial(_local, "tcp", streaming=False),
    "local-ipc-streaming": functools.partial(_local, "ipc", streaming=True),
    "local-tcp-streaming": functools.partial(_local, "tcp", streaming=True),
    "emulator": _emulator,
    "aws": _aws,
    "ray": _ray,
}
"""Opens each backend; it is closed at the end. Tests of "ray" are connected to a cluster (`connect`)."""


def bits(values: Sequence[np.ndarray], asked: TensorTask) -> list[bytes]:
    """Results without what padding has made, for comparing."""
    return [value.tobytes() for value in real(values, asked)]


def real(values: Sequence[np.ndarray], asked: TensorTask) -> list[np.ndarray]:
    """Results, cut to the rows that are real."""
    return [
        cut(value, target.axis, target.factor, 0, asked.count) if target.target == "rows" else value
        for value, target in zip(values, asked.targets, strict=True)
    ]


def with_operand(asked: TensorTask, place: int, value: Any) -> TensorTask:
    """The same task with another operand."""
    operands = (*asked.operands[:place], value, *asked.operands[place + 1 :])
    return dataclasses.replace(asked, operands=operands)
