"""The oracle: loss and gradients of the un-partitioned model under `jax.value_and_grad`, and how near is near."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dorylax.program.model.base import ModelParts, epoch_rng
from dorylax.program.model.loss import confusion, cross_entropy
from dorylax.program.tracing.arguments import RunData, StepResult

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
"""Relative L2 distance of each gradient, and relative distance of the loss."""


def oracle(parts: ModelParts, data: RunData, *, seed: int = 0, epoch: int = 0) -> tuple[Any, Any, Any]:
    """Loss, counts and gradients of the model as it is, on the whole graph at once.

    Operation by operation: compiled as one function, XLA may compute an operand of `max` twice with different rounding,
    and the gradient then finds no element that equals the maximum.
    """
    arrays = jax.tree.map(jnp.asarray, data)
    arguments = (parts.params, parts.streams, parts.state, arrays, jnp.uint32(seed), jnp.uint32(epoch))
    value, counts, gradients = _function(parts.structure, cross_entropy)(*arguments)
    return value, counts, gradients


def _function(structure: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    def run(params: Any, streams: Any, state: Any, data: RunData, *when: Any) -> Any:
        def loss_of(params: Any) -> Any:
            own = epoch_rng(streams, *when)
            output, _ = structure.apply_train(params, own, state, data.graph, *data.inputs)
            rows = loss(output, data.labels)
            mask = data.weights != 0
            counts = jnp.where(mask[:, None], confusion(output, data.labels), 0).sum(axis=0, dtype=jnp.int32)
            return jnp.where(mask, rows, 0).sum() / mask.sum(), counts

        (value, counts), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        return value, counts, gradients

    return run


def exact_gradients(parts: ModelParts, data: RunData, *, seed: int = 0, epoch: int = 0) -> list[Any]:
    """The oracle's gradients in float64 at these float32 parameters, and at four that a rounding of each moves them to."""
    rng = np.random.default_rng(0)
    rounding = np.finfo(np.float32).eps

    def moved(leaf: Any) -> Any:
        return leaf * (1 + rounding * rng.uniform(-1, 1, np.shape(leaf)))

    with jax.enable_x64(True):
        parts = dataclasses.replace(parts, params=widened(parts.params), state=widened(parts.state))
        data = widened(data)
        beside = [dataclasses.replace(parts, params=jax.tree.map(moved, parts.params)) for _ in range(4)]
        found = [oracle(each, data, seed=seed, epoch=epoch)[2] for each in (parts, *beside)]
    return jax.tree.map(np.asarray, found)


def widened(tree: Any) -> Any:
    """The same values, those in float32 as float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) if _is_float32(leaf) else leaf, tree)


def _is_float32(leaf: Any) -> bool:
    return getattr(leaf, "dtype", None) == np.float32


def distances(gradients: Any, expected: Any, *, rounding: float = 0.0) -> dict[str, float]:
    """Relative L2 distance of each tensor, by path; an expected 0 must be 0, and what is no longer than `rounding` is."""
    assert jax.tree.structure(gradients) == jax.tree.structure(expected)
    found = {}
    for (path, b), a in zip(jax.tree.leaves_with_path(expected), jax.tree.leaves(gradients), strict=True):
        assert a.shape == b.shape, path
        assert a.dtype == b.dtype, path
        scale = np.linalg.norm(b)
        distance = np.linalg.norm(np.asarray(a) - np.asarray(b))
        distance = 0.0 if distance <= rounding else distance
        found[jax.tree_util.keystr(path)] = float(distance / scale if scale else distance)
    return found


def assert_same(
    result: StepResult,
    expected: tuple[Any, Any, Any],
    dtype: str,
    *,
    exact: Callable[[], list[Any]] | None = None,
    with_zeros: bool = False,
) -> None:
    """The step has the oracle's loss, counts and gradients.

    Args:
        with_zeros: some gradients may be 0 but for rounding, where a relative distance means nothing: all may also be off
            by eight units in the last place of the length of the whole gradient.
        exact: gives `exact_gradients`. Asked where a float32 gradient is too far from the oracle's, which is rounded too,
            and on every processor differently: it must then be as near to the exact one as to the oracle's before, or at
            least as near as those of parameters a few units in the last place away.
    """
    loss, counts, gradients = expected
    tolerance = TOLERANCE[dtype]
    assert abs(float(result.loss) - float(loss)) <= tolerance * abs(float(loss))
    if result.metrics:
        np.testing.assert_array_equal(result.metrics["counts"], counts)
    rounding = 8 * np.finfo(dtype).eps * float(optax.tree.norm(gradients)) if with_zeros else 0.0
    found = distances(result.gradients, gradients, rounding=rounding)
    far = {path: distance for path, distance in found.items() if not distance <= tolerance}
    if far and exact is not None:
        truth, *beside = exact()
        conditions = [distances(gradients, truth) for gradients in beside]
        bounds = {
            path: min(100 * tolerance, max(tolerance, *(4 * condition[path] for condition in conditions)))
            for path in conditions[0]
        }
        rounded = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), result.gradients)
        far = {path: far for path, far in distances(rounded, truth).items() if not far <= bounds[path]}
    assert not far, far
