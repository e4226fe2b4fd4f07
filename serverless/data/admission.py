"""Authentication of a server's peers by ZeroMQ's authentication protocol (ZAP, RFC 27).

Over ipc a peer presents the run's token (mechanism PLAIN; the token stays on the machine, in a folder that only this user
can enter). Over tcp it proves possession of the workers' CURVE key, and all traffic is encrypted.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import final

import zmq
from zmq.utils import z85

from dorylax.serverless.data.keys import RunKeys

ZAP_ADDRESS = "inproc://zeromq.zap.01"
USER = b"dorylax"
"""The user name of workers over ipc; the token is the password."""

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
"""Socket events for `Handshakes` and `watch`."""


def protect(socket: zmq.Socket[bytes], keys: RunKeys, transport: str) -> None:
    """Require credentials on a server's socket. Call it before binding.

    Raises:
        ValueError: For tcp, the keys lack the servers' secret.
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
    """Set the credentials of a worker's socket. Call it before connecting."""
    if address.startswith("ipc://"):
        socket.plain_username = USER
        socket.plain_password = keys.token.hex().encode("ascii")
        return
    socket.curve_serverkey = keys.server_public
    socket.curve_publickey = keys.worker_public
    socket.curve_secretkey = keys.worker_secret


def answer(request: Sequence[bytes], keys: RunKeys) -> tuple[list[bytes], str | None]:
    """Decide a ZAP request.

    Args:
        request: Frames of the request, starting with the envelope.
        keys: Keys of the run.

    Returns:
        Frames of the reply, and the reason of a refusal; None for an admitted peer.
    """
    reason = _reason(request, keys)
    status = (b"200", b"OK", USER) if reason is None else (b"400", b"not of this run", b"")
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
    """Detects from a socket's events that a peer was refused before its first message.

    Refusals by `answer` are not reported again.
    """

    def __init__(self) -> None:
        self._outcomes = 0
        self._accepted: dict[int, int] = {}  # file descriptor -> number of outcomes at its acceptance

    def tell(self, event: int, value: int) -> str | None:
        """Return the reason of a refusal if this event shows one.

        Args:
            event: One of `EVENTS`.
            value: Value of the event: a file descriptor for connections.
        """
        if event == zmq.EVENT_ACCEPTED:
            self._accepted[value] = self._outcomes
        elif event == zmq.EVENT_DISCONNECTED:
            # Handshake events name no peer. Without one since this peer's acceptance, its handshake has not ended.
            if self._accepted.pop(value, -1) == self._outcomes:
                return "a peer that left before it had introduced itself, or one of another kind"
        else:
            self._outcomes += 1
            if event in _FAILURES:
                return "a peer that has no credentials of this run, or another mechanism"
        return None
