"""Loads and runs stage artefacts: the only part of a program that a worker needs.

The module imports only JAX, NumPy, flatbuffers (through `jax.export`) and the standard library; SciPy only for a stage that
calls LAPACK (`jnp.linalg`). `dorylax.program.artefact.export` makes and stores artefacts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import jax
import numpy as np
from jax import export

from dorylax.errors import InputError
from dorylax.jax_internals import multiple_of, size_at, symbols_of, without_lapack

SUFFIX = ".stage"
"""Artefacts are files `<SHA-256 of the content>.stage`."""

_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")


def sha256_of(content: bytes) -> str:
    """Return the address of an artefact: 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_artefact(path: str | os.PathLike[str], sha256: str | None = None) -> bytes:
    """Return the content of an artefact's file.

    Args:
        path: The file.
        sha256: Expected hash (default: the hash in the file's name, if there is one).

    Raises:
        InputError: The content has another hash.
        OSError: The file cannot be read.
    """
    path = Path(path)
    if sha256 is None and _NAME.fullmatch(path.name):
        sha256 = path.name.removesuffix(SUFFIX)
    content = path.read_bytes()
    found = sha256_of(content)
    if sha256 is not None and found != sha256:
        raise InputError(
            f"{path} is damaged: expected SHA-256 {sha256}, found {found} ({len(content)} bytes); "
            "delete it and write the program's stages again"
        )
    return content


def load(source: str | os.PathLike[str] | bytes, sha256: str | None = None) -> Stage:
    """Load an artefact.

    Args:
        source: A file, or its content. It must be trusted, since its computation runs.
        sha256: Expected hash (default: the hash in the file's name, if there is one).

    Raises:
        InputError: The content has another hash, or is not an artefact that this JAX can read.
        ValueError: The artefact computes in 64 bits and `jax_enable_x64` is off.
        OSError: The file cannot be read.
    """
    content = source if isinstance(source, bytes) else read_artefact(source, sha256)
    found = sha256_of(content)
    if sha256 is not None and found != sha256:
        raise InputError(f"damaged stage: expected SHA-256 {sha256}, found {found} ({len(content)} bytes)")
    try:
        exported = export.deserialize(bytearray(content))
    except ImportError:
        raise
    except Exception as error:
        name = "these bytes" if isinstance(source, bytes) else str(source)
        raise InputError(
            f"{name} ({len(content)} bytes) is not a stage that JAX {jax.__version__} can read: "
            f"{type(error).__name__}: {error}"
        ) from error
    return Stage(exported, found)


