"""What runs a pipeline's tensor tasks: the backend that the configuration names, and a controller for each graph server."""

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
    """The backend of a run; `Backend.close` ends what it has started.

    Args:
        config: of the pipeline.
        resources: how many slots and workers there are.
        prepared: has the artefacts of stages.
        functions: of the stages that run in this process.
        clock: of the run.
        times: how long tasks take in virtual time; None on the real clock.

    Raises:
        ConfigError: the backend cannot be used on this machine.
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
    """A backend outside this process."""
    # Late: runs without workers need no sockets.
    from dorylax.pipeline.invokers import check_descriptors, make_data_server, make_invoker
    from dorylax.serverless.backends.remote import RemoteBackend
    from dorylax.serverless.data.keys import RunKeys

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
    """Puts artefacts where the configuration wants them; None: nowhere but at the graph servers."""
    if tensor.artefacts is None:
        return None
    from dorylax.serverless.backends.aws.make import publish_artefacts

    return publish_artefacts(artefacts, tensor.artefacts, region=tensor.region)


def make_controller(
    config: PipelineConfig, slots: int, backend: Backend, clock: Clock, on_call: Callable[[Call], None]
) -> Controller:
    """What has the tensor tasks of one graph server run, at first so many at a time."""
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
        # Elsewhere a sandbox that takes too long is ended by whoever called it.
        deadline=tensor.deadline if tensor.backend == "inline" else None,
        on_call=on_call,
    )


def make_autotuner(config: PipelineConfig, resources: Resources) -> Autotuner | None:
    """What changes the number of calls at a time as graph tasks queue up; None where it stays."""
    if not config.tensor.autotune:
        return None
    return Autotuner(start=min(config.intervals, 100, resources.slots), least=1, most=resources.slots)
