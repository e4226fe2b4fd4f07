"""Runs a trained model with only JAX and NumPy: `__main__.py` of every artefact that `dorylax export` writes.

    python MODEL.zip INPUT.npz OUTPUT

INPUT.npz holds `edge_index [2, E]` (row 0 sources, row 1 targets, in any order), `x [V, F]`, and the model's further inputs
under their names. OUTPUT becomes a .npy with the model's output, row i for vertex i, or a .npz if it has several. In Python:

    Model = runpy.run_path("MODEL.zip")["Model"]
    model = Model()
    output = model(edge_index, x)

It imports the standard library, NumPy and JAX. `jax.export` reads with flatbuffers (Google, Apache License 2.0), which JAX
does not require; the artefact contains a copy in case it is not installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import io
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import jax
import numpy as np

FORMAT, VERSION = "dorylax model", 1
META, PARAMETERS = "meta.json", "parameters.npz"
FUNCTIONS = {False: "without_edges.jax", True: "with_edges.jax"}
"""JAX exports symbolic sizes of 1 and more, so graphs without edges need a separate function."""
_KEYS = {
    *("format", "version", "dorylax", "jax", "model", "data", "features", "row_normalise", "inputs", "outputs"),
    *("parameters", "sha256"),
}


@final
class Model:
    """A trained model.

    Args:
        path: The artefact; by default the one that contains this file.

    Attributes:
        meta: Content of `meta.json`: the model, its training data, its inputs and outputs.

    Raises:
        ValueError: The file is not an artefact, is of another version, or is damaged.
        OSError: The file cannot be read.
    """

    def __init__(self, path: Any = None) -> None:
        self.path = Path(__file__).parent if path is None else Path(path)
        try:
            with zipfile.ZipFile(self.path) as archive:
                files = {name: archive.read(name) for name in archive.namelist()}
        except zipfile.BadZipFile as error:
            raise ValueError(f"{self.path} is no exported model, or is damaged: {error}") from None
        self.meta = self._checked(files)
        with np.load(io.BytesIO(files[PARAMETERS]), allow_pickle=False) as arrays:
            stored = [arrays[str(place)] for place in range(len(self.meta["parameters"]))]
        dtypes = [jax.numpy.dtype(entry["dtype"]) for entry in self.meta["parameters"]]
        self._parameters = [jax.numpy.asarray(array.view(dtype)) for array, dtype in zip(stored, dtypes, strict=True)]
        self._functions = {edges: self._loaded(name, files[name]) for edges, name in FUNCTIONS.items()}

    def __call__(self, edge_index: Any, x: Any, **inputs: Any) -> Any:
        """Compute the model's output, without dropout; compiled once for each size of graph.

        Args:
            edge_index: Integers `[2, E]`, row 0 the sources and row 1 the targets, in any order.
            x: `[V, F]`, with a row for each vertex.
            inputs: The model's further inputs, with a row per vertex, per column of `edge_index`, or per pair of vertices.

        Returns:
            `[V, …]`, row i for vertex i; or name → such an array if the model has several outputs.

        Raises:
            ValueError: The inputs do not fit the model.
        """
        features = self._array("x", x, {"per": "vertex", "shape": [self.meta["features"]], "dtype": "float32"}, None)
        if self.meta["row_normalise"]:
            features = features / np.maximum(features.sum(axis=1, keepdims=True), 1)
        edges = np.asarray(edge_index)
        if edges.ndim != 2 or len(edges) != 2 or (edges.size and edges.dtype.kind not in "iu"):
            raise ValueError(f"edge_index must be integers [2, E], got {edges.dtype} {list(edges.shape)}")
        vertices = len(features)
        if edges.size and not 0 <= edges.min() <= edges.max() < vertices:
            wrong = edges.min() if edges.min() < 0 else edges.max()
            raise ValueError(f"edge_index holds {wrong}, and x has rows for the vertices 0 … {vertices - 1}")
        if inputs.keys() != self.meta["inputs"].keys():
            wanted = ", ".join(self.meta["inputs"]) or "none"
            raise ValueError(f"the model takes the further inputs {wanted}, got {', '.join(inputs) or 'none'}")
        sizes = {"vertex": vertices, "edge": edges.shape[1]}
        named = {
            name: self._array(name, inputs[name], wanted, sizes.get(wanted["per"]))
            for name, wanted in self.meta["inputs"].items()
        }
        function = self._functions[bool(edges.size)]
        found = function(self._parameters, compressed_rows(edges, vertices), features, named)
        outputs = {name: np.asarray(value) for name, value in found.items()}
        return outputs[""] if list(outputs) == [""] else outputs

    def __repr__(self) -> str:
        return f"Model({self.meta['model']} of {self.meta['data']}, {self.meta['features']} features per vertex)"

    def _checked(self, files: Mapping[str, bytes]) -> dict[str, Any]:
        """Check the files; return the content of meta.json."""
        if META not in files:
            raise ValueError(f"{self.path} is no exported model: it has no {META}")
        try:
            meta = json.loads(files[META])
        except ValueError as error:
            raise ValueError(f"{self.path} is damaged: {META} is not JSON: {error}") from None
        found = (meta.get("format"), meta.get("version")) if isinstance(meta, dict) else None
        if found != (FORMAT, VERSION):
            raise ValueError(f"{self.path}: format and version must be {(FORMAT, VERSION)}, got {found}")
        if meta.keys() != _KEYS:
            raise ValueError(f"{self.path}: {META} must have the keys {sorted(_KEYS)}, got {sorted(meta)}")
        for name in (PARAMETERS, *FUNCTIONS.values()):
            if hashlib.sha256(files.get(name, b"")).hexdigest() != meta["sha256"].get(name):
                raise ValueError(f"{self.path} is damaged: {name} is not what was written; export the model again")
        return dict(meta)

    def _loaded(self, name: str, content: bytes) -> Any:
        self._find_flatbuffers()
        from jax import export

        try:
            exported = export.deserialize(bytearray(content))
        except Exception as error:
            raise ValueError(
                f"{self.path}: JAX {jax.__version__} cannot read {name}, which JAX {self.meta['jax']} wrote: "
                f"{type(error).__name__}: {error}"
            ) from error
        if importlib.util.find_spec("scipy") is None and b"lapack_" not in exported.mlir_module_serialized:
            _leave_lapack_alone()
        return jax.jit(exported.call)

    def _find_flatbuffers(self) -> None:
        try:
            importlib.import_module("flatbuffers")
        except ImportError:
            sys.path.append(str(self.path))
            try:
                importlib.import_module("flatbuffers")
            finally:
                sys.path.remove(str(self.path))

    def _array(self, name: str, value: Any, wanted: Mapping[str, Any], rows: int | None) -> np.ndarray:
        """Return an array with so many rows, or any number > 0 of rows if None, of the type used in training."""
        array, dtype = np.asarray(value), np.dtype(wanted["dtype"])
        if array.dtype.kind not in {"float32": "fiu", "int32": "iu", "bool": "b"}[dtype.name]:
            raise ValueError(f"{name} must be {dtype}, got {array.dtype}")
        if array.ndim == 0 or list(array.shape[1:]) != wanted["shape"]:
            rows_of = {"vertex": "V", "edge": "E", "pair": "N"}[wanted["per"]]
            shape = ", ".join([rows_of, *map(str, wanted["shape"])])
            raise ValueError(f"{name} must be [{shape}], got {list(array.shape)}")
        if len(array) != (len(array) if rows is None else rows) or (rows is None and not len(array)):
            raise ValueError(
                f"{name} must have one row per {wanted['per']}, {rows or 'at least one'}, got {len(array)}"
            )
        with np.errstate(over="ignore"):  # values too large for float32 become infinite, and are refused below
            array = array.astype(dtype)
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
        return array


def _leave_lapack_alone() -> None:
    """Skip LAPACK, which JAX loads through SciPy for all CPU exports; SciPy is missing here, and LAPACK is not called."""
    from jax._src.export import _export

    if hasattr(_export, "_ensure_backends_initialized"):
        _export._ensure_backends_initialized = lambda platforms: platforms


def compressed_rows(edge_index: np.ndarray, vertices: int) -> list[np.ndarray]:
    """Convert a graph to the arrays of the exported function: rows by target, rows by source, and edge positions.

    Args:
        edge_index: `[2, E]`.
        vertices: V.

    Returns:
        Offsets uint32 `[V+1, 2]` and sources int32 `[E]` of the rows by target; offsets and targets of those by source; the
        slot (position in the rows by target) of each entry by source; the column of `edge_index` in each slot.
    """
    sources, targets = edge_index.astype(np.int32)
    columns = np.lexsort((sources, targets)).astype(np.int32)
    by_source = np.lexsort((targets, sources))
    slots = np.empty_like(columns)
    slots[columns] = np.arange(len(columns), dtype=np.int32)
    into, out = (_offsets(ends, vertices) for ends in (targets, sources))
    return [into, sources[columns], out, targets[by_source], slots[by_source], columns]


def _offsets(ends: np.ndarray, vertices: int) -> np.ndarray:
    """Return offsets as little-endian halves of int64, which JAX would narrow."""
    offsets = np.zeros(vertices + 1, "<i8")
    np.cumsum(np.bincount(ends, minlength=vertices), out=offsets[1:])
    return offsets.view("<u4").reshape(-1, 2)


def main() -> None:
    """Run the command line of an artefact."""
    parser = argparse.ArgumentParser(description="Runs a trained model on a graph.")
    parser.add_argument("input", metavar="INPUT.npz", help="edge_index [2, E], x [V, F], further inputs by name")
    parser.add_argument("output", metavar="OUTPUT", help="a .npy, or a .npz if the model gives several arrays")
    given = parser.parse_args()
    try:
        model = Model()
        with np.load(given.input, allow_pickle=False) as arrays:
            inputs = {name: arrays[name] for name in arrays.files}
        for name in ("edge_index", "x"):
            if name not in inputs:
                raise ValueError(f"{given.input} has no {name}, but {', '.join(inputs) or 'nothing'}")
        output = model(inputs.pop("edge_index"), inputs.pop("x"), **inputs)
        with open(given.output, "wb") as file:
            np.savez(file, **output) if isinstance(output, dict) else np.save(file, output)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
