"""The handler on a data plane in memory: what it fetches, what it delivers, and that every failure is an answer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.handler_events import (
    GRAPH,
    KEY,
    PARAMETERS,
    RESULTS,
    SCALE,
    UNUSED,
    MemoryData,
    W,
    event,
    expected,
    rows_of,
    small_stage,
)

from dorylax.net.errors import TaskFailedError
from dorylax.program.artefact.stage_file import StageReference, sha256_of
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget
from dorylax.serverless.handler import handle as handle_module
from dorylax.serverless.handler.handle import handle
from dorylax.serverless.handler.sandbox import Sandbox
from dorylax.serverless.wire import names
from dorylax.serverless.wire.event import MAX_EVENT_BYTES, Answer, Event

_ROOT = Path(__file__).parents[3]


RESULTS_WITHOUT_SUMS = (ResultTarget("free"), *RESULTS[1:])


def answer(asked: Event | bytes, sandbox: Sandbox) -> Answer:
    return Answer.decode(handle(asked.encode() if isinstance(asked, Event) else asked, sandbox))


def check_results(data: MemoryData, count: int = 5) -> None:
    x, g = rows_of(count)
    total, *others = expected(x, g)
    found = data.given[GRAPH, names.result_rows(KEY)]
    for got, wanted in zip(found, others, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    (sums,) = data.given[PARAMETERS, names.result_sums(KEY)]
    np.testing.assert_allclose(sums, total, rtol=1e-5)


def test_rows_go_to_the_graph_server_and_sums_to_the_parameter_server() -> None:
    data = MemoryData()
    found = answer(event(), Sandbox(data))
    assert found.error is None
    assert (found.run, found.key, found.attempt, found.retry, found.cold) == ("ab", KEY, 1, False, True)
    check_results(data)
    assert set(data.given) == {(GRAPH, names.result_rows(KEY)), (PARAMETERS, names.result_sums(KEY))}
    assert data.asked[-2:] == [("put", names.result_rows(KEY)), ("put", names.result_sums(KEY))]


def test_bytes_are_those_that_travelled() -> None:
    data = MemoryData()
    sandbox = Sandbox(data)
    first, second = answer(event(), sandbox), answer(event(attempt=2), sandbox)
    x, g = rows_of(5)
    each = x.nbytes + g.nbytes + SCALE.nbytes
    assert first.bytes_in == each + W.nbytes + UNUSED.nbytes + len(small_stage())
    assert second.bytes_in == each  # stage and weights are there
    assert first.bytes_out == second.bytes_out == W.nbytes + g.nbytes + SCALE.nbytes + x.nbytes
    assert (first.cold, second.cold) == (True, False)
    assert first.compute_seconds > second.compute_seconds > 0  # the first compiles


def test_rows_in_parts_give_the_same() -> None:
    data = MemoryData(parts=(4, 1))
    sandbox = Sandbox(data)
    found = answer(event(parts=(4, 1), size=4), sandbox)
    sandbox.close()
    assert found.error is None
    check_results(data)
    x, g = rows_of(5)
    assert found.bytes_in == sum(a.nbytes for a in (x, g, UNUSED, W, SCALE)) + len(small_stage())


def test_the_next_part_comes_while_the_first_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second part arrives after the first computation has begun, which ends after the second was asked for."""
    computing, fetching = threading.Event(), threading.Event()
    data = MemoryData(parts=(3, 2))
    get, compute = data.get, handle_module.compute_part

    def waiting(address: str, name: str) -> tuple[np.ndarray, ...]:
        if name == names.rows(KEY, 1):
            fetching.set()
            if not computing.wait(30):
                raise TaskFailedError("nobody computes meanwhile")
        return get(address, name)

    def telling(*arguments: Any) -> list[np.ndarray]:
        computing.set()
        if not fetching.wait(30):
            raise TaskFailedError("nobody fetches meanwhile")
        return compute(*arguments)

    monkeypatch.setattr(data, "get", waiting)
    monkeypatch.setattr(handle_module, "compute_part", telling)
    sandbox = Sandbox(data)
    found = answer(event(parts=(3, 2), size=4), sandbox)
    sandbox.close()
    assert found.error is None
    check_results(data)


