"""What makes a run the run it is: what must be the same for a checkpoint to be continued."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dorylax.graph.dataset import Dataset
from dorylax.program.model.base import ModelParts, Tree

_SAMPLE_BYTES = 2**20


def describe_run(
    parts: ModelParts, opt_state: Tree, data: Dataset, *, seed: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same for a checkpoint to be continued, as JSON values.

    Args:
        parts: the model.
        opt_state: the optimizer's state (arrays or their abstract shapes); what made it cannot be compared.
        data: the data set.
        seed: the run's seed.
        settings: anything else, from the configuration.
    """
    inputs = {**data.vertex_inputs, **data.edge_inputs}
    taken = {name: _digest(inputs[name]) for name in parts.keywords.taken(inputs)}
    split = hashlib.sha256()
    for array in (data.labels, data.train_mask, data.val_mask, data.test_mask):
        split.update(np.ascontiguousarray(array).tobytes())
    return {
        "model": parts.name,
        "parameters": _types(parts.params),
        "state": _types(parts.state),
        "optimizer_state": _types(opt_state),
        "seed": seed,
        "data": {
            "name": data.name,
            "vertices": data.graph.num_vertices,
            "edges": data.graph.num_edges,
            "features": data.num_features,
            "classes": data.num_classes,
            "labels_and_masks": split.hexdigest()[:16],
            "graph": _digest(data.graph.incoming.offsets, data.graph.incoming.neighbours),
            "feature_values": _digest(data.features),
            **({"inputs": taken} if taken else {}),
        },
        "settings": dict(settings),
    }


def _types(tree: Tree) -> dict[str, str]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {path_name(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def path_name(path: Any) -> str:
    """A key path of JAX as a name, parts joined by points."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"


def _digest(*arrays: Any) -> str:
    """Of shapes, dtypes and contents; of a large array, about a megabyte of elements evenly spread over it."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        step = -(-array.nbytes // _SAMPLE_BYTES) or 1
        while array.ndim and step > 1 and math.gcd(step, array.shape[-1]) > 1:  # else it would miss whole columns
            step += 1
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array.reshape(-1)[::step]).tobytes())
    return digest.hexdigest()[:16]
