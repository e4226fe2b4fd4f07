"""The native CPU kernels: loading the library, registering it with XLA, and calling it on NumPy buffers.

The library is a shared object without Python's C API, built when dorylax is installed (CMakeLists.txt). Without it, the
operators run as plain JAX, and the first one to be lowered warns.

`DORYLAX_NATIVE=0` in the environment turns the library off; `DORYLAX_NATIVE=avx512|avx2|baseline` chooses its instruction
set, by default the best that the processor supports.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import dataclasses
import functools
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

_ABI = 7  # of kernel/capi.cc and kernel/ffi.cc; a library with another number is not used
_HANDLERS = (
    "dorylax_ffi_reduce",
    "dorylax_ffi_scaled_sum",
    "dorylax_ffi_dot",
    "dorylax_ffi_expand",
    "dorylax_ffi_attention",
    "dorylax_ffi_attention_saving",
    "dorylax_ffi_attention_backward",
)
_DTYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, jax.numpy.dtype(jax.numpy.bfloat16): 2}
_OPS = {"sum": 0, "weighted_sum": 1, "max": 2, "min": 3, "select_sum": 4}
_PLAIN = contextvars.ContextVar("plain", default=False)
_NOT_BUILT = "it was not built: no C++ compiler was found when dorylax was installed, or dorylax is not installed"

InstructionSet = Literal["avx512", "avx2", "baseline"]
Reduction = Literal["sum", "weighted_sum", "max", "min", "select_sum"]
Kernel = Reduction | Literal["dot", "expand"]


@dataclasses.dataclass(frozen=True)
class Status:
    """Availability of the native kernels, and the reason if they are unavailable.

    Attributes:
        available: Whether they are available.
        instruction_set: "avx512", "avx2" or "baseline"; None if unavailable.
        path: Path of the library; None if unavailable.
        reason: One sentence with the reason if they are unavailable; else None.
    """

    available: bool
    instruction_set: str | None = None
    path: str | None = None
    reason: str | None = None


def status() -> Status:
    """Return the status of the native kernels in this process."""
    library, reason = _load()
    if library is None:
        return Status(available=False, reason=reason)
    return Status(available=True, instruction_set=library.dorylax_instruction_set().decode(), path=library._name)


@contextlib.contextmanager
def plain_operators() -> Iterator[None]:
    """Context in which operators are lowered to plain JAX, for machines without the library."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def usable(*dtypes: Any) -> bool:
    """Return whether the kernels support operands of these dtypes; warn once per process if the library is missing."""
    if _PLAIN.get():
        return False
    kinds = {jax.numpy.dtype(dtype) for dtype in dtypes}
    if len(kinds) != 1 or not kinds <= _DTYPES.keys():
        return False
    library, _ = _load()
    if library is None:
        _warn_once()
    return library is not None


def op_number(op: str) -> np.int32:
    """Return the library's number of a reduction (kernel/rows.h)."""
    return np.int32(_OPS[op])


def choose_instruction_set(name: InstructionSet | None) -> None:
    """Make the kernels use one instruction set in this process; None for the best.

    Raises:
        RuntimeError: There is no library, or it or this processor lacks the instruction set.
    """
    if not _library().dorylax_choose_instruction_set((name or "").encode()):
        raise RuntimeError(f"instruction set {name!r} cannot run here: expected one of avx512, avx2, baseline that can")


def compute_rows(
    kernel: Kernel,
    x: np.ndarray,
    offsets: np.ndarray,
    neighbours: np.ndarray | None,
    out: np.ndarray,
    *,
    begin: int,
    end: int,
    first_entry: int = 0,
    weight: np.ndarray | None = None,
    edges: np.ndarray | None = None,
    own: np.ndarray | None = None,
    other: np.ndarray | None = None,
) -> None:
    """Run a kernel over rows `begin:end` on the calling thread, without Python's lock and without checks.

    A wrong dtype, shape or layout accesses arbitrary memory: callers check (`dorylax.ops.row_operators`). Every array is
    C-contiguous, and arrays of values have one dtype that `usable` accepts.

    Args:
        kernel: A reduction; "dot", each entry's `own` row times its neighbour's; or "expand", a copy of the neighbour's row.
        x: `[V, H, F]`, or `[V, F]` for H = 1.
        offsets: int64 `[R+1]`.
        neighbours: int32 `[E]`; None if entry k refers to row k - `first_entry` of `x` (for "expand", to the entry's row).
        out: `[R, H, F]`; per entry, from `first_entry` on, `[entries, H]` for "dot" and `[entries, H, F]` for "expand".
        begin: First row.
        end: Row after the last.
        first_entry: First entry of arrays with values per entry; 0, or `offsets[0]` of a slice of the rows.
        weight: `[edges, H]`, for "weighted_sum".
        edges: int32 `[E]`, positions in `weight`; None if entry k has position k - `first_entry`.
        own: `[R, H, F]`, for "select_sum" and "dot".
        other: `[V, H, F]`, for "select_sum".
    """
    library = _library()
    if not out.size:
        return
    rows = _Rows(
        _address(offsets),
        _address(neighbours),
        _address(edges),
        0 if neighbours is None else len(neighbours),
        len(x),
        first_entry,
        _address(x),
        _address(weight),
        _address(own),
        _address(other),
        None,
        None,
        _address(out),
        x.shape[1] if x.ndim == 3 else 1,
        x.shape[-1],
    )
    dtype = _DTYPES[x.dtype]
    if kernel == "dot":
        library.dorylax_dot_rows(dtype, rows, begin, end)
    elif kernel == "expand":
        library.dorylax_expand_rows(dtype, rows, begin, end)
    else:
        library.dorylax_reduce_rows(_OPS[kernel], dtype, rows, begin, end)