@final
class Stage:
    """A stage, compiled for each number of rows at its first call.

    Args:
        exported: The function.
        sha256: Its address.

    Attributes:
        sha256: Its address.
        inputs: Dtypes and shapes of the inputs; sizes that count rows are symbolic.
        outputs: Dtypes and shapes of the outputs; sizes that count rows are symbolic.
    """

    def __init__(self, exported: export.Exported, sha256: str) -> None:
        self.sha256 = sha256
        self.inputs = _specs(exported.in_avals)
        self.outputs = _specs(exported.out_avals)
        self._exported = exported
        uses_lapack = b"lapack_" in exported.mlir_module_serialized
        # SciPy would add 0.25 s to a worker's start and 140 MB to its package.
        self._libraries = contextlib.nullcontext if uses_lapack else without_lapack
        self._compiled: dict[int, Any] = {}
        wide = [
            spec for spec in (*self.inputs, *self.outputs) if jax.dtypes.canonicalize_dtype(spec.dtype) != spec.dtype
        ]
        if wide:
            raise ValueError(
                f"stage {sha256[:12]} computes in {wide[0].dtype}: set JAX_ENABLE_X64=1 where it is loaded"
            )
        # Place of the number of rows: argument, axis, entries per row.
        self._counted = next(
            (
                (k, axis, found[1])
                for k, spec in enumerate(self.inputs)
                for axis, size in enumerate(spec.shape)
                if (found := multiple_of(size)) is not None
            ),
            None,
        )

    def __repr__(self) -> str:
        return f"Stage({self.sha256[:12]}, {len(self.inputs)} inputs, {len(self.outputs)} outputs)"

    def compile(self, rows: int) -> None:
        """Compile the stage for a number of rows, in advance of the first call."""
        if rows not in self._compiled:
            specs = [jax.ShapeDtypeStruct(_shape(spec, rows), spec.dtype) for spec in self.inputs]
            with self._libraries():
                self._compiled[rows] = jax.jit(self._exported.call).lower(*specs).compile()

    def call(self, *arrays: Any) -> list[jax.Array]:
        """Return the outputs for these inputs, in the artefact's order.

        Raises:
            ValueError: The number of arguments, or an argument's dtype, shape or number of rows is wrong.
        """
        rows = self._rows(arrays)
        self.compile(rows)
        return jax.tree.leaves(self._compiled[rows](*arrays))

    __call__ = call

    def _rows(self, arrays: Sequence[Any]) -> int:
        name = f"stage {self.sha256[:12]}"
        if len(arrays) != len(self.inputs):
            raise ValueError(f"{name} takes {len(self.inputs)} arguments, got {len(arrays)}")
        for k, (array, spec) in enumerate(zip(arrays, self.inputs, strict=True)):
            is_array = hasattr(array, "dtype") and hasattr(array, "shape")
            if not is_array or array.dtype != spec.dtype or not _fits(array.shape, spec.shape):
                got = f"{array.dtype} {list(array.shape)}" if is_array else type(array).__name__
                raise ValueError(f"{name}: argument {k} must be {_shown(spec)}, got {got}")
        if self._counted is None:
            return 0
        first, axis, factor = self._counted
        rows, rest = divmod(int(arrays[first].shape[axis]), factor)
        if rest or rows < 1:
            raise ValueError(
                f"{name}: argument {first} must be {_shown(self.inputs[first])} with at least one row, "
                f"got {list(arrays[first].shape)}"
            )
        for k, (array, spec) in enumerate(zip(arrays, self.inputs, strict=True)):
            if tuple(array.shape) != _shape(spec, rows):
                raise ValueError(
                    f"{name}: argument {k} must be {spec.dtype} {list(_shape(spec, rows))}, for the {rows} rows of "
                    f"argument {first}, got {list(array.shape)}"
                )
        return rows


@final
@dataclasses.dataclass(frozen=True)
class StageReference:
    """A stage's reference to its artefact.

    Attributes:
        sha256: The artefact's address.
        reads: The artefact's first inputs, as positions in the values that the stage reads.
        literals: Values of the scalar inputs that follow.
        counted: Whether there is one more input, bool `[rows]` of any content, to give the number of rows.
        writes: The artefact's outputs, as positions in the values that the stage writes.
    """

    sha256: str
    reads: tuple[int, ...]
    literals: tuple[float, ...]
    counted: bool
    writes: tuple[int, ...]

    def call(self, stage: Stage, values: Sequence[Any], rows: int) -> list[jax.Array]:
        """Compute the values that the stage writes, in the stage's order.

        Args:
            stage: The artefact.
            values: Values that the stage reads, in the stage's order.
            rows: Number of rows.

        Raises:
            ValueError: See `Stage.call`.
        """
        first = len(self.reads)
        scalars = [
            np.asarray(value, spec.dtype)
            for value, spec in zip(self.literals, stage.inputs[first : first + len(self.literals)], strict=True)
        ]
        count = [np.ones(rows, bool)] if self.counted else []
        results = stage.call(*(values[k] for k in self.reads), *scalars, *count)
        by_place = dict(zip(self.writes, results, strict=True))
        return [by_place[k] for k in range(len(by_place))]


def _specs(avals: Sequence[Any]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals)


def _shape(spec: jax.ShapeDtypeStruct, rows: int) -> tuple[int, ...]:
    return tuple(int(size_at(size, dict.fromkeys(symbols_of(size), rows))) for size in spec.shape)


def _fits(shape: Sequence[int], wanted: Sequence[Any]) -> bool:
    """Whether a shape is the wanted one, for any number of rows."""
    return len(shape) == len(wanted) and all(
        bool(symbols_of(size)) or got == size for got, size in zip(shape, wanted, strict=True)
    )


def _shown(spec: jax.ShapeDtypeStruct) -> str:
    return f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"
