"""Servers and clients together, over both transports, and what closing them leaves behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from support.processes import until

from dorylax.net import client as client_module
from dorylax.net import frames
from dorylax.net.client import DataClient
from dorylax.net.errors import TaskFailedError, WireError
from dorylax.net.keys import WORKERS, RunKeys
from dorylax.net.link import Link, SharedLink
from dorylax.net.server import DataServer
from dorylax.net.sockets import Sockets

ROOT = Path(__file__).parents[2]
ARRAYS = (
    np.arange(5000.0).reshape(50, 100),
    np.asarray(7, np.int32),
    np.zeros((0, 3), np.float32),
    np.arange(999, dtype=ml_dtypes.bfloat16),
    np.arange(24).reshape(2, 3, 4).T,
)
NBYTES = sum(array.nbytes for array in ARRAYS)


@pytest.fixture
def small_frames(monkeypatch):
    """Even the arrays of these tests are sent in pieces."""
    monkeypatch.setattr(frames, "PIECE_BYTES", 1000)
    monkeypatch.setattr(frames, "COPIED_BYTES", 100)


@pytest.fixture
def endpoint(server):
    """Offers ARRAYS as "n"."""
    endpoint = server.open("graph 0")
    endpoint.offer("n", ARRAYS)
    return endpoint


def assert_same(found, wanted=ARRAYS):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        assert one.ctypes.data % 64 == 0 or not one.size


def reply_of(parts):
    """The kind of a server's reply; its first frame is the worker's name."""
    return frames.opened(list(map(bytes, parts[1:]))).messages[0].document[0]


@pytest.mark.parametrize("pieces", [False, True])
def test_there_and_back(server, endpoint, client, request, pieces):
    if pieces:
        request.getfixturevalue("small_frames")
    got: list[tuple[np.ndarray, ...]] = []
    endpoint.expect("r", got.append)
    assert_same(client.get(endpoint.address, "n"))
    client.put(endpoint.address, "r", ARRAYS)
    assert_same(got[0])
    counters = server.counters
    assert (counters.bytes_sent, counters.bytes_received) == (NBYTES, NBYTES)
    assert (counters.gets, counters.puts, counters.refused) == (1, 1, 0)


def test_nothing_at_all_travels_too(server, client):
    endpoint = server.open("graph 0")
    endpoint.offer("n", [])
    got: list[tuple[np.ndarray, ...]] = []
    endpoint.expect("r", got.append)
    assert client.get(endpoint.address, "n") == ()
    client.put(endpoint.address, "r", [])
    assert got == [()]


def test_endpoints_of_one_server_do_not_share_names(server, endpoint, client):
    other = server.open("parameters")
    with pytest.raises(TaskFailedError, match="offers nothing as 'n'"):
        client.get(other.address, "n")
    with pytest.raises(TaskFailedError):
        client.get(endpoint.address, "other")
    endpoint.withdraw("n")
    with pytest.raises(TaskFailedError):
        client.get(endpoint.address, "n")


def test_many_workers_and_threads_at_a_time(server, keys):
    """Each with tensors of its own, so that any mixture would show."""
    endpoint = server.open("graph 0")
    got: dict[int, tuple[np.ndarray, ...]] = {}
    count = 24
    for k in range(count):
        endpoint.offer(f"n{k}", [np.full(3000, k)])
        endpoint.expect(f"r{k}", lambda arrays, k=k: got.__setitem__(k, arrays))

    def work(client, k):
        (found,) = client.get(endpoint.address, f"n{k}")
        client.put(endpoint.address, f"r{k}", [found + 1])

    with DataClient(keys) as one, DataClient(keys) as other, ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, (one, other)[k % 2], k) for k in range(count)]:
            done.result()
    assert {k: set(arrays[0].tolist()) for k, arrays in got.items()} == {k: {k + 1} for k in range(count)}


def test_a_client_keeps_its_connections(endpoint, client, monkeypatch):
    made = []
    connect = DataClient._connect
    monkeypatch.setattr(DataClient, "_connect", lambda self, address: made.append(address) or connect(self, address))
    for _ in range(5):
        client.get(endpoint.address, "n")
    assert made == [endpoint.address]
    # One that ended in an error is not used again: who knows what is still on its way.
    with monkeypatch.context() as patch:
        patch.setattr(client, "_attempts", 1)
        patch.setattr(DataClient, "_receive", lambda *_: (_ for _ in ()).throw(ConnectionError("gone")))
        with pytest.raises(TaskFailedError, match="gone"):
            client.get(endpoint.address, "n")
    assert_same(client.get(endpoint.address, "n"))
    assert made == [endpoint.address] * 2


@pytest.mark.usefixtures("small_frames")
def test_answers_that_are_lost_are_asked_for_again(server, endpoint, keys, monkeypatch):
    """The acknowledgement too: what was put is not delivered twice."""
    got: list[tuple[np.ndarray, ...]] = []
    endpoint.expect("r", got.append)
    send, lost = Sockets.send, {"coming", "tensors", "done"}

    def losing(self, socket, parts):
        if (kind := reply_of(parts)) not in lost:
            return send(self, socket, parts)
        lost.discard(kind)
        return False

    monkeypatch.setattr(Sockets, "send", losing)
    with DataClient(keys, timeout=0.3, attempts=20) as client:
        assert_same(client.get(endpoint.address, "n"))
        client.put(endpoint.address, "r", ARRAYS)
    assert len(got) == 1
    assert lost == set()
    assert server.counters.duplicates == 1


def test_what_is_left_of_an_earlier_transfer_is_passed_over(endpoint, keys, monkeypatch):
    """A put whose acknowledgement comes twice."""
    endpoint.expect("r", lambda arrays: None)
    send = Sockets.send
    monkeypatch.setattr(Sockets, "send", lambda self, *a: send(self, *a) and send(self, *a))
    with DataClient(keys, attempts=1) as client:
        client.put(endpoint.address, "r", ARRAYS)
        assert_same(client.get(endpoint.address, "n"))
        assert_same(client.get(endpoint.address, "n"))


def test_a_server_that_is_gone_or_of_another_run(servers, keys, kind):
    there, gone = servers(keys, transport=kind).open("graph 0"), servers(keys, transport=kind)
    address = gone.open("graph 0").address
    gone.close()
    with DataClient(keys, timeout=0.02, attempts=2) as client:
        with pytest.raises(TaskFailedError, match=r"tried 2 times.*no message for 0\.02 s"):
            client.get(address, "n")
        with pytest.raises(TaskFailedError, match="tried 2 times"):
            client.put(address, "n", ARRAYS)
    with (
        DataClient(RunKeys.make(), timeout=0.5, attempts=1) as client,
        pytest.raises(TaskFailedError, match="of another run than the keys"),
    ):
        client.get(there.address, "n")


@pytest.mark.usefixtures("small_frames")
def test_large_messages_have_more_time(endpoint, keys, monkeypatch):
    """The sizes come before the tensors, so that a slow link is no dead one."""
    monkeypatch.setattr(client_module, "SLOWEST", NBYTES / 30)
    send, arrived = Sockets.send, threading.Event()

    def late(self, socket, parts):
        if reply_of(parts) == "tensors":
            arrived.wait(1.0)
        return send(self, socket, parts)

    monkeypatch.setattr(Sockets, "send", late)
    with DataClient(keys, timeout=0.5, attempts=1) as client:
        assert_same(client.get(endpoint.address, "n"))


def test_what_is_too_large_for_either_side(servers, keys, kind, monkeypatch):
    endpoint = servers(keys, transport=kind, max_bytes=10_000).open("graph 0")
    endpoint.expect("r", lambda arrays: None)
    endpoint.offer("n", [np.zeros(1000)])
    with pytest.raises(WireError, match="at most 10000 bytes"):
        endpoint.offer("m", ARRAYS)
    with DataClient(keys, max_bytes=5000) as client:
        with pytest.raises(WireError, match="at most 5000 bytes"):
            client.put(endpoint.address, "r", ARRAYS)
        for frame_bytes in (frames.PIECE_BYTES, 1000):  # by the tensors, and by the sizes before them
            monkeypatch.setattr(frames, "PIECE_BYTES", frame_bytes)
            with pytest.raises(TaskFailedError, match="at most 5000 bytes, got 8000"):
                client.get(endpoint.address, "n")
    with DataClient(keys) as client, pytest.raises(TaskFailedError, match=r"refuses: .*at most 10000 bytes"):
        client.put(endpoint.address, "r", ARRAYS)


def test_a_worker_that_asks_and_does_not_read_harms_nobody(server, keys, peers, caplog):
    endpoint = server.open("graph 0")
    endpoint.offer("n", [np.zeros(4 << 20, np.uint8)])
    peer = peers(keys, WORKERS, endpoint.address)
    for number in range(1, 400):
        peer.say(number)
    until(lambda: "asks for more than it reads" in caplog.text)
    with DataClient(keys) as client:
        assert client.get(endpoint.address, "n")[0].nbytes == 4 << 20


def test_a_slow_link_is_waited_for(server, keys):
    """The sum of all waits is the link's."""
    slept: list[float] = []
    endpoint = server.open("graph 0")
    endpoint.offer("n", [np.zeros(1250)])
    endpoint.expect("r", lambda arrays: None)
    with DataClient(keys) as client:
        client._link = SharedLink(Link(0.5, 1e4), now=lambda: sum(slept), sleep=slept.append)
        client.get(endpoint.address, "n")
        assert sum(slept) == pytest.approx(0.5 + 1.0)
        client.put(endpoint.address, "r", [np.zeros(1250)])
        assert sum(slept) == pytest.approx(2 * (0.5 + 1.0))


