"""Servers and clients together, over both transports."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from support.processes import until

from dorylax.serverless.data import client as client_module
from dorylax.serverless.data import messages
from dorylax.serverless.data.client import DataClient
from dorylax.serverless.data.link import Link, SharedLink
from dorylax.serverless.data.loop import Loop
from dorylax.serverless.data.server import DataServer
from dorylax.serverless.wire.errors import TaskFailedError, WireError

ARRAYS = (
    np.arange(5000.0).reshape(50, 100),
    np.asarray(7, np.int32),
    np.zeros((0, 3), np.float32),
    np.arange(999, dtype=ml_dtypes.bfloat16),
    np.arange(24).reshape(2, 3, 4).T,
)
NBYTES = sum(array.nbytes for array in ARRAYS)
Connection = client_module._Connection


def assert_same(found, wanted=ARRAYS):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        assert one.ctypes.data % 64 == 0 or not one.size


@pytest.mark.parametrize("frame_bytes", [1000, messages.PIECE_BYTES])
def test_there_and_back(server, client, monkeypatch, frame_bytes):
    monkeypatch.setattr(messages, "PIECE_BYTES", frame_bytes)
    address = server.open("graph 0")
    server.offer(address, "n", ARRAYS)
    got: list[tuple[np.ndarray, ...]] = []
    server.expect(address, "r", got.append)
    assert_same(client.get(address, "n"))
    client.put(address, "r", ARRAYS)
    assert_same(got[0])
    counters = server.counters
    assert (counters.bytes_sent, counters.bytes_received) == (NBYTES, NBYTES)
    assert (counters.gets, counters.puts, counters.refused) == (1, 1, 0)


def test_nothing_at_all_travels_too(server, client):
    address = server.open("graph 0")
    server.offer(address, "n", [])
    got: list[tuple[np.ndarray, ...]] = []
    server.expect(address, "r", got.append)
    assert client.get(address, "n") == ()
    client.put(address, "r", [])
    assert got == [()]


def test_endpoints_of_one_server_do_not_share_names(server, client):
    one, other = server.open("graph 0"), server.open("parameters")
    server.offer(one, "n", ARRAYS)
    with pytest.raises(TaskFailedError, match="offers nothing as 'n'"):
        client.get(other, "n")
    with pytest.raises(TaskFailedError):
        client.get(one, "other")
    server.withdraw(one, "n")
    with pytest.raises(TaskFailedError):
        client.get(one, "n")


def test_many_workers_and_threads_at_a_time(server, keys):
    """Each with tensors of its own, so that any mixture would show."""
    address = server.open("graph 0")
    got: dict[int, tuple[np.ndarray, ...]] = {}
    count = 24
    for k in range(count):
        server.offer(address, f"n{k}", [np.full(3000, k)])
        server.expect(address, f"r{k}", lambda arrays, k=k: got.__setitem__(k, arrays))

    def work(client, k):
        (found,) = client.get(address, f"n{k}")
        client.put(address, f"r{k}", [found + 1])

    with DataClient(keys) as one, DataClient(keys) as other, ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, (one, other)[k % 2], k) for k in range(count)]:
            done.result()
    assert {k: set(arrays[0].tolist()) for k, arrays in got.items()} == {k: {k + 1} for k in range(count)}


def test_a_client_keeps_its_connections(server, client, monkeypatch):
    address = server.open("graph 0")
    server.offer(address, "n", ARRAYS)
    made = []
    connect = Connection.__init__
    monkeypatch.setattr(Connection, "__init__", lambda self, *a: made.append(a[1]) or connect(self, *a))
    for _ in range(5):
        client.get(address, "n")
        with pytest.raises(TaskFailedError):
            client.get(address, "missing")
    assert made == [address]
    # One that ended in an error is not used again: who knows what is still on its way.
    with monkeypatch.context() as patch:
        patch.setattr(client, "_attempts", 1)
        patch.setattr(Connection, "_receive", lambda self, nbytes: (_ for _ in ()).throw(ConnectionError("gone")))
        with pytest.raises(TaskFailedError, match="gone"):
            client.get(address, "n")
    assert_same(client.get(address, "n"))
    assert made == [address, address]


def test_answers_that_are_lost_are_asked_for_again(server, keys, monkeypatch):
    """The acknowledgement too: what was put is not delivered twice."""
    monkeypatch.setattr(messages, "PIECE_BYTES", 1000)
    address = server.open("graph 0")
    got: list[tuple[np.ndarray, ...]] = []
    server.offer(address, "n", ARRAYS)
    server.expect(address, "r", got.append)
    send = Loop._send
    lost = {messages.COMING, messages.TENSORS, messages.DONE}

    def losing(self, router, endpoint, peer, reply):
        kind = messages.decode_header(reply.frames[0]).kind
        if kind not in lost:
            return send(self, router, endpoint, peer, reply)
        lost.discard(kind)
        return False

    monkeypatch.setattr(Loop, "_send", losing)
    with DataClient(keys, timeout=0.3, attempts=20) as client:
        assert_same(client.get(address, "n"))
        client.put(address, "r", ARRAYS)
    assert len(got) == 1
    assert lost == set()
    assert server.counters.duplicates == 1


def test_what_is_left_of_an_earlier_transfer_is_passed_over(server, keys, monkeypatch):
    """A put whose acknowledgement comes twice."""
    address = server.open("graph 0")
    server.offer(address, "n", ARRAYS)
    server.expect(address, "r", lambda arrays: None)
    send = Loop._send
    monkeypatch.setattr(Loop, "_send", lambda self, *a: send(self, *a) and send(self, *a))
    with DataClient(keys, attempts=1) as client:
        client.put(address, "r", ARRAYS)
        assert_same(client.get(address, "n"))
        assert_same(client.get(address, "n"))


def test_a_server_that_is_gone(nothing_left, keys, transport):
    with DataServer(keys, transport=transport) as server:
        address = server.open("graph 0")
    with DataClient(keys, timeout=0.02, attempts=2) as client:
        with pytest.raises(TaskFailedError, match=r"tried 2 times.*no message for 0\.02 s"):
            client.get(address, "n")
        with pytest.raises(TaskFailedError, match="tried 2 times"):
            client.put(address, "n", ARRAYS)


def test_large_messages_have_more_time(server, keys, monkeypatch):
    """The sizes come before the tensors, so that a slow link is no dead one."""
    monkeypatch.setattr(messages, "PIECE_BYTES", 1000)
    monkeypatch.setattr(client_module, "SLOWEST", NBYTES / 30)
    address = server.open("graph 0")
    server.offer(address, "n", ARRAYS)
    send, arrived = Loop._send, threading.Event()

    def late(self, router, endpoint, peer, reply):
        if messages.decode_header(reply.frames[0]).kind == messages.TENSORS:
            arrived.wait(1.0)
        return send(self, router, endpoint, peer, reply)

    monkeypatch.setattr(Loop, "_send", late)
    with DataClient(keys, timeout=0.5, attempts=1) as client:
        assert_same(client.get(address, "n"))


def test_what_is_too_large_for_either_side(servers, keys, transport, monkeypatch):
    server = servers(keys, transport=transport, max_bytes=10_000)
    address = server.open("graph 0")
    server.expect(address, "r", lambda arrays: None)
    server.offer(address, "n", [np.zeros(1000)])
    with pytest.raises(WireError, match="at most 10000 bytes"):
        server.offer(address, "m", ARRAYS)
    with DataClient(keys, max_bytes=5000) as client:
        with pytest.raises(WireError, match="at most 5000 bytes"):
            client.put(address, "r", ARRAYS)
        for frame_bytes in (messages.PIECE_BYTES, 1000):  # by the tensors' header, and by the sizes before them
            monkeypatch.setattr(messages, "PIECE_BYTES", frame_bytes)
            with pytest.raises(TaskFailedError, match="at most 5000 bytes, got 8000"):
                client.get(address, "n")
    with DataClient(keys) as client, pytest.raises(TaskFailedError, match=r"refuses: .*at most 10000 bytes"):
        client.put(address, "r", ARRAYS)


def test_a_worker_that_asks_and_does_not_read_harms_nobody(servers, keys, transport, peers, caplog):
    server = servers(keys, transport=transport)
    address = server.open("graph 0")
    server.offer(address, "n", [np.zeros(4 << 20, np.uint8)])
    peer = peers(keys, address)
    for number in range(1, 400):
        peer.say(messages.GET, "n", number)
    until(lambda: "asks for more than it reads" in caplog.text)
    with DataClient(keys) as client:
        assert client.get(address, "n")[0].nbytes == 4 << 20


def test_a_slow_link_is_waited_for(server, keys, monkeypatch):
    """The sum of all waits is the link's."""
    slept: list[float] = []
    address = server.open("graph 0")
    server.offer(address, "n", [np.zeros(1250)])
    server.expect(address, "r", lambda arrays: None)
    with DataClient(keys) as client:
        client._link = SharedLink(Link(0.5, 1e4), now=lambda: sum(slept), sleep=slept.append)
        client.get(address, "n")
        assert sum(slept) == pytest.approx(0.5 + 1.0)
        client.put(address, "r", [np.zeros(1250)])
        assert sum(slept) == pytest.approx(2 * (0.5 + 1.0))


def test_an_address_that_is_none(keys):
    with DataClient(keys) as client, pytest.raises(TaskFailedError, match="cannot connect to 'nowhere'"):
        client.get("nowhere", "n")


def test_a_closed_client(keys, server):
    address = server.open("graph 0")
    server.offer(address, "n", ARRAYS)
    client = DataClient(keys)
    client.get(address, "n")
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="the data client is closed"):
        client.get(address, "n")


def test_a_client_that_is_closed_in_a_call_lets_it_end(keys, server, monkeypatch):
    address = server.open("graph 0")
    server.offer(address, "n", ARRAYS)
    client = DataClient(keys)
    began, closed = threading.Event(), threading.Event()
    ask = Connection._ask

    def waiting(self, *arguments):
        began.set()
        assert closed.wait(30)
        ask(self, *arguments)

    monkeypatch.setattr(Connection, "_ask", waiting)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(client.get, address, "n")
        assert began.wait(30)
        client.close()
        closed.set()
        assert_same(found.result())
    assert client._context.closed


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
