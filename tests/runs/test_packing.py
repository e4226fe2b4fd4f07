"""Small arrays in one: given back to the bit, whatever they are, and large ones left alone."""

from __future__ import annotations

import json
import math
from unittest import mock

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.runs import packing

DTYPES = [
    *map(
        np.dtype, ("bool", "int8", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64", "complex64")
    ),
    *map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)),
]


@st.composite
def any_arrays(draw: st.DrawFn) -> np.ndarray:
    """Of any bits, also those of NaN; of no, one or more axes, that may be empty; not all of them contiguous."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.sampled_from([(), (0,), (1,), (5,), (3, 0), (2, 3), (1, 2, 2)]))
    size = dtype.itemsize * math.prod(shape)
    content = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        content = bytes(byte % 2 for byte in content)
    array = np.frombuffer(content, dtype).reshape(shape)
    return array.T if draw(st.booleans()) else array


names = st.text(max_size=3)
groups = st.dictionaries(names, st.dictionaries(names, any_arrays(), max_size=4), max_size=3)


@given(arrays=groups, small=st.sampled_from([1, 16, packing.SMALL]))
def test_round_trip_is_bit_identical(arrays: dict[str, dict[str, np.ndarray]], small: int) -> None:
    with mock.patch.object(packing, "SMALL", small):
        stored, index = packing.pack(arrays)
    index = json.loads(json.dumps(index))
    assert packing.stored_names(index) == {group: list(named) for group, named in stored.items()}
    assert all(array.size for named in stored.values() for array in named.values())
    found = packing.unpack(index, stored)
    assert {group: list(named) for group, named in found.items()} == {
        group: list(named) for group, named in arrays.items()
    }
    for group, named in arrays.items():
        for name, array in named.items():
            back = found[group][name]
            assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_large_arrays_are_not_copied_and_small_ones_are_one() -> None:
    large, just = np.zeros(packing.SMALL, np.int8), np.zeros(packing.SMALL - 1, np.int8)
    key = jax.random.key_data(jax.random.key(3))
    stored, index = packing.pack({"a": {"large": large, "just": just, "key": key}, "b": {"one": np.float32(1)}})
    assert stored["a"]["large"] is large
    assert {group: list(named) for group, named in stored.items()} == {"a": ["large"], "b": [], "packed": ["bytes"]}
    assert stored["packed"]["bytes"].shape == (packing.SMALL - 1 + 8 + 4,)
    found = packing.unpack(index, stored)
    assert found["a"]["large"] is large
    np.testing.assert_array_equal(found["a"]["key"], key)
    for array in (found["a"]["key"], found["b"]["one"]):  # at odd places among the bytes
        assert array.flags.aligned
        assert array.flags.writeable
        assert not np.shares_memory(array, stored["packed"]["bytes"])


@pytest.mark.parametrize("dtype", [">f4", "U3", "M8[s]", "V2", "O"])
def test_arrays_whose_dtype_has_no_name_of_its_own_are_left_to_orbax(dtype: str) -> None:
    array = np.zeros(3, dtype)
    stored, index = packing.pack({"a": {"x": array}})
    assert stored["a"]["x"] is array
    assert list(stored) == ["a"]
    assert "offset" not in index["a"]["x"]


def test_an_index_of_other_arrays_is_an_error() -> None:
    stored, index = packing.pack({"a": {"x": np.arange(3)}})
    with pytest.raises(ValueError, match="size"):
        packing.unpack(index, {"packed": {"bytes": stored["packed"]["bytes"][:20]}})
    with pytest.raises(KeyError):
        packing.unpack(index, {"a": {}})
