"""One endpoint of a server: its offers, its expected names, and its reply to each message. Without sockets."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.serverless.data import protocol
from dorylax.serverless.data.arrival import Arrival
from dorylax.serverless.data.counters import DataCounters
from dorylax.serverless.data.parcel import Parcel
from dorylax.serverless.data.refusals import Refusals
from dorylax.serverless.wire import frames
from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.tensors import read_specs

Deliver = Callable[[tuple[np.ndarray, ...]], None]

PROBE_SECONDS = 5.0
"""Time without a chunk after which the grant is repeated, which detects dead workers."""

ABANDONED_SECONDS = 60.0
"""Time after which an unfinished put is dropped."""

MOST_UNFINISHED = 4
"""Limit of concurrent puts per peer. A worker's connection uses only one."""

_LOG = logging.getLogger("dorylax.data")


class Reply(NamedTuple):
    """A message to a peer, and its bytes of tensors."""

    frames: list[bytes | memoryview]
    nbytes: int = 0


class _Offer(NamedTuple):
    serial: int
    parcel: Parcel


@dataclasses.dataclass(eq=False)
class _Put:
    """An unfinished put."""

    name: str
    arrival: Arrival
    until: int  # granted chunks: those below this index
    heard: float  # time of its last message
    probed: float


@final
class Endpoint:
    """The state behind one address.

    Any thread may call `offer`, `withdraw`, `expect` and `forget`; only the data thread calls the rest.

    Args:
        label: Name in the log.
        run: Id of the run.
        counters: Counters to update.
        refusals: Receives refusals.
        chunk_bytes: Bytes per sent chunk.
        credit: Limit of chunks in flight.
        max_bytes: Limit of one transfer in bytes.
    """

    def __init__(
        self,
        label: str,
        run: str,
        counters: DataCounters,
        refusals: Refusals,
        *,
        chunk_bytes: int,
        credit: int,
        max_bytes: int,
    ) -> None:
        self.label = label
        self._run = run
        self._counters = counters
        self._refusals = refusals
        self._chunk_bytes = chunk_bytes
        self._credit = credit
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._serials = itertools.count(protocol.ANY_OFFER + 1)
        self._offers: dict[str, _Offer] = {}
        self._expected: dict[str, Deliver | None] = {}  # None: delivered
        self._puts: dict[tuple[bytes, int], _Put] = {}

    def offer(self, name: str, arrays: Sequence[np.ndarray]) -> None:
        """See `DataServer.offer`."""
        _check_name(name)
        offer = _Offer(next(self._serials), Parcel(arrays, self._chunk_bytes, self._max_bytes))
        with self._lock:
            if name in self._offers:
                raise ValueError(f"{name!r} is offered already: withdraw it first")
            self._offers[name] = offer

    def withdraw(self, name: str) -> None:
        """See `DataServer.withdraw`."""
        with self._lock:
            self._offers.pop(name, None)

    def expect(self, name: str, deliver: Deliver) -> None:
        """See `DataServer.expect`."""
        _check_name(name)
        with self._lock:
            if name in self._expected:
                raise ValueError(f"{name!r} is expected already: forget it first")
            self._expected[name] = deliver

    def forget(self, name: str) -> None:
        """See `DataServer.forget`."""
        with self._lock:
            self._expected.pop(name, None)

    @property
    def unfinished(self) -> int:
        """Number of unfinished puts."""
        return len(self._puts)

    def handle(self, peer: bytes, message: Sequence[frames.Buffer], now: float) -> list[Reply]:
        """Return the replies to a message.

        Args:
            peer: Sender of the message.
            message: Frames of the message.
            now: Time in seconds.
        """
        try:
            if not message:
                raise WireError("a message must have a header, got no frames")
            header = frames.decode_header(message[0])
        except WireError as error:
            if error.damaged:
                self._refuse(error)
                return [self._reply(protocol.DAMAGED, {})]
            return self._refused(protocol.NO_TRANSFER, error)
        transfer = protocol.NO_TRANSFER
        try:
            if header.run != self._run:
                raise WireError(f"this is run {self._run}, got a message of run {header.run!r}")
            transfer = header.fields.integer("transfer", least=protocol.NO_TRANSFER + 1)
            if header.kind == protocol.GET:
                return self._get(transfer, header)
            if header.kind == protocol.PUT:
                return self._put(peer, transfer, header, message[1:], now)
            if header.kind == protocol.CHUNK:
                return self._chunk(peer, transfer, header, message[1:], now)
            raise WireError(f"'kind' must be get, put or chunk, got {header.kind!r}")
        except WireError as error:
            self._puts.pop((peer, transfer), None)
            return self._refused(transfer, error)

    def drop(self, peer: bytes) -> None:
        """Drop the puts of a disconnected peer."""
        for key in [key for key in self._puts if key[0] == peer]:
            del self._puts[key]
            _LOG.info("%s: an unfinished put is dropped, its worker is gone", self.label)

    def probe(self, now: float) -> list[tuple[bytes, Reply]]:
        """Drop abandoned puts, and repeat the grants of idle ones, because sending detects dead peers."""
        replies = []
        for (peer, transfer), put in list(self._puts.items()):
            if now - put.heard >= ABANDONED_SECONDS:
                del self._puts[peer, transfer]
                _LOG.info("%s: a put of %s is dropped, unfinished after %.0f s", self.label, put.name, now - put.heard)
            elif now - put.probed >= PROBE_SECONDS:
                put.probed = now
                replies.append((peer, self._grant(transfer, put)))
        return replies

    def _get(self, transfer: int, header: frames.Header) -> list[Reply]:
        fields = header.fields
        name = fields.text("name", limit=protocol.MAX_NAME)
        serial = fields.integer("offer")
        first = fields.integer("first")
        count = fields.integer("count", least=1)
        fields.end()
        if header.specs:
            raise WireError(f"a get must have no tensors, got {len(header.specs)}")
        with self._lock:
            offer = self._offers.get(name)
        if offer is None or serial not in (protocol.ANY_OFFER, offer.serial):
            return [self._reply(protocol.ABSENT, {"transfer": transfer})]
        replies = []
        if serial == protocol.ANY_OFFER:
            self._counters.gets += 1
            count = min(count, self._credit)
            layout = {
                "transfer": transfer,
                "offer": offer.serial,
                "chunk_bytes": self._chunk_bytes,
                "credit": self._credit,
                "tensors": offer.parcel.layout(),
            }
            replies.append(self._reply(protocol.LAYOUT, layout))
        if count > self._credit:
            raise WireError(f"'count' must be at most the credit of {self._credit} chunks, got {count}")
        if first >= offer.parcel.chunks.count:
            raise WireError(f"'first' must be below {offer.parcel.chunks.count}, got {first}")
        for index in range(first, min(first + count, offer.parcel.chunks.count)):
            replies.append(Reply(offer.parcel.message(self._run, transfer, index), offer.parcel.chunk_nbytes(index)))
        return replies

    def _put(
        self, peer: bytes, transfer: int, header: frames.Header, contents: Sequence[frames.Buffer], now: float
    ) -> list[Reply]:
        fields = header.fields
        name = fields.text("name", limit=protocol.MAX_NAME)
        chunk_bytes = fields.integer("chunk_bytes", least=protocol.MIN_CHUNK_BYTES, most=protocol.MAX_CHUNK_BYTES)
        specs = read_specs(fields, "tensors")
        fields.end()
        self._abandon(peer, transfer, name)
        if (done := self._unwanted(transfer, name)) is not None:
            return [done]
        put = _Put(name, Arrival(specs, chunk_bytes, self._max_bytes), 1, now, now)
        self._puts[peer, transfer] = put
        return self._store((peer, transfer), put, 0, self._pieces(header, contents))

    def _chunk(
        self, peer: bytes, transfer: int, header: frames.Header, contents: Sequence[frames.Buffer], now: float
    ) -> list[Reply]:
        index = header.fields.integer("index")
        header.fields.end()
        put = self._puts.get((peer, transfer))
        if put is None:
            return [self._reply(protocol.UNKNOWN, {"transfer": transfer})]
        if index >= put.until:
            raise WireError(f"'index' must be below the granted {put.until}, got {index}")
        put.heard = put.probed = now
        if (done := self._unwanted(transfer, put.name)) is not None:
            del self._puts[peer, transfer]
            return [done]
        return self._store((peer, transfer), put, index, self._pieces(header, contents))

    def _store(
        self, key: tuple[bytes, int], put: _Put, index: int, pieces: tuple[np.ndarray, ...] | None
    ) -> list[Reply]:
        transfer = key[1]
        if pieces is None:
            return [self._reply(protocol.AGAIN, {"transfer": transfer, "index": index}), *self._granted(transfer, put)]
        put.arrival.store(index, pieces)
        self._counters.bytes_received += sum(piece.nbytes for piece in pieces)
        if not put.arrival.complete:
            return self._granted(transfer, put)
        del self._puts[key]
        return [self._complete(transfer, put)]

    def _pieces(self, header: frames.Header, contents: Sequence[frames.Buffer]) -> tuple[np.ndarray, ...] | None:
        """Return the pieces of a chunk; None if they are damaged."""
        try:
            return frames.decode_tensors(header, contents, protocol.MAX_CHUNK_BYTES)
        except WireError as error:
            if not error.damaged:
                raise
            self._refuse(error)
            return None

    def _complete(self, transfer: int, put: _Put) -> Reply:
        with self._lock:
            deliver = self._expected.get(put.name)
            if deliver is not None:
                self._expected[put.name] = None
        if deliver is None:  # forgotten or delivered meanwhile
            done = self._unwanted(transfer, put.name)
            assert done is not None
            return done
        self._counters.puts += 1
        try:
            deliver(put.arrival.arrays())
        except Exception:
            _LOG.exception("%s: what was put as %s could not be delivered", self.label, put.name)
        return self._done(transfer, protocol.ACCEPTED)

    def _unwanted(self, transfer: int, name: str) -> Reply | None:
        """Return the reply that ends an unexpected put; None for an expected one."""
        with self._lock:
            known = name in self._expected
            delivered = known and self._expected[name] is None
        if known and not delivered:
            return None
        if delivered:
            self._counters.duplicates += 1
            return self._done(transfer, protocol.DUPLICATE)
        self._counters.late += 1
        return self._done(transfer, protocol.LATE)

    def _abandon(self, peer: bytes, transfer: int, name: str) -> None:
        """Drop surplus unfinished puts of a peer that starts another."""
        mine = [key for key in self._puts if key[0] == peer]
        again = [key for key in mine if self._puts[key].name == name or key[1] == transfer]
        others = [key for key in mine if key not in again]
        for key in again + others[: max(0, len(others) + 1 - MOST_UNFINISHED)]:
            del self._puts[key]

    def _granted(self, transfer: int, put: _Put) -> list[Reply]:
        """Grant more chunks if the credit allows it."""
        until = min(put.arrival.prefix + self._credit, put.arrival.chunks.count)
        if until <= put.until:
            return []
        put.until = until
        return [self._grant(transfer, put)]

    def _grant(self, transfer: int, put: _Put) -> Reply:
        # "until" counts from the first chunk, so a repeated grant changes nothing.
        return self._reply(protocol.GRANT, {"transfer": transfer, "until": put.until})

    def _done(self, transfer: int, state: str) -> Reply:
        return self._reply(protocol.DONE, {"transfer": transfer, "state": state})

    def _refused(self, transfer: int, error: WireError) -> list[Reply]:
        self._refuse(error)
        return [self._reply(protocol.REFUSED, {"transfer": transfer, "reason": str(error)})]

    def _refuse(self, error: WireError) -> None:
        self._refusals.add(self.label, str(error))

    def _reply(self, kind: str, fields: Mapping[str, Any]) -> Reply:
        return Reply(frames.encode(self._run, kind, fields))


def _check_name(name: str) -> None:
    if not 0 < len(name) <= protocol.MAX_NAME:
        raise ValueError(f"a name must have 1 to {protocol.MAX_NAME} characters, got {len(name)}")
