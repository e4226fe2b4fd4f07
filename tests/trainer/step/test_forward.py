"""Evaluations by a program: the plain model's outputs, with what training keeps where the very same serves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.datasets import load
from dorylax.layers import APPNP, GAT, GCN, GCNII, GIN, GraphSAGE
from dorylax.ops import gather
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.step.compiled import TrainingArrays
from dorylax.trainer.step.gradient import PlainForward, ProgramForward, ProgramGradient


class Biased(nnx.Module):
    """A model that closes over an array, and gathers features before and after it is added."""

    def __init__(self, offset: np.ndarray, *, rngs: nnx.Rngs) -> None:
        self.offset = offset
        self.out = nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.out(gather(graph, x) + gather(graph, x * jnp.asarray(self.offset)))


# How many arrays training keeps that the forward pass takes.
MODELS: dict[str, tuple[Any, int]] = {
    "gcn": (lambda rngs: GCN(16, 8, 4, dropout=0.0, rngs=rngs), 2),
    "gcn, dropout": (lambda rngs: GCN(16, 8, 4, dropout=0.5, rngs=rngs), 0),
    "sage": (lambda rngs: GraphSAGE(16, 8, 4, dropout=0.0, rngs=rngs), 2),
    "gin": (lambda rngs: GIN(16, 8, 4, dropout=0.0, rngs=rngs), 1),
    "gat": (lambda rngs: GAT(16, 4, 4, heads=2, rngs=rngs), 0),
    "appnp": (lambda rngs: APPNP(16, 8, 4, dropout=0.5, rngs=rngs), 1),
    "gcnii": (lambda rngs: GCNII(16, 8, 4, num_layers=3, rngs=rngs), 1),
}


@pytest.fixture(scope="module")
def tiny():
    return load("communities", size="tiny")


def outputs(model: nnx.Module, data: Any) -> tuple[ProgramGradient, np.ndarray, np.ndarray]:
    """By the forward pass of its training, and by the model as it is."""
    parts, arrays = take_apart(model), TrainingArrays.of(data)
    gradient = ProgramGradient.of(parts, DataSpec.of(data))
    kept = gradient.forward.kept_of(gradient.keep(arrays).arrays)
    plain = PlainForward(parts.structure)
    found = [
        np.asarray(jax.jit(forward)(parts.params, parts.state, parts.streams, taken, arrays))
        for forward, taken in ((gradient.forward, kept), (plain, ()))
    ]
    return gradient, found[0], found[1]


@pytest.mark.parametrize("name", list(MODELS))
def test_gives_the_plain_models_outputs_with_what_training_keeps(tiny, name):
    make, shared = MODELS[name]
    gradient, own, plain = outputs(make(nnx.Rngs(0)), tiny)
    np.testing.assert_allclose(own, plain, rtol=2e-5, atol=2e-5)
    assert isinstance(gradient.forward, ProgramForward)
    assert len(gradient.forward.kept_of(tuple(range(9)))) == shared


def test_arrays_that_the_model_closes_over_are_its_own(tiny):
    offsets = [np.full(16, scale, np.float32) for scale in (1.0, 2.0)]
    for offset in offsets:
        _, own, plain = outputs(Biased(offset, rngs=nnx.Rngs(0)), tiny)
        np.testing.assert_allclose(own, plain, rtol=2e-5, atol=2e-5)


def test_a_model_that_only_trains_in_rows_is_evaluated_as_it_is(tiny):
    class Net(nnx.Module):
        """Looks at the median of all vertices when evaluated."""

        def __init__(self) -> None:
            self.out = nnx.Linear(16, 4, rngs=nnx.Rngs(0))
            self.deterministic = False

        def __call__(self, graph: Any, x: Any) -> Any:
            y = self.out(gather(graph, x))
            return y - jnp.median(y, axis=0) if self.deterministic else y

    gradient, own, plain = outputs(Net(), tiny)
    assert isinstance(gradient.forward, PlainForward)
    np.testing.assert_array_equal(own, plain)
