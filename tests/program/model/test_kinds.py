from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flax import linen, nnx
from support.graphs import messy_graph

from dorylax.program.model.flax_linen import LinenStructure
from dorylax.program.model.flax_nnx import NnxStructure
from dorylax.program.model.kinds import FunctionStructure, take_apart

GRAPH, X = messy_graph(8, 14), np.ones((8, 3), np.float32)


class Linen(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any) -> Any:
        return linen.Dense(2)(x)


class Nnx(nnx.Module):
    def __init__(self) -> None:
        self.inner = nnx.Linear(3, 2, rngs=nnx.Rngs(0))

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.inner(x)


class Callable:
    def __call__(self, params: Any, graph: Any, x: Any) -> Any:
        return x * params


@pytest.mark.parametrize(
    ("model", "structure", "name"),
    [(Nnx(), NnxStructure, "Nnx"), (Linen(), LinenStructure, "Linen"), (Callable(), FunctionStructure, "Callable")],
)
def test_each_kind_is_recognised(model: Any, structure: type, name: str) -> None:
    parts = take_apart(model, GRAPH, X, params={"w": X})
    assert isinstance(parts.structure, structure)
    assert parts.name == name
    assert hash(parts.structure) == hash(take_apart(model, GRAPH, X, params={"w": X}).structure)
    assert take_apart(parts, GRAPH, X) is parts


@pytest.mark.parametrize(
    ("model", "named"), [(Nnx, "the class Nnx"), (Linen, "the class Linen"), (3, "int"), (None, "NoneType")]
)
def test_other_kinds_are_refused(model: Any, named: str) -> None:
    with pytest.raises(TypeError) as caught:
        take_apart(model, GRAPH, X)
    assert str(caught.value) == (
        f"model must be a Flax NNX or Linen module (an instance), or a function f(params, graph, x), got {named}"
    )
