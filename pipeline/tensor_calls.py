"""Execution of a pipeline's tensor tasks: the configured backend, and a controller per graph server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from dorylax.clock import Clock
from dorylax.cost import TimeModel
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.stages import StageFunction
from dorylax.serverless.backends.base import Backend
from dorylax.serverless.backends.inline import InlineBackend
from dorylax.serverless.config import LONGEST_CALL, TensorConfig
from dorylax.serverless.controller import Autotuner, Call, Controller, Hedging, SlotLimit
from dorylax.settings.errors import ConfigError


def make_backend(
    config: PipelineConfig,
    resources: Resources,
    prepared: Prepared,
    *,
    functions: Mapping[int, StageFunction],
    clock: Clock,
    times: TimeModel | None,
) -> Backend:
    """Create the backend of a run; `Backend.close` stops its workers.

    Args:
        config: Settings of the pipeline.
        resources: Numbers of slots and workers.
        prepared: The prepared model, with the artefacts of stages.
        functions: Compiled functions of the stages that run in this process, by task index.
        clock: Clock of the run.
        times: Durations of tasks in virtual time; None on the real clock.

    Raises:
        ConfigError: The backend cannot be used on this machine.
    """
    if config.tensor.backend == "inline":
        return InlineBackend(
            functions,
            clock,
            slots=resources.slots,
            num_servers=config.servers,
            times=times,
            streaming=config.tensor.streaming,
        )
    return _make_remote(config, resources, prepared, clock)


def _make_remote(config: PipelineConfig, resources: Resources, prepared: Prepared, clock: Clock) -> Backend:
    """Create a backend outside this process."""
    # Imported late, because runs without workers use no sockets.
    from dorylax.net.keys import RunKeys
    from dorylax.pipeline.invokers import check_descriptors, make_data_server, make_invoker
    from dorylax.serverless.backends.remote import RemoteBackend

    tensor, stages = config.tensor, prepared.artefacts
    check_descriptors(tensor, resources.workers, servers=config.servers, parameter_servers=config.parameter_servers)
    locate = _publish(tensor, stages.artefacts)
    keys = RunKeys.make()
    with contextlib.ExitStack() as unfinished:
        invoker = make_invoker(tensor, keys, resources.workers, config.ray)
        unfinished.callback(invoker.close)
        data = make_data_server(tensor, keys)
        unfinished.callback(data.close)
        try:
            backend = RemoteBackend(
                run=keys.run,
                invoker=invoker,
                data=data,
                references=stages.stages,
                artefacts=stages.artefacts if locate is None else {},
                locate=locate,
                clock=clock,
                num_servers=config.servers,
                num_parameter_servers=config.parameter_servers,
                timeout=tensor.deadline or LONGEST_CALL,
                streaming=tensor.streaming,
            )
        except OSError as error:
            if tensor.host is None:
                raise
            problem = f"= {tensor.host} must be an address of this machine on which it can listen: {error.strerror}"
            raise ConfigError.of("tensor.host", problem) from None
        unfinished.pop_all()
    return backend


def _publish(tensor: TensorConfig, artefacts: Mapping[str, bytes]) -> Callable[[str], str] | None:
    """Publish artefacts at the configured location and return their locator; None if only graph servers serve them."""
    if tensor.artefacts is None:
        return None
    from dorylax.serverless.backends.aws.make import publish_artefacts

    return publish_artefacts(artefacts, tensor.artefacts, region=tensor.region)


def make_controller(
    config: PipelineConfig, slots: int, backend: Backend, clock: Clock, on_call: Callable[[Call], None]
) -> Controller:
    """Create the controller of one graph server's tensor tasks, with `slots` concurrent tasks at first."""
    tensor = config.tensor
    busy_machine = tensor.backend == "inline" and clock.kind == "real"
    relaunches = 0 if busy_machine else tensor.relaunches
    return Controller(
        backend,
        clock,
        limit=SlotLimit(slots),
        hedging=Hedging(quantile=tensor.hedge_quantile) if relaunches else None,
        relaunches=relaunches,
        attempts=tensor.attempts,
        # In other backends, the invoker stops a sandbox at its deadline.
        deadline=tensor.deadline if tensor.backend == "inline" else None,
        on_call=on_call,
    )


def make_autotuner(config: PipelineConfig, resources: Resources) -> Autotuner | None:
    """Create the controller that adapts the number of concurrent calls to the queue of graph tasks; None if disabled."""
    if not config.tensor.autotune:
        return None
    return Autotuner(start=min(config.intervals, 100, resources.slots), least=1, most=resources.slots)
