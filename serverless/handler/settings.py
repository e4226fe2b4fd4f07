"""Settings of a sandbox, sent before its first event as one line of JSON over a private channel."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import final

from dorylax.net.keys import RunKeys
from dorylax.net.link import Link

JaxSetting = bool | int | float | str | None


@final
@dataclasses.dataclass(frozen=True)
class SandboxSettings:
    """Settings of a sandbox.

    Attributes:
        keys: Credentials for servers.
        link: Simulated link; None: full speed.
        cold_start_seconds: Extra start time in seconds, ≥ 0.
        jax: Settings of `jax.config` that change the results of stages, such as "jax_enable_x64".

    Raises:
        ValueError: `cold_start_seconds` is negative or not finite.
    """

    keys: RunKeys
    link: Link | None = None
    cold_start_seconds: float = 0.0
    jax: Mapping[str, JaxSetting] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.cold_start_seconds < math.inf:
            raise ValueError(f"cold_start_seconds must be finite and ≥ 0, got {self.cold_start_seconds}")

    def to_line(self) -> bytes:
        """Return one line of JSON, which holds keys."""
        document = {
            "keys": self.keys.to_json(),
            "link": None if self.link is None else dataclasses.asdict(self.link),
            "cold_start_seconds": self.cold_start_seconds,
            "jax": dict(self.jax),
        }
        return json.dumps(document).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> SandboxSettings:
        """Return the settings written by `to_line`."""
        document = json.loads(line)
        return cls(
            keys=RunKeys.from_json(document["keys"]),
            link=None if document["link"] is None else Link(**document["link"]),
            cold_start_seconds=document["cold_start_seconds"],
            jax=document["jax"],
        )
