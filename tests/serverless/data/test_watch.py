"""Servers whose connections are watched: strangers and idle peers are cut, workers get in, and closing never waits."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq
from support.processes import until
from support.strangers import stranger

from dorylax.serverless.data import loop as loop_module
from dorylax.serverless.data import messages, watch
from dorylax.serverless.data.connections import Capacity
from dorylax.serverless.data.server import DataServer

ROOT = Path(__file__).parents[3]
ARRAY = np.arange(1000.0)
STRANGERS, PEERS = 4, 3


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few connections may be there at a time."""
    monkeypatch.setattr(Capacity, "of", classmethod(lambda cls, limit: cls(STRANGERS, PEERS, 0)))


@pytest.fixture
def address(server: DataServer) -> str:
    address = server.open("graph 0")
    server.offer(address, "n", [ARRAY])
    return address


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


def test_of_too_many_strangers_the_oldest_are_cut_and_a_worker_gets_in(server, address, client):
    with strangers(address, 5 * STRANGERS) as found:
        until(lambda: sum(map(ended, found)) >= 4 * STRANGERS)
        assert [ended(one) for one in found] == [True] * 4 * STRANGERS + [False] * STRANGERS
        np.testing.assert_array_equal(client.get(address, "n")[0], ARRAY)
        np.testing.assert_array_equal(client.get(address, "n")[0], ARRAY)
        assert len(server._loop._watch._connections) == STRANGERS  # for it, another one had to go
    assert server.counters.refused >= 4 * STRANGERS


def test_a_worker_that_speaks_is_never_cut_for_strangers(server, address, peers, keys):
    peer = peers(keys, address)
    closed = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    try:
        peer.say(messages.GET, "n")
        assert peer.hear().kind == messages.TENSORS
        with strangers(address, 3 * STRANGERS) as found:
            until(lambda: sum(map(ended, found)) >= 2 * STRANGERS)
        assert not closed.poll(0)
    finally:
        peer.socket.disable_monitor()
        closed.close()


def test_of_too_many_peers_the_most_silent_are_cut(address, peers, keys, caplog):
    for _ in range(2 * PEERS):
        peer = peers(keys, address)
        peer.say(messages.GET, "n")
        assert peer.hear().kind == messages.TENSORS
    until(lambda: "the most silent one is cut" in caplog.text)


def test_who_does_not_introduce_himself_is_cut_in_time(servers, keys, transport, monkeypatch):
    monkeypatch.setattr(loop_module, "HANDSHAKE_SECONDS", 0.2)
    server = servers(keys, transport=transport)
    with strangers(server.open("graph 0"), 1) as found:
        until(lambda: ended(found[0]))
        until(lambda: len(server._loop._watch._connections) == 0)


def test_a_descriptor_that_is_something_else_by_now_is_left_alone(tmp_path):
    """Another connection, a file, or nothing: only a socket that was accepted at the address is shut down."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        address, elsewhere = (f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in (listener, other))
        mine = stranger(address)
        accepted = listener.accept()[0]
        with mine, accepted, (tmp_path / "file").open("w") as file:
            watch._shut_down(accepted.fileno(), elsewhere)
            watch._shut_down(mine.fileno(), address)
            accepted.sendall(b"still there")
            assert mine.recv(100) == b"still there"
            with pytest.raises(OSError, match="non-socket"):
                watch._shut_down(file.fileno(), address)
            file.write("still there")
            watch._shut_down(accepted.fileno(), address)
            assert mine.recv(100) == b""


def test_cutting_takes_no_descriptor(server, address, monkeypatch):
    """There may be none."""
    with strangers(address, STRANGERS) as found:
        until(lambda: len(server._loop._watch._connections) == STRANGERS)
        monkeypatch.setattr(os, "dup", lambda number: pytest.fail("a descriptor was taken"))
        with strangers(address, 1):
            until(lambda: ended(found[0]))


def test_strangers_who_come_and_go_while_it_closes_do_not_keep_it_from_that(nothing_left, transport):
    """ZeroMQ's thread waits for its events to be read, with a lock that stopping them needs: whoever asks for that with
    Python's lock held stops everything, so it is asked in a process of its own."""
    program = (
        "import socket, sys, threading, time\n"
        "from dorylax.serverless.data.keys import RunKeys\n"
        "from dorylax.serverless.data.server import DataServer\n"
        f"server = DataServer(RunKeys.make(), transport={transport!r})\n"
        "kind, place = server.open('graph 0').split('://')\n"
        "if kind == 'tcp':\n"
        "    place = (place.split(':')[0], int(place.split(':')[1]))\n"
        "busy = threading.Event()\n"
        "thread = threading.Thread(target=server._loop.do, args=(lambda: (busy.set(), time.sleep(1.5)),))\n"
        "thread.start()\n"
        "busy.wait()\n"
        "found = []\n"
        "while thread.is_alive():\n"
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
