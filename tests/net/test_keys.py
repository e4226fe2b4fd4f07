"""Keys travel to workers without the servers' secret, show none in logs, and decide who is let in."""

from __future__ import annotations

import dataclasses
import json

import pytest
import zmq
from zmq.utils import z85

from dorylax.net.connections import Handshakes
from dorylax.net.keys import CLUSTER, WORKERS, RunKeys, answer

KEYS = RunKeys.make()
TOKEN = {trust: KEYS.password(trust) for trust in (CLUSTER, WORKERS)}
CURVE = {trust: z85.decode(KEYS.public(trust)) for trust in (CLUSTER, WORKERS)}
OTHER = {CLUSTER: WORKERS, WORKERS: CLUSTER}


def request(domain: bytes, mechanism: bytes, *credentials: bytes, version: bytes = b"1.0") -> list[bytes]:
    return [b"peer", b"", version, b"17", domain, b"127.0.0.1", b"", mechanism, *credentials]


def test_workers_get_all_but_the_servers_secret():
    keys = RunKeys.make()
    text = keys.to_json()
    assert "\n" not in text
    assert keys.server_secret.decode() not in text
    assert RunKeys.from_json(text) == dataclasses.replace(keys, server_secret=None)
    with pytest.raises(ValueError, match="needs the servers' secret"):
        RunKeys.from_json(text).password(CLUSTER)


def test_runs_have_different_keys():
    one, other = RunKeys.make(), RunKeys.make()
    for name in (field.name for field in dataclasses.fields(RunKeys)):
        assert getattr(one, name) != getattr(other, name)


def test_no_secret_is_shown():
    keys = RunKeys.make()
    for text in (repr(keys), str(keys), f"{keys}"):
        assert keys.run in text
        for secret in (keys.token, keys.worker_secret, keys.server_secret):
            assert repr(secret) not in text
            assert secret.hex() not in text


@pytest.mark.parametrize(
    "change", [{"token": "ab"}, {"token": 7}, {"run": ""}, {"run": "x"}, {"worker_secret": "short"}]
)
def test_damaged_keys_are_refused_without_showing_them(change):
    text = json.dumps({**json.loads(KEYS.to_json()), **change})
    with pytest.raises(ValueError, match="not the keys of a run") as caught:
        RunKeys.from_json(text)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
def test_what_is_no_keys_at_all(text):
    with pytest.raises(ValueError, match="not the keys of a run"):
        RunKeys.from_json(text)


def test_who_has_the_keys_is_admitted(trust):
    for asked in (request(b"ipc", b"PLAIN", b"dorylax", TOKEN[trust]), request(b"tcp", b"CURVE", CURVE[trust])):
        admitted = [b"peer", b"", b"1.0", b"17", b"200", b"OK", b"dorylax", b""]
        assert answer(asked, KEYS, trust) == (admitted, None)


def test_everybody_else_is_not(trust):
    token, curve = TOKEN[trust], CURVE[trust]
    for asked in (
        request(b"ipc", b"PLAIN", b"dorylax", token[:-1]),
        request(b"ipc", b"PLAIN", b"dorylax", b""),
        request(b"ipc", b"PLAIN", b"dorylax", RunKeys.make().password(trust)),
        request(b"ipc", b"PLAIN", b"dorylax", TOKEN[OTHER[trust]]),
        request(b"ipc", b"PLAIN", b"dorylax"),
        request(b"ipc", b"NULL"),
        request(b"ipc", b"CURVE", curve),
        request(b"tcp", b"CURVE", CURVE[OTHER[trust]]),
        request(b"tcp", b"CURVE"),
        request(b"tcp", b"PLAIN", b"dorylax", token),
        request(b"tcp", b"NULL"),
        request(b"", b"PLAIN", b"dorylax", token),
        request(b"ipc", b"PLAIN", b"dorylax", token, version=b"2.0"),
        [b"peer", b"", b"1.0"],
    ):
        frames, reason = answer(asked, KEYS, trust)
        assert frames[4] == b"400", asked
        assert token.decode() not in reason


def test_a_peer_that_leaves_without_a_handshake_is_told_of():
    handshakes = Handshakes("", "")
    assert handshakes.tell(zmq.EVENT_ACCEPTED, 5) is None
    assert "before it had introduced itself" in (handshakes.tell(zmq.EVENT_DISCONNECTED, 5) or "")


def test_a_worker_that_leaves_after_its_handshake_is_not():
    handshakes = Handshakes("", "")
    handshakes.tell(zmq.EVENT_ACCEPTED, 5)
    handshakes.tell(zmq.EVENT_HANDSHAKE_SUCCEEDED, 0)
    handshakes.tell(zmq.EVENT_ACCEPTED, 6)
    assert handshakes.tell(zmq.EVENT_DISCONNECTED, 5) is None
    # The descriptor is used again.
    handshakes.tell(zmq.EVENT_ACCEPTED, 5)
    assert handshakes.tell(zmq.EVENT_DISCONNECTED, 5) is not None


def test_what_fails_is_told_of_once():
    """A refusal of a token or a key has its own line already."""
    handshakes = Handshakes("", "")
    handshakes.tell(zmq.EVENT_ACCEPTED, 5)
    assert handshakes.tell(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, 0) is not None
    assert handshakes.tell(zmq.EVENT_DISCONNECTED, 5) is None
    handshakes.tell(zmq.EVENT_ACCEPTED, 5)
    assert handshakes.tell(zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400) is None
    assert handshakes.tell(zmq.EVENT_DISCONNECTED, 5) is None
