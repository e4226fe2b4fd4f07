"""ZeroMQ sockets on an event loop: bound ones demand the run's credentials, connected ones present them."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

import zmq

from dorylax.errors import RunError
from dorylax.net import keys as credentials
from dorylax.net.connections import HANDSHAKE_SECONDS, Watch
from dorylax.net.errors import LOG, Refusals, WireError
from dorylax.net.frames import COPIED_BYTES, Buffer
from dorylax.net.keys import Kind, RunKeys, Trust
from dorylax.own_folder import OwnFolder

Socket = zmq.Socket[bytes]

Take = Callable[[bytes, list[Buffer]], None]
"""Callback for a received message: name of the sending socket (empty on a connected socket) and frames."""

_ZAP_ADDRESS = "inproc://zeromq.zap.01"
_TURN = 64  # messages of one socket per turn of the loop
# As numbers: combining and looking up members of enumerations costs more than the calls.
_NOBLOCK, _EVENTS, _POLLIN = (int(one) for one in (zmq.NOBLOCK, zmq.EVENTS, zmq.POLLIN))

# Alternatives to the temporary folder, whose path may be long in batch jobs. $XDG_RUNTIME_DIR is private to the user.
_SHORT = ("/tmp", "/var/tmp")
_LONGEST = zmq.IPC_PATH_MAX_LEN - len("/3fffff")  # a process id


@final
class Sockets:
    """The sockets of one event loop, whose thread alone uses them.

    Peers without credentials and unreadable messages are refused, with a line in the log "dorylax.data". Above the limits of
    `connections` the surplus connections to bound sockets are cut.

    Args:
        keys: Keys of the run.
        trust: Trust in the peers.
        kind: "ipc" between processes of this machine, or "tcp" with encryption.
        host: For tcp: address of the interface to listen on, at which other processes reach this one.
        folder: For ipc: folder of the socket files; its creator removes it. None: a new folder, removed by `close`.
        loop: The event loop.
        refusals: Recorder of refused peers and messages.

    Raises:
        ValueError: `kind` is neither "ipc" nor "tcp", or the keys lack the servers' secret and `kind` is "tcp".
        RunError: For ipc, no folder for socket files is available.
    """

    def __init__(
        self,
        keys: RunKeys,
        trust: Trust,
        kind: Kind,
        *,
        host: str,
        folder: Path | None = None,
        loop: asyncio.AbstractEventLoop,
        refusals: Refusals,
    ) -> None:
        if kind not in ("ipc", "tcp"):
            raise ValueError(f"transport must be 'ipc' or 'tcp', got {kind!r}")
        if kind == "tcp":
            keys.secret()
        self._keys, self._trust, self._kind, self._loop, self._refusals = keys, trust, kind, loop, refusals
        self._own = make_socket_folder() if kind == "ipc" and folder is None else None
        self._place = f"tcp://{host}:*" if kind == "tcp" else f"ipc://{folder if self._own is None else self._own.path}"
        self._context: zmq.Context[Socket] = zmq.Context()
        self._readers: dict[Socket, Callable[[], None]] = {}
        self._watched: dict[Socket, Socket] = {}  # bound socket -> its monitor
        self.watch = Watch(self._context, refusals)
        door = self._context.socket(zmq.ROUTER)
        door.bind(_ZAP_ADDRESS)
        self._listen(door, lambda: self._admit(door))

    def bind(self, label: str, name: str, take: Take) -> tuple[Socket, str]:
        """Bind a socket, and return it with its address.

        Args:
            label: Name in the log.
            name: For ipc: name of the socket file.
            take: Called for each message.

        Raises:
            OSError: The socket cannot be bound.
        """
        router = self._socket(zmq.ROUTER)
        try:
            router.router_mandatory = 1
            router.handshake_ivl = int(HANDSHAKE_SECONDS * 1000)
            credentials.protect(router, self._keys, self._kind)
            router.bind(self._place if self._kind == "tcp" else f"{self._place}/{name}")
        except zmq.ZMQError as error:
            router.close()
            raise OSError(error.errno, f"the data endpoint {label!r} could not be bound: {error.strerror}") from error
        address = str(router.get_string(zmq.LAST_ENDPOINT))
        monitor = self._watched[router] = self.watch.start(router, label, address)  # before a peer learns the address

        def read() -> None:
            found = router.recv_multipart(_NOBLOCK, copy=False)
            self.watch.heard(monitor, found[0])
            self._give(label, take, found[0].bytes, found[1:])

        self._listen(monitor, lambda: self.watch.read(monitor))
        self._listen(router, read)
        return router, address

    def connect(self, address: str, take: Take) -> Socket:
        """Connect a socket to an address. `take` is called for each message."""
        dealer = self._socket(zmq.DEALER)
        credentials.identify(dealer, self._keys, self._trust, address)
        dealer.connect(address)
        self._listen(dealer, lambda: self._give(address, take, b"", dealer.recv_multipart(_NOBLOCK, copy=False)))
        return dealer

    def send(self, socket: Socket, parts: Sequence[Buffer]) -> bool:
        """Send a message, for a bound socket with the receiver's name as the first part. Return whether it was sent."""
        try:
            socket.send_multipart(parts, _NOBLOCK, copy=False)
        except zmq.Again:
            reason = "a worker that asks for more than it reads; it will have to ask again"
            self._refusals.add(socket.get_string(zmq.LAST_ENDPOINT), reason)
            return False
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            LOG.info("a peer is gone, a message to it is dropped")
            return False
        if int(socket.getsockopt(_EVENTS)) & _POLLIN:  # sending may have consumed the event of the descriptor
            self._loop.call_soon(self._readers[socket])
        return True

    def drop(self, socket: Socket) -> None:
        """Close a socket and drop its unsent messages."""
        del self._readers[socket]
        if not self._loop.is_closed():
            self._loop.remove_reader(socket.fileno())
        socket.close(linger=0)

    def close(self) -> None:
        """Close all sockets and drop unsent messages. A second call does nothing."""
        if self._context.closed:
            return
        monitors = set(self._watched.values())
        for socket in list(self._readers):
            if socket not in monitors:
                self.drop(socket)
            elif not self._loop.is_closed():
                self._loop.remove_reader(socket.fileno())
        self.watch.close()
        self._context.term()
        if self._own is not None:
            self._own.remove()

    def _socket(self, kind: int) -> Socket:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.copy_threshold = COPIED_BYTES
        socket.maxmsgsize = self._trust.frame_bytes
        socket.sndhwm = socket.rcvhwm = self._trust.backlog
        socket.heartbeat_ivl = self._trust.heartbeat_ms
        return socket

    def _listen(self, socket: Socket, receive: Callable[[], None]) -> None:
        """Call `receive` on the loop for each message. ZeroMQ's descriptor is edge-triggered, so an event reads them all."""

        def read() -> None:
            more = True
            for _ in range(_TURN):
                if socket.closed:
                    return
                try:
                    receive()
                except zmq.Again:
                    more = False
                    break
                except BaseException:
                    self._loop.call_soon(read)
                    raise
            self.watch.cut_surplus()
            if more:
                self._loop.call_soon(read)

        self._loop.add_reader(socket.fileno(), read)
        self._readers[socket] = read
        self._loop.call_soon(read)

    def _give(self, label: str, take: Take, name: bytes, found: Sequence[zmq.Frame]) -> None:
        try:
            take(name, [frame.buffer for frame in found])
        except WireError as error:
            self._refusals.add(label, str(error))

    def _admit(self, door: Socket) -> None:
        frames, reason = credentials.answer(door.recv_multipart(_NOBLOCK), self._keys, self._trust)
        door.send_multipart(frames)
        if reason is not None:
            self._refusals.add("the door", reason)


def make_socket_folder() -> OwnFolder:
    """Create a private folder that holds only socket files, outside the temporary folder if its path is too long.

    Raises:
        RunError: No folder can be created. The message gives the reasons and the remedy.
    """
    reasons = []
    for place in _places():
        try:
            folder = Path(tempfile.mkdtemp(prefix="dorylax-", dir=place))
        except OSError as error:
            reasons.append(f"{place}: {error.strerror}")
            continue
        if len(os.fsencode(folder)) <= _LONGEST:
            return OwnFolder(folder)
        folder.rmdir()
        reasons.append(f"{place}: its path is too long for a socket, at most {_LONGEST} bytes with a name of 16")
    raise RunError(
        f"socket files of workers have no place ({'; '.join(reasons)}): set TMPDIR to a folder with a short path that can "
        "be written, or tensor.transport=tcp"
    )


def _places() -> list[str]:
    """Return candidate folders in order."""
    places = []
    try:
        places.append(tempfile.gettempdir())
    except OSError:  # neither TMPDIR nor the usual folders are writable
        places.append(os.environ.get("TMPDIR", "/tmp"))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):  # may be empty
        places.append(runtime)
    return list(dict.fromkeys([*places, *_SHORT]))
