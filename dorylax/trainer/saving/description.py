"""Description of a run that must match for a checkpoint to be continued."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from dorylax.graph.data_shape import describe_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.sharded_data import ShardedData
from dorylax.program.model.base import ModelParts, Tree


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
    return {path_name(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def path_name(path: Any) -> str:
    """Convert a key path of JAX to a name, with parts joined by dots."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"
