"""The data thread with all sockets of a server. `endpoint` and `admission` decide the replies."""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal, TypeVar, final

import zmq

from dorylax.own_folder import OwnFolder
from dorylax.serverless.data import admission, messages
from dorylax.serverless.data.connections import HANDSHAKE_SECONDS, Capacity
from dorylax.serverless.data.endpoint import Endpoint, Reply
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.refusals import Refusals
from dorylax.serverless.data.watch import Watch

T = TypeVar("T")

_WAKE = "inproc://wake"
_TURN = 64  # messages of one socket per round
_BACKLOG = 64  # messages queued per peer and direction
_HEARTBEAT_MS = 10_000
_LOG = logging.getLogger("dorylax.data")


@final
class Loop:
    """The thread and its sockets. The constructor starts the thread.

    Args:
        keys: Keys of the run.
        transport: "ipc" or "tcp".
        host: For tcp: the interface to listen on.
        folder: For ipc: folder of socket files, removed by `stop`.
        refusals: Receives refused peers.
        capacity: Limits of connections.
        sent: Called with the bytes of sent tensors.
    """

    def __init__(
        self,
        keys: RunKeys,
        transport: Literal["ipc", "tcp"],
        *,
        host: str,
        folder: OwnFolder | None,
        refusals: Refusals,
        capacity: Capacity,
        sent: Callable[[int], None],
    ) -> None:
        self._keys = keys
        self._transport = transport
        self._host = host
        self._folder = folder
        self._refusals = refusals
        self._sent = sent
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._watch = Watch(self._context, capacity, refusals)
        self._poller = zmq.Poller()
        self._readers: dict[zmq.Socket[bytes], Callable[[], None]] = {}
        self._routers: dict[zmq.Socket[bytes], Endpoint] = {}
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopping = False
        # Starting a thread makes it safe to pass sockets to it.
        self._woken = self._context.socket(zmq.PULL)
        self._woken.bind(_WAKE)
        self._waker = self._context.socket(zmq.PUSH)
        self._waker.connect(_WAKE)
        self._zap = self._context.socket(zmq.ROUTER)
        self._zap.bind(admission.ZAP_ADDRESS)
        self._listen(self._woken, self._obey)
        self._listen(self._zap, self._admit)
        self._ended = False
        # A daemon, so that a program without `stop` can end; `stop` runs at exit.
        self._thread = threading.Thread(target=self._run, name="dorylax data", daemon=True)
        self._thread.start()

    def do(self, action: Callable[[], T]) -> T:
        """Run a function in the data thread and return its result.

        Raises:
            RuntimeError: The server is closed.
        """
        future: Future[T] = Future()

        def act() -> None:
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            if self._stopping:
                raise RuntimeError("the data server is closed")
            self._command(act)
        return future.result()

    def open(self, endpoint: Endpoint, number: int) -> str:
        """Bind a socket for an endpoint and return its address. Runs in the data thread."""
        router = self._context.socket(zmq.ROUTER)
        try:
            router.linger = 0
            router.router_mandatory = 1
            router.maxmsgsize = messages.FRAME_BYTES
            router.sndhwm = router.rcvhwm = _BACKLOG
            admission.protect(router, self._keys, self._transport)
            router.handshake_ivl = int(HANDSHAKE_SECONDS * 1000)
            router.heartbeat_ivl = _HEARTBEAT_MS
            router.bind(f"tcp://{self._host}:*" if self._folder is None else f"ipc://{self._folder.path}/{number}")
            address = str(router.get_string(zmq.LAST_ENDPOINT))
            monitor = self._watch.start(router, endpoint.label, address)  # before any worker learns the address
        except BaseException:
            router.close()
            raise
        self._routers[router] = endpoint
        self._listen(router, lambda: self._read(router, endpoint, monitor))
        self._listen(monitor, lambda: self._watch.read(monitor))
        return address

    def stop(self) -> None:
        """Stop the thread and close all sockets. A second call does nothing."""
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._command(self._end)
        if threading.current_thread() is not self._thread:  # the data thread may drop the last reference to a server
            self._thread.join()

    def _command(self, action: Callable[[], None]) -> None:
        self._commands.put(action)
        self._waker.send(b"")

    def _end(self) -> None:
        self._ended = True

    def _listen(self, socket: zmq.Socket[bytes], reader: Callable[[], None]) -> None:
        self._poller.register(socket, zmq.POLLIN)
        self._readers[socket] = reader

    def _run(self) -> None:
        try:
            while not self._ended:
                for socket, _ in self._poller.poll():
                    for _ in range(_TURN):
                        try:
                            self._readers[socket]()
                        except zmq.Again:
                            break
                        except Exception:
                            # A failing message must not stop the service.
                            _LOG.exception("a message could not be handled")
                self._watch.cut_surplus()
        finally:
            self._close()

    def _close(self) -> None:
        for socket in (*self._routers, self._zap, self._woken, self._waker):  # without authentication, peers disconnect
            socket.close(linger=0)
        self._watch.close()
        self._context.term()
        if self._folder is not None:
            self._folder.remove()

    def _obey(self) -> None:
        self._woken.recv(zmq.NOBLOCK)
        with contextlib.suppress(queue.Empty):
            self._commands.get_nowait()()

    def _admit(self) -> None:
        frames, reason = admission.answer(self._zap.recv_multipart(zmq.NOBLOCK), self._keys)
        self._zap.send_multipart(frames)
        if reason is not None:
            self._refusals.add("the door", reason)

    def _read(self, router: zmq.Socket[bytes], endpoint: Endpoint, monitor: zmq.Socket[bytes]) -> None:
        peer, *message = router.recv_multipart(zmq.NOBLOCK, copy=False)
        self._watch.heard(monitor, peer)
        for reply in endpoint.handle([frame.buffer for frame in message]):
            if not self._send(router, endpoint, peer.bytes, reply):
                break

    def _send(self, router: zmq.Socket[bytes], endpoint: Endpoint, peer: bytes, reply: Reply) -> bool:
        parts: list[Any] = [peer, *reply.frames]
        try:
            router.send_multipart(parts, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._refusals.add(endpoint.label, "a worker that asks for more than it reads; it will have to ask again")
            return False
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            _LOG.info("%s: a worker is gone, its reply is dropped", endpoint.label)
            return False
        self._sent(reply.nbytes)
        return True
