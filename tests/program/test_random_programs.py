"""Random models under random passes and cuts, against the model as it is."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.graphs import messy_graph
from support.oracle import assert_same, oracle
from support.random_programs import C, F, RandomModel, random_models
from support.reference import Intervals, ReferenceExecutor, interpret

from dorylax.program import PASSES, DataSpec, RowSpec, optimise, trace
from dorylax.program.model.kinds import take_apart
from dorylax.program.tracing.arguments import RunData, training_weights

GRAPH = messy_graph()
FEW, MANY = 60, 400
V, E = int(GRAPH.num_vertices), int(GRAPH.num_edges)
SPEC = DataSpec(
    (RowSpec("vertex", (F,), "float64", "x"), RowSpec("edge", (), "float64", "weight")),
    RowSpec("vertex", (), "int32", "labels"),
    num_vertices=V,
    num_edges=E,
)


def data() -> RunData:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, C, V).astype(np.int32)
    weights = training_weights(rng.random(V) < 0.7, "float64")
    return RunData(GRAPH, (rng.normal(size=(V, F)), rng.uniform(0.5, 1.5, E)), labels, weights)


programs = given(
    model=random_models(),
    passes=st.sets(st.sampled_from(PASSES)),
    bounds=st.lists(st.integers(1, V - 1), max_size=6, unique=True).map(sorted),
)
pytestmark = pytest.mark.timeout(900)  # Hypothesis takes up to five minutes to make a failing program small


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck))
@programs
def test_random_programs(model: RandomModel, passes: set[str], bounds: list[int]) -> None:
    check(model, passes, bounds)


@pytest.mark.exhaustive
@settings(max_examples=MANY, suppress_health_check=list(HealthCheck))
@programs
def test_many_random_programs(model: RandomModel, passes: set[str], bounds: list[int]) -> None:
    check(model, passes, bounds)


def check(model: RandomModel, passes: set[str], bounds: list[int]) -> None:
    with jax.enable_x64(True):
        params = [jnp.asarray(value) for value in model.params()]
        parts = dataclasses.replace(take_apart(model, None, params=params), params=params)
        given_data = data()
        program = optimise(trace(parts, SPEC), passes)
        executor = ReferenceExecutor(
            program, given_data, Intervals.of(GRAPH, [0, *bounds, V]), compile=interpret, rows={"vertex": V, "edge": E}
        )
        result = executor.step(parts.params, parts.streams, parts.state, seed=1, epoch=2)
        expected: Any = oracle(parts, given_data, seed=1, epoch=2)
        assert_same(result, expected, "float64", with_zeros=True)
