"""The description of a run, and conversion between its state and the content of a checkpoint."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.errors import InputError
from dorylax.graph.data_shape import describe_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.sharded_data import ShardedData
from dorylax.program.model.base import ModelParts, Tree
from dorylax.runs.result import EpochRecord, Timings
from dorylax.settings.retired import upgraded
from dorylax.store.checkpoint import PARTS_GROUP, Checkpoint
from dorylax.store.run_directory import differences, listed
from dorylax.trainer.loop_state import Carried, LoopState, is_key

# Parts of `data` in a run's description that checkpoints of earlier versions lack.
_UNSAID = ("data.multilabel", "data.targets", "data.class_names")
# Parts of the description that must match for parameters to be usable, possibly on other data.
_OF_PARAMETERS = ("model", "parameters.", "state.", "optimizer_state.", "settings.model.")
# Name of a checkpoint's group of arrays, and of an entry of its record, for a pipeline's carried state.
_CARRIED = PARTS_GROUP
# Trees of `LoopState`, which are groups of arrays, and how each array is made again.
_TREES: Mapping[str, Any] = {
    "params": jnp.array,
    "opt_state": jnp.array,
    "state": jnp.array,
    "best_params": np.asarray,
    "best_state": np.asarray,
}


def describe_run(
    parts: ModelParts,
    opt_state: Tree,
    data: Dataset | ShardedData,
    *,
    seed: int,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Describe a run, as JSON values, by everything that must match for a checkpoint to be continued.

    Args:
        parts: The model.
        opt_state: The optimizer's state (arrays or abstract arrays); the optimizer itself is not comparable.
        data: The data set, or the location of its shards.
        seed: The run's seed.
        settings: Other settings that must match.
    """
    found = dict(data.summary.description if isinstance(data, ShardedData) else describe_data(data))
    inputs = found.pop("inputs")
    taken = {name: inputs[name] for name in parts.keywords.taken(inputs)}
    return {
        "model": parts.name,
        "parameters": _types(parts.params),
        "state": _types(parts.state),
        "optimizer_state": _types(opt_state),
        "seed": seed,
        "data": {**found, **({"inputs": taken} if taken else {})},
        "settings": dict(settings),
    }


def _types(tree: Tree) -> dict[str, str]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_path_name(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def to_checkpoint(loop: LoopState, run: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the arrays, which the next epoch may overwrite, and an independent record to save.

    Args:
        loop: The state.
        run: Description from `describe_run`.
    """
    record = {
        "run": dict(run),
        "history": [entry.to_dict() for entry in loop.history],
        "best_epoch": None if loop.best is None else loop.best.epoch,
        "best_is_last": loop.best_is_last,
        "timings": dataclasses.asdict(loop.timings),
        "diverged": loop.diverged,
        "report": copy.deepcopy(loop.report),
    }
    arrays = {group: _named(getattr(loop, group)) for group in _TREES}
    if loop.carried is not None:
        arrays[_CARRIED] = loop.carried.arrays
        record[_CARRIED] = copy.deepcopy(loop.carried.record)
    return arrays, record


def from_checkpoint(
    checkpoint: Checkpoint, like: LoopState, run: Mapping[str, Any], *, to_predict: bool = False
) -> LoopState:
    """Return the saved state.

    Args:
        checkpoint: The checkpoint, read and verified.
        like: A fresh state of this run, which gives the structure.
        run: Description from `describe_run`.
        to_predict: Whether only the parameters are needed, possibly for other data; only parts that affect them are
            compared.

    Raises:
        InputError: The checkpoint belongs to another run; the message names the differences.
    """
    record = checkpoint.record
    described = {**record["run"], "settings": upgraded(record["run"]["settings"])}
    changed = differences(described, run)
    changed = {name: (old, new) for name, (old, new) in changed.items() if old is not None or name not in _UNSAID}
    if to_predict:
        changed = {name: values for name, values in changed.items() if name.startswith(_OF_PARAMETERS)}
        there, here = record["run"]["data"], run["data"]
        if changed and any(there[width] != here[width] for width in ("features", "classes")):
            raise InputError(
                f"the run was trained on data with {there['features']} features and {there['classes']} classes, "
                f"{here['name']} has {here['features']} and {here['classes']}: they must be the same to predict"
            )
    if changed:
        raise InputError(
            f"{checkpoint.path} belongs to another run ({listed(changed)}): "
            "give this run a directory of its own, or the model, data and settings of the other"
        )
    arrays = checkpoint.arrays
    history = [EpochRecord.from_dict(entry) for entry in record["history"]]
    best = record["best_epoch"]
    return LoopState(
        **{group: _restored(getattr(like, group), arrays[group], make) for group, make in _TREES.items()},
        history=history,
        best=None if best is None else history[best],
        best_is_last=record["best_is_last"],
        timings=Timings(**record["timings"]),
        diverged=record["diverged"],
        carried=Carried(arrays.get(_CARRIED, {}), record[_CARRIED], checkpoint.parts) if _CARRIED in record else None,
        report=record.get("report"),  # absent in checkpoints of earlier versions
    )


def _named(tree: Tree) -> dict[str, Any]:
    """Return path → array, with random keys as their key data."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_path_name(path): jax.random.key_data(leaf) if is_key(leaf) else leaf for path, leaf in leaves}


def _restored(like: Tree, arrays: Mapping[str, np.ndarray], make: Any) -> Tree:
    def leaf(path: Any, old: Any) -> Any:
        array = arrays[_path_name(path)]
        if is_key(old):
            return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(old))
        return make(array)

    return jax.tree_util.tree_map_with_path(leaf, like)


def _path_name(path: Any) -> str:
    """Convert a key path of JAX to a name, with parts joined by dots."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"
