"""Whom a server turns away, that it keeps serving all others, and what closing leaves behind."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import zmq
from support.processes import until
from support.strangers import stranger

from dorylax.serverless.data import protocol
from dorylax.serverless.data.client import DataClient
from dorylax.serverless.data.errors import DataError
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.server import DataServer
from dorylax.serverless.wire import frames

ROOT = Path(__file__).parents[3]
ARRAY = np.arange(1000.0)


@pytest.fixture
def address(server):
    """Of an endpoint that offers ARRAY as "n"; checked to be still there when the test ends."""
    address = server.open("graph 0")
    server.offer(address, "n", [ARRAY])
    return address


@pytest.fixture
def still_serves(address, client):
    yield
    np.testing.assert_array_equal(client.get(address, "n")[0], ARRAY)


@pytest.fixture
def peer(peers, keys, address):
    return peers(keys, address)


def refused(server, caplog, text: str) -> None:
    """Waits for a line in the log."""
    until(lambda: text in caplog.text)
    assert server.counters.refused >= 1
    assert "refused at" in caplog.text


def impostors(keys):
    """Keys of which one thing is wrong."""
    other = RunKeys.make()
    return {
        "another run": dataclasses.replace(other, run=keys.run),
        "worker": dataclasses.replace(
            keys, token=other.token, worker_public=other.worker_public, worker_secret=other.worker_secret
        ),
    }


@pytest.mark.parametrize("which", ["another run", "worker"])
@pytest.mark.usefixtures("still_serves")
def test_a_worker_with_other_keys(server, address, keys, caplog, which):
    with (
        DataClient(impostors(keys)[which], timeout=0.5, attempts=1) as client,
        pytest.raises(DataError, match="of another run than the keys"),
    ):
        client.get(address, "n")
    wanted = "does not know the run's token" if address.startswith("ipc") else "has not the run's key"
    if which == "another run" and not address.startswith("ipc"):
        wanted = "no credentials of this run"  # it does not even know the server's key
    refused(server, caplog, wanted)
    assert server.counters.gets == 0


@pytest.mark.usefixtures("still_serves")
def test_a_peer_without_credentials(server, address, keys, caplog):
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.linger = 0
    peer.connect(address)
    fields = {"transfer": 1, "name": "n", "offer": 0, "first": 0, "count": 1}
    with contextlib.suppress(zmq.Again):  # it may have been turned away already
        peer.send_multipart(frames.encode(keys.run, protocol.GET, fields), zmq.NOBLOCK)
    refused(server, caplog, "has no credentials of this run, or another mechanism")
    assert not peer.poll(0)
    peer.close()
    context.term()
    assert server.counters.gets == 0


@pytest.mark.usefixtures("still_serves")
def test_a_peer_that_speaks_no_zeromq(server, address, caplog):
    with stranger(address) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
        raw.settimeout(30)
        try:
            while raw.recv(100):
                pass
        except ConnectionResetError:
            pass
    refused(server, caplog, "or one of another kind")


GET = {"transfer": 1, "name": "n", "offer": 0, "first": 0, "count": 1}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({**GET, "surprise": 1}, "unknown keys"),
        ({**GET, "transfer": 0}, "'transfer' must be"),
        ({**GET, "name": 7}, "'name' must be a text"),
        ({**GET, "name": "x" * 1000}, "at most 256 characters"),
        ({**GET, "first": 10**6}, "'first' must be below"),
        ({**GET, "count": 0}, "'count' must be"),
        ({}, "must have 'transfer'"),
    ],
)
@pytest.mark.usefixtures("still_serves")
def test_malformed_requests(server, address, peer, fields, reason):
    peer.say(protocol.GET, fields)
    assert reason in peer.refusal()
    assert server.counters.refused == 1


@pytest.mark.usefixtures("still_serves")
def test_malformed_frames(server, keys, peer):
    peer.send([b"nonsense"])
    assert peer.hear() == (protocol.DAMAGED, {})
    peer.send([b"\x88\xaa\x5e\xb4{}", b"", b""])  # neither
    assert peer.hear() == (protocol.DAMAGED, {})
    peer.say("dance", {"transfer": 1})
    assert "'kind' must be" in peer.refusal()
    peer.say(protocol.GET, GET, [ARRAY])
    assert "must have no tensors" in peer.refusal()
    peer.say(protocol.GET, GET, run="abc")
    assert f"this is run {keys.run}" in peer.refusal()
    assert server.counters.refused == 5
    assert server.counters.gets == 0
    peer.say(protocol.GET, GET)
    assert peer.hear()[0] == protocol.LAYOUT  # it is forgiven


@pytest.mark.usefixtures("still_serves")
def test_a_frame_that_is_too_long_is_never_read(server, peer):
    """ZeroMQ closes the connection when it reads the length; nothing of the message comes."""
    closed = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    try:
        peer.send([bytes(protocol.MAX_FRAME_BYTES + 1)])
        assert closed.poll(30_000), "it was read"
    finally:
        peer.socket.disable_monitor()
        closed.close()
    assert server.counters.refused == 0


def test_tcp_is_bound_to_this_machine_alone(servers, keys):
    assert servers(keys, transport="tcp").open("graph 0").startswith("tcp://127.0.0.1:")


def test_closing_leaves_nothing_and_may_be_repeated(nothing_left, keys, transport):
    before = threading.active_count()
    server = DataServer(keys, transport=transport)
    address = server.open("graph 0")
    server.open("parameters")
    server.offer(address, "n", [ARRAY])
    with DataClient(keys) as client:
        client.get(address, "n")
        server.close()
    assert not server._loop._watch._monitors  # all have said that they ended: it has not waited in vain
    server.close()
    assert list(nothing_left.iterdir()) == []
    assert threading.active_count() <= before + 1  # ZeroMQ's collector
    with pytest.raises(RuntimeError, match="the data server is closed"):
        server.open("another")


def test_closing_in_the_middle_of_transfers(nothing_left, keys, transport, peers):
    server = DataServer(keys, transport=transport)
    address = server.open("graph 0")
    server.expect(address, "r", lambda arrays: None)
    peer = peers(keys, address)
    layout = [{"dtype": "uint8", "shape": [5000]}]
    fields = {"transfer": 1, "name": "r", "chunk_bytes": 1024, "tensors": layout}
    peer.say(protocol.PUT, fields, [np.zeros(1024, np.uint8)])
    assert peer.hear()[0] == protocol.GRANT
    server.close()


def test_a_server_that_nobody_holds_is_closed(nothing_left, keys):
    server = DataServer(keys)
    server.open("graph 0")
    gone = weakref.ref(server)
    del server
    gc.collect()
    assert gone() is None
    assert list(nothing_left.iterdir()) == []


def test_a_program_that_forgets_to_close_ends_and_leaves_no_file(nothing_left):
    program = (
        "from dorylax.serverless.data.server import DataServer\n"
        "from dorylax.serverless.data.keys import RunKeys\n"
        "server = DataServer(RunKeys.make())\n"
        "print(server.open('graph 0'))\n"
    )
    environment = {**os.environ, "TMPDIR": str(nothing_left), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert str(nothing_left) in done.stdout
    assert done.stderr == ""
    assert list(nothing_left.iterdir()) == []


def test_workers_keys_make_no_server_over_tcp(nothing_left, keys):
    with pytest.raises(ValueError, match="needs the servers' secret key"):
        DataServer(RunKeys.from_json(keys.to_json()), transport="tcp")


def test_an_address_in_use_elsewhere(servers, keys):
    server = servers(keys, transport="tcp", host="192.0.2.1")  # TEST-NET-1: nobody's
    with pytest.raises(OSError, match="'graph 0' could not be bound"):
        server.open("graph 0")


def test_an_endpoint_that_is_none(servers, keys):
    server = servers(keys)
    with pytest.raises(ValueError, match="no data endpoint at 'x'"):
        server.offer("x", "n", [])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"credit": 0}, "credit must be"), ({"chunk_bytes": 1}, "chunk_bytes must be"), ({"max_bytes": 0}, "max_bytes")],
)
def test_settings_that_cannot_work(nothing_left, keys, options, message):
    with pytest.raises(ValueError, match=message):
        DataServer(keys, **options)
