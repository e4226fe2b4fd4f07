"""Which tensors may be sent: a list of dtypes, and shapes whose size is known before anything is allocated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, final

import ml_dtypes
import numpy as np

from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.fields import Fields

MAX_TENSORS = 4096
"""Tensors of one message or one transfer."""

_DTYPES: dict[str, np.dtype[Any]] = {
    dtype.name: dtype
    for dtype in map(
        np.dtype,
        (
            *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("float16", "float32", "float64", ml_dtypes.bfloat16),
        ),
    )
}
_MAX_AXES = 32
_MAX_BYTES = 2**62  # far beyond any limit, and still an integer of 64 bits


@final
@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Dtype and shape of a tensor. Little-endian, row after row.

    Raises:
        WireError: a dtype that cannot be sent (objects, texts, complex numbers), or an impossible shape.
    """

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise WireError(f"dtype must be one of {', '.join(_DTYPES)}, got {self.dtype[:80]!r}")
        if len(self.shape) > _MAX_AXES:
            raise WireError(f"a tensor must have at most {_MAX_AXES} axes, got {len(self.shape)}")
        # An empty tensor has no bytes, but NumPy still multiplies its other axes.
        if math.prod(size for size in self.shape if size) * self.numpy.itemsize > _MAX_BYTES:
            raise WireError(f"a tensor must have at most {_MAX_BYTES} bytes, got {self.dtype} {list(self.shape)}")

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * _DTYPES[self.dtype].itemsize

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype."""
        return _DTYPES[self.dtype]

    def to_json(self) -> dict[str, Any]:
        """The fields that `read_spec` reads."""
        return {"dtype": self.dtype, "shape": list(self.shape)}


def spec_of(array: np.ndarray) -> TensorSpec:
    """The spec of an array.

    Raises:
        WireError: it is of a dtype that cannot be sent.
    """
    return TensorSpec(array.dtype.newbyteorder("=").name, array.shape)


def read_spec(fields: Fields) -> TensorSpec:
    """Reads the fields of a spec; the caller reads the others and calls `end`.

    Raises:
        WireError: they are missing or wrong.
    """
    return TensorSpec(fields.text("dtype"), fields.integers("shape"))


def read_specs(fields: Fields, name: str) -> tuple[TensorSpec, ...]:
    """Reads a list of specs.

    Raises:
        WireError: it is not one, or has more than `MAX_TENSORS`.
    """
    specs: list[TensorSpec] = []
    for item in fields.objects(name):
        if len(specs) == MAX_TENSORS:
            raise WireError(f"{name!r} must name at most {MAX_TENSORS} tensors")
        specs.append(read_spec(item))
        item.end()
    return tuple(specs)


def total_bytes(specs: Iterable[TensorSpec]) -> int:
    """Bytes of all tensors together."""
    return sum(spec.nbytes for spec in specs)


def travelling(array: np.ndarray) -> np.ndarray:
    """The array as it is sent: row after row, in the machine's byte order; `array` itself if it is so already."""
    if array.flags.c_contiguous and array.dtype.isnative:
        return array
    # `ascontiguousarray` alone would give an array without axes one.
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)


def bytes_of(array: np.ndarray) -> memoryview:
    """The bytes of an array that lies as it is sent, without a copy; writable if the array is."""
    # Through uint8: bfloat16 has no buffer protocol.
    return array.reshape(-1).view(np.uint8).data