def test_a_failure_waits_for_what_is_still_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next call would share the link with a transfer that nobody needs."""
    computing, came = threading.Event(), threading.Event()
    data = MemoryData(parts=(3, 2))
    get = data.get

    def slow(address: str, name: str) -> tuple[np.ndarray, ...]:
        if name == names.rows(KEY, 1):
            computing.wait(30)
            time.sleep(0.05)
            came.set()
        return get(address, name)

    def failing(*_: Any) -> list[np.ndarray]:
        computing.set()
        raise FloatingPointError("no number")

    monkeypatch.setattr(data, "get", slow)
    monkeypatch.setattr(handle_module, "compute_part", failing)
    sandbox = Sandbox(data)
    found = answer(event(parts=(3, 2), size=4), sandbox)
    assert came.is_set()
    sandbox.close()
    assert (found.error, found.retry) == ("FloatingPointError: no number", False)


def test_nothing_is_fetched_or_put_that_the_event_does_not_name() -> None:
    data = MemoryData()
    reference = StageReference(sha256_of(small_stage()), (0, 1, 2, 3), (), False, (0, 1, 2, 3))
    free = (OperandSource("free"),) * 4
    x, g = rows_of(5)
    data.offered[GRAPH, names.free(KEY)] = (x, W, np.asarray(SCALE), g)
    for kind, name in (("rows", names.result_rows(KEY)), ("sums", names.result_sums(KEY))):
        data.asked.clear()
        targets = RESULTS_WITHOUT_SUMS if kind == "rows" else (ResultTarget("sums"),) * 4
        asked = event(reference=reference, operands=free, results=targets, size=5, version=0)
        assert answer(asked, Sandbox(data)).error is None
        assert data.asked == [("get", names.artefact(reference.sha256)), ("get", names.free(KEY)), ("put", name)]


def test_what_the_data_plane_lacks_may_be_tried_again() -> None:
    for missing in ((GRAPH, names.rows(KEY, 0)), (PARAMETERS, names.weights(7)), (GRAPH, names.free(KEY))):
        data = MemoryData()
        arrays = data.offered.pop(missing)
        sandbox = Sandbox(data)
        found = answer(event(), sandbox)
        assert found.error.startswith(f"{missing[0]} offers no ")
        assert missing[1] in found.error
        assert found.retry
        assert (found.run, found.key, found.attempt) == ("ab", KEY, 1)
        assert not data.given
        data.offered[missing] = arrays
        assert answer(event(), sandbox).error is None
        check_results(data)


@pytest.mark.parametrize("failing", [names.result_rows(KEY), names.result_sums(KEY)])
def test_what_cannot_be_delivered_may_be_tried_again(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = MemoryData()
    put = data.put

    def refusing(address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        if name == failing:
            raise TaskFailedError("no acknowledgement")
        put(address, name, arrays)

    monkeypatch.setattr(data, "put", refusing)
    found = answer(event(), Sandbox(data))
    assert (found.error, found.retry) == ("no acknowledgement", True)


def test_a_part_that_cannot_be_fetched_while_another_is_computed() -> None:
    data = MemoryData(parts=(4, 1))
    del data.offered[GRAPH, names.rows(KEY, 1)]
    sandbox = Sandbox(data)
    found = answer(event(parts=(4, 1), size=4), sandbox)
    sandbox.close()
    assert found.retry
    assert not data.given


def test_a_stage_that_cannot_take_its_operands_is_not_tried_again() -> None:
    data = MemoryData()
    data.offered[GRAPH, names.rows(KEY, 0)] = tuple(array.astype(np.float64) for array in rows_of(5))
    found = answer(event(), Sandbox(data))
    assert "argument 0 must be float32 [rows, 4], got float64 [8, 4]" in found.error
    assert not found.retry


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\xff\x00", b"[" * 10_000, b" " * (MAX_EVENT_BYTES + 1), event().encode()[:-1]],
    ids=["nothing", "no keys", "no text", "nested", "oversize", "cut off"],
)
def test_what_is_no_event_is_refused_with_a_line_in_the_log(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    data = MemoryData()
    sandbox = Sandbox(data)
    found = answer(content, sandbox)
    assert found.error.startswith("the event is refused: event")
    assert not found.retry
    (record,) = caplog.records
    assert record.name == "dorylax.handler"
    assert not data.asked
    assert answer(event(), sandbox).error is None


@given(st.binary(max_size=200))
def test_whatever_comes_is_answered(content: bytes) -> None:
    assert answer(content, Sandbox(MemoryData())).error is not None


@given(st.integers(0, 400), st.integers(0, 255))
def test_an_event_with_a_changed_byte_is_answered(place: int, value: int) -> None:
    content = bytearray(event().encode())
    content[place % len(content)] = value
    assert isinstance(answer(bytes(content), _KEPT), Answer)


_KEPT = Sandbox(MemoryData())

_LOADED = _ROOT / "tests" / "golden" / "handler_modules.txt"
_FRESH = """
import sys
sys.modules["cloudpickle"] = None  # JAX imports it where it is installed; a sandbox may be without
sys.path.append(sys.argv[1])
from support.handler_events import MemoryData, event
from dorylax.serverless.handler.handle import handle
from dorylax.serverless.handler.sandbox import Sandbox
from dorylax.net.client import DataClient
from dorylax.serverless.wire.event import Answer
sandbox = Sandbox(MemoryData())
assert Answer.decode(handle(event().encode(), sandbox)).error is None
print(*sorted(name for name, module in sys.modules.items() if module is not None))
"""


def test_imports_neither_flax_nor_optax_nor_what_trains() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FRESH, _ROOT / "tests"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    modules = done.stdout.split()
    ours = {name for name in modules if name.startswith("dorylax")}
    allowed = ("dorylax.serverless.", "dorylax.net", "dorylax.program.artefact.stage_file")
    folders = {"dorylax", "dorylax.serverless", "dorylax.program", "dorylax.program.artefact"}
    stages = {"dorylax.program.tasks", "dorylax.program.tasks.stage_calls", "dorylax.abstract_array"}  # need only NumPy
    exact = folders | stages | {"dorylax.jax_internals", "dorylax.aligned", "dorylax.errors"}
    assert {name for name in ours if not name.startswith(allowed)} == exact
    assert not {name for name in ours if name.startswith("dorylax.serverless.backends")}
    tops = {name.partition(".")[0] for name in modules}
    assert not tops & {"flax", "optax", "cloudpickle", "scipy", "pydantic", "orbax", "pytest", "boto3"}
    assert {"jax", "numpy", "zmq"} <= tops
    assert sorted(ours) == _LOADED.read_text().split()  # a cold start is mostly imports: none comes unnoticed
