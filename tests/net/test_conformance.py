"""One suite for hosts of the cluster and for external workers: who is turned away, and that all others are served."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq
from support.processes import until
from support.strangers import stranger

from dorylax.net import connections, frames, sockets
from dorylax.net.connections import Capacity
from dorylax.net.keys import CLUSTER, WORKERS, RunKeys
from dorylax.net.server import DataServer

ROOT = Path(__file__).parents[2]
STRANGERS, PEERS = 4, 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few connections may be there at a time."""
    monkeypatch.setattr(Capacity, "of", classmethod(lambda cls, limit: cls(STRANGERS, PEERS, 0)))


@pytest.fixture
def peer(echo):
    return echo.peer()


@pytest.fixture
def still_serves(echo) -> Iterator[None]:
    """Afterwards, a peer with the right keys is answered."""
    yield
    peer = echo.peer()
    peer.say(7, arrays=[np.arange(1000.0)])
    found = peer.hear()
    assert found is not None
    assert found[:3] == (7, ["get"], "n")
    np.testing.assert_array_equal(found.arrays[0], np.arange(1000.0))


def refused(echo, caplog, text: str) -> None:
    """Waits for a line in the log."""
    until(lambda: text in caplog.text)
    assert echo.refusals.count >= 1
    assert "refused at" in caplog.text


@contextlib.contextmanager
def strangers(address: str, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(stranger(address)) for _ in range(count)]


def ended(one: socket.socket) -> bool:
    """Whether the other end has closed it, or does so within a moment."""
    one.settimeout(0.05)
    try:
        while one.recv(100):  # ZeroMQ greets everybody
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@contextlib.contextmanager
def closing_of(peer) -> Iterator[zmq.Socket]:
    """A socket that tells of the end of the peer's connection."""
    closed = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    try:
        yield closed
    finally:
        peer.socket.disable_monitor()
        closed.close()


@pytest.mark.parametrize("which", ["another run", "the other trust", "secrets", "nothing"])
@pytest.mark.usefixtures("still_serves")
def test_peers_with_other_keys_are_not_answered(echo, peers, caplog, which):
    keys, trust, other = echo.keys, echo.trust, RunKeys.make()
    if trust is CLUSTER:
        mixed = dataclasses.replace(keys, server_public=keys.worker_public, server_secret=keys.worker_secret)
    else:
        worker = {"worker_public": other.worker_public, "worker_secret": other.worker_secret}
        mixed = dataclasses.replace(keys, token=other.token, **worker)
    peer = peers(
        {"another run": other, "the other trust": keys, "secrets": mixed, "nothing": None}[which],
        trust if which != "the other trust" else WORKERS if trust is CLUSTER else CLUSTER,
        echo.address,
    )
    peer.say()
    ipc = echo.address.startswith("ipc")
    knows_server = which == "the other trust" or (which == "secrets" and trust is WORKERS)
    wanted = "does not know the run's token" if ipc else "has not the run's key"
    refused(echo, caplog, wanted if which != "nothing" and (ipc or knows_server) else "no credentials of this run")
    assert peer.hear(100) is None


@pytest.mark.usefixtures("still_serves")
def test_a_peer_that_speaks_no_zeromq(echo, caplog):
    with stranger(echo.address) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
        raw.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            while raw.recv(100):
                pass
    refused(echo, caplog, "or one of another kind")


@pytest.mark.usefixtures("still_serves")
def test_malformed_messages_are_refused_and_the_peer_is_forgiven(echo, peer, caplog):
    """Each kind of them is in test_frames.py."""
    peer.send([b"nonsense"])
    refused(echo, caplog, "a message cannot be read")
    peer.say()
    assert peer.hear() is not None


@pytest.mark.usefixtures("still_serves")
def test_a_frame_that_is_too_long_is_never_read(echo, peer):
    """ZeroMQ closes the connection when it reads the length. Frames of the run's servers have no limit."""
    if echo.trust is CLUSTER:
        peer.say(arrays=[np.zeros(8 << 20, np.uint8)])
        assert peer.hear() is not None
        return
    with closing_of(peer) as closed:
        peer.send([bytes(WORKERS.frame_bytes + 1)])
        assert closed.poll(30_000), "it was read"
    assert echo.refusals.count == 0


@pytest.mark.usefixtures("few")
def test_of_too_many_strangers_the_oldest_are_cut_and_a_peer_gets_in(echo):
    with strangers(echo.address, 5 * STRANGERS) as found:
        until(lambda: sum(map(ended, found)) >= 4 * STRANGERS)
        assert [ended(one) for one in found] == [True] * 4 * STRANGERS + [False] * STRANGERS
        peer = echo.peer()
        for _ in range(2):
            peer.say()
            assert peer.hear() is not None
        assert len(echo.sockets.watch.connections) == STRANGERS  # for it, another one had to go
    assert echo.refusals.count >= 4 * STRANGERS


