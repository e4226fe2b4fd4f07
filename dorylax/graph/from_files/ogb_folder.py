"""Folders of the Open Graph Benchmark: their edges and data of vertices.

W. Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", NeurIPS 2020. A data set for vertices has
`raw/` with gzipped tables (`edge.csv.gz`, `num-node-list.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`), a large one with
`data.npz` and `node-label.npz`; and `split/NAME/` with `train.csv.gz`, `valid.csv.gz`, `test.csv.gz`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dorylax.graph.from_files.arrays import member_array
from dorylax.graph.from_files.vertices import VertexFiles
from dorylax.graph.validate import GraphError

_PARTS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
_LABELS = {"node-label.npz": ":node_label", "node-label.csv.gz": ""}


def ogb_folder(folder: Path) -> tuple[Path, int, VertexFiles] | None:
    """Return the file of edges, V, and the files of vertices; None for another folder.

    Raises:
        GraphError: A file is damaged, or there are several splits or graphs.
        OSError: A file cannot be read.
    """
    raw = folder / "raw"
    if (edges := raw / "data.npz").is_file():
        counts, features = member_array(edges, "num_nodes_list").reshape(-1), Path(f"{edges}:node_feat")
    elif (edges := raw / "edge.csv.gz").is_file():
        counts = np.loadtxt(raw / "num-node-list.csv.gz", np.int64, delimiter=",", ndmin=1).reshape(-1)
        features = raw / "node-feat.csv.gz"
    else:
        return None
    if len(counts) != 1:
        raise GraphError(f"{folder} holds {len(counts)} graphs: expected a data set of one, for its vertices")
    labels = next((Path(f"{raw / one}{array}") for one, array in _LABELS.items() if (raw / one).is_file()), None)
    splits = sorted(path for path in (folder / "split").glob("*") if (path / "train.csv.gz").is_file())
    if len(splits) > 1:
        raise GraphError(f"{folder} has the splits {', '.join(path.name for path in splits)}: keep the one to take")
    masks = {mask: splits[0] / f"{part}.csv.gz" for mask, part in _PARTS.items()} if splits and labels else {}
    has_features = edges.suffix == ".npz" or features.is_file()
    vertices = VertexFiles(features if has_features else None, labels, masks, nan_is_unlabelled=True)
    return edges, int(counts[0]), vertices
