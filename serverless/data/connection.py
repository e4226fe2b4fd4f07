"""A worker's connection to one address, for one transfer at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import zmq

from dorylax.serverless.data import admission, protocol
from dorylax.serverless.data.arrival import Arrival
from dorylax.serverless.data.errors import DataError, NotOfferedError
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import SharedLink
from dorylax.serverless.data.parcel import Parcel
from dorylax.serverless.wire import frames
from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.tensors import TensorSpec, read_specs

_MOST_DAMAGED = 8
"""Limit of damaged chunks per transfer."""


class _Message(NamedTuple):
    header: frames.Header
    contents: Sequence[frames.Buffer]


class _OfferLayout(NamedTuple):
    serial: int
    chunk_bytes: int
    credit: int
    specs: tuple[TensorSpec, ...]


@final
class Connection:
    """A socket and its transfers.

    Its state is undefined after an error: close it and create another.

    Args:
        context: Context of ZeroMQ.
        address: Address of the server.
        keys: Keys of the run.
        link: Simulated link.
        timeout: Seconds without a message after which a transfer counts as lost.
        credit: Limit of chunks in flight.
        max_bytes: Limit of one transfer in bytes.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        keys: RunKeys,
        link: SharedLink,
        *,
        timeout: float,
        credit: int,
        max_bytes: int,
    ) -> None:
        self._address = address
        self._run = keys.run
        self._link = link
        self._timeout = timeout
        self._credit = credit
        self._max_bytes = max_bytes
        self._transfer = protocol.NO_TRANSFER
        self._socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        try:
            self._socket.linger = 0
            self._socket.maxmsgsize = protocol.MAX_FRAME_BYTES
            admission.identify(self._socket, keys, address)
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise DataError(f"cannot connect to {address!r}: {error}") from error

    def close(self) -> None:
        """Close the socket and drop unsent messages."""
        self._socket.close()

    def get(self, name: str) -> tuple[np.ndarray, ...]:
        """Try once to get arrays.

        Raises:
            ConnectionError: The attempt failed.
            NotOfferedError, DataError: See `DataClient.get`.
        """
        self._transfer += 1
        self._link.request()
        self._ask(name, protocol.ANY_OFFER, 0, self._credit)
        layout = self._layout(name)
        try:
            arrival = Arrival(layout.specs, layout.chunk_bytes, self._max_bytes)
        except WireError as error:
            raise DataError(f"{name!r} cannot be got from {self._address}: {error}") from error
        count = arrival.chunks.count
        asked = min(self._credit, layout.credit, count)
        damaged = 0
        while not arrival.complete:
            message = self._receive()
            kind, fields = message.header.kind, message.header.fields
            if kind == protocol.ABSENT:
                raise ConnectionError("it was withdrawn, or offered anew, meanwhile")
            if kind != protocol.CHUNK:
                raise ConnectionError(f"got {kind!r}, expected a chunk")
            index = fields.integer("index")
            try:
                pieces = frames.decode_tensors(message.header, message.contents, protocol.MAX_CHUNK_BYTES)
            except WireError as error:
                if not error.damaged:
                    raise
                damaged += 1
                if damaged > _MOST_DAMAGED:
                    raise ConnectionError(f"{damaged} chunks were damaged, the last: {error}") from error
                self._ask(name, layout.serial, index, 1)
                continue
            self._link.carry(sum(piece.nbytes for piece in pieces))
            if arrival.store(index, pieces) and asked < count:
                self._ask(name, layout.serial, asked, 1)
                asked += 1
        return arrival.arrays()

    def put(self, name: str, parcel: Parcel, chunk_bytes: int) -> None:
        """Try once to put arrays, cut into chunks of `chunk_bytes`.

        Raises:
            ConnectionError: The attempt failed.
            DataError: See `DataClient.put`.
        """
        self._transfer += 1
        transfer = self._transfer
        self._link.request()
        self._link.carry(parcel.chunk_nbytes(0))
        fields = {"transfer": transfer, "name": name, "chunk_bytes": chunk_bytes, "tensors": parcel.layout()}
        self._send(parcel.message_with(self._run, protocol.PUT, fields, 0))
        sent, until, damaged = 1, 1, 0
        while True:
            # Check for an early reply before each chunk: the server may have the result already.
            message = self._receive() if sent == until or self._socket.poll(0) else None
            if message is None:
                self._link.carry(parcel.chunk_nbytes(sent))
                self._send(parcel.message(self._run, transfer, sent))
                sent += 1
                continue
            kind, said = message.header.kind, message.header.fields
            if kind == protocol.DONE:
                return
            if kind == protocol.GRANT:
                until = max(until, said.integer("until", most=parcel.chunks.count))
            elif kind == protocol.AGAIN:
                damaged += 1
                if damaged > _MOST_DAMAGED:
                    raise ConnectionError(f"{damaged} chunks arrived damaged")
                index = said.integer("index", most=sent - 1)
                self._link.carry(parcel.chunk_nbytes(index))
                self._send(parcel.message(self._run, transfer, index))
            else:
                raise ConnectionError(f"got {kind!r}, expected a grant or the end")

    def _ask(self, name: str, serial: int, first: int, count: int) -> None:
        fields = {"transfer": self._transfer, "name": name, "offer": serial, "first": first, "count": count}
        self._tell(protocol.GET, fields)

    def _layout(self, name: str) -> _OfferLayout:
        message = self._receive()
        kind, fields = message.header.kind, message.header.fields
        if kind == protocol.ABSENT:
            raise NotOfferedError(f"{self._address} offers nothing as {name!r}: it was answered or withdrawn")
        if kind != protocol.LAYOUT:
            raise ConnectionError(f"got {kind!r}, expected a layout")
        layout = _OfferLayout(
            serial=fields.integer("offer", least=protocol.ANY_OFFER + 1),
            chunk_bytes=fields.integer("chunk_bytes", least=protocol.MIN_CHUNK_BYTES, most=protocol.MAX_CHUNK_BYTES),
            credit=fields.integer("credit", least=1),
            specs=read_specs(fields, "tensors"),
        )
        fields.end()
        return layout

    def _tell(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._send(frames.encode(self._run, kind, fields))

    def _send(self, message: list[bytes | memoryview]) -> None:
        parts: list[Any] = list(message)
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                self._socket.send_multipart(parts, zmq.NOBLOCK, copy=False)
                return
            except zmq.Again:  # the queue is full, or the socket is reconnecting
                self._wait(zmq.POLLOUT, give_up)

    def _receive(self) -> _Message:
        """Return the next message of this transfer.

        Raises:
            ConnectionError: No message arrives, or it is unreadable.
            DataError: The server refuses the transfer.
        """
        give_up = time.monotonic() + self._timeout
        while True:
            self._wait(zmq.POLLIN, give_up)
            received = self._socket.recv_multipart(copy=False)
            header = frames.decode_header(received[0].buffer)
            if header.run != self._run:
                raise ConnectionError(f"got a message of run {header.run!r}")
            if header.kind == protocol.DAMAGED:
                raise ConnectionError("a request arrived damaged")
            transfer = header.fields.integer("transfer")
            if header.kind == protocol.REFUSED and transfer in (protocol.NO_TRANSFER, self._transfer):
                raise DataError(f"{self._address} refuses: {header.fields.text('reason')}")
            if transfer != self._transfer:
                continue  # a remainder of an earlier transfer, such as a repeated grant
            if header.kind == protocol.UNKNOWN:
                raise ConnectionError("the server knows nothing of this put")
            return _Message(header, [frame.buffer for frame in received[1:]])

    def _wait(self, event: int, give_up: float) -> None:
        """Wait until the socket is ready for `event`.

        Raises:
            ConnectionError: The socket is not ready by `give_up`.
        """
        left = give_up - time.monotonic()
        if left <= 0 or not self._socket.poll(int(left * 1000) + 1, event):
            raise ConnectionError(
                f"no message for {self._timeout:g} s: the server is gone or overloaded, or of another run than the keys"
            )
