from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from support.handler_events import GRAPH, PARAMETERS, MemoryData, W, small_stage
from support.http_store import Store

from dorylax.errors import InputError
from dorylax.net.errors import TaskFailedError
from dorylax.program.artefact.stage_file import sha256_of
from dorylax.serverless.handler.sandbox import Sandbox
from dorylax.serverless.wire import names

SHA256 = sha256_of(small_stage())


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as found:
        yield found


def test_a_stage_is_fetched_once() -> None:
    data = MemoryData()
    sandbox = Sandbox(data)
    first, second = sandbox.stage(GRAPH, SHA256), sandbox.stage(GRAPH, SHA256)
    assert first.stage.sha256 == SHA256
    assert second.stage is first.stage
    assert (first.nbytes, second.nbytes) == (len(small_stage()), 0)
    assert data.asked == [("get", names.artefact(SHA256))]


def test_a_stage_of_another_hash_is_refused_and_not_kept() -> None:
    data = MemoryData()
    name = names.artefact(SHA256)
    (whole,) = data.offered[GRAPH, name]
    damaged = whole.copy()
    damaged[100] ^= 1
    data.offered[GRAPH, name] = (damaged,)
    sandbox = Sandbox(data)
    with pytest.raises(TaskFailedError, match=f"must have SHA-256 {SHA256}, got {sha256_of(damaged.tobytes())}"):
        sandbox.stage(GRAPH, SHA256)
    data.offered[GRAPH, name] = (whole,)
    assert sandbox.stage(GRAPH, SHA256).nbytes == len(small_stage())


def test_what_has_its_hash_but_is_no_stage_is_refused() -> None:
    data, content = MemoryData(), b"no stage"
    data.offered[GRAPH, names.artefact(sha256_of(content))] = (np.frombuffer(content, np.uint8),)
    with pytest.raises(InputError, match="is not a stage"):
        Sandbox(data).stage(GRAPH, sha256_of(content))


def test_a_stage_may_lie_at_a_url(store: Store) -> None:
    data, sandbox = MemoryData(), Sandbox(MemoryData())
    store.content["/stage"] = small_stage()
    url = f"{store.url}/stage?signature=c0ffee"
    assert sandbox.stage(GRAPH, SHA256, url).nbytes == len(small_stage())
    assert sandbox.stage(GRAPH, SHA256, url).nbytes == 0
    assert store.asked == ["/stage?signature=c0ffee"]
    assert data.asked == []


def test_a_stage_of_another_hash_at_a_url_is_refused_and_asked_for_again(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    data = MemoryData()
    sandbox = Sandbox(data)
    store.content["/stage"] = b"another"
    url = f"{store.url}/stage?signature=c0ffee"
    with pytest.raises(TaskFailedError, match=f"{store.url}/stage sent must have SHA-256 {SHA256}"):
        sandbox.stage(GRAPH, SHA256, url)
    assert "c0ffee" not in caplog.text
    store.content["/stage"] = small_stage()
    assert sandbox.stage(GRAPH, SHA256, url).nbytes == len(small_stage())
    assert data.asked == []


def test_the_weights_used_last_are_kept() -> None:
    data = MemoryData()
    for version in (1, 2, 3):
        data.offered[PARAMETERS, names.weights(version)] = (W * version,)
    sandbox = Sandbox(data, versions=2)
    fetched = []
    for version in (1, 2, 1, 3, 1, 2):
        arrays, nbytes = sandbox.weights(PARAMETERS, version)
        np.testing.assert_array_equal(arrays[0], W * version)
        fetched.append(nbytes == W.nbytes)
        assert nbytes in {0, W.nbytes}
    assert fetched == [True, True, False, True, False, True]


def test_predicted_weights_are_kept_beside_those_of_their_version() -> None:
    data = MemoryData()
    for ahead in range(3):
        data.offered[PARAMETERS, names.weights(1, ahead)] = (W + ahead,)
    sandbox = Sandbox(data, versions=3)
    for _ in range(2):
        for ahead in range(3):
            np.testing.assert_array_equal(sandbox.weights(PARAMETERS, 1, ahead).arrays[0], W + ahead)


def test_weights_are_of_one_server() -> None:
    data = MemoryData()
    data.offered["ipc:///other", names.weights(7)] = (2 * W,)
    sandbox = Sandbox(data)
    sandbox.weights(PARAMETERS, 7)
    np.testing.assert_array_equal(sandbox.weights("ipc:///other", 7).arrays[0], 2 * W)


def test_weights_that_are_not_there_are_asked_for_again() -> None:
    data = MemoryData()
    sandbox = Sandbox(data)
    with pytest.raises(TaskFailedError):
        sandbox.weights(PARAMETERS, 8)
    data.offered[PARAMETERS, names.weights(8)] = (W,)
    assert sandbox.weights(PARAMETERS, 8).nbytes == W.nbytes


def test_close_ends_the_thread_that_gets_ahead() -> None:
    sandbox = Sandbox(MemoryData())
    before = threading.active_count()
    (leaf, _) = sandbox.get_ahead(PARAMETERS, names.weights(7)).result(30)
    assert leaf.shape == (2,)
    assert threading.active_count() == before + 1
    sandbox.close()
    sandbox.close()
    assert threading.active_count() == before
