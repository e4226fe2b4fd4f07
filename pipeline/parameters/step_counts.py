"""The step counts in an optimizer's state, for runs with several updates per epoch.

With one update per interval, an epoch has K steps. Moments are updated K times, so the counts that correct their bias stay
right. Schedules are functions of the epoch, so their counts are set before every update. Any other count (accumulated
gradients, a period, patience) would run K times too fast; `uncounted` finds those, to refuse the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dorylax.pipeline.parameters.records import Tree

Counts = Literal["epochs", "updates", "nothing"]

_UPDATES: Mapping[str, Counts] = {"count": "updates"}
_EPOCHS: Mapping[str, Counts] = {"count": "epochs"}
_STEP: Mapping[str, Counts] = {"step": "epochs"}

OPTAX: Mapping[str, Mapping[str, Counts]] = {
    # Schedules: functions of the count.
    "ScaleByScheduleState": _EPOCHS,
    "WeightDecaySchedule": _EPOCHS,
    "WrappedScheduleState": _EPOCHS,
    "ConditionallyMaskState": _STEP,
    "ConditionallyTransformState": _STEP,
    "InjectHyperparamsState": {"count": "epochs", "hyperparams": "nothing"},
    "InjectStatefulHyperparamsState": {"count": "epochs", "hyperparams": "nothing"},
    # Moments: the count says how many gradients are in them.
    "EmaState": _UPDATES,
    "FactoredState": _UPDATES,
    "MuonState": _UPDATES,
    "ScaleByAdamState": _UPDATES,
    "ScaleByAdanState": {"t": "updates"},
    "ScaleByAmsgradState": _UPDATES,
    "ScaleByBeliefState": _UPDATES,
    "ScaleByLionState": _UPDATES,
    "ScaleByNovogradState": _UPDATES,
    "ScaleByRStdDevWithCountState": _UPDATES,
    "ScaleByRmsWithCountState": _UPDATES,
    # Both: `count_m2` is read by the schedules of its slow moment only.
    "ScaleByAdemamixState": {"count": "updates", "count_m2": "epochs"},
}
"""Class → field → unit of the counts in optax's states; "nothing" is a value from the user."""


def with_epoch(state: Tree, epoch: Any) -> Tree:
    """Return an optimizer's state with its schedules set to an epoch."""
    children, structure = _children(state)
    if jax.tree_util.treedef_is_leaf(structure):
        return state
    fields = _fields(state)
    return structure.unflatten(
        jnp.asarray(epoch, child.dtype) if fields.get(name) == "epochs" else with_epoch(child, epoch)
        for name, child in children
    )


def uncounted(state: Tree) -> Iterator[str]:
    """Yield the counts that `OPTAX` does not list, such as `MultiStepsState.mini_step`.

    Args:
        state: The state of an optimizer: arrays or their shapes.
    """
    fields = _fields(state)
    for name, child in _children(state)[0]:
        if name in fields:
            continue
        if _is_count(child):
            yield f"{type(state).__name__}.{name}" if name else "its state"
        elif child is not state:
            yield from uncounted(child)


def _fields(state: Tree) -> Mapping[str, Counts]:
    kind = type(state)
    return OPTAX.get(kind.__name__, {}) if kind.__module__.split(".")[0] == "optax" else {}


def _children(state: Tree) -> tuple[list[tuple[str, Any]], Any]:
    """Return the direct children of a pytree with their names; a leaf is its own child."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(state, is_leaf=lambda child: child is not state)
    return [(jax.tree_util.keystr(path, simple=True), child) for path, child in pairs], structure


def _is_count(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and leaf.shape == () and jnp.issubdtype(dtype, jnp.integer)
