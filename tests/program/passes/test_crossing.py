"""What crosses between stages is the cheapest choice there is, found here by trying all of them."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support import zoo

from dorylax import ops
from dorylax.jax_internals import JaxprEqn, Var, variables
from dorylax.program import Program, optimise, trace
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.passes import crossing
from dorylax.program.passes.crossing import FORBIDDEN, Crossing, choose_crossings

INPUTS = ("x", "norm")
SHAPES = {"w": (1, zoo.C)}


def traced(model: Callable[..., Any], shapes: dict[str, tuple[int, ...]], **options: Any) -> Program:
    params = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    spec = zoo.spec_of(zoo.Case(lambda dtype: None, INPUTS), "float32")
    return trace(model, spec, params=params, **options)


def small_model(seed: int) -> Callable[..., Any]:
    """Arithmetic of one to four columns before, between and after two gathers."""
    draw = random.Random(seed)
    kinds = ["tanh", "sum", "widen", "add", "scale"]
    plan = [(draw.choice(kinds), draw.random(), draw.random(), draw.randint(1, 4)) for _ in range(draw.randint(4, 7))]
    first, read = draw.randint(2, 4), [draw.random() for _ in range(3)]

    def model(p: Any, graph: Any, x: Any, norm: Any) -> Any:
        values = [x, norm]
        for k, (kind, a, b, width) in enumerate(plan):
            if k == first:
                values.append(ops.gather(graph, values[-1]))
            u, v = values[int(a * len(values))], values[int(b * len(values))]
            values.append(
                {
                    "tanh": lambda u=u: jnp.tanh(u),
                    "sum": lambda u=u: u.sum(axis=1, keepdims=True),
                    "widen": lambda u=u, width=width: u[:, :1] * jnp.arange(1.0, width + 1, dtype=u.dtype),
                    "add": lambda u=u, v=v: u[:, :1] + v,
                    "scale": lambda u=u, v=v: u * v[:, :1],
                }[kind]()
            )
        last = ops.gather(graph, values[-1])
        chosen = [last, *(values[int(a * len(values))] for a in read)]
        return sum(value.sum(axis=1, keepdims=True) for value in chosen) * p["w"]

    return model


def prices(seed: int) -> Callable[[JaxprEqn, Crossing], float]:
    """In sixteenths of a byte, which capacities hold exactly."""

    def price(equation: JaxprEqn, given: Crossing) -> float:
        draw = random.Random(seed * 1000 + given.program.analysis.order[id(equation)])
        return FORBIDDEN if draw.random() < 0.15 else draw.randint(0, 60) / 16

    return price


class Instance:
    """The choice of one stage, costed by going through what it would read."""

    def __init__(self, chooser: Any, target: int, wanted: list[Var]) -> None:
        self._chooser, self._target, self._wanted = chooser, target, wanted
        self._task, analysis = chooser.tasks[target], chooser._analysis
        self._at_hand = {var for var in self._task.read if chooser._has_rows(var)} - set(wanted)
        self._makers: dict[Var, JaxprEqn] = {}
        self.optional: dict[int, float] = {}
        self._floating: set[int] = set()
        for source in {chooser._home[var] for var in wanted}:
            task = chooser.tasks[source]
            given = Crossing(chooser._program, self._task, task, chooser._exclusive(source, target))
            for equation in task.equations:
                if analysis.floats(equation):
                    self._floating.add(id(equation))
                elif any(chooser._home[var] != source for var in equation.outvars):
                    continue
                elif (price := chooser._price(equation, given)) < FORBIDDEN:
                    self.optional[id(equation)] = price
                self._makers.update(dict.fromkeys(equation.outvars, equation))

    def cost(self, again: Iterable[int]) -> float:
        """Bytes per row of what is read, and the price of what is computed again."""
        chosen, total = set(again), 0.0
        seen: set[Any] = set(self._at_hand)
        stack = list(self._wanted)
        while stack:
            var = stack.pop()
            if var in seen:
                continue
            seen.add(var)
            equation = self._makers.get(var)
            if equation is not None and id(equation) in chosen | self._floating:
                if id(equation) not in seen:
                    seen.add(id(equation))
                    total += self.optional.get(id(equation), 0.0)
                    stack.extend(variables(equation.invars))
            else:
                total += self._chooser._ship(var, self._task, self._target)
        return total

    def least(self) -> float:
        subsets = (itertools.combinations(self.optional, size) for size in range(len(self.optional) + 1))
        return min(self.cost(chosen) for chosen in itertools.chain.from_iterable(subsets))


def instances(program: Program, price: Callable[..., float]) -> list[tuple[Instance, list[JaxprEqn]]]:
    """What every stage of a program chooses, one after the other."""
    chooser = crossing._Chooser(program, price)
    found = []
    for target, task in enumerate(program.tasks):
        if task.kind != "stage":
            continue
        wanted = [var for var in chooser.tasks[target].read if chooser._has_rows(var) and chooser._from_stage(var)]
        if wanted:
            instance = Instance(chooser, target, wanted)
            if 0 < len(instance.optional) <= 12:
                again = chooser._again(target, wanted)
                assert instance.cost(map(id, again)) == pytest.approx(instance.least(), abs=1e-9)
                found.append((instance, again))
        chooser.choose(target)
    return found


def test_no_other_choice_is_cheaper() -> None:
    tried = [
        found for seed in range(40) for found in instances(traced(small_model(seed), SHAPES, loss=None), prices(seed))
    ]
    assert len(tried) >= 20
    assert sum(bool(again) for _, again in tried) >= 8  # something is computed again
    assert sum(len(again) < len(instance.optional) for instance, again in tried) >= 8  # and something not


def several_sources(p: Any, graph: Any, x: Any, norm: Any) -> Any:
    """The last stage reads v and w; the stage of w reads v too."""
    v = jnp.tanh(x)
    w = v * ops.gather(graph, jnp.sin(x))
    far = ops.gather(graph, w)
    return (v * far + w * far * far + x * far) @ p["w"]


def test_no_other_choice_is_cheaper_where_one_source_reads_the_other() -> None:
    program = traced(several_sources, {"w": (zoo.F, zoo.C)}, loss=None)
    assert instances(program, lambda equation, given: 0.5)
    after = choose_crossings(program, lambda equation, given: 0.5)
    last = max(k for k, task in enumerate(after.tasks) if task.kind == "stage")
    assert "tanh" in {equation.primitive.name for equation in after.tasks[last].equations}


PASSES = ("rematerialise", "sink", "cut")
MODELS = ["GCN", "GAT", "GIN deep", "GraphSAGE", "sharing", "linen SAGE"]


@functools.cache
def prepared(name: str, *passes: str) -> Program:
    case = zoo.ALL[name]
    if not passes:
        return trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"))
    return optimise(prepared(name), passes)


def shipped(program: Program) -> int:
    return program.cost(20_000, 300_000).epoch.shipped_bytes


def crossing_bytes(program: Program) -> int:
    """Rows in and out of all stages of an epoch, whoever runs them."""
    pairs = zip(program.tasks, program.cost(20_000, 300_000).tasks, strict=True)
    return sum(c.row_bytes_in + c.row_bytes_out for t, c in pairs if t.kind == "stage" and t.when == "epoch")


@pytest.mark.parametrize("name", MODELS)
def test_no_pass_makes_more_cross(name: str) -> None:
    for base in (("prune", "hoist"), ("prune", "hoist", "fuse")):
        before = least = crossing_bytes(prepared(name, *base))
        for k, one in enumerate(PASSES):
            assert crossing_bytes(prepared(name, *base, one)) <= before
            least, last = crossing_bytes(prepared(name, *base, *PASSES[: k + 1])), least
            assert least <= last
        assert least < before


@pytest.mark.parametrize("name", MODELS)
def test_no_pass_ships_more_where_workers_run_all_stages(name: str) -> None:
    least = shipped(prepared(name, "prune", "hoist"))
    for k in range(len(PASSES)):
        least, last = shipped(prepared(name, "prune", "hoist", *PASSES[: k + 1])), least
        assert least <= last


@pytest.mark.parametrize("name", ["GCN", "GAT", "linen SAGE"])
def test_no_pass_ships_more_where_light_stages_stay(name: str) -> None:
    """A stage that reads fewer bytes, or computes more, must not be shipped for it."""
    before = shipped(prepared(name, "prune", "hoist", "fuse"))
    after = {one: shipped(prepared(name, "prune", "hoist", "fuse", one)) for one in PASSES}
    assert all(value <= before for value in after.values()), (before, after)


def free(equation: JaxprEqn, given: Crossing) -> float:
    return 0.0


def test_nothing_changes_where_nothing_may_be_computed_again() -> None:
    program = traced(small_model(3), SHAPES)
    after = choose_crossings(program, lambda equation, given: FORBIDDEN)
    assert [task.equations for task in after.tasks] == [task.equations for task in program.tasks]


def test_graph_operators_are_never_computed_again() -> None:
    after = choose_crossings(traced(small_model(3), SHAPES), free)
    for task in after.tasks:
        assert task.kind == "graph" or not any(map(is_graph_operator, task.equations))
    operators = [id(e) for task in after.tasks for e in task.equations if is_graph_operator(e)]
    assert len(operators) == len(set(operators))


def test_where_arithmetic_is_free_stages_read_what_is_narrow() -> None:
    def model(p: Any, graph: Any, x: Any, norm: Any) -> Any:
        wide = jnp.tanh(norm * jnp.arange(1.0, 9))
        return (ops.gather(graph, x[:, :1]) * wide).sum(axis=1, keepdims=True) * p["w"]

    program = traced(model, SHAPES, loss=None)
    last = max(k for k, task in enumerate(program.tasks) if task.kind == "stage")
    assert 8 in [var.aval.shape[-1] for var in program.interfaces[last].reads]
    after = choose_crossings(program, free)
    assert 8 not in [
        var.aval.shape[-1] for k, i in enumerate(after.interfaces) for var in i.reads if len(var.aval.shape) > 1
    ]


def test_equal_costs_leave_equations_where_they_are() -> None:
    """Reading 5 numbers, or 5 others and computing: not again."""

    def model(p: Any, graph: Any, x: Any, norm: Any) -> Any:
        return ops.gather(graph, jnp.cos(x)) * jnp.tanh(jnp.cos(x)) @ p["w"]

    program = traced(model, {"w": (zoo.F, zoo.C)}, loss=None)
    after = choose_crossings(program, lambda equation, given: 20.0)
    names = [[e.primitive.name for e in task.equations].count("tanh") for task in after.tasks]
    assert sum(names) == 1
