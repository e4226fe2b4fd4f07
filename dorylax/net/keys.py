"""Credentials of a run, created at its start and never written to a file, and their check by ZeroMQ (ZAP, RFC 27).

A peer of a socket is either a server of the run or an external worker (`Trust`). Over ipc it presents a token (mechanism
PLAIN; the token stays on the machine, in a folder that only this user can enter). Over tcp it proves possession of a CURVE
key, and all traffic is encrypted.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import secrets
from collections.abc import Sequence
from typing import Literal, NamedTuple, final

import zmq
from zmq.utils import z85

Kind = Literal["ipc", "tcp"]

USER = b"dorylax"
"""The user name of peers over ipc; the token is the password."""

_RUN_BYTES = 8
_TOKEN_BYTES = 32
_CURVE_CHARACTERS = 40  # 32 bytes in Z85
_FRAMES_BEFORE_CREDENTIALS = 8


@final
class Trust(NamedTuple):
    """Trust in the peers of a socket: the credentials that they need, and the limits of their messages.

    Attributes:
        servers: Whether peers must hold the servers' secret; otherwise they need the workers' keys.
        frame_bytes: Limit of a received frame in bytes; -1: no limit. ZeroMQ disconnects peers that exceed it before it
            allocates memory.
        backlog: Limit of messages queued per peer and direction; 0: no limit.
        heartbeat_ms: Interval of ZeroMQ's heartbeats.
    """

    servers: bool
    frame_bytes: int
    backlog: int
    heartbeat_ms: int


CLUSTER = Trust(servers=True, frame_bytes=-1, backlog=0, heartbeat_ms=5_000)
"""Hosts of the run. The bytes in flight between them are bounded by intervals that wait for replies."""

WORKERS = Trust(servers=False, frame_bytes=1 << 22, backlog=64, heartbeat_ms=10_000)
"""External workers, which may be faulty and of another release."""


@final
@dataclasses.dataclass(frozen=True)
class RunKeys:
    """Credentials of the servers and workers of one run.

    Attributes:
        run: Id of the run, hexadecimal digits; not secret.
        token: Token of workers for ipc.
        server_public, worker_public: CURVE keys for tcp, in Z85.
        worker_secret: Secret key of workers.
        server_secret: Secret key of servers; None in the workers' copy.
    """

    run: str
    token: bytes = dataclasses.field(repr=False)
    server_public: bytes
    worker_public: bytes
    worker_secret: bytes = dataclasses.field(repr=False)
    server_secret: bytes | None = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        if not self.run or set(self.run) - set("0123456789abcdef"):
            raise ValueError(f"the run's id must be hexadecimal digits, got {self.run!r}")
        if len(self.token) != _TOKEN_BYTES:
            raise ValueError(f"the token must have {_TOKEN_BYTES} bytes, got {len(self.token)}")
        for name in ("server_public", "worker_public", "worker_secret", "server_secret"):
            key = getattr(self, name)
            if key is not None and len(key) != _CURVE_CHARACTERS:
                raise ValueError(f"{name} must have {_CURVE_CHARACTERS} characters, got {len(key)}")

    @classmethod
    def make(cls) -> RunKeys:
        """Create new keys."""
        server, worker = zmq.curve_keypair(), zmq.curve_keypair()
        return cls(secrets.token_hex(_RUN_BYTES), secrets.token_bytes(_TOKEN_BYTES), server[0], *worker, server[1])

    def to_json(self) -> str:
        """Return the workers' keys as one line of JSON for a private channel, without the servers' secret."""
        return json.dumps(
            {
                "run": self.run,
                "token": self.token.hex(),
                "server_public": self.server_public.decode("ascii"),
                "worker_public": self.worker_public.decode("ascii"),
                "worker_secret": self.worker_secret.decode("ascii"),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> RunKeys:
        """Return the keys written by `to_json`.

        Raises:
            ValueError: The text is invalid. The message omits it, because it may hold secrets.
        """
        try:
            fields = json.loads(text)
            names = ("server_public", "worker_public", "worker_secret")
            curve = {name: fields[name].encode("ascii") for name in names}
            return cls(run=fields["run"], token=bytes.fromhex(fields["token"]), **curve, server_secret=None)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # Without the cause, whose text may contain a key.
            raise ValueError("these are not the keys of a run: pass on what RunKeys.to_json gave, unchanged") from None

    def secret(self) -> bytes:
        """Return the servers' secret key.

        Raises:
            ValueError: These are the workers' keys.
        """
        if self.server_secret is None:
            raise ValueError("a server over tcp needs the servers' secret key, which RunKeys.to_json leaves out")
        return self.server_secret

    def password(self, trust: Trust) -> bytes:
        """Return the token that peers present over ipc; servers derive theirs from their secret."""
        return (hmac.digest(self.secret(), USER, "sha256") if trust.servers else self.token).hex().encode("ascii")

    def public(self, trust: Trust) -> bytes:
        """Return the public CURVE key of peers, in Z85."""
        return self.server_public if trust.servers else self.worker_public


def protect(socket: zmq.Socket[bytes], keys: RunKeys, kind: Kind) -> None:
    """Require credentials on a server's socket. Call it before binding.

    Raises:
        ValueError: For tcp, the keys lack the servers' secret.
    """
    socket.zap_domain = kind.encode("ascii")
    if kind == "ipc":
        socket.plain_server = 1
        return
    socket.curve_server = 1
    socket.curve_secretkey = keys.secret()


def identify(socket: zmq.Socket[bytes], keys: RunKeys, trust: Trust, address: str) -> None:
    """Set the credentials of a socket that connects to an address, as a peer with this trust. Call it before connecting.

    Raises:
        ValueError: The peer is a server, but the keys lack the servers' secret.
    """
    if address.startswith("ipc://"):
        socket.plain_username, socket.plain_password = USER, keys.password(trust)
        return
    socket.curve_serverkey, socket.curve_publickey = keys.server_public, keys.public(trust)
    socket.curve_secretkey = keys.secret() if trust.servers else keys.worker_secret


def answer(request: Sequence[bytes], keys: RunKeys, trust: Trust) -> tuple[list[bytes], str | None]:
    """Decide a ZAP request.

    Args:
        request: Frames of the request, starting with the envelope.
        keys: Keys of the run.
        trust: Trust that admitted peers need.

    Returns:
        Frames of the reply, and the reason of a refusal; None for an admitted peer.
    """
    reason = _refusal(request, keys, trust)
    status = (b"200", b"OK", USER) if reason is None else (b"400", b"not of this run", b"")
    return [*request[:2], b"1.0", request[3] if len(request) > 3 else b"", *status, b""], reason


def _refusal(request: Sequence[bytes], keys: RunKeys, trust: Trust) -> str | None:
    if len(request) < _FRAMES_BEFORE_CREDENTIALS or request[2] != b"1.0":
        return "a malformed request of ZAP"
    domain, address, mechanism = request[4], request[5], request[7]
    match domain, mechanism, *request[_FRAMES_BEFORE_CREDENTIALS:]:
        case b"ipc", b"PLAIN", _, token:
            fits = hmac.compare_digest(token, keys.password(trust))
            return None if fits else "a peer that does not know the run's token"
        case b"tcp", b"CURVE", key:
            fits = hmac.compare_digest(key, z85.decode(keys.public(trust)))
            return None if fits else f"a peer at {address!r} that has not the run's key"
    return f"a peer at {address!r} that has no credentials"
