"""Who may talk to a server: ZeroMQ asks before it lets a peer's message through (ZAP, RFC 27).

Over ipc a peer shows the run's token (mechanism PLAIN: it never leaves the machine, and the socket file is in a folder
that only this user may enter). Over tcp it proves that it holds the workers' CURVE key, and everything is encrypted.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import final

import zmq
from zmq.utils import z85

from dorylax.serverless.data import protocol
from dorylax.serverless.data.keys import RunKeys

ZAP_ADDRESS = "inproc://zeromq.zap.01"
_FRAMES_BEFORE_CREDENTIALS = 8
_FAILURES = (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
EVENTS = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_MONITOR_STOPPED
)
"""The events of a socket that `Handshakes` and `watch` need."""


def protect(socket: zmq.Socket[bytes], keys: RunKeys, transport: str) -> None:
    """Makes a server's socket ask for credentials, before it is bound.

    Raises:
        ValueError: for tcp, keys without the servers' secret.
    """
    socket.zap_domain = transport.encode("ascii")
    if transport == "ipc":
        socket.plain_server = 1
        return
    if keys.server_secret is None:
        raise ValueError("a server over tcp needs the servers' secret key, which RunKeys.to_json leaves out")
    socket.curve_server = 1
    socket.curve_secretkey = keys.server_secret


def identify(socket: zmq.Socket[bytes], keys: RunKeys, address: str) -> None:
    """Gives a worker's socket its credentials, before it is connected."""
    if address.startswith("ipc://"):
        socket.plain_username = protocol.USER
        socket.plain_password = keys.token.hex().encode("ascii")
        return
    socket.curve_serverkey = keys.server_public
    socket.curve_publickey = keys.worker_public
    socket.curve_secretkey = keys.worker_secret


def answer(request: Sequence[bytes], keys: RunKeys) -> tuple[list[bytes], str | None]:
    """Decides on a ZAP request.

    Args:
        request: its frames, the envelope's first.
        keys: of the run.

    Returns:
        The frames of the answer, and why the peer is refused; None if it is admitted.
    """
    reason = _reason(request, keys)
    status = (b"200", b"OK", protocol.USER) if reason is None else (b"400", b"not of this run", b"")
    return [*request[:2], b"1.0", request[3] if len(request) > 3 else b"", *status, b""], reason


def _reason(request: Sequence[bytes], keys: RunKeys) -> str | None:
    if len(request) < _FRAMES_BEFORE_CREDENTIALS or request[2] != b"1.0":
        return "a malformed request of ZAP"
    domain, address, mechanism = request[4], request[5], request[7]
    credentials = request[_FRAMES_BEFORE_CREDENTIALS:]
    if domain == b"ipc" and mechanism == b"PLAIN" and len(credentials) == 2:
        if hmac.compare_digest(credentials[1], keys.token.hex().encode("ascii")):
            return None
        return "a peer that does not know the run's token"
    if domain == b"tcp" and mechanism == b"CURVE" and len(credentials) == 1:
        if hmac.compare_digest(credentials[0], z85.decode(keys.worker_public)):
            return None
        return f"a peer at {address!r} that has not the run's key"
    return f"a peer at {address!r} that has no credentials"


@final
class Handshakes:
    """Infers from a socket's events that a peer was turned away before it could say anything.

    Refusals by `answer` are not reported again.
    """

    def __init__(self) -> None:
        self._outcomes = 0
        self._accepted: dict[int, int] = {}  # by file descriptor: outcomes until then

    def tell(self, event: int, value: int) -> str | None:
        """Why a peer was turned away, if this event shows it.

        Args:
            event: of `EVENTS`.
            value: what came with it: a file descriptor, of connections.
        """
        if event == zmq.EVENT_ACCEPTED:
            self._accepted[value] = self._outcomes
        elif event == zmq.EVENT_DISCONNECTED:
            # Events do not say whose handshake has ended. If none has since this peer came, its own has not.
            if self._accepted.pop(value, -1) == self._outcomes:
                return "a peer that left before it had introduced itself, or one of another kind"
        else:
            self._outcomes += 1
            if event in _FAILURES:
                return "a peer that has no credentials of this run, or another mechanism"
        return None
