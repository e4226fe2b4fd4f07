"""hoist and settle: operators, and rows that they read along edges, run once if they depend on data alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import zoo

from dorylax import ops
from dorylax.jax_internals import is_literal
from dorylax.program import Program, optimise, trace
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.steps import lower

hoist = functools.partial(optimise, passes=["hoist"])
prune = functools.partial(optimise, passes=["prune"])

SHAPES = {"a": (zoo.F, 4), "b": (4, zoo.C)}


def _plain(p: Any, g: Any, x: Any, weight: Any) -> Any:
    near = ops.gather(g, ops.gather(g, jnp.sin(x), weight), reduce="mean")
    return ops.gather(g, jnp.tanh(near @ p["a"]) @ p["b"], weight)


def _dropout(p: Any, g: Any, x: Any, weight: Any, key: Any) -> Any:
    kept = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)
    return ops.gather(g, jnp.tanh(ops.gather(g, kept) @ p["a"]) @ p["b"], weight)


def _dropout_after(p: Any, g: Any, x: Any, weight: Any, key: Any) -> Any:
    near = ops.gather(g, x)
    return ops.gather(g, jnp.where(jax.random.bernoulli(key, 0.5, near.shape), near, 0) @ p["a"] @ p["b"], weight)


def _product_first(p: Any, g: Any, x: Any, weight: Any) -> Any:
    return ops.gather(g, x @ p["a"]) @ p["b"]


def _attention(p: Any, g: Any, x: Any, weight: Any) -> Any:
    alpha = ops.edge_softmax(g, jnp.log(weight))  # of data alone, over edges
    return ops.gather(g, x @ p["a"] @ p["b"], alpha)


def _halves(p: Any, g: Any, x: Any, weight: Any) -> Any:
    """One equation makes both halves; only one of them is gathered."""
    left, right = jnp.split(x, [2], axis=1)
    return ops.gather(g, jnp.tanh(ops.gather(g, left) @ p["a"][:2] + right @ p["a"][2:]) @ p["b"], weight)


def _sorted(p: Any, g: Any, x: Any, weight: Any) -> Any:
    """Sorting also gives the order, which nothing reads."""
    return ops.gather(g, jnp.tanh(ops.gather(g, jnp.sort(x, axis=1)) @ p["a"]) @ p["b"], weight)


MODELS: dict[str, Callable[..., Any]] = {
    "plain": _plain,
    "dropout": _dropout,
    "dropout after": _dropout_after,
    "product first": _product_first,
    "attention": _attention,
    "halves": _halves,
    "sorted": _sorted,
}
CASES = {
    name: zoo.Case(lambda dtype, f=f: (f, {k: np.zeros(s, dtype) for k, s in SHAPES.items()}), ("x", "weight"))
    for name, f in MODELS.items()
} | {name: zoo.ALL[name] for name in ("GCN without dropout", "SGC", "MPNN", "APPNP as a scan")}


@functools.cache
def hoisted(name: str) -> Program:
    case = CASES[name]
    return hoist(prune(trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"))))


@pytest.mark.parametrize("name", CASES)
def test_what_runs_once_depends_on_data_alone(name: str) -> None:
    program = hoisted(name)
    entries = zip(program.traced.step.jaxpr.invars, program.traced.inputs, strict=True)
    known = {var for var, entry in entries if entry.of_data}
    once = [(k, task) for k, task in enumerate(program.tasks) if task.when == "once"]
    assert [k for k, _ in once] == list(range(len(once)))
    for k, _ in once:
        assert known.issuperset(program.interfaces[k].reads)
        known.update(program.interfaces[k].writes)


@pytest.mark.parametrize("name", CASES)
def test_nothing_constant_behind_a_graph_operator_is_left_in_the_epoch(name: str) -> None:
    """Nor any constant graph operator. Checked by following values, not by what the pass says is constant."""
    program = hoisted(name)
    entries = zip(program.traced.step.jaxpr.invars, program.traced.inputs, strict=True)
    changing = {var for var, entry in entries if not entry.of_data}
    behind = set()
    once = {id(e) for task in program.tasks if task.when == "once" for e in task.equations}
    in_epoch = {id(e) for task in program.tasks if task.when == "epoch" for e in task.equations}
    for equation in program.traced.step.jaxpr.eqns:
        operands = {atom for atom in equation.invars if not is_literal(atom)}
        if operands & changing:
            changing.update(equation.outvars)
        elif is_graph_operator(equation) or operands & behind:
            behind.update(equation.outvars)
            assert id(equation) not in in_epoch
            assert id(equation) in once


def kept(program: Program) -> list[Any]:
    """Rows that are written once and read in every epoch."""
    made = {var for k, t in enumerate(program.tasks) if t.when == "once" for var in program.interfaces[k].writes}
    read = dict.fromkeys(
        v for k, t in enumerate(program.tasks) if t.when == "epoch" for v in program.interfaces[k].reads
    )
    return [var for var in read if var in made and isinstance(program.analysis.types[var], Rows)]


def operators(program: Program, when: str) -> int:
    return sum(task.kind == "graph" and task.when == when for task in program.tasks)


def test_two_gathers_of_features() -> None:
    program = hoisted("plain")
    assert operators(program, "once") == 3  # with the degrees
    assert operators(program, "epoch") == 2
    assert [var.aval.shape[1:] for var in kept(program)] == [
        (zoo.F,),
        (1,),
    ]  # and the weights, as the last gather reads them
    assert min(task.level for task in program.tasks if task.when == "epoch") == 0


@pytest.mark.parametrize("name", ["dropout", "product first"])
def test_what_changes_before_the_gather_keeps_it_in_the_epoch(name: str) -> None:
    program = hoisted(name)
    assert operators(program, "once") == 0
    assert kept(program) == []


def test_dropout_after_the_gather_does_not() -> None:
    program = hoisted("dropout after")
    assert operators(program, "once") == 1
    assert [var.aval.shape[1:] for var in kept(program)] == [(zoo.F,)]


def test_attention_of_data_alone() -> None:
    program = hoisted("attention")
    assert operators(program, "once") == 1
    assert [program.analysis.types[var].space for var in kept(program)] == ["edge"]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", CASES)
def test_labels_and_weights_are_not_kept_again(name: str) -> None:
    """What is made of them is constant too, but no graph operator is near."""
    program = hoisted(name)
    given = set(program.traced.variables("labels", "weights"))
    for task in program.tasks:
        if task.when == "once":
            assert not given.intersection(task.read)


settle = functools.partial(optimise, passes=["settle"])

SETTLED = {"a": (zoo.F, 4), "b": (4, zoo.C), "w": (1,)}


def _learned_weights(p: Any, g: Any, x: Any, weight: Any) -> Any:
    scaled = jnp.sin(x)  # of data alone
    near = ops.gather(g, scaled, weight * p["w"])
    return ops.gather(g, jnp.tanh(near @ p["a"])) @ p["b"]


LEARNED = zoo.Case(
    lambda dtype: (_learned_weights, {k: np.ones(s, dtype) for k, s in SETTLED.items()}), ("x", "weight")
)


def _traced(case: zoo.Case = LEARNED) -> Program:
    return trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"))


def _shapes(program: Program, when: str) -> list[tuple[Any, ...]]:
    """Of what tasks at that time write."""
    pairs = zip(program.tasks, program.interfaces, strict=True)
    return [var.aval.shape for task, interface in pairs if task.when == when for var in interface.writes]


def test_rows_that_never_change_are_made_and_sent_once() -> None:
    before, after = _traced(), settle(_traced())
    assert {one.constant for one in lower(before).publications} == {False}
    constant = [one.var.aval.shape for one in lower(after).publications if one.constant]
    assert [shape[-1] for shape in constant] == [zoo.F]
    assert _shapes(before, "once") == []
    assert _shapes(after, "once") == constant


def test_operators_stay_where_they_are() -> None:
    before, after = _traced(), settle(_traced())
    assert [task.when for task in after.tasks if task.kind == "graph"] == ["epoch"] * sum(
        task.kind == "graph" for task in before.tasks
    )


def test_what_hoist_takes_is_made_once_as_well() -> None:
    """A constant gather goes where it goes without settle."""
    program = _traced(zoo.ALL["GCN without dropout"])
    both, alone = hoist(settle(program)), hoist(program)
    assert [(task.kind, task.when) for task in both.tasks] == [(task.kind, task.when) for task in alone.tasks]
