"""The keys of a run, created at its start and never written to a file."""

from __future__ import annotations

import dataclasses
import json
import secrets
from typing import final

import zmq

_RUN_BYTES = 8
_TOKEN_BYTES = 32
_CURVE_CHARACTERS = 40  # 32 bytes in Z85


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
        server_public, server_secret = zmq.curve_keypair()
        worker_public, worker_secret = zmq.curve_keypair()
        return cls(
            secrets.token_hex(_RUN_BYTES),
            secrets.token_bytes(_TOKEN_BYTES),
            server_public,
            worker_public,
            worker_secret,
            server_secret,
        )

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
            return cls(
                run=fields["run"],
                token=bytes.fromhex(fields["token"]),
                server_public=fields["server_public"].encode("ascii"),
                worker_public=fields["worker_public"].encode("ascii"),
                worker_secret=fields["worker_secret"].encode("ascii"),
                server_secret=None,
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # Without the cause, whose text may contain a key.
            raise ValueError("these are not the keys of a run: pass on what RunKeys.to_json gave, unchanged") from None
