"""Messages: any array that may be sent comes back as it was, and nothing else is read."""

from __future__ import annotations

import json
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dorylax.net import frames
from dorylax.net.errors import WireError
from dorylax.net.frames import MAX_TENSORS

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"),
    *("float32", "float64"),
]
SENDER = frames.Sender(2**63 + 5, -1, 7)
BUNDLE_BYTES, HEAD_BYTES = 32, 12

tensors = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
letters = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.lists(tensors, max_size=4)), max_size=4)
acknowledgements = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.floats(0, 1, width=32)), max_size=5)


def message(*given_arrays: np.ndarray) -> list[bytes]:
    return list(map(bytes, frames.bundle([frames.letter(3, ["put"], "n", given_arrays)])))


def decode(parts: list[bytes], max_bytes: int | None = None) -> list[np.ndarray]:
    (found,) = frames.opened(parts, max_bytes).messages
    assert found[:3] == (3, ["put"], "n")
    return found.arrays


def headed(header: Any, content: bytes = b"") -> list[bytes]:
    """A bundle with an arbitrary header."""
    text = json.dumps(header).encode()
    return [message()[0][:BUNDLE_BYTES] + struct.pack("<QI", 3, len(text)) + text + content]


def changed(dtype: Any = "int32", shape: Any = (2,)) -> list[bytes]:
    return headed([["put"], "n", [[dtype, shape]]], bytes(8))


def assert_same(found: np.ndarray, wanted: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()  # NaN too
    assert found.flags.writeable
    assert found.ctypes.data % 64 == 0 or not found.size


@given(letters, acknowledgements)
def test_what_comes_is_what_was_sent(given_letters: Any, acknowledged: list[tuple[int, float]]) -> None:
    sent = [frames.letter(number, ("rows", number), {"t": [number]}, found) for number, found in given_letters]
    parts = frames.bundle(sent, acknowledged, SENDER)
    size = sum(one.num_bytes for one in sent) + (frames.acknowledgement_bytes(len(acknowledged)) if acknowledged else 0)
    assert sum(map(len, parts)) == BUNDLE_BYTES + size
    bundle = frames.opened(parts)
    assert (bundle.sender, bundle.acknowledged) == (SENDER, acknowledged)
    for found, (number, wanted) in zip(bundle.messages, given_letters, strict=True):
        assert found[:3] == (number, ["rows", number], {"t": [number]})
        for one, other in zip(found.arrays, wanted, strict=True):
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
def test_arrays_of_any_layout_come_back(array: np.ndarray) -> None:
    (found,) = decode(message(array))
    assert_same(found, array)


def test_numbers_of_the_other_byte_order_are_turned() -> None:
    (found,) = decode(message(np.arange(3, dtype=">i4")))
    assert found.dtype == np.int32
    assert found.tolist() == [0, 1, 2]


def test_large_arrays_are_cut_into_frames_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "COPIED_BYTES", 900)
    monkeypatch.setattr(frames, "PIECE_BYTES", 1000)
    wanted = (np.arange(300.0), np.zeros((0, 2)), np.arange(100), np.arange(250, dtype=np.int32), np.zeros(30))
    letter = frames.letter(3, ["put"], "n", wanted)
    assert np.shares_memory(np.frombuffer(letter.large[0], np.uint8), wanted[0])
    parts = list(map(bytes, frames.bundle([letter])))
    assert [len(part) for part in parts[1:]] == [1000, 1000, 400, 1000, 240]  # the small ones lie in the first frame
    for one, other in zip(decode(parts), wanted, strict=True):
        assert_same(one, other)
    for wrong in (parts[:-1], [*parts, b""], [parts[0], *reversed(parts[1:])]):
        with pytest.raises(WireError):
            decode(wrong)


@pytest.mark.parametrize("dtype", [object, "U3", "S3", "complex64", "M8[s]", [("a", "i4")], ml_dtypes.int4])
def test_other_dtypes_do_not_travel(dtype: Any) -> None:
    """Above all no objects: they could only be pickled."""
    with pytest.raises(WireError, match="dtype must be one of"):
        message(np.zeros(2, dtype))


@pytest.mark.parametrize("dtype", ["object", "O", "f4", "complex64", "<i4", "V8", "int4", None, 4])
def test_other_dtypes_are_not_read(dtype: Any) -> None:
    with pytest.raises(WireError, match="dtype must be one of"):
        decode(changed(dtype))


@example([])
@given(st.lists(st.binary(max_size=100), max_size=4))
def test_bytes_that_are_nothing_are_refused(parts: list[bytes]) -> None:
    with pytest.raises(WireError):
        frames.opened(parts)


@given(st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 200))
def test_damaged_bytes_raise_nothing_else(damage: list[tuple[int, int]], lost: int) -> None:
    parts = [bytearray(message(np.arange(3))[0])]
    for place, byte in damage:
        parts[0][place % len(parts[0])] = byte
    try:
        frames.opened([bytes(parts[0][: len(parts[0]) - lost % 40])])
    except WireError:
        return


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(values, values | st.lists(st.integers(0, 2**63 - 1), max_size=40))
def test_wrong_specs_raise_nothing_else(dtype: Any, shape: Any) -> None:
    for parts in (changed(dtype), changed("int32", shape), headed([["put"], "n", shape]), headed(dtype)):
        try:
            found = frames.opened(parts).messages
        except WireError:
            continue
        assert sum(array.nbytes for one in found for array in one.arrays) in (0, 8)


@pytest.mark.parametrize(
    "shape",
    [[2**31, 2**31, 2**31], [2**62, 2], [0, 2**62, 2**62], [0, 2**61], [1] * 33, [3], [2.0], [True, 2], [-1]],
)
def test_shapes_that_do_not_fit_are_refused_before_anything_is_allocated(shape: Any) -> None:
    with pytest.raises(WireError):
        decode(changed("int32", shape))


def test_an_empty_tensor_may_have_one_long_axis() -> None:
    (found,) = decode(message(np.zeros((0, 2**40), np.float64)))
    assert found.shape == (0, 2**40)


def test_what_is_too_large() -> None:
    with pytest.raises(WireError, match="at most 15 bytes, got 16"):
        decode(message(np.zeros(2)), 15)
    decode(message(np.zeros(2)), 16)
    with pytest.raises(WireError, match="at most 15 bytes may be sent together, got 16"):
        frames.contiguous([np.zeros(2)], 15)
    with pytest.raises(WireError, match=f"at most {MAX_TENSORS} arrays"):
        frames.contiguous([np.zeros(1)] * (MAX_TENSORS + 1), 10**6)
    with pytest.raises(WireError, match=f"at most {MAX_TENSORS} tensors"):
        decode(headed([["put"], "n", [["int8", [0]]] * (MAX_TENSORS + 1)]), 16)
    assert len(decode(message(*[np.zeros(1)] * MAX_TENSORS), 10**6)) == MAX_TENSORS
    assert len(decode(message(*[np.zeros(1)] * (MAX_TENSORS + 1)))) == MAX_TENSORS + 1  # between hosts


@pytest.mark.parametrize("depth", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000])
def test_what_python_would_choke_on(depth: str) -> None:
    start = message()[0][:BUNDLE_BYTES]
    with pytest.raises(WireError):
        frames.opened([start + struct.pack("<QI", 3, len(depth)) + depth.encode()])


def test_another_version_is_refused_by_name() -> None:
    (first,) = message()
    with pytest.raises(WireError, match="both ends must run the same release"):
        frames.opened([first[:7] + b"\x09" + first[8:]])
