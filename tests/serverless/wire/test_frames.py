"""Messages of the data plane: any array that may be sent comes back as it was, and damage is noticed."""

from __future__ import annotations

import json
import zlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.messages import decode

from dorylax.serverless.wire import frames
from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.tensors import MAX_TENSORS

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"),
    *("float32", "float64"),
]

tensors = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


def message(*given_tensors: np.ndarray) -> list[bytes]:
    return [bytes(frame) for frame in frames.encode("9f", "chunk", {"index": 3}, given_tensors)]


def header_of(document: object) -> bytes:
    text = json.dumps(document).encode()
    return zlib.crc32(text).to_bytes(4, "big") + text


def parsed(frame: bytes) -> dict:
    return json.loads(frame[4:])


def assert_same(found, wanted):
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()  # NaN too


@given(st.lists(tensors, max_size=4))
def test_arrays_come_back_as_they_were(wanted):
    header, found = decode(message(*wanted))
    assert (header.run, header.kind, header.fields.integer("index")) == ("9f", "chunk", 3)
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


def test_nothing_is_copied_on_either_side():
    array = np.arange(100.0)
    head, content = frames.encode("9f", "chunk", {}, [array])
    assert np.shares_memory(np.frombuffer(content, np.uint8), array)
    _, (found,) = decode([head, content])
    assert np.shares_memory(found, array)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize("dtype", [object, "U3", "S3", "complex64", "M8[s]", [("a", "i4")], ml_dtypes.int4])
def test_other_dtypes_do_not_travel(dtype):
    """Above all no objects: they could only be pickled."""
    with pytest.raises(WireError, match="dtype must be one of"):
        frames.encode("9f", "chunk", {}, [np.zeros(2, dtype)])


@pytest.mark.parametrize("dtype", ["object", "O", "f4", "complex64", "<i4", "V8", "int4"])
def test_other_dtypes_are_not_read(dtype):
    head, content = message(np.zeros(2, np.int32))
    document = parsed(head)
    document["tensors"][0]["dtype"] = dtype
    with pytest.raises(WireError, match="dtype must be one of"):
        decode([header_of(document), content])


@given(st.data())
def test_any_flipped_bit_is_noticed(data):
    """In the header too: a chunk with a wrong number would be put in the wrong place."""
    parts = message(np.arange(40.0), np.ones(5, bool))
    number = data.draw(st.integers(0, len(parts) - 1))
    damaged = bytearray(parts[number])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    parts[number] = bytes(damaged)
    with pytest.raises(WireError) as caught:
        decode(parts)
    assert caught.value.damaged


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=4))
def test_bytes_that_are_nothing_are_refused(parts):
    with pytest.raises(WireError):
        decode(parts)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(["dtype", "shape", "nbytes", "crc32"]), values | st.lists(st.integers(0, 2**63 - 1), max_size=40)
)
def test_a_header_with_a_right_checksum_and_wrong_content_raises_nothing_else(name, value):
    head, content = message(np.zeros(2, np.int32))
    document = parsed(head)
    document["tensors"][0][name] = value
    try:
        _, (found,) = decode([header_of(document), content])
    except WireError:
        return
    assert found.nbytes == len(content)


@given(st.dictionaries(st.sampled_from(["format", "version", "run", "kind", "fields", "tensors"]), values, max_size=6))
def test_other_objects_raise_nothing_else(document):
    with pytest.raises(WireError):
        decode([header_of(document)])


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [([2**31, 2**31, 2**31], 8), ([2**62, 2], 2**63 - 1), ([0, 2**62, 2**62], 0), ([1] * 33, 4), ([3], 12)],
)
def test_shapes_that_do_not_fit_their_frame_are_refused_before_anything_is_allocated(shape, nbytes):
    head, content = message(np.zeros(2, np.int32))
    document = parsed(head)
    document["tensors"][0].update(shape=shape, nbytes=nbytes)
    with pytest.raises(WireError):
        decode([header_of(document), content])


def test_an_empty_tensor_is_refused_whose_other_axes_numpy_could_not_multiply():
    head, _ = message(np.zeros((0, 1), np.int32))
    document = parsed(head)
    document["tensors"][0]["shape"] = [0, 2**61]
    with pytest.raises(WireError, match="a tensor must have at most"):
        decode([header_of(document), b""])


def test_the_size_a_header_tells_must_be_that_of_its_shape():
    head, content = message(np.zeros(2, np.int32))
    document = parsed(head)
    document["tensors"][0]["nbytes"] = 12
    with pytest.raises(WireError, match=r"int32 \[2\] must have 8 bytes, got 12"):
        decode([header_of(document), content])


def test_an_empty_tensor_may_have_one_long_axis():
    _, (found,) = decode(message(np.zeros((0, 2**40), np.float64)))
    assert found.shape == (0, 2**40)


def test_frames_that_are_missing_or_too_many():
    parts = message(np.zeros(2), np.zeros(3))
    with pytest.raises(WireError, match="tells of 2 tensors, got 1 frames"):
        decode(parts[:2])
    with pytest.raises(WireError, match="tells of 2 tensors, got 3 frames"):
        decode([*parts, b""])


def test_what_is_too_large():
    with pytest.raises(WireError, match="at most 15 bytes, got 16"):
        decode(message(np.zeros(2)), 15)
    decode(message(np.zeros(2)), 16)
    with pytest.raises(WireError, match=f"at most {MAX_TENSORS} tensors"):
        frames.encode("9f", "chunk", {}, [np.zeros(1)] * (MAX_TENSORS + 1))
    with pytest.raises(WireError, match="a header must have at most"):
        frames.encode("9f", "chunk", {"text": "x" * frames.MAX_HEADER_BYTES})
    with pytest.raises(WireError, match="a header must have at most"):
        decode([bytes(frames.MAX_HEADER_BYTES + 1)])


def test_as_many_tensors_as_may_be_fit_in_a_header():
    parts = message(*[np.zeros(1)] * MAX_TENSORS)
    assert len(decode(parts)[1]) == MAX_TENSORS


def test_another_version_is_refused_by_name():
    head, *_ = message()
    with pytest.raises(WireError, match="version 9, expected 1"):
        frames.decode_header(header_of({**parsed(head), "version": 9}))


@pytest.mark.parametrize("name", ["format", "version", "run", "kind", "fields", "tensors"])
def test_every_key_is_needed_and_none_may_be_added(name):
    document = parsed(message()[0])
    with pytest.raises(WireError, match=f"must have '{name}'"):
        frames.decode_header(header_of({key: value for key, value in document.items() if key != name}))
    with pytest.raises(WireError, match="unknown keys"):
        frames.decode_header(header_of({**document, "surprise": 1}))