def pack_rows(offsets: np.ndarray, neighbours: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Copy the neighbours of some rows, one row after the other, without Python's lock and without checks.

    Args:
        offsets: int64 `[R+1]`.
        neighbours: int32 `[E]`.
        rows: int64, numbers of the rows.
        out: int32, as long as the number of entries of these rows.
    """
    _library().dorylax_pack_rows(_address(offsets), _address(neighbours), _address(rows), len(rows), _address(out))


def keep_neighbours(
    offsets: np.ndarray, neighbours: np.ndarray, bits: np.ndarray, kept_offsets: np.ndarray, kept: np.ndarray
) -> None:
    """Copy the neighbours of consecutive rows whose bits are set, without Python's lock and without checks.

    Args:
        offsets: int64 `[R+1]`.
        neighbours: int32 `[E]`.
        bits: uint8, one bit for each vertex, the lowest first.
        kept_offsets: int64 `[R+1]`, output, starting at 0.
        kept: int32, output; one longer than the number of entries of these rows.
    """
    _library().dorylax_keep_neighbours(
        _address(offsets),
        _address(neighbours),
        len(offsets) - 1,
        _address(bits),
        _address(kept_offsets),
        _address(kept),
    )


class _Rows(ctypes.Structure):
    """`struct Rows` of kernel/rows.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("offsets", "neighbours", "edges")),
        *((name, ctypes.c_int64) for name in ("num_entries", "num_vertices", "first_entry")),
        *((name, ctypes.c_void_p) for name in ("x", "weight", "own", "other", "loops", "scale", "out")),
        *((name, ctypes.c_int64) for name in ("heads", "width")),
    )


def _address(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


def _library() -> ctypes.CDLL:
    library, reason = _load()
    if library is None:
        raise RuntimeError(f"no native kernels: {reason}")
    return library


def library_files() -> Iterator[Path]:
    """Return the files that may be the library: next to this module first, then in each `dorylax/ops` on the import path.

    In a checkout, the sources come from the checkout and the library from the installed package.
    """
    folders = [
        Path(__file__).resolve().parent,
        *(Path(entry or ".").resolve() / "dorylax" / "ops" for entry in sys.path),
    ]
    paths = (folder / f"libdorylax_ops{end}" for folder in dict.fromkeys(folders) for end in (".so", ".dylib", ".dll"))
    return filter(Path.is_file, paths)


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    """Return the library, registered with XLA, or the reason for its absence."""
    wanted = os.environ.get("DORYLAX_NATIVE", "")
    if wanted == "0":
        return None, "DORYLAX_NATIVE=0 turns it off"
    reason = _NOT_BUILT
    for path in library_files():
        try:
            library = ctypes.CDLL(str(path))
            abi = library.dorylax_abi()
        except (OSError, AttributeError) as error:
            reason = f"{path} does not load: {error}"
            continue
        if abi != _ABI:
            reason = f"{path} is of another version (ABI {abi}, expected {_ABI}): install dorylax again"
            continue
        _declare(library)
        if wanted and not library.dorylax_choose_instruction_set(wanted.encode()):
            return (
                None,
                f"DORYLAX_NATIVE={wanted!r} names no instruction set that can run here (avx512, avx2, baseline)",
            )
        for handler in _HANDLERS:
            jax.ffi.register_ffi_target(handler, jax.ffi.pycapsule(getattr(library, handler)), platform="cpu")
        return library, None
    return None, reason


def _declare(library: ctypes.CDLL) -> None:
    library.dorylax_instruction_set.restype = ctypes.c_char_p
    library.dorylax_choose_instruction_set.argtypes = [ctypes.c_char_p]
    number, rows, bounds = ctypes.c_int32, ctypes.POINTER(_Rows), (ctypes.c_int64, ctypes.c_int64)
    library.dorylax_reduce_rows.argtypes = [number, number, rows, *bounds]
    library.dorylax_dot_rows.argtypes = library.dorylax_expand_rows.argtypes = [number, rows, *bounds]
    library.dorylax_pack_rows.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_void_p]
    pointer = ctypes.c_void_p
    library.dorylax_keep_neighbours.argtypes = [pointer, pointer, ctypes.c_int64, pointer, pointer, pointer]
    for function in (
        library.dorylax_reduce_rows,
        library.dorylax_dot_rows,
        library.dorylax_expand_rows,
        library.dorylax_pack_rows,
        library.dorylax_keep_neighbours,
    ):
        function.restype = None


@functools.cache
def _warn_once() -> None:
    _, reason = _load()
    if os.environ.get("DORYLAX_NATIVE") == "0":  # on request, so no warning
        return
    advice = " Install a C++ compiler (g++ or clang), then dorylax again." if reason == _NOT_BUILT else ""
    warnings.warn(
        f"dorylax runs without its native CPU kernels: {reason}. Results are the same; graph operators fall back "
        f"to jax.ops.segment_sum and NumPy, which are about ten times slower.{advice}",
        RuntimeWarning,
        stacklevel=2,
    )
