"""JAX's debugging flags with operators, layers and the trainer: every cell of the table in docs/training.md."""

from __future__ import annotations

import contextlib
import functools
import re
import traceback
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dorylax
from dorylax import Graph, layers, ops
from dorylax.layers import registry
from dorylax.pipeline.config import PipelineConfig
from dorylax.program.model.flax_nnx import take_apart
from dorylax.trainer import Trainer

FLAGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "disable_jit": jax.disable_jit,
    "debug_nans": lambda: jax.debug_nans(True),
    "rank_promotion": lambda: jax.numpy_rank_promotion("raise"),
}
# The columns of the table; the trainer's are its options.
TRAINED: dict[str, dict[str, Any]] = {
    "plain": {"optimize": False},
    "one machine": {},
    "pipeline": {"pipeline": PipelineConfig(mode="pipe", servers=2, intervals=1)},
    "streamed": {"memory": "stream"},
}
COLUMNS = ("operator", "layer", *TRAINED)

GRAPH = Graph.from_coo([0, 1, 2, 0, 4, 5], [1, 2, 0, 0, 5, 4], 7)  # vertices 3 and 6 have no edges
X = np.linspace(-1, 1, 14, dtype=np.float32).reshape(7, 2)
DATA = dorylax.Dataset("few", GRAPH, X, np.arange(7) % 2, 2, np.arange(5), [5], [6])


class Net(nnx.Module):
    """A layer, and the user's code after it."""

    def __init__(self, code: Callable[[Any], Any]) -> None:
        self.layer = layers.GCNConv(2, 2, rngs=nnx.Rngs(0))
        self.code = code

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.code(self.layer(graph, x))


def values(column: str, code: Callable[[Any], Any]) -> list[Any]:
    """Results of two epochs, or of one call and its gradient."""
    if column in TRAINED:
        trainer = Trainer(Net(code), DATA, optimizer=optax.sgd(0.1), epochs=2, **TRAINED[column])
        return [*(record.loss for record in trainer.fit().history), trainer.predict()]
    net = Net(code)

    def loss(x: Any) -> Any:
        y = net(GRAPH, x) if column == "layer" else ops.gather(GRAPH, code(x), reduce="mean")
        return (y**2).sum()

    x = jnp.asarray(X)
    return [loss(x), jax.grad(loss)(x)]


@functools.cache
def expected(column: str) -> list[Any]:
    return values(column, jnp.tanh)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("flag", FLAGS)
def test_values_stay(flag: str, column: str) -> None:
    wanted, seen = expected(column), []

    def code(h: Any) -> Any:
        with contextlib.suppress(jax.errors.ConcretizationTypeError):
            seen.append(float(h.sum()))
        return jnp.tanh(h)

    with FLAGS[flag]():
        found = values(column, code)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    if flag == "disable_jit" and column not in ("pipeline", "streamed"):
        # The user's code sees values except under differentiation.
        assert seen


NOT_A_NUMBER = {
    "forward": lambda h: jnp.log(-1 - h**2),  # also of ones, with which a pipeline compiles
    "backward": lambda h: h + jnp.sqrt(0 * h),
}


@pytest.mark.parametrize("where", NOT_A_NUMBER)
@pytest.mark.parametrize("column", COLUMNS)
def test_debug_nans_names_the_line(column: str, where: str) -> None:
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan") as caught:
        values(column, NOT_A_NUMBER[where])
    error = caught.value
    text = "\n".join(error.__notes__) if column in TRAINED else "".join(traceback.format_exception(error))
    assert re.search(rf'test_debugging_flags\.py\W.*\n?.*"{where}": lambda', text)


@pytest.mark.parametrize("where", NOT_A_NUMBER)
def test_the_message_without_the_flag_names_it(where: str) -> None:
    with pytest.raises(dorylax.DorylaxError, match=r"on one machine JAX_DEBUG_NANS=1 .* names the line"):
        values("one machine", NOT_A_NUMBER[where])


# The warning, and the forward passes that print: a call and its gradient, or two epochs, evaluations, and a prediction.
PRINTS = {
    "operator": (None, 2),
    "layer": (None, 2),
    "plain": (None, 5),
    "one machine": ("trains as plain jit if it fits into memory: the optimised program drops ", 5),
    "pipeline": ("does nothing in a model that is split", 3),
    "streamed": ("does nothing in a model that is split or streamed", 0),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_prints(column: str, capfd: pytest.CaptureFixture[str]) -> None:
    def show(h: Any) -> Any:
        jax.debug.print("here {}", h.shape[0])
        return h

    said, passes = PRINTS[column]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values(column, show)
    told = [str(warning.message) for warning in caught]
    place = r"debug_print, at test_debugging_flags\.py:\d+ \(test_prints.<locals>.show\)"
    assert all(re.search(place, text) for text in told)
    assert any(said in text for text in told) if said else not told
    jax.effects_barrier()
    assert capfd.readouterr().out.count("here 7") == passes


def every_operator(x: Any, e: Any) -> list[Any]:
    def maximum(x: Any) -> Any:
        return (ops.gather(GRAPH, x, e, reduce="max") ** 2).sum()

    def attention(x: Any) -> Any:
        return (ops.additive_attention(GRAPH, x[..., None], x, x) ** 2).sum()

    return [
        *(ops.gather(GRAPH, x, reduce=reduce) for reduce in ("sum", "mean", "max")),
        *(ops.gather(GRAPH, x, e, reduce="mean"), ops.gather_edges(GRAPH, e, reduce="mean")),
        *(ops.scatter_src(GRAPH, x), ops.scatter_dst(GRAPH, x)),
        *(ops.edge_softmax(GRAPH, e), *ops.edge_softmax(GRAPH, e, x[:, 0])),
        *(ops.global_mean(GRAPH, x), ops.in_degrees(GRAPH), ops.missing_self_loops(GRAPH)),
        ops.readout(x, jnp.asarray([0, 1, 0, 0, 1, 1, 1]), 3, "mean"),
        *(jax.grad(maximum)(x), jax.grad(attention)(x)),
    ]


def test_every_operator() -> None:
    x, e = jnp.asarray(X), jnp.linspace(1, 2, 6)
    wanted = jax.jit(every_operator)(x, e)
    with contextlib.ExitStack() as stack:
        for flag in FLAGS.values():
            stack.enter_context(flag())
        found = every_operator(x, e)
        with pytest.raises(FloatingPointError, match=r"nan.*gather"):
            ops.gather(GRAPH, jnp.full((7, 1), jnp.inf), jnp.asarray([1.0, 1, 1, -1, 1, 1]))
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def trace_gradient(model: Any) -> None:
    parts = take_apart(model)

    def loss(params: Any) -> Any:
        output, _ = parts.structure.apply_train(params, parts.streams, parts.state, GRAPH, jnp.asarray(X))
        return (output**2).sum()

    jax.eval_shape(jax.grad(loss), parts.params)


@pytest.mark.parametrize("name", registry.MODELS)
def test_every_model(name: str) -> None:
    model = registry.build(name, 2, 3, {}, nnx.Rngs(params=0, dropout=0))
    with jax.numpy_rank_promotion("raise"):
        trace_gradient(model)


@pytest.mark.parametrize("norm", ["layer", "rms", "batch", "graph", "pair"])
def test_every_norm(norm: Any) -> None:
    with jax.numpy_rank_promotion("raise"):
        trace_gradient(layers.GIN(2, 4, 3, norm=norm, dropout=0.5, residual=True, jk="max", rngs=nnx.Rngs(0)))
