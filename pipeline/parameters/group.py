"""The parameter servers of one process, as one object that a run starts, saves and stops."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, final

import jax
import optax

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.parameters.endpoint import Compute, ParameterEndpoint
from dorylax.pipeline.parameters.prediction import choose
from dorylax.pipeline.parameters.records import Advance, Applied, Finish, ServerState
from dorylax.pipeline.parameters.sequencer import Sequencer
from dorylax.pipeline.parameters.server import ParameterServer
from dorylax.pipeline.parameters.stability import Stability, StabilityGate
from dorylax.pipeline.parameters.update import OptimizerStep
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.saved import InitialState, remembered, stability
from dorylax.pipeline.transport.base import Spawn, Transport
from dorylax.store.servers import ParameterServerMetrics


@final
class ParameterServers:
    """Parameter servers that hold the same weights. Server 0 numbers the updates.

    Intervals reach them through a `ParameterClient`. Pushes start tasks through `spawn`. When `on_applied` has received the
    gradients of all intervals of an epoch, all servers have the same version.

    Args:
        start: The initial state.
        optimizer: An optax transformation; it is pickled and loaded, as for a server in another process.
        config: Settings of the pipeline: numbers of servers, update policy, predictions and stability gate.
        num_intervals: K ≥ 1.
        stages: The stages that push in every interval and epoch; at least one.
        finish: Computes the complete gradient of an interval from the sums of its stages.
        advance: Computes the state of the next version; None if the model has no state.
        transport: Carries messages between servers. The local servers register with it.
        spawn: Starts a task: `Clock.spawn`.
        on_applied: Called once per complete gradient when it is in the weights, in the order of versions.
        compute: Runs the computations of the servers.
        here: The numbers of the servers in this process; None for all. The other processes pass the same arguments.
        recorder: Counts pulls, pushes and bytes.

    Raises:
        ValueError: `stages` is empty, or `OptimizerStep` refuses the optimizer.
    """

    def __init__(
        self,
        start: InitialState,
        optimizer: optax.GradientTransformation,
        config: PipelineConfig,
        *,
        num_intervals: int,
        stages: Sequence[int],
        finish: Finish,
        advance: Advance | None,
        transport: Transport,
        spawn: Spawn,
        on_applied: Callable[[Applied], None],
        compute: Compute,
        here: Sequence[int] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        num_servers, update = config.parameter_servers, config.update or "per_epoch"
        params, saved = start.params, start.saved
        version = 0 if saved is None else int(saved.record["version"])
        step = OptimizerStep(optimizer, params, advance, by_epoch=update == "per_interval")
        sequencer = Sequencer(
            num_intervals,
            update,
            interval_step_scaling=config.interval_step_scaling,
            sync_every=config.sync_every,
            gradient_share=config.gradient_share,
            first=start.epoch,
            version=version,
            due=start.due,
        )
        prediction = choose(config.predict_weights or "none", step)
        first = step.start(params, start.state, start.opt_state, version)
        if prediction is not None and saved is not None and (leaves := remembered(saved)) is not None:
            structure = jax.tree.structure(prediction.like(params))
            first = first._replace(remembered=jax.tree.unflatten(structure, leaves))
        gate = StabilityGate() if config.gated else None
        if gate is not None:
            measured: Sequence[Any] | None = None if saved is None else stability(saved)
            first = first._replace(stability=gate.start(params) if measured is None else Stability(*measured))
        self._sequencer, self._num_intervals = sequencer, num_intervals
        self._recorder = Recorder({}, None) if recorder is None else recorder
        self._here = range(num_servers) if here is None else here
        self._endpoints = [
            ParameterEndpoint(
                index,
                num_servers,
                ParameterServer(
                    first,
                    stages,
                    start.epoch,
                    _most_ahead(config.ahead_share, num_intervals, num_servers, index),
                    start.due,
                ),
                None if index else sequencer,
                step=step,
                prediction=prediction,
                gate=gate,
                finish=finish,
                transport=transport,
                compute=compute,
                spawn=spawn,
                on_applied=on_applied,
                recorder=self._recorder,
            )
            for index in self._here
        ]
        for endpoint in self._endpoints:
            transport.register(endpoint.address, endpoint)

    def newest(self) -> ServerState:
        """Return the newest version of the first server here. Its arrays never change."""
        return self._endpoints[0].server.state

    def due(self) -> list[int]:
        """Return the epoch of each interval's first gradient that `newest` lacks."""
        return self._endpoints[0].server.pending_epochs.of(self._num_intervals)

    @property
    def live_stashes(self) -> int:
        """The number of stashed versions, on all servers together."""
        return sum(endpoint.server.live_stashes for endpoint in self._endpoints)

    @property
    def settled(self) -> bool:
        """Whether the servers are at rest: no stash, no partial gradient or update, and one version everywhere."""
        servers = [endpoint.server for endpoint in self._endpoints]
        at_rest = not self.live_stashes and not self._sequencer.pending and not any(s.pending for s in servers)
        return at_rest and len({server.state.version for server in servers}) == 1

    def metrics(self, epoch: int) -> list[ParameterServerMetrics]:
        """Return the metrics of each server for a finished epoch. Call once per epoch, in order."""
        return [self._recorder.parameters[index].take(epoch).metrics(epoch, index) for index in self._here]

    def save_counts(self, epoch: int) -> list[dict[str, Any]]:
        """Return the counts of an epoch that no interval has started, for `EpochCounts.restore`."""
        return [dataclasses.asdict(self._recorder.parameters[index].of(epoch)) for index in self._here]

    def forget(self) -> None:
        """Drop everything that a checkpoint does not save, so that a resumed run gives the same result.

        The servers must be `settled`.
        """
        self._sequencer.forget()

    def synchronise(self, epoch: int) -> None:
        """Make one update per epoch, from all its gradients, from this epoch on.

        Args:
            epoch: No interval may start it before `on_applied` has received all gradients of earlier epochs.

        Raises:
            ValueError: A gradient of that epoch, or of a later one, has already arrived.
        """
        self._sequencer.switch(epoch)


def _most_ahead(share: float, num_intervals: int, num_servers: int, index: int) -> int | None:
    """Return the number of intervals of a server that may run ahead; None for all."""
    # Use the decimal as written: in binary, 0.29 * 100 is a little less than 29.
    return None if share == 1 else math.floor(Fraction(str(share)) * len(range(index, num_intervals, num_servers)))
