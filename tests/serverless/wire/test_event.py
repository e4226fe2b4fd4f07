"""Events and answers: what is written is read back exactly, and nothing else is read at all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.net.errors import WireError
from dorylax.program.artefact.stage_file import StageReference
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget
from dorylax.serverless.task import TaskKey
from dorylax.serverless.wire import event as wire
from dorylax.serverless.wire.event import Answer, Event

EVENT = Event(
    run="9f03",
    key=TaskKey(3, 7, 2, 1),
    attempt=1,
    reference=StageReference("ab" * 32, (0, 2), (0.1, -math.inf, -0.0), True, (1, 0)),
    size=128,
    parts=(128, 0, 17),
    operands=(
        OperandSource("rows", axis=1, factor=4, zero=True),
        OperandSource("weights", leaf=3),
        OperandSource("free"),
    ),
    results=(ResultTarget("rows", axis=1, factor=2), ResultTarget("sums")),
    version=12,
    graph="ipc://endpoint/0",
    parameters="tcp://127.0.0.1:5555",
    artefact="https://bucket.s3.eu-central-1.amazonaws.com/stages/abab?X-Amz-Signature=0f",
)
ANSWER = Answer("9f03", TaskKey(3, 7, 2, 1), 1, None, False, True, 0.1, 2e-5, 0.0, 4096, 0)
BOTH = pytest.mark.parametrize("value", [EVENT, ANSWER], ids=["event", "answer"])


def fields_of(kind: type, **fields: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(st.just(kind), st.fixed_dictionaries(fields))


small = st.integers(0, 2**63 - 1)
before_training = st.just(-1)
keys = st.builds(TaskKey, small | before_training, small, small, small)
references = st.builds(
    StageReference,
    st.text("0123456789abcdef", min_size=64, max_size=64),
    st.lists(small).map(tuple),
    st.lists(st.floats(allow_nan=False)).map(tuple),
    st.booleans(),
    st.lists(small).map(tuple),
)
positive = st.integers(1, 2**63 - 1)
operands = st.builds(OperandSource, st.sampled_from(["rows", "free", "weights"]), small, positive, st.booleans(), small)
addresses = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=100)
runs = st.text("0123456789abcdef", min_size=1, max_size=64)
urls = st.from_regex(r"https?://[!-~]{1,50}", fullmatch=True)
# Fields, from which tests make the objects: beartype, which then checks them, draws random numbers of its own.
events = fields_of(
    Event,
    run=runs,
    key=keys,
    attempt=small,
    reference=references,
    size=st.integers(1000, 2**63 - 1),
    parts=st.lists(st.integers(0, 1000), min_size=1).map(tuple),
    operands=st.lists(operands).map(tuple),
    results=st.lists(st.builds(ResultTarget, st.sampled_from(["rows", "sums", "free"]), small, positive)).map(tuple),
    version=small | before_training,
    graph=addresses,
    parameters=addresses,
    artefact=st.none() | urls,
)
seconds = st.floats(0, 1e9)
answers = fields_of(
    Answer,
    run=runs,
    key=keys,
    attempt=small,
    error=st.none() | st.text(max_size=200),
    retry=st.booleans(),
    cold=st.booleans(),
    pull_seconds=seconds,
    compute_seconds=seconds,
    push_seconds=seconds,
    bytes_in=small,
    bytes_out=small,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def read(value: Event | Answer, content: bytes) -> Event | Answer:
    return type(value).decode(content)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document."""
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at a path."""
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


@given(events | answers)
def test_what_is_written_is_read_back(drawn):
    kind, fields = drawn
    value = kind(**fields)
    content = value.encode()
    assert b"\n" not in content
    assert content.isascii()
    assert read(value, content) == value


def test_literals_keep_every_bit():
    """A decimal number might come back as its neighbour; -0.0 == 0.0 would hide a lost sign."""
    literals = Event.decode(EVENT.encode()).reference.literals
    assert [value.hex() for value in literals] == [value.hex() for value in EVENT.reference.literals]


def test_a_literal_that_is_not_a_number_travels():
    reference = dataclasses.replace(EVENT.reference, literals=(math.nan,))
    (literal,) = Event.decode(dataclasses.replace(EVENT, reference=reference).encode()).reference.literals
    assert math.isnan(literal)


@BOTH
@given(content=st.binary(max_size=300))
def test_bytes_that_are_nothing_are_refused(value, content):
    with pytest.raises(WireError):
        read(value, content)


@BOTH
@given(data=st.data())
def test_one_wrong_value_is_refused_or_read_but_never_raises_anything_else(value, data):
    document = json.loads(value.encode())
    path = data.draw(st.sampled_from(places(document)))
    content = json.dumps(changed(document, path, data.draw(anything))).encode()
    try:
        found = read(value, content)
    except WireError:
        return
    assert read(value, found.encode()) == found


@BOTH
@given(data=st.data())
def test_damaged_bytes_never_raise_anything_else(value, data):
    content = bytearray(value.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        read(value, bytes(content))


@BOTH
def test_every_key_is_needed_and_none_may_be_added(value):
    document = json.loads(value.encode())
    for path in places(document):
        if path and isinstance(path[-1], str):
            inside = document
            for key in path[:-1]:
                inside = inside[key]
            without = {key: inner for key, inner in inside.items() if key != path[-1]}
            with pytest.raises(WireError, match=f"must have '{path[-1]}'"):
                read(value, json.dumps(changed(document, path[:-1], without)).encode())
            more = {**inside, "surprise": 1}
            with pytest.raises(WireError, match=r"unknown keys.*surprise"):
                read(value, json.dumps(changed(document, path[:-1], more)).encode())


@BOTH
@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("attempt", True, "'attempt' must be an integer"),
        ("attempt", 1.0, "'attempt' must be an integer"),
        ("attempt", -1, "'attempt' must be an integer from 0"),
        ("attempt", 2**63, "'attempt' must be an integer"),
        ("run", "", "'run' must be"),
        ("run", "XYZ", "'run' must be"),
        ("run", 7, "'run' must be a text"),
        ("key", [1, 2, 3], "'key' must be"),
        ("key", [-1, 0, -1, 0], "'key' must be ≥ 0 but for its epoch"),
        ("key", {}, "'key' must be a list"),
        ("format", "dorylax dinner", "'format' must be"),
    ],
)
def test_wrong_fields_of_both(value, name, wrong, message):
    with pytest.raises(WireError, match=message):
        read(value, json.dumps({**json.loads(value.encode()), name: wrong}).encode())


@BOTH
def test_another_version_is_refused_by_name(value):
    document = {**json.loads(value.encode()), "version": 1}
    with pytest.raises(WireError, match=f"version 1, expected {wire.VERSION}"):
        read(value, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": ()}, "at least one part"),
        ({"parts": (129,)}, "at most 'size' = 128, got 129"),
        ({"graph": ""}, "'graph' must be an address"),
        ({"parameters": "tcp://a\nb"}, "'parameters' must be an address"),
        ({"parameters": "x" * 1025}, "'parameters' must be an address"),
        ({"run": "no"}, "'run' must be"),
        ({"artefact": "file:///etc/passwd"}, "'artefact' must be null or a URL of http or https"),
        ({"artefact": "https://a b"}, "'artefact' must be"),
        ({"artefact": "https://a\n"}, "'artefact' must be"),
        ({"artefact": "https://" + "x" * 8192}, "at most 8192 characters"),
        ({"reference": dataclasses.replace(EVENT.reference, sha256="ab")}, "64 hexadecimal digits"),
    ],
)
def test_events_that_no_worker_could_use_are_not_made(change, message):
    with pytest.raises(WireError, match=message):
        dataclasses.replace(EVENT, **change)


def test_what_is_wrong_with_a_signed_url_is_not_shown():
    with pytest.raises(WireError) as caught:
        dataclasses.replace(EVENT, artefact="https://bucket/stage?X-Amz-Signature=c0ffee c0ffee")
    assert "c0ffee" not in str(caught.value)


@pytest.mark.parametrize("literal", ["1.0", " 0x1p0", "0x1.0000000000000p+0 ", "0x1p5000", "one", "", 1.5, None])
def test_literals_are_hexadecimal(literal):
    document = json.loads(EVENT.encode())
    document["stage"]["literals"] = [literal]
    with pytest.raises(WireError, match=r"'literals' must be a number as float\.hex writes it"):
        Event.decode(json.dumps(document).encode())


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-0.5", "true", '"1"', "9" * 5000, "1e400"]
)
def test_seconds_are_finite_numbers(number):
    text = ANSWER.encode().decode().replace('"pull_seconds":0.1', f'"pull_seconds":{number}')
    assert number in text
    with pytest.raises(WireError):
        Answer.decode(text.encode())


def test_numbers_that_are_not_finite_are_not_written():
    with pytest.raises(WireError, match="finite"):
        dataclasses.replace(ANSWER, pull_seconds=math.nan).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe{\x00}\x00",  # UTF-16, which Python's reader would take
        b"[]",
        b"null",
        b"",
    ],
)
def test_what_python_would_take_or_choke_on(content):
    with pytest.raises(WireError):
        Event.decode(content)


def test_a_key_that_occurs_twice():
    """Two readers might take different ones."""
    content = EVENT.encode().replace(b'"attempt":1', b'"attempt":1,"attempt":1')
    with pytest.raises(WireError, match="a key occurs twice"):
        Event.decode(content)


def test_oversize_is_refused_before_it_is_read_and_never_sent():
    content = b" " * (wire.MAX_EVENT_BYTES + 1)
    with pytest.raises(WireError, match=f"at most {wire.MAX_EVENT_BYTES} bytes"):
        Event.decode(content)
    with pytest.raises(WireError, match=f"at most {wire.MAX_EVENT_BYTES} bytes"):
        dataclasses.replace(EVENT, operands=EVENT.operands * 4000).encode()


def test_a_long_error_keeps_its_end():
    """Where the end of a traceback says what it is; characters may take twelve bytes each."""
    error = "\N{SNAIL}" * 100_000 + "ValueError: the end"
    found = Answer.decode(dataclasses.replace(ANSWER, error=error).encode())
    assert found.error.endswith("\N{SNAIL}ValueError: the end")


def test_an_answer_to_what_was_no_event():
    answer = Answer.unread("no JSON")
    assert Answer.decode(answer.encode()) == answer
    assert not answer.retry
