"""A host: one process with its servers, through all generations of a run."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Sequence
from typing import Any, final

from dorylax.clock import Clock
from dorylax.clock.scope import ClockScope
from dorylax.pipeline.hosts.heartbeat import Heartbeat
from dorylax.pipeline.hosts.members import GraphMember, HostMember, ParameterMember
from dorylax.pipeline.hosts.messages import DRIVER, Assembly, MemberSpec
from dorylax.pipeline.hosts.spec import HostSpec
from dorylax.pipeline.stages import StageSizes
from dorylax.pipeline.transport.base import Address, HostTransport, Role


@final
class Host:
    """Creates its servers when the driver assembles a generation, and again after every loss.

    Tasks, threads, workers, registrations and requests end with their generation. The shard's files, the program and
    compiled functions stay.

    Args:
        number: Number of the host.
        spec: Settings of the host.
        clock: Clock of the process.
        transport: Transport to the other processes.
        alone: Whether the process belongs to the host alone, so that the host may control garbage collection.

    Attributes:
        ended: Completes when the host must end.
    """

    def __init__(
        self, number: int, spec: HostSpec, clock: Clock, transport: HostTransport, *, alone: bool = True
    ) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._address = Address("process", number)
        self._spec, self._clock, self._transport, self._alone = spec, clock, transport, alone
        self._scope = ClockScope(clock)
        self._members: list[HostMember] = []
        self._noticed = False
        self._assembling = asyncio.Lock()
        self._heartbeat = Heartbeat(self._address, transport, clock, spec.run.config.host_timeout, self._silent)
        transport.register(self._address, self)

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """See `RequestHandler`."""
        match kind:
            case "beat":
                return None
            case "begun":
                if self._alone:
                    # Modules and jaxprs stay; repeated collections of them would delay the loop.
                    gc.collect()
                    gc.freeze()
                return None
            case "assemble":
                assert isinstance(payload, Assembly)
                async with self._assembling:
                    return await self._assemble(payload)
        raise ValueError(f"a host cannot answer {kind!r} from {sender}")

    async def _assemble(self, assembly: Assembly) -> list[tuple[Role, int, dict[str, Any]]]:
        """Create the servers of a generation; return the addresses and reports of their predecessors."""
        if assembly.generation <= self._transport.generation:  # superseded by another loss
            return []
        reports = [
            (member.address.role, member.address.index, member.report()) for member in self._members if member.built
        ]
        self._heartbeat.stop()
        await self._leave()
        self._transport.renew(assembly.generation)
        self._transport.connect({Address(role, index): endpoint for role, index, endpoint in assembly.book})
        self._scope = ClockScope(self._clock)
        # In a thread, because it may take a minute and heartbeats must continue.
        maker = self._scope.workers("program", 1)
        members = assembly.assigned[self._address.index]
        await maker.run(functools.partial(self._make_program, members), seconds=0.0, order=(assembly.generation,))
        for one in members:
            kind = GraphMember if one.role == "graph" else ParameterMember
            self._members.append(kind(one, self._spec.run, assembly, self._scope, self._transport))
        others = {Address(role, index) for role, index, _ in assembly.book if role == "process"} - {self._address}
        self._heartbeat.watch(sorted(one.index for one in others))
        if self._noticed:
            self.notice()
        return reports

    def _make_program(self, members: Sequence[MemberSpec]) -> None:
        """Create the program that all servers of this host share."""
        run = self._spec.run
        run.prepared  # noqa: B018
        if any(one.role == "graph" for one in members):
            sizes = StageSizes(*run.sizes)
            run.prepared.functions(sizes, of_workers=run.config.runs_stages)
            if run.sums is not None:
                run.evaluation.functions(sizes, of_workers=True)

    async def _leave(self) -> None:
        await self._scope.abandon()
        self.close()
        if self._alone:
            # Undo the freeze of "begun".
            gc.unfreeze()
            gc.collect()

    def _silent(self, number: int) -> None:
        told = self._transport.generation, number
        self._scope.spawn(
            self._transport.request(self._address, DRIVER, "silent", told, num_bytes=0, order=told), name="silence"
        )

    def notice(self) -> None:
        """Tell the driver that this host will vanish soon, so that its servers leave it between two epochs."""
        self._noticed = True
        if self._transport.generation >= 0:  # otherwise with the first generation
            told = self._transport.generation, self._address.index
            self._scope.spawn(
                self._transport.request(self._address, DRIVER, "notice", told, num_bytes=0, order=told), name="notice"
            )

    def end(self) -> None:
        """Request the end of the host. A second call does nothing."""
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Close the servers."""
        members, self._members = self._members, []
        for member in members:
            member.close()
