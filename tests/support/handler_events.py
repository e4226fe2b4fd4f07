"""Events of a small stage, and a data plane that is only a dictionary, for tests of the handler and of what calls it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from dorylax.net.errors import TaskFailedError
from dorylax.program.artefact.stage_file import StageReference, sha256_of
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget
from dorylax.serverless.task import TaskKey
from dorylax.serverless.wire import names
from dorylax.serverless.wire.event import Event

GRAPH, PARAMETERS = "ipc:///graph", "ipc:///parameters"
KEY = TaskKey(epoch=3, interval=1, stage=5, chunk=0)
W = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
UNUSED = np.full(2, np.nan, np.float32)
SCALE = np.float32(0.5)
OPERANDS = (
    OperandSource("rows"),
    OperandSource("weights", leaf=1),
    OperandSource("free"),
    OperandSource("rows", zero=True),
)
RESULTS = (ResultTarget("sums"), ResultTarget("rows"), ResultTarget("free"), ResultTarget("rows"))


def exported(function: Callable[..., Any], *inputs: str) -> bytes:
    """An artefact of a function of arrays such as "float32 rows, 4"."""
    scope = export.SymbolicScope()
    split = [entry.partition(" ") for entry in inputs]
    specs = [jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype) for dtype, _, shape in split]
    return bytes(export.export(jax.jit(function), platforms=["cpu"])(*specs).serialize())


@functools.cache
def small_stage() -> bytes:
    """x [rows, 4], w [4, 3], scale [], g [rows, 3] → dw [4, 3], y [rows, 3], 2·scale [], 1/x [rows, 4]."""

    def stage(x: Any, w: Any, scale: Any, g: Any) -> Any:
        return (x.T @ g, scale * (x @ w), 2 * scale, 1 / x)

    return exported(stage, "float32 rows, 4", "float32 4, 3", "float32", "float32 rows, 3")


def expected(x: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
    """What the stage gives for these rows."""
    return [x.T @ g, SCALE * (x @ W), 2 * SCALE, 1 / x]


def rows_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    """x and g of so many rows, none of them 0."""
    rng = np.random.default_rng(count)
    x, g = rng.uniform(0.5, 1.0, (count, 4)), rng.normal(size=(count, 3))
    return x.astype(np.float32), g.astype(np.float32)


def event(content: bytes | None = None, **changed: Any) -> Event:
    """An event of the small stage: 5 rows, padded to 8."""
    reference = StageReference(sha256_of(content or small_stage()), (0, 1, 2, 3), (), False, (0, 1, 2, 3))
    fields: dict[str, Any] = {
        "run": "ab",
        "key": KEY,
        "attempt": 1,
        "reference": reference,
        "size": 8,
        "parts": (5,),
        "operands": OPERANDS,
        "results": RESULTS,
        "version": 7,
        "graph": GRAPH,
        "parameters": PARAMETERS,
    }
    return Event(**fields | changed)


def offers(parts: Sequence[int] = (5,), version: int = 7) -> dict[tuple[str, str], tuple[np.ndarray, ...]]:
    """What servers offer for that event, by "graph" or "parameters" and name."""
    x, g = rows_of(sum(parts))
    found: dict[tuple[str, str], tuple[np.ndarray, ...]] = {
        ("graph", names.artefact(sha256_of(small_stage()))): (np.frombuffer(small_stage(), np.uint8),),
        ("graph", names.free(KEY)): (np.asarray(SCALE),),
        ("parameters", names.weights(version)): (UNUSED, W),
    }
    first = 0
    for part, count in enumerate(parts):
        found["graph", names.rows(KEY, part)] = (x[first : first + count], g[first : first + count])
        first += count
    return found


class MemoryData:
    """A data plane in memory. What is done with it is in `asked`, in order."""

    def __init__(self, parts: Sequence[int] = (5,), version: int = 7) -> None:
        addresses = {"graph": GRAPH, "parameters": PARAMETERS}
        self.offered = {(addresses[where], name): arrays for (where, name), arrays in offers(parts, version).items()}
        self.given: dict[tuple[str, str], list[np.ndarray]] = {}
        self.asked: list[tuple[str, str]] = []

    def get(self, address: str, name: str) -> tuple[np.ndarray, ...]:
        self.asked.append(("get", name))
        if (address, name) not in self.offered:
            raise TaskFailedError(f"{address} offers no {name!r}")
        return self.offered[address, name]

    def put(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        self.asked.append(("put", name))
        self.given[address, name] = [np.array(array) for array in arrays]
