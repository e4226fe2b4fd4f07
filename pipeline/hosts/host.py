"""A host: what lives in a process, the servers of one generation after another."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, final

from dorylax.clock import Clock
from dorylax.clock.scope import ClockScope
from dorylax.pipeline.hosts.heart import Heart
from dorylax.pipeline.hosts.members import GraphMember, Member, ParameterMember
from dorylax.pipeline.hosts.messages import Assembly, Report
from dorylax.pipeline.hosts.spec import HostSpec
from dorylax.pipeline.stages import StageSizes
from dorylax.pipeline.transport.base import Address, HostTransport, Role

DRIVER = Address("driver", 0)


@final
class Host:
    """Makes its servers when the driver says who else there is, and makes them anew after every loss.

    What one generation has begun ends with it: its tasks, threads and workers, its registrations and requests. The shard's
    files, the program and what was compiled stay.

    Args:
        number: of the host.
        spec: which servers live in it.
        clock: of the process.
        transport: to the others.
        alone: whether it is all that the process does, and may say when garbage is collected.

    Attributes:
        ended: done when it is to end.
    """

    def __init__(
        self, number: int, spec: HostSpec, clock: Clock, transport: HostTransport, *, alone: bool = True
    ) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._address = Address("process", number)
        self._spec, self._clock, self._transport, self._alone = spec, clock, transport, alone
        self._scope = ClockScope(clock)
        self._members: list[Member] = []
        self._assembling = asyncio.Lock()
        self._heart = Heart(self._address, transport, clock, spec.run.config.host_timeout, self._silent)
        transport.register(self._address, self)

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """See `RequestHandler`."""
        match kind:
            case "beat":
                return None
            case "begun":
                if self._alone:
                    # What is there by now stays (modules, jaxprs); looking through it over and over would take the loop's
                    # time.
                    gc.collect()
                    gc.freeze()
                return None
            case "assemble":
                assert isinstance(payload, Assembly)
                async with self._assembling:
                    return await self._assemble(payload)
        raise ValueError(f"a host cannot answer {kind!r} from {sender}")

    async def _assemble(self, assembly: Assembly) -> list[tuple[Role, int, Report]]:
        """Makes the servers of a generation; gives what those before them have counted, and where they were."""
        if assembly.generation <= self._transport.generation:  # another loss has come meanwhile
            return []
        reports = [
            (member.address.role, member.address.index, member.report()) for member in self._members if member.built
        ]
        self._heart.stop()
        await self._leave()
        self._transport.renew(assembly.generation)
        self._transport.connect({Address(role, index): endpoint for role, index, endpoint in assembly.book})
        self._scope = ClockScope(self._clock)
        # By a thread: it may take a minute, in which others ask whether this process lives.
        maker = self._scope.workers("program", 1)
        await maker.run(self._make_program, seconds=0.0, order=(assembly.generation,))
        for one in self._spec.members:
            kind = GraphMember if one.role == "graph" else ParameterMember
            self._members.append(kind(one, self._spec.run, assembly, self._scope, self._transport))
        others = {Address(role, index) for role, index, _ in assembly.book if role == "process"} - {self._address}
        self._heart.watch(sorted(one.index for one in others))
        return reports

    def _make_program(self) -> None:
        """What all servers here need, made once."""
        run, inline = self._spec.run, self._spec.run.config.tensor.backend == "inline"
        run.prepared  # noqa: B018
        if any(one.role == "graph" for one in self._spec.members):
            sizes = StageSizes(*run.sizes)
            run.prepared.functions(sizes, of_workers=inline)
            if run.sums is not None:
                run.evaluation.functions(sizes, of_workers=True)

    async def _leave(self) -> None:
        await self._scope.abandon()
        self.close()
        if self._alone:
            # What was there stayed out of collections ("begun"); now it may go.
            gc.unfreeze()
            gc.collect()

    def _silent(self, number: int) -> None:
        told = self._transport.generation, number
        self._scope.spawn(
            self._transport.request(self._address, DRIVER, "silent", told, num_bytes=0, order=told), name="silence"
        )

    def end(self) -> None:
        """Lets it end. A second call does nothing."""
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Ends what its servers have started."""
        members, self._members = self._members, []
        for member in members:
            member.close()
