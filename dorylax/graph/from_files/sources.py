"""Source files: patterns, objects of S3, folders of the Open Graph Benchmark, and changes while they are read."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dorylax.errors import named
from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.tables import stored_array
from dorylax.graph.from_files.vertices import VertexFiles
from dorylax.graph.mapped import State, difference, state_of
from dorylax.graph.validate import GraphError
from dorylax.store.base import Location
from dorylax.store.places import S3Storage

_PARTS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
_LABELS = {"node-label.npz": ":node_label", "node-label.csv.gz": ""}


def expand(sources: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Expand patterns, in order of names. Raises a GraphError if nothing matches a pattern, or there is no source."""
    found: list[str] = []
    for source in (os.fspath(one) for one in sources):
        if source.startswith("s3:/"):  # click's paths drop a slash
            found.append("s3://" + source.removeprefix("s3:/").lstrip("/"))
        elif os.path.lexists(source) or not glob.has_magic(source):
            found.append(os.path.abspath(source))
        elif matches := sorted(glob.glob(source)):
            found += map(os.path.abspath, matches)
        else:
            raise GraphError(f"no file matches {source!r}")
    if not found:
        raise GraphError("there is nothing to import: name at least one file of edges")
    return found


def local_name(database: Database, source: str, work: Path, number: int) -> Path:
    """Link a source into the folder of temporary files, or download an object of S3.

    Raises a GraphError if the source is a folder, or not s3://bucket/key.
    """
    if source.startswith("s3://"):
        local = work / f"object-{number}"
        try:
            place = Location.of(source)
        except ValueError as error:
            raise GraphError(f"{source!r} {error}") from None
        folder, _, key = place.prefix.rpartition("/")
        storage = S3Storage(Location(place.bucket, folder))
        with contextlib.closing(storage), named(local), local.open("xb") as file:
            storage.copy_to(key, file)
        return local
    if os.path.isdir(source):
        raise GraphError(
            f"{source} is a folder: name the files in it (one of the Open Graph Benchmark has raw/edge.csv.gz or "
            "raw/data.npz)"
        )
    return database.link(Path(source))


def ogb_folder(folder: Path) -> tuple[Path, int, VertexFiles] | None:
    """Return the file of edges, V, and the files of vertices; None for another folder.

    W. Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", NeurIPS 2020. A data set for vertices
    has `raw/` with gzipped tables (`edge.csv.gz`, `num-node-list.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`), a
    large one with `data.npz` and `node-label.npz`; and `split/NAME/` with `train.csv.gz`, `valid.csv.gz`,
    `test.csv.gz`.

    Raises a GraphError if a file is damaged, or there are several splits or graphs.
    """
    raw = folder / "raw"
    if (edges := raw / "data.npz").is_file():
        counts, features = stored_array(edges, "num_nodes_list").reshape(-1), Path(f"{edges}:node_feat")
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


def check_states(states: Mapping[Path, State], shown: Mapping[Path, str]) -> None:
    """Raise a GraphError if a file has changed."""
    for path, before in states.items():
        how = difference(before, state_of(str(path))) if path.exists() else "it is gone"
        if how:
            raise GraphError(
                f"{shown[path]} has changed since the import began ({how}): import it again when nobody touches it"
            )
