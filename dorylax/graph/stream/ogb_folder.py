"""Folders of the Open Graph Benchmark: which of their files hold edges, and what is known about vertices.

W. Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", NeurIPS 2020. A data set for vertices has
`raw/` with gzipped tables (`edge.csv.gz`, `num-node-list.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`), a large one with
`data.npz` and `node-label.npz`; and `split/NAME/` with `train.csv.gz`, `valid.csv.gz`, `test.csv.gz`. Edges are
directed as they are there.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dorylax.graph.stream.vertex_data import VertexFiles
from dorylax.graph.stream.vertex_rows import Rows
from dorylax.graph.validate import GraphError

_PARTS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}


class OgbFolder(NamedTuple):
    """What is in a folder.

    Attributes:
        edges: the file of edges.
        num_vertices: V.
        vertices: what is known about them.
    """

    edges: Path
    num_vertices: int
    vertices: VertexFiles

    @classmethod
    def of(cls, folder: Path) -> OgbFolder | None:
        """Reads what a folder has; None where it is another one.

        Raises:
            GraphError: a file is damaged, or there are several splits or graphs.
            OSError: a file cannot be read.
        """
        raw = folder / "raw"
        packed = raw / "data.npz"
        if packed.is_file():
            edges, count = packed, Path(f"{packed}:num_nodes_list")
            features: Path | None = Path(f"{packed}:node_feat")
        elif (raw / "edge.csv.gz").is_file():
            edges, count, features = (raw / f"{name}.csv.gz" for name in ("edge", "num-node-list", "node-feat"))
            features = features if features.is_file() else None
        else:
            return None
        counts = Rows.of(count).whole().reshape(-1)
        if len(counts) != 1:
            raise GraphError(f"{folder} holds {len(counts)} graphs: expected a data set of one, for its vertices")
        labels = next((Path(f"{raw / name}{array}") for name, array in _LABELS.items() if (raw / name).is_file()), None)
        splits = sorted(path for path in (folder / "split").glob("*") if (path / "train.csv.gz").is_file())
        if len(splits) > 1:
            raise GraphError(f"{folder} has the splits {', '.join(path.name for path in splits)}: keep the one to take")
        masks = {mask: splits[0] / f"{part}.csv.gz" for mask, part in _PARTS.items()} if splits and labels else {}
        vertices = VertexFiles(features=features, labels=labels, masks=masks, nan_is_unlabelled=True)
        return cls(edges, int(counts[0]), vertices)


_LABELS = {"node-label.npz": ":node_label", "node-label.csv.gz": ""}
"""Files of labels, and which array in them."""
