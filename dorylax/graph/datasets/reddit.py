"""reddit: posts joined where the same user commented on both; the class is the community a post is in.

W. Hamilton, R. Ying, J. Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017. One zip archive
with `reddit_data.npz` (feature, label, node_types: 1 train, 2 validation, 3 test) and `reddit_graph.npz` (a SciPy COO
matrix).
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dorylax.graph import npz
from dorylax.graph.datasets.base import Contents, DatasetError, Published, Size, Source
from dorylax.graph.graph import Graph

_TRAIN, _VALIDATION, _TEST = 1, 2, 3


def read(files: Mapping[str, Path]) -> Contents:
    """Reads the zip archive.

    Raises:
        DatasetError: it is not a zip archive or lacks a file.
        GraphError: an array is missing, or arrays do not fit each other.
    """
    (file,) = files.values()
    data = _arrays(file, "reddit_data.npz", ("feature", "label", "node_types"))
    edges = _arrays(file, "reddit_graph.npz", ("row", "col"))
    labels, kind = data["label"].astype(np.int32), data["node_types"]
    graph = Graph.from_coo(edges["row"], edges["col"], len(labels), edge_ids=False)
    masks = (kind == _TRAIN, kind == _VALIDATION, kind == _TEST)
    return Contents(graph, data["feature"], labels, int(labels.max()) + 1, masks)


def _arrays(file: Path, member: str, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    try:
        # An npz archive is read by seeking, which in a compressed member of another archive would be very slow.
        with (
            zipfile.ZipFile(file) as archive,
            tempfile.TemporaryDirectory(dir=file.parent) as folder,
            npz.open_npz(archive.extract(member, folder)) as arrays,
        ):
            return {name: arrays.fetch(name) for name in names}
    except (zipfile.BadZipFile, KeyError) as error:
        raise DatasetError(f"{file} is not the archive of the reddit data set: {error}") from error


PUBLISHED = (
    Published(
        "reddit",
        "posts with a common commenter, word vectors",
        Size(232_965, 114_615_892, 602, 41),
        (
            Source(
                "reddit/reddit.zip",
                "https://data.dgl.ai/dataset/reddit.zip",
                "9a16353c28f8ddd07148fc5ac9b57b818d7911ea0fbe9052d66d49fc32b372bf",
            ),
        ),
        read,
        slow=True,
    ),
)
