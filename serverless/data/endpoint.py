"""One endpoint of a server: its offers, its expected names, and its reply to each message. Without sockets."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np

from dorylax.serverless.data import messages
from dorylax.serverless.data.messages import Buffer, Header, Tensors
from dorylax.serverless.data.refusals import Refusals
from dorylax.serverless.wire.errors import WireError

Deliver = Callable[[tuple[np.ndarray, ...]], None]

_LOG = logging.getLogger("dorylax.data")


@final
@dataclasses.dataclass
class DataCounters:
    """Counts since the creation of a server. Bytes are those of tensors, without headers.

    Attributes:
        bytes_sent: Bytes to workers.
        bytes_received: Bytes of delivered puts.
        gets: Successful requests for names.
        puts: Delivered puts.
        late: Puts without a receiver.
        duplicates: Puts of an already delivered name.
        refused: Refused peers and messages.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    gets: int = 0
    puts: int = 0
    late: int = 0
    duplicates: int = 0
    refused: int = 0


class Reply(NamedTuple):
    """A message to a peer, and its bytes of tensors."""

    frames: list[bytes | memoryview]
    nbytes: int = 0


@final
class Endpoint:
    """The state behind one address.

    Any thread may call `offer`, `withdraw`, `expect` and `forget`; only the data thread calls `handle`.

    Args:
        label: Name in the log.
        run: Id of the run.
        counters: Counters to update.
        refusals: Receives refusals.
        max_bytes: Limit of one transfer in bytes.
    """

    def __init__(self, label: str, run: str, counters: DataCounters, refusals: Refusals, max_bytes: int) -> None:
        self.label = label
        self._run, self._counters, self._refusals, self._max_bytes = run, counters, refusals, max_bytes
        self._lock = threading.Lock()
        self._offers: dict[str, Tensors] = {}
        self._expected: dict[str, Deliver | None] = {}  # None: delivered

    def offer(self, name: str, arrays: Sequence[np.ndarray]) -> None:
        """See `DataServer.offer`."""
        _check_name(name)
        tensors = Tensors.of(arrays, self._max_bytes)
        with self._lock:
            if name in self._offers:
                raise ValueError(f"{name!r} is offered already: withdraw it first")
            self._offers[name] = tensors

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

    def handle(self, message: Sequence[Buffer]) -> list[Reply]:
        """Return the replies to a message.

        Args:
            message: Frames of the message.
        """
        number = 0
        try:
            if not message:
                raise WireError("a message must have a header, got no frames")
            header = messages.decode_header(message[0])
            if header.run != self._run:
                raise WireError(f"this is run {self._run}, got a message of run {header.run!r}")
            if not header.number:
                raise WireError("'number' must be at least 1, got 0")
            number = header.number
            if not 0 < len(header.text) <= messages.MAX_NAME:
                raise WireError(f"a name must have 1 to {messages.MAX_NAME} characters, got {len(header.text)}")
            if header.kind == messages.GET:
                return self._get(header, message[1:])
            if header.kind == messages.PUT:
                return [self._put(header, message[1:])]
            raise WireError(f"'kind' must be get or put, got {header.kind!r}")
        except WireError as error:
            self._refusals.add(self.label, str(error))
            return [self._reply(messages.REFUSED, number, str(error))]

    def _get(self, header: Header, contents: Sequence[Buffer]) -> list[Reply]:
        if header.specs or contents:
            raise WireError(f"a get must have no tensors, got {len(header.specs)} and {len(contents)} frames")
        with self._lock:
            offer = self._offers.get(header.text)
        if offer is None:
            return [self._reply(messages.ABSENT, header.number)]
        self._counters.gets += 1
        answer = self._reply(messages.TENSORS, header.number, tensors=offer)
        if offer.nbytes <= messages.PIECE_BYTES:
            return [answer]
        coming = Header(self._run, messages.COMING, header.number, "", offer.specs)
        return [Reply([coming.encode()]), answer]

    def _put(self, header: Header, contents: Sequence[Buffer]) -> Reply:
        state = self._state(header.text)
        if state == messages.ACCEPTED:
            arrays = messages.decode_tensors(header, contents, self._max_bytes)
            with self._lock:
                deliver = self._expected.get(header.text)
                if deliver is not None:
                    self._expected[header.text] = None
            if deliver is None:  # forgotten meanwhile
                state = self._state(header.text)
            else:
                self._counters.puts += 1
                self._counters.bytes_received += header.nbytes
                try:
                    deliver(arrays)
                except Exception:
                    _LOG.exception("%s: what was put as %s could not be delivered", self.label, header.text)
        self._counters.duplicates += state == messages.DUPLICATE
        self._counters.late += state == messages.LATE
        return self._reply(messages.DONE, header.number, state)

    def _state(self, name: str) -> str:
        """Return what becomes of a put under a name."""
        with self._lock:
            if name not in self._expected:
                return messages.LATE
            return messages.DUPLICATE if self._expected[name] is None else messages.ACCEPTED

    def _reply(self, kind: str, number: int, text: str = "", tensors: Tensors | None = None) -> Reply:
        specs = () if tensors is None else tensors.specs
        head = Header(self._run, kind, number, text, specs).encode()
        return Reply([head]) if tensors is None else Reply([head, *tensors.frames], tensors.nbytes)


def _check_name(name: str) -> None:
    if not 0 < len(name) <= messages.MAX_NAME:
        raise ValueError(f"a name must have 1 to {messages.MAX_NAME} characters, got {len(name)}")
