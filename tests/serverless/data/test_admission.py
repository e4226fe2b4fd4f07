"""Who is let in, decided without sockets."""

from __future__ import annotations

import pytest
import zmq
from zmq.utils import z85

from dorylax.serverless.data.admission import Handshakes, answer
from dorylax.serverless.data.keys import RunKeys

KEYS = RunKeys.make()
TOKEN = KEYS.token.hex().encode()
CURVE = z85.decode(KEYS.worker_public)
OTHER = z85.decode(KEYS.server_public)


def request(domain: bytes, mechanism: bytes, *credentials: bytes, version: bytes = b"1.0") -> list[bytes]:
    return [b"peer", b"", version, b"17", domain, b"127.0.0.1", b"", mechanism, *credentials]


@pytest.mark.parametrize(
    "asked", [request(b"ipc", b"PLAIN", b"dorylax", TOKEN), request(b"tcp", b"CURVE", CURVE)], ids=["ipc", "tcp"]
)
def test_who_has_the_keys_is_admitted(asked):
    assert answer(asked, KEYS) == ([b"peer", b"", b"1.0", b"17", b"200", b"OK", b"dorylax", b""], None)


@pytest.mark.parametrize(
    "asked",
    [
        request(b"ipc", b"PLAIN", b"dorylax", TOKEN[:-1]),
        request(b"ipc", b"PLAIN", b"dorylax", b""),
        request(b"ipc", b"PLAIN", b"dorylax", RunKeys.make().token.hex().encode()),
        request(b"ipc", b"PLAIN", b"dorylax"),
        request(b"ipc", b"NULL"),
        request(b"ipc", b"CURVE", CURVE),
        request(b"tcp", b"CURVE", OTHER),
        request(b"tcp", b"CURVE"),
        request(b"tcp", b"PLAIN", b"dorylax", TOKEN),
        request(b"tcp", b"NULL"),
        request(b"", b"PLAIN", b"dorylax", TOKEN),
        request(b"ipc", b"PLAIN", b"dorylax", TOKEN, version=b"2.0"),
        [b"peer", b"", b"1.0"],
    ],
)
def test_everybody_else_is_not(asked):
    frames, reason = answer(asked, KEYS)
    assert frames[4] == b"400"
    assert TOKEN.decode() not in reason


def test_a_peer_that_leaves_without_a_handshake_is_told_of():
    handshakes = Handshakes()
    assert handshakes.tell(zmq.EVENT_ACCEPTED, 5) is None
    assert "before it had introduced itself" in (handshakes.tell(zmq.EVENT_DISCONNECTED, 5) or "")


def test_a_worker_that_leaves_after_its_handshake_is_not():
    handshakes = Handshakes()
    handshakes.tell(zmq.EVENT_ACCEPTED, 5)
    handshakes.tell(zmq.EVENT_HANDSHAKE_SUCCEEDED, 0)
    handshakes.tell(zmq.EVENT_ACCEPTED, 6)
    assert handshakes.tell(zmq.EVENT_DISCONNECTED, 5) is None
    # The descriptor is used again.
    handshakes.tell(zmq.EVENT_ACCEPTED, 5)
    assert handshakes.tell(zmq.EVENT_DISCONNECTED, 5) is not None


def test_what_fails_is_told_of_once():
    """A refusal of a token or a key has its own line already."""
    handshakes = Handshakes()
    handshakes.tell(zmq.EVENT_ACCEPTED, 5)
    assert handshakes.tell(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, 0) is not None
    assert handshakes.tell(zmq.EVENT_DISCONNECTED, 5) is None
    handshakes.tell(zmq.EVENT_ACCEPTED, 5)
    assert handshakes.tell(zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400) is None
    assert handshakes.tell(zmq.EVENT_DISCONNECTED, 5) is None
