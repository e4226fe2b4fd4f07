"""sink: equations move into the only stage that needs them, if no more bytes are shipped for it."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import zoo

from dorylax import ops
from dorylax.program import Program, optimise, trace

sink = functools.partial(optimise, passes=["sink"])

INPUTS = ("x", "norm")
SHAPES = {"a": (zoo.F, 4), "b": (4, zoo.C)}


def model(p: Any, graph: Any, x: Any, norm: Any) -> Any:
    wide = jnp.tanh(jnp.concatenate([norm, -norm, norm * norm, norm + 1], axis=1))
    return ops.gather(graph, x @ p["a"]) * wide @ p["b"]


CASE = zoo.Case(lambda dtype: (model, {name: np.zeros(shape, dtype) for name, shape in SHAPES.items()}), INPUTS)


def one_hot_loss(output: Any, labels: Any) -> Any:
    return -(jax.nn.one_hot(labels, zoo.C, dtype=output.dtype) * jax.nn.log_softmax(output)).sum(axis=1)


@pytest.fixture(scope="module")
def program() -> Program:
    return trace(zoo.parts_of(CASE, "float32"), zoo.spec_of(CASE, "float32"), loss=one_hot_loss, metrics=None)


def levels(program: Program, primitive: str) -> list[int]:
    return [t.level for t in program.tasks if t.kind == "stage" for e in t.equations if e.primitive.name == primitive]


def copies(program: Program) -> Counter[int]:
    return Counter(id(e) for t in program.tasks for e in t.equations if not program.analysis.floats(e))


def loss_task(program: Program) -> int:
    return next(k for k, t in enumerate(program.tasks) if program.traced.step.jaxpr.outvars[0] in t.defined)


def test_labels_are_read_instead_of_their_one_hot_rows(program: Program) -> None:
    (labels,) = program.traced.variables("labels")
    assert labels not in program.interfaces[loss_task(program)].reads
    after = optimise(program, ["fuse", "sink"])
    assert labels in after.interfaces[loss_task(after)].reads
    makers = {var: e.primitive.name for e in after.traced.step.jaxpr.eqns for var in e.outvars}
    assert "eq" not in [makers.get(var) for var in after.interfaces[loss_task(after)].reads]


def test_what_moves_leaves_its_stage(program: Program) -> None:
    fused = optimise(program, ["prune", "fuse"])
    after = sink(fused)
    assert (levels(fused, "concatenate"), levels(after, "concatenate")) == ([0], [1])
    assert copies(after) == copies(fused)


def test_what_two_stages_need_stays(program: Program) -> None:
    """Not fused, the backward stage needs the wide rows too."""
    assert levels(sink(optimise(program, ["prune"])), "concatenate") == [0]


def test_what_is_narrower_afterwards_stays() -> None:
    def narrowing(p: Any, graph: Any, x: Any, norm: Any) -> Any:
        return (ops.gather(graph, norm) + jnp.tanh(x).sum(axis=1, keepdims=True)) @ p["a"][:1, :3] + p["b"].sum()

    params = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    program = trace(narrowing, zoo.spec_of(CASE, "float32"), params=params, loss=None)
    assert levels(sink(program), "tanh") == [0]


def test_what_runs_once_is_not_moved_into_the_epoch() -> None:
    def hoisting(p: Any, graph: Any, x: Any, norm: Any) -> Any:
        wide = jnp.tanh(jnp.tile(ops.gather(graph, norm), (1, 8)))
        return ops.gather(graph, x @ p["a"]) @ p["b"] + wide[:, 2:5]

    params = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    program = optimise(trace(hoisting, zoo.spec_of(CASE, "float32"), params=params, loss=None), ["hoist"])
    once = [t.equations for t in program.tasks if t.when == "once"]
    assert any(e.primitive.name == "tanh" for equations in once for e in equations)
    assert [t.when for t in sink(program).tasks for e in t.equations if e.primitive.name == "tanh"] == ["once"]


def test_equations_only_move() -> None:
    """Even where a part of what is made of them is better read: then the stage before would still need them."""
    program = optimise(reading_both(), ["fuse"])
    assert max(copies(sink(program)).values()) == 1


def reading_both() -> Program:
    """A stage reads wide rows made of narrow ones, and a number for each row made of both and of other rows."""

    def both(p: Any, graph: Any, x: Any, norm: Any) -> Any:
        h = norm @ p["w"]
        seen = (h[:, : zoo.F] * x).sum(axis=1)
        return (jnp.tanh(h) * ops.gather(graph, norm)) @ p["v"] + seen[:, None]

    params = {"w": np.zeros((1, 16), np.float32), "v": np.zeros((16, zoo.C), np.float32)}
    return trace(both, zoo.spec_of(CASE, "float32"), params=params, loss=None)
