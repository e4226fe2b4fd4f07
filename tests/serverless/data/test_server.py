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

from dorylax.serverless.data import messages
from dorylax.serverless.data.client import DataClient
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.messages import Header
from dorylax.serverless.data.server import DataServer
from dorylax.serverless.wire.errors import TaskFailedError

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
        pytest.raises(TaskFailedError, match="of another run than the keys"),
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
    with contextlib.suppress(zmq.Again):  # it may have been turned away already
        peer.send_multipart([Header(keys.run, messages.GET, 1, "n", ()).encode()], zmq.NOBLOCK)
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


@pytest.mark.usefixtures("still_serves")
def test_malformed_messages(server, keys, peer):
    """Each kind of them is in test_endpoint.py; the peer is forgiven."""
    peer.send([b"nonsense"])
    assert peer.hear()[1:3] == (messages.REFUSED, 0)
    peer.say(messages.GET, "n", run="abc")
    assert f"this is run {keys.run}" in peer.hear().text
    assert server.counters.refused == 2
    assert server.counters.gets == 0
    peer.say(messages.GET, "n")
    assert peer.hear().kind == messages.TENSORS


@pytest.mark.usefixtures("still_serves")
def test_a_frame_that_is_too_long_is_never_read(server, peer):
    """ZeroMQ closes the connection when it reads the length; nothing of the message comes."""
    closed = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    try:
        peer.send([bytes(messages.FRAME_BYTES + 1)])
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
    server.offer(address, "n", [np.zeros(16 << 20, np.uint8)])
    peer = peers(keys, address)
    peer.say(messages.GET, "n")
    assert peer.hear().kind == messages.COMING
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


def test_settings_that_cannot_work(nothing_left, keys):
    with pytest.raises(ValueError, match="max_bytes must be at least 1, got 0"):
        DataServer(keys, max_bytes=0)
