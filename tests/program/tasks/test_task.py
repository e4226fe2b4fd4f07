from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import Jaxpr, make_jaxpr_of
from dorylax.program.tasks.task import Task, interfaces, tidy

X = np.ones(3, np.float32)


def chain(x: Any) -> Any:
    a = jnp.sin(x)
    b = jnp.cos(a)
    c = jnp.tanh(a) * b
    return c, b


def task(jaxpr: Jaxpr, *places: int) -> Task:
    return Task("stage", "epoch", "forward", 0, "worker", "vertex", tuple(jaxpr.eqns[k] for k in places))


JAXPR = make_jaxpr_of(chain, X).jaxpr  # sin, cos, tanh, mul
A, B, T, C = (equation.outvars[0] for equation in JAXPR.eqns)


def test_what_several_tasks_compute_is_written_by_the_first() -> None:
    first, again, last = interfaces([task(JAXPR, 0, 1), task(JAXPR, 0, 2), task(JAXPR, 3)], JAXPR.outvars)
    assert first.writes == (B,)  # the second task computes A itself
    assert again.writes == (T,)
    assert last.reads == (T, B)


def test_tidy_drops_what_nobody_needs() -> None:
    tasks = [task(JAXPR, 0, 1), task(JAXPR, 0), task(JAXPR, 0, 1, 2), task(JAXPR, 3)]
    tidied = tidy(tasks, [C])
    assert [[equation.primitive.name for equation in one.equations] for one in tidied] == [
        ["sin", "cos"],
        ["sin", "tanh"],  # cos is written by the first
        ["mul"],
    ]
    assert tidied[0] is tasks[0]
    assert tidy(tasks, []) == ()
