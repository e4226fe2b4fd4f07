"""Supported tensors of messages: their dtypes, and shapes with sizes known before allocation."""

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
"""Limit of tensors per message or transfer."""

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
_MAX_BYTES = 2**62  # beyond any limit, but within 64 bits


@final
@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Dtype and shape of a tensor in little-endian, row-major layout.

    Raises:
        WireError: The dtype is unsupported (objects, texts, complex numbers), or the shape is impossible.
    """

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise WireError(f"dtype must be one of {', '.join(_DTYPES)}, got {self.dtype[:80]!r}")
        if len(self.shape) > _MAX_AXES:
            raise WireError(f"a tensor must have at most {_MAX_AXES} axes, got {len(self.shape)}")
        # NumPy multiplies the other axes of an empty tensor, too.
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
        """Return the fields for `read_specs`."""
        return {"dtype": self.dtype, "shape": list(self.shape)}


def spec_of(array: np.ndarray) -> TensorSpec:
    """Return the spec of an array.

    Raises:
        WireError: The dtype is unsupported.
    """
    return TensorSpec(array.dtype.newbyteorder("=").name, array.shape)


def read_specs(fields: Fields, name: str) -> tuple[TensorSpec, ...]:
    """Read a list of specs.

    Raises:
        WireError: The value is not such a list, or has more than `MAX_TENSORS` entries.
    """
    specs: list[TensorSpec] = []
    for item in fields.objects(name):
        if len(specs) == MAX_TENSORS:
            raise WireError(f"{name!r} must name at most {MAX_TENSORS} tensors")
        specs.append(TensorSpec(item.text("dtype"), item.integers("shape")))
        item.end()
    return tuple(specs)


def total_bytes(specs: Iterable[TensorSpec]) -> int:
    """Return the bytes of all tensors together."""
    return sum(spec.nbytes for spec in specs)


def travelling(array: np.ndarray) -> np.ndarray:
    """Return the array in row-major layout and native byte order, without a copy if possible."""
    if array.flags.c_contiguous and array.dtype.isnative:
        return array
    # `ascontiguousarray` alone would add an axis to a scalar.
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)


def bytes_of(array: np.ndarray) -> memoryview:
    """Return the bytes of a contiguous array without a copy; writable if the array is."""
    # Through uint8, because bfloat16 lacks the buffer protocol.
    return array.reshape(-1).view(np.uint8).data