@pytest.mark.usefixtures("few")
def test_a_peer_that_speaks_is_never_cut_for_strangers(echo, peer):
    with closing_of(peer) as closed:
        peer.say()
        assert peer.hear() is not None
        with strangers(echo.address, 3 * STRANGERS) as found:
            until(lambda: sum(map(ended, found)) >= 2 * STRANGERS)
        assert not closed.poll(0)


@pytest.mark.usefixtures("few")
def test_of_too_many_peers_the_most_silent_are_cut(echo, caplog):
    for _ in range(2 * PEERS):
        peer = echo.peer()
        peer.say()
        assert peer.hear() is not None
    until(lambda: "the most silent one is cut" in caplog.text)


def test_who_does_not_introduce_himself_is_cut_in_time(echoes, keys, trust, kind, monkeypatch):
    monkeypatch.setattr(sockets, "HANDSHAKE_SECONDS", 0.2)
    echo = echoes(keys, trust, kind)
    with strangers(echo.address, 1) as found:
        until(lambda: ended(found[0]))
        until(lambda: len(echo.sockets.watch.connections) == 0)


@pytest.mark.usefixtures("few")
def test_cutting_takes_no_descriptor(echo, monkeypatch):
    """There may be none."""
    with strangers(echo.address, STRANGERS) as found:
        until(lambda: len(echo.sockets.watch.connections) == STRANGERS)
        monkeypatch.setattr(os, "dup", lambda number: pytest.fail("a descriptor was taken"))
        with strangers(echo.address, 1):
            until(lambda: ended(found[0]))


def test_a_descriptor_that_is_something_else_by_now_is_left_alone(tmp_path):
    """Another connection, a file, or nothing: only a socket that was accepted at the address is shut down."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        address, elsewhere = (f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in (listener, other))
        mine = stranger(address)
        accepted = listener.accept()[0]
        with mine, accepted, (tmp_path / "file").open("w") as file:
            connections._shut_down(accepted.fileno(), elsewhere)
            connections._shut_down(mine.fileno(), address)
            accepted.sendall(b"still there")
            assert mine.recv(100) == b"still there"
            with pytest.raises(OSError, match="non-socket"):
                connections._shut_down(file.fileno(), address)
            file.write("still there")
            connections._shut_down(accepted.fileno(), address)
            assert mine.recv(100) == b""


@pytest.mark.parametrize("silent", [False, True])
def test_closing_in_the_middle_of_transfers_leaves_nothing(nothing_left, echo, silent):
    """Also while peers do not read, and a second time."""
    before = threading.active_count() - 1  # without the echo's own thread
    peer = echo.peer()
    peer.say(arrays=[np.zeros(16 << 20, np.uint8)])
    if not silent:
        assert peer.hear() is not None
    echo.close()
    assert not echo.sockets.watch._monitors  # all have said that they ended: it has not waited in vain
    echo.sockets.close()
    assert list(nothing_left.iterdir()) == []
    assert threading.active_count() <= before + 1  # ZeroMQ's collector


def test_strangers_who_come_and_go_while_it_closes_do_not_keep_it_from_that(nothing_left, kind):
    """ZeroMQ's thread waits for its events to be read, with a lock that stopping them needs: whoever asks for that with
    Python's lock held stops everything, so it is asked in a process of its own."""
    program = (
        "import socket, sys, threading, time\n"
        "from dorylax.net.keys import RunKeys\n"
        "from dorylax.net.server import DataServer\n"
        f"server = DataServer(RunKeys.make(), transport={kind!r})\n"
        "kind, place = server.open('graph 0').address.split('://')\n"
        "if kind == 'tcp':\n"
        "    place = (place.split(':')[0], int(place.split(':')[1]))\n"
        "busy, over = threading.Event(), threading.Event()\n"
        "server._loop.call_soon_threadsafe(lambda: (busy.set(), time.sleep(1.5), over.set()))\n"
        "busy.wait()\n"
        "found = []\n"
        "while not over.is_set():\n"
        "    found.append(socket.socket(socket.AF_INET if kind == 'tcp' else socket.AF_UNIX))\n"
        "    found[-1].setblocking(False)\n"
        "    found[-1].connect_ex(place)\n"
        "    if len(found) > 50:\n"
        "        found.pop(0).close()\n"
        "server.close()\n"
        "print('closed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(nothing_left), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "closed\n"


def test_a_server_over_tcp_needs_the_servers_secret(nothing_left, keys):
    with pytest.raises(ValueError, match="needs the servers' secret key"):
        DataServer(RunKeys.from_json(keys.to_json()), transport="tcp")


def test_an_address_in_use_elsewhere(echo):
    echo.sockets._place, echo.sockets._kind = "tcp://192.0.2.1:*", "tcp"  # TEST-NET-1: nobody's
    with pytest.raises(OSError, match="'graph 0' could not be bound"):
        echo.sockets.bind("graph 0", "0", lambda *_: None)


def test_a_bundle_of_two_messages_is_read(echo, peer):
    peer.send(frames.bundle([frames.letter(1, ["get"], "n"), frames.letter(2, ["get"], "m")]))
    until(lambda: peer.socket.poll(0))
    assert [one.number for one in frames.opened(peer.socket.recv_multipart()).messages] == [1, 2]
