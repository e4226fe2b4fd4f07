"""What makes a data set the data set it is: enough to tell another one, without keeping it."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from dorylax.graph.dataset import Dataset
from dorylax.graph.task_data import TaskData

_SAMPLE_BYTES = 2**20


def describe_data(data: Dataset | TaskData) -> dict[str, Any]:
    """Sizes and digests, as JSON values; `inputs` has those of further inputs by name."""
    split = hashlib.sha256()
    for array in (data.labels, data.train_mask, data.val_mask, data.test_mask):
        split.update(np.ascontiguousarray(array).tobytes())
    return {
        "name": data.name,
        "vertices": data.graph.num_vertices,
        "edges": data.graph.num_edges,
        "features": data.num_features,
        "classes": data.num_classes,
        **({"multilabel": True} if data.multilabel else {}),
        **({"targets": data.labels.shape[1]} if data.num_classes is None and data.labels.ndim == 2 else {}),
        **({} if data.class_names is None else {"class_names": data.class_names.tolist()}),
        "labels_and_masks": split.hexdigest()[:16],
        "graph": _digest(data.graph.incoming.offsets, data.graph.incoming.neighbours),
        "feature_values": _digest(data.features),
        "inputs": {name: _digest(array) for name, array in {**data.vertex_inputs, **data.edge_inputs}.items()},
    }


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
