"""Find ports for servers that must be told one."""

from __future__ import annotations

import random
import socket

_BELOW_EPHEMERAL = range(20_000, 32_000)
"""Linux gives ports from 32,768 up to clients, so none of them takes a port of this range between find and use."""


def unused_ports(count: int) -> list[int]:
    """Find so many different ports that nothing listens at on this machine."""
    found = []
    for port in random.SystemRandom().sample(_BELOW_EPHEMERAL, len(_BELOW_EPHEMERAL)):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    message = f"fewer than {count} ports of {_BELOW_EPHEMERAL} are unused"
    raise OSError(message)
