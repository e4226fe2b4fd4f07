"""Writes a trained model as one file: StableHLO for graphs of any size, its parameters, and its runtime.

FILE, a zip archive that Python runs
    __main__.py            `dorylax.inference.loader`
    meta.json              description of the model, its inputs and outputs (keys in docs/after-training.md)
    with_edges.jax         the forward pass, serialised by `jax.export`, with symbolic numbers of vertices and edges
    without_edges.jax      the same for graphs without edges, since a symbolic number cannot be 0
    parameters.npz         parameters and carried state, `0`, `1`, … in the order of meta.json
    flatbuffers/           reader for `jax.export`, in case it is not installed
"""

from __future__ import annotations

import hashlib
import importlib.resources
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from dorylax.durable import write_file
from dorylax.errors import InputError
from dorylax.graph.graph import Graph
from dorylax.inference import loader
from dorylax.jax_internals import without_locations
from dorylax.ops.native import plain_operators
from dorylax.program.model.base import ModelParts, Tree
from dorylax.version import __version__

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same model gives the same bytes


class RowInput(NamedTuple):
    """An input array of the model.

    Attributes:
        per: Owner of its rows: "vertex", "edge" or "pair"; the number of pairs is arbitrary.
        shape: Shape of a row.
        dtype: Type of its elements.
    """

    per: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def write_artefact(
    path: Path,
    parts: ModelParts,
    params: Tree,
    state: Tree,
    *,
    features: int,
    inputs: Mapping[str, RowInput],
    data: str,
    row_normalise: bool,
) -> None:
    """Write the model in evaluation mode, atomically.

    Args:
        path: Path of the file.
        parts: The model.
        params: Its parameters, on the host.
        state: Its other carried state, on the host.
        features: F.
        inputs: Name → further input.
        data: Name of the training data.
        row_normalise: Whether the artefact first divides rows of features by their sums, as for the training data.

    Raises:
        InputError: The model depends on the numbers of vertices and edges, or computes in 64 bits.
        OSError: The file system refuses (such as a full disk); the error names the file.
    """
    leaves, tree = jax.tree.flatten_with_path((params, state))
    values = [np.asarray(leaf) for _, leaf in leaves]
    names = [jax.tree_util.keystr(path, simple=True, separator=".").partition(".")[2] for path, _ in leaves]
    for name, value in zip(names, values, strict=True):
        if jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype or value.dtype.itemsize > 4:
            raise InputError(f"{name} is {value.dtype}: an artefact computes in 32 bits; train in these to export")

    def function(values: list[Any], rows: list[Any], x: Any, named: dict[str, Any]) -> dict[str, Any]:
        params, state = jax.tree.unflatten(tree, values)
        *structure, columns = rows
        graph = Graph.tree_unflatten((False, "some", False, None), (*structure, None, columns, None, None))
        output = parts.structure.apply_evaluate(params, parts.streams, state, graph, x, **named)
        return {
            jax.tree_util.keystr(path, simple=True, separator="."): _single(leaf)
            for path, leaf in jax.tree.leaves_with_path(output)
        }

    exported = {edges: _exported(function, values, features, inputs, edges=edges) for edges in (False, True)}
    outputs = jax.tree.unflatten(exported[True].out_tree, exported[True].out_avals)
    stream = io.BytesIO()
    stored: dict[str, Any] = {str(place): _storable(value) for place, value in enumerate(values)}
    np.savez(stream, **stored)
    files = {
        loader.PARAMETERS: stream.getvalue(),
        **{name: bytes(exported[edges].serialize()) for edges, name in loader.FUNCTIONS.items()},
    }
    meta = {
        "format": loader.FORMAT,
        "version": loader.VERSION,
        "dorylax": __version__,
        "jax": jax.__version__,
        "model": parts.name,
        "data": data,
        "features": features,
        "row_normalise": row_normalise,
        "inputs": {
            name: {"per": one.per, "shape": list(one.shape), "dtype": one.dtype.name} for name, one in inputs.items()
        },
        "outputs": {
            name: {
                "shape": [size if isinstance(size, int) else str(size) for size in aval.shape],
                "dtype": aval.dtype.name,
            }
            for name, aval in outputs.items()
        },
        "parameters": [
            {"name": name, "shape": list(value.shape), "dtype": value.dtype.name}
            for name, value in zip(names, values, strict=True)
        ],
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    code = {"__main__.py": Path(loader.__file__).read_bytes(), **_flatbuffers()}
    write_file(path, _zipped({**code, loader.META: json.dumps(meta, indent=1, allow_nan=False).encode(), **files}))


def _exported(
    function: Any, values: list[np.ndarray], features: int, inputs: Mapping[str, RowInput], *, edges: bool
) -> export.Exported:
    vertices: Any
    number: Any
    vertices, number, pairs = export.symbolic_shape("V, E, N")
    if not edges:
        number = 0
    sizes = {"vertex": vertices, "edge": number, "pair": pairs}
    offsets = jax.ShapeDtypeStruct((vertices + 1, 2), jnp.uint32)
    entries = jax.ShapeDtypeStruct((number,), jnp.int32)
    arguments = (
        [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values],
        [offsets, entries, offsets, entries, entries, entries],
        jax.ShapeDtypeStruct((vertices, features), jnp.float32),
        {name: jax.ShapeDtypeStruct((sizes[one.per], *one.shape), one.dtype) for name, one in inputs.items()},
    )
    try:
        with plain_operators():
            found = export.export(jax.jit(function), platforms=PLATFORMS)(*arguments)
    except Exception as error:
        first = str(error).strip().split("\n")[0]
        raise InputError(
            f"the model cannot be exported for graphs of any size: {type(error).__name__}: {first}"
        ) from error
    return without_locations(found)


def _single(leaf: Any) -> Any:
    return leaf.astype(jnp.float32) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _storable(value: np.ndarray) -> np.ndarray:
    """Convert to a dtype that NumPy's files support: bfloat16, for example, to integers of the same bits."""
    return value if value.dtype.kind in "biuf" else value.view(f"u{value.dtype.itemsize}")


def _flatbuffers() -> dict[str, bytes]:
    folder = importlib.resources.files("flatbuffers")
    return {
        f"flatbuffers/{file.name}": file.read_bytes()
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".py") and file.name != "flexbuffers.py"
    }


def _zipped(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()
