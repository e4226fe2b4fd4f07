from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dorylax import ops
from dorylax.program.program import trace
from dorylax.program.tasks.label import task_label
from dorylax.program.tracing.spec import DataSpec, RowSpec

SPEC = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32", "labels"))


def test_each_task_is_named_by_what_it_does() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        h = ops.gather(graph, x @ params, reduce="mean")  # counts in-edges
        messages = jnp.tanh(ops.scatter_src(graph, h))  # per edge
        h = ops.gather_edges(graph, messages)
        return h - ops.global_sum(graph, h)[None]

    program = trace(model, SPEC, params=jax.ShapeDtypeStruct((3, 2), jnp.float32))
    labels = [task_label(program, k) for k in range(len(program.tasks))]
    assert {"count", "GA", "SC", "AE", "AV", "GS", "∇GS", "∇AE", "∇SC", "∇GA", "∇AV", "between", "end"} <= {
        part for label in labels for part in label.split("+")
    }
    assert labels[-1] == "end"
