"""Messages: any array that may be sent comes back as it was, and nothing else is read."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dorylax.serverless.data import messages
from dorylax.serverless.data.messages import Header, Tensors
from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.tensors import MAX_TENSORS

LARGE = 1 << 30
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"),
    *("float32", "float64"),
]

tensors = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


def message(*given_arrays: np.ndarray, text: str = "n") -> list[bytes]:
    outgoing = Tensors.of(given_arrays, LARGE)
    return [Header("9f", "put", 3, text, outgoing.specs).encode(), *map(bytes, outgoing.frames)]


def decode(parts, max_bytes: int = LARGE):
    header = messages.decode_header(parts[0])
    return header, messages.decode_tensors(header, parts[1:], max_bytes)


def changed(head: bytes, **first_tensor) -> bytes:
    document = json.loads(head)
    document["tensors"][0].update(first_tensor)
    return json.dumps(document).encode()


def assert_same(found, wanted):
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()  # NaN too


@given(st.lists(tensors, max_size=4))
def test_arrays_come_back_as_they_were(wanted):
    header, found = decode(message(*wanted))
    assert header[:4] == ("9f", "put", 3, "n")
    assert header.nbytes == sum(one.nbytes for one in wanted)
    for one, other in zip(found, wanted, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=ml_dtypes.bfloat16).reshape(3, 4),
        np.zeros((0, 3), ml_dtypes.bfloat16),
        np.asarray(2.5, ml_dtypes.bfloat16),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(20.0)[::-3],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float32(1), (3, 2)),
        np.asarray(7),
    ],
    ids=["bfloat16", "empty bfloat16", "bfloat16 scalar", "transposed", "reversed", "Fortran", "broadcast", "0-d"],
)
def test_arrays_of_any_layout_come_back(array):
    _, (found,) = decode(message(array))
    assert_same(found, array)


def test_numbers_of_the_other_byte_order_are_turned():
    _, (found,) = decode(message(np.arange(3, dtype=">i4")))
    assert found.dtype == np.int32
    assert found.tolist() == [0, 1, 2]


def test_what_is_sent_is_not_copied_and_what_comes_is_aligned_and_writable():
    array = np.arange(100.0)
    assert np.shares_memory(np.frombuffer(Tensors.of([array], LARGE).frames[0], np.uint8), array)
    _, (found,) = decode(message(array))
    assert found.ctypes.data % 64 == 0
    assert found.flags.writeable


def test_large_arrays_are_cut_into_frames(monkeypatch):
    monkeypatch.setattr(messages, "PIECE_BYTES", 1000)
    wanted = (np.arange(300.0), np.zeros((0, 2)), np.arange(250, dtype=np.int32))
    parts = message(*wanted)
    assert [len(part) for part in parts[1:]] == [1000, 1000, 400, 1000]
    for one, other in zip(decode(parts)[1], wanted, strict=True):
        assert_same(one, other)
    for wrong in (parts[:-1], [*parts, b""], [parts[0], *reversed(parts[1:])]):
        with pytest.raises(WireError):
            decode(wrong)


@pytest.mark.parametrize("dtype", [object, "U3", "S3", "complex64", "M8[s]", [("a", "i4")], ml_dtypes.int4])
def test_other_dtypes_do_not_travel(dtype):
    """Above all no objects: they could only be pickled."""
    with pytest.raises(WireError, match="dtype must be one of"):
        message(np.zeros(2, dtype))


@pytest.mark.parametrize("dtype", ["object", "O", "f4", "complex64", "<i4", "V8", "int4"])
def test_other_dtypes_are_not_read(dtype):
    head, content = message(np.zeros(2, np.int32))
    with pytest.raises(WireError, match="dtype must be one of"):
        decode([changed(head, dtype=dtype), content])


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=4))
def test_bytes_that_are_nothing_are_refused(parts):
    with pytest.raises(WireError):
        decode(parts)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["dtype", "shape"]), values | st.lists(st.integers(0, 2**63 - 1), max_size=40))
def test_wrong_specs_raise_nothing_else(name, value):
    head, content = message(np.zeros(2, np.int32))
    try:
        _, (found,) = decode([changed(head, **{name: value}), content])
    except WireError:
        return
    assert found.nbytes == len(content)


KEYS = ["format", "version", "run", "kind", "number", "text", "tensors"]


@given(st.dictionaries(st.sampled_from(KEYS), values, max_size=7))
def test_other_objects_raise_nothing_else(document):
    with pytest.raises(WireError):
        messages.decode_header(json.dumps(document).encode())


@pytest.mark.parametrize("shape", [[2**31, 2**31, 2**31], [2**62, 2], [0, 2**62, 2**62], [0, 2**61], [1] * 33, [3]])
def test_shapes_that_do_not_fit_are_refused_before_anything_is_allocated(shape):
    head, content = message(np.zeros(2, np.int32))
    with pytest.raises(WireError):
        decode([changed(head, shape=shape), content])


def test_an_empty_tensor_may_have_one_long_axis():
    _, (found,) = decode(message(np.zeros((0, 2**40), np.float64)))
    assert found.shape == (0, 2**40)


def test_what_is_too_large():
    with pytest.raises(WireError, match="at most 15 bytes, got 16"):
        decode(message(np.zeros(2)), 15)
    decode(message(np.zeros(2)), 16)
    with pytest.raises(WireError, match="at most 15 bytes may be sent together, got 16"):
        Tensors.of([np.zeros(2)], 15)
    with pytest.raises(WireError, match=f"at most {MAX_TENSORS} arrays"):
        Tensors.of([np.zeros(1)] * (MAX_TENSORS + 1), LARGE)
    with pytest.raises(WireError, match="header must have at most"):
        messages.decode_header(bytes((1 << 20) + 1))
    assert len(decode(message(*[np.zeros(1)] * MAX_TENSORS))[1]) == MAX_TENSORS


def test_another_version_is_refused_by_name():
    document = {**json.loads(message()[0]), "version": 9}
    with pytest.raises(WireError, match="version 9, expected 2"):
        messages.decode_header(json.dumps(document).encode())


@pytest.mark.parametrize("name", KEYS)
def test_every_key_is_needed_and_none_may_be_added(name):
    document = json.loads(message()[0])
    with pytest.raises(WireError, match="unknown keys"):
        messages.decode_header(json.dumps({**document, "surprise": 1}).encode())
    del document[name]
    with pytest.raises(WireError, match=f"must have '{name}'"):
        messages.decode_header(json.dumps(document).encode())
