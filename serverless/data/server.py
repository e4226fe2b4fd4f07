"""The servers' end of the data plane: offers tensors under names, and takes those that it expects."""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, final

import numpy as np
import zmq

from dorylax.serverless.data import protocol
from dorylax.serverless.data.connections import Capacity
from dorylax.serverless.data.counters import DataCounters
from dorylax.serverless.data.descriptors import raise_limit
from dorylax.serverless.data.endpoint import Deliver, Endpoint
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.loop import Loop
from dorylax.serverless.data.refusals import Refusals
from dorylax.serverless.data.socket_folder import make_socket_folder


@final
class DataServer:
    """All data endpoints of one process: sockets on one thread of their own. Any thread may call it.

    Arrays are sent without a copy; do not write to them while they are offered. Withdraw them when nobody waits for what is
    computed from them: a worker that is reading them at that moment may find old and new bytes.

    Args:
        keys: of the run. Peers without them are turned away, with a line in the log "dorylax.data".
        transport: "ipc", on this machine, through files in a new folder that only this user may enter; or "tcp",
            encrypted.
        host: of tcp: the address of the interface that is listened on, by which workers find it too.
        chunk_bytes: of a chunk, the unit of a transfer.
        credit: chunks of one transfer that may be on their way at a time.
        max_bytes: of one transfer.

    Raises:
        ValueError: settings that cannot work, or, for tcp, keys without the servers' secret.
        SocketFolderError: over ipc, there is no place for socket files.
    """

    def __init__(
        self,
        keys: RunKeys,
        *,
        transport: Literal["ipc", "tcp"] = "ipc",
        host: str = "127.0.0.1",
        chunk_bytes: int = protocol.CHUNK_BYTES,
        credit: int = protocol.CREDIT,
        max_bytes: int = protocol.MAX_BYTES,
    ) -> None:
        protocol.check_limits(chunk_bytes, credit, max_bytes)
        if transport not in ("ipc", "tcp"):
            raise ValueError(f"transport must be 'ipc' or 'tcp', got {transport!r}")
        if transport == "tcp" and keys.server_secret is None:
            raise ValueError("a server over tcp needs the servers' secret key, which RunKeys.to_json leaves out")
        self._run = keys.run
        self._limits = {"chunk_bytes": chunk_bytes, "credit": credit, "max_bytes": max_bytes}
        self._endpoints: dict[str, Endpoint] = {}
        self._numbers = itertools.count()
        self._counters = counters = DataCounters()
        self._refusals = Refusals()

        def sent(nbytes: int) -> None:
            counters.bytes_sent += nbytes

        self._loop = Loop(
            keys,
            transport,
            host=host,
            folder=make_socket_folder() if transport == "ipc" else None,
            refusals=self._refusals,
            capacity=Capacity.of(raise_limit()),
            backlog=4 * credit + 16,
            sent=sent,
        )
        # Also when the last reference goes, or the program ends. The thread holds none to this object.
        self._stop = weakref.finalize(self, self._loop.stop)

    def open(self, name: str) -> str:
        """Makes an endpoint.

        Args:
            name: what it is called in the log, e.g. "graph 0".

        Returns:
            Its address, for workers and for the methods below.

        Raises:
            RuntimeError: the server is closed.
            OSError: the socket could not be bound.
        """
        endpoint = Endpoint(name, self._run, self._counters, self._refusals, **self._limits)
        loop, number = self._loop, next(self._numbers)
        try:
            address = loop.do(lambda: loop.open(endpoint, number))
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"the data endpoint {name!r} could not be bound: {error.strerror}") from error
        self._endpoints[address] = endpoint
        return address

    def offer(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Lets workers get arrays, until they are withdrawn.

        Args:
            address: of the endpoint.
            name: what workers ask for.
            arrays: not written to until withdrawn. Those that are not contiguous are copied.

        Raises:
            WireError: a dtype that cannot be sent, or more than `max_bytes`.
            ValueError: no such endpoint, or the name is offered already.
        """
        self._endpoint(address).offer(name, arrays)

    def withdraw(self, address: str, name: str) -> None:
        """Takes an offer back, if there is one."""
        self._endpoint(address).withdraw(name)

    def expect(self, address: str, name: str, deliver: Deliver) -> None:
        """Waits for arrays under a name.

        Args:
            address: of the endpoint.
            name: what workers put.
            deliver: called once, in the data thread, with the first complete put: it must be quick, and not close the
                server. It may keep the arrays, each on a multiple of 64 bytes. What it raises is logged.

        Raises:
            ValueError: no such endpoint, or the name is expected already (or was, and has not been forgotten).
        """
        self._endpoint(address).expect(name, deliver)

    def forget(self, address: str, name: str) -> None:
        """Stops waiting: what is put under the name from now on is acknowledged and dropped.

        A `deliver` that has begun in the data thread may still be running.
        """
        self._endpoint(address).forget(name)

    @property
    def counters(self) -> DataCounters:
        """A copy of what was counted so far."""
        return dataclasses.replace(self._counters, refused=self._refusals.count)

    def close(self) -> None:
        """Ends the thread, closes all sockets, removes their files. A second call does nothing."""
        self._stop()

    def __enter__(self) -> DataServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _endpoint(self, address: str) -> Endpoint:
        try:
            return self._endpoints[address]
        except KeyError:
            known = ", ".join(self._endpoints) or "none yet"
            raise ValueError(f"no data endpoint at {address!r}: open one; there are {known}") from None
