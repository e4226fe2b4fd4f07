"""The parameter servers of a process as one: what a run starts, saves and ends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, final

import jax
import optax

from dorylax.pipeline.parameters.compute import Compute, in_place
from dorylax.pipeline.parameters.endpoint import ParameterEndpoint, Spawn
from dorylax.pipeline.parameters.prediction import choose
from dorylax.pipeline.parameters.records import Advance, Applied, Finish, ServerState, Tree
from dorylax.pipeline.parameters.sequencer import Sequencer
from dorylax.pipeline.parameters.server import ParameterServer
from dorylax.pipeline.parameters.stability import Stability, StabilityGate
from dorylax.pipeline.parameters.update import OptimizerStep
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.transport.base import Transport
from dorylax.runs.servers import ParameterServerMetrics


@final
class ParameterServers:
    """Parameter servers that hold the same weights, of which number 0 numbers the updates.

    What intervals ask of them is said by `ParameterClient`. What follows from pushes goes on in tasks that `spawn` makes. It
    is over for an epoch when `on_applied` was told of the gradients of all intervals in it: all servers then have the same
    version.

    Args:
        params: initial parameters.
        state: what else the model keeps, as it is at first.
        optimizer: an optax transformation; it is pickled and loaded, as for a server in another process.
        num_servers: P ≥ 1.
        num_intervals: K ≥ 1.
        stages: the stages that push in every interval and epoch; at least one.
        finish: makes an interval's complete gradient of the sums of its stages.
        advance: makes the state of the next version; None where no state changes.
        transport: carries everything between servers; those that are here are registered with it.
        spawn: `Clock.spawn`.
        on_applied: told of complete gradients when they are in the weights, in the order of versions, each once.
        update: "per_epoch" or "per_interval".
        interval_step_scaling: see `Sequencer`.
        sync_every: likewise.
        gradient_share: likewise.
        ahead_share: of the intervals of each server, the share that may pull weights for an epoch before the step of the
            one before it is made, where each epoch has one; rounded down.
        predict_weights: "none", or how the weights are predicted of intervals that run ahead of the newest version, where
            each epoch has one update: see `prediction.choose`.
        stability_gate: whether a `StabilityGate` decides when intervals may run ahead, where each epoch has one update.
        remembered: the leaves of what `ServerState.remembered` held, in order; None where there was no version before.
        stability: likewise of `ServerState.stability`.
        compute: where the servers compute.
        opt_state: the optimizer's state; a new one where None.
        version: how many updates parameters and state have seen.
        first_epoch: the first epoch.
        due: as of `Sequencer`.
        here: which of the servers these are; None: all. The others are in other processes, made of the same.
        recorder: told of what they do.

    Raises:
        ValueError: a number too small, an unknown `update`, or an optimizer that cannot be served (see `OptimizerStep`).
    """

    def __init__(
        self,
        params: Tree,
        state: Tree,
        optimizer: optax.GradientTransformation | bytes,
        *,
        num_servers: int,
        num_intervals: int,
        stages: Sequence[int],
        finish: Finish,
        advance: Advance | None,
        transport: Transport,
        spawn: Spawn,
        on_applied: Callable[[Applied], None],
        update: str = "per_epoch",
        interval_step_scaling: bool = True,
        sync_every: int = 1,
        gradient_share: float = 1.0,
        ahead_share: float = 1.0,
        predict_weights: str = "none",
        stability_gate: bool = False,
        remembered: Sequence[Any] | None = None,
        stability: Sequence[Any] | None = None,
        compute: Compute = in_place,
        opt_state: Tree | None = None,
        version: int = 0,
        first_epoch: int = 0,
        due: Sequence[int] | None = None,
        here: Sequence[int] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        if num_servers < 1:
            raise ValueError(f"num_servers must be ≥ 1, got {num_servers}")
        if num_intervals < 1:
            raise ValueError(f"num_intervals must be ≥ 1, got {num_intervals}")
        step = OptimizerStep(optimizer, params, advance, by_epoch=update == "per_interval")
        sequencer = Sequencer(
            num_intervals,
            update,
            interval_step_scaling=interval_step_scaling,
            sync_every=sync_every,
            gradient_share=gradient_share,
            first=first_epoch,
            version=version,
            due=due,
        )
        prediction = choose(predict_weights, step)
        start = step.start(params, state, opt_state, version)
        if prediction is not None and remembered is not None:
            structure = jax.tree.structure(prediction.like(params))
            start = start._replace(remembered=jax.tree.unflatten(structure, remembered))
        gate = StabilityGate() if stability_gate else None
        if gate is not None:
            start = start._replace(stability=gate.start(params) if stability is None else Stability(*stability))
        self._sequencer, self._num_intervals = sequencer, num_intervals
        self._recorder = Recorder({}, None) if recorder is None else recorder
        self._here = range(num_servers) if here is None else here
        self._endpoints = [
            ParameterEndpoint(
                index,
                num_servers,
                ParameterServer(
                    start, stages, first_epoch, _most_ahead(ahead_share, num_intervals, num_servers, index), due
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
        """The newest version that the first server here has. Its arrays are never changed."""
        return self._endpoints[0].server.state

    def due(self) -> list[int]:
        """The epoch of each interval's first gradient that is not in `newest`."""
        return self._endpoints[0].server.due.of(self._num_intervals)

    @property
    def live_stashes(self) -> int:
        """How many intervals hold weights, on all servers together."""
        return sum(endpoint.server.live_stashes for endpoint in self._endpoints)

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way: no stash, no gradient or update in part, all servers at one version."""
        servers = [endpoint.server for endpoint in self._endpoints]
        at_rest = not self.live_stashes and not self._sequencer.pending and not any(s.pending for s in servers)
        return at_rest and len({server.state.version for server in servers}) == 1

    def metrics(self, epoch: int) -> list[ParameterServerMetrics]:
        """What each did in an epoch that all have finished; to be asked of each epoch once, in order."""
        return [self._recorder.parameters[index].take(epoch).metrics(epoch, index) for index in self._here]

    def save_counts(self, epoch: int) -> list[dict[str, Any]]:
        """What has been counted of an epoch that no interval has started: `EpochCounts.restore` takes each."""
        return [dataclasses.asdict(self._recorder.parameters[index].of(epoch)) for index in self._here]

    def state(self) -> ServerState:
        """What a checkpoint needs: given to the constructor, the servers go on as if they had not stopped.

        Raises:
            RuntimeError: something is on its way (see `settled`).
        """
        if not self.settled:
            raise RuntimeError(
                f"parameter servers cannot be saved while intervals compute ({self.live_stashes} stashes are live): "
                "close the gate, and wait until all stand"
            )
        return self.newest()

    def forget(self) -> None:
        """Goes on as servers would that are made of `state()`: what they cannot know is forgotten.

        Nothing may be on its way.
        """
        self._sequencer.forget()

    def synchronise(self, epoch: int) -> None:
        """From this epoch on there is one update per epoch, of all its gradients; nothing changes where that is so already.

        Args:
            epoch: nobody may start it before `on_applied` was told of all gradients of the epochs before it.

        Raises:
            ValueError: a gradient of that epoch, or a later one, has come already.
        """
        self._sequencer.switch(epoch)


def _most_ahead(share: float, num_intervals: int, num_servers: int, index: int) -> int | None:
    """How many of a server's intervals may be ahead; None where all may."""
    # The decimal that was written: in binary, 0.29 * 100 is a little less than 29.
    return None if share == 1 else math.floor(Fraction(str(share)) * len(range(index, num_intervals, num_servers)))
