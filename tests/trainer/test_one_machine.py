"""What one machine trains with: made when it is first asked for, and only once."""

from __future__ import annotations

import optax
import pytest
from flax import nnx

import dorylax
from dorylax.config import SingleConfig, schema
from dorylax.layers import GCN
from dorylax.machine import Limit
from dorylax.memory.estimate import MemoryLimitError
from dorylax.program.model.flax_nnx import take_apart
from dorylax.trainer.one_machine import OneMachine
from dorylax.trainer.step.functions import step_functions
from dorylax.trainer.validate import Checked


def machine(**options: object) -> OneMachine:
    data = dorylax.load("communities", size="tiny", num_vertices=3000)
    parts = take_apart(GCN(data.num_features, 4, data.num_classes, rngs=nnx.Rngs(0)))
    functions = step_functions(parts.structure, optax.sgd(0.1))
    return OneMachine(functions, parts, data, SingleConfig(**options), checked=Checked(False, True))  # type: ignore[arg-type]


@pytest.mark.parametrize(("order", "reordered"), [("auto", False), ("given", False), ("community", True)])
def test_arrays_are_in_the_order_that_was_asked_for(order: str, reordered: bool) -> None:
    found = machine(order=order)
    assert found.order == ("community" if reordered else "given")
    assert found.order_seconds == 0
    assert (found.arrays.graph.vertex_ids is not None) == reordered
    assert (found.order_seconds > 0) == reordered
    assert found.arrays is found.arrays


@pytest.mark.parametrize("optimize", [True, False])
def test_one_gradient(optimize: bool) -> None:
    found = machine(optimize=optimize)
    gradient, seconds = found.choose_gradient()
    assert (gradient is found._functions.plain) == (not optimize)
    assert (seconds > 0) == optimize
    assert found.choose_gradient() == (gradient, 0.0)


def test_memory_is_checked_before_there_are_arrays_and_not_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "memory_limit", lambda: Limit(1 << 20, "machine"))
    with pytest.raises(
        MemoryLimitError, match=r"does not fit.*cannot be streamed .* may have 1 MiB: raise the limit \("
    ):
        machine().check_memory()
    assert machine(memory="ignore").check_memory() == 0
    found = machine()
    assert found.arrays.features.shape[0] == 3000
    assert found.check_memory() == 0
