"""All parameter servers as one: what intervals pull from and push to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import optax

from dorylax.pipeline.parameters.endpoint import PULL, PUSH, Compute, ParameterEndpoint, Spawn, in_place
from dorylax.pipeline.parameters.messages import Advance, Applied, Finish, Pulled, Push, ServerState, Sums, Tree
from dorylax.pipeline.parameters.sequencer import Sequencer
from dorylax.pipeline.parameters.server import ParameterServer
from dorylax.pipeline.parameters.update import OptimizerStep
from dorylax.pipeline.transport.base import Address, Transport, payload_bytes
from dorylax.pipeline.transport.delivery import deliver


@final
class ParameterServers:
    """Parameter servers that hold the same weights, of which the first numbers the updates.

    Interval k is bound to server k mod P, which holds its stash. An interval pulls once or more often in an epoch,
    pushes once for every stage, and has all its pushes answered before it pulls for the next epoch.

    What follows from pushes goes on in tasks that `spawn` makes. It is over for an epoch when `on_applied` was told of
    the gradients of all intervals in it: all servers then have the same version.

    Args:
        params: initial parameters.
        state: what else the model keeps, as it is at first.
        optimizer: an optax transformation; it is pickled and loaded, as for a server in another process.
        num_servers: P ≥ 1.
        homes: the graph server of each of the K intervals: who asks for it.
        stages: the stages that push in every interval and epoch; at least one.
        finish: makes an interval's complete gradient of the sums of its stages.
        advance: makes the state of the next version; None where no state changes.
        transport: carries everything between servers; all P are registered with it.
        spawn: `Clock.spawn`.
        on_applied: told of complete gradients when they are in the weights, in the order of versions, each once.
        update: "per_epoch" or "per_interval".
        interval_step_scaling: see `Sequencer`.
        sync_every: likewise.
        compute: where the servers compute.
        opt_state: the optimizer's state; a new one where None.
        version: how many updates parameters and state have seen.
        first_epoch: the first epoch.

    Attributes:
        num_bytes: of the parameters.

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
        homes: Sequence[int],
        stages: Sequence[int],
        finish: Finish,
        advance: Advance | None,
        transport: Transport,
        spawn: Spawn,
        on_applied: Callable[[Applied], None],
        update: str = "per_epoch",
        interval_step_scaling: bool = True,
        sync_every: int = 1,
        compute: Compute = in_place,
        opt_state: Tree | None = None,
        version: int = 0,
        first_epoch: int = 0,
    ) -> None:
        if num_servers < 1:
            raise ValueError(f"num_servers must be ≥ 1, got {num_servers}")
        if not homes:
            raise ValueError("homes must name the graph server of at least one interval, got none")
        self._homes = [Address("graph", home) for home in homes]
        self._transport = transport
        self.num_bytes = payload_bytes(params)
        step = OptimizerStep(optimizer, params, advance, by_epoch=update == "per_interval")
        sequencer = Sequencer(
            len(homes),
            update,
            interval_step_scaling=interval_step_scaling,
            sync_every=sync_every,
            first=first_epoch,
            version=version,
        )
        self._sequencer = sequencer
        self._endpoints = [
            ParameterEndpoint(
                index,
                num_servers,
                ParameterServer(step.start(params, state, opt_state, version), stages, first_epoch),
                None if index else sequencer,
                step=step,
                finish=finish,
                transport=transport,
                compute=compute,
                spawn=spawn,
                on_applied=on_applied,
            )
            for index in range(num_servers)
        ]
        for index, endpoint in enumerate(self._endpoints):
            transport.register(Address("parameter", index), endpoint)

    async def pull(self, interval: int, epoch: int) -> Pulled:
        """The version that an interval computes an epoch with: the same for every call.

        Raises:
            StashError: its gradient of that epoch is complete, or that of an earlier one is not.
            ConnectionError: the server cannot be reached.
        """
        pulled = await self._ask(interval, "pull", (interval, epoch), 0, (epoch, PULL, interval))
        assert isinstance(pulled, Pulled)
        return pulled

    async def push(self, interval: int, epoch: int, stage: int, sums: Sums) -> None:
        """Gives what a stage of an interval adds to the gradient, and returns when it has come.

        Args:
            interval: k.
            epoch: of the interval.
            stage: which of `stages`.
            sums: name → array; never written to afterwards.

        Raises:
            ValueError: a stage that is not one of `stages`.
            StashError: the interval has pulled no weights for this epoch.
            ConnectionError: the server cannot be reached.
        """
        push = Push(interval, epoch, stage, sums)
        await self._ask(interval, "push", push, payload_bytes(dict(sums)), (epoch, PUSH, interval, stage))

    def newest(self) -> ServerState:
        """The newest version that server 0 has. Its arrays are never changed."""
        return self._endpoints[0].server.state

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

    def synchronise(self, epoch: int) -> None:
        """From this epoch on there is one update per epoch; nothing changes where that is so already.

        Args:
            epoch: nobody may start it before `on_applied` was told of all gradients of the epochs before it.

        Raises:
            ValueError: a gradient of that epoch, or a later one, has come already.
        """
        self._sequencer.switch(epoch)

    async def _ask(self, interval: int, kind: str, payload: object, num_bytes: int, order: tuple[int, ...]) -> object:
        server = Address("parameter", interval % len(self._endpoints))
        home = self._homes[interval]
        return await deliver(self._transport, home, server, kind, payload, num_bytes=num_bytes, order=order)