def test_an_address_that_is_none(keys):
    with DataClient(keys) as client, pytest.raises(TaskFailedError, match="cannot connect to 'nowhere'"):
        client.get("nowhere", "n")


def test_a_client_that_is_closed_in_a_call_lets_it_end(keys, endpoint, monkeypatch):
    client = DataClient(keys)
    began, closed = threading.Event(), threading.Event()
    ask = DataClient._ask

    def waiting(*arguments):
        began.set()
        assert closed.wait(30)
        return ask(*arguments)

    monkeypatch.setattr(DataClient, "_ask", waiting)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(client.get, endpoint.address, "n")
        assert began.wait(30)
        client.close()
        closed.set()
        assert_same(found.result())
    assert client._context.closed
    client.close()
    with pytest.raises(RuntimeError, match="the data client is closed"):
        client.get(endpoint.address, "n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0.0}, "timeout must be"),
        ({"attempts": 0}, "attempts must be"),
        ({"max_bytes": 0}, "max_bytes must be"),
    ],
)
def test_settings_that_cannot_work(keys, options, message):
    with pytest.raises(ValueError, match=message):
        DataClient(keys, **options)
    if "max_bytes" in options:
        with pytest.raises(ValueError, match=message):
            DataServer(keys, **options)


def test_tcp_is_bound_to_this_machine_alone(servers, keys):
    assert servers(keys, transport="tcp").open("graph 0").address.startswith("tcp://127.0.0.1:")


def test_a_closed_server(nothing_left, keys, kind):
    server = DataServer(keys, transport=kind)
    server.open("graph 0")
    server.open("parameters")
    server.close()
    server.close()
    assert list(nothing_left.iterdir()) == []
    with pytest.raises(RuntimeError, match="the data server is closed"):
        server.open("another")


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
        "from dorylax.net.server import DataServer\n"
        "from dorylax.net.keys import RunKeys\n"
        "server = DataServer(RunKeys.make())\n"
        "print(server.open('graph 0').address)\n"
    )
    environment = {**os.environ, "TMPDIR": str(nothing_left), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert str(nothing_left) in done.stdout
    assert done.stderr == ""
    assert list(nothing_left.iterdir()) == []
