"""Peers that know no ZeroMQ."""

from __future__ import annotations

import socket


def stranger(address: str) -> socket.socket:
    """A connection to an endpoint, `ipc://…` or `tcp://…`, that has said nothing yet."""
    if address.startswith("ipc"):
        one = socket.socket(socket.AF_UNIX)
        one.connect(address.removeprefix("ipc://"))
        return one
    host, port = address.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)))
