"""An endpoint's replies, message by message, without sockets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.net import frames
from dorylax.net.errors import Refusals
from dorylax.net.server import DataCounters, Endpoint

LARGE = 1 << 20
ARRAYS = (np.arange(1000.0), np.ones(3, np.int32))


class Conversation:
    """An endpoint, and what a worker says to it."""

    def __init__(self, max_bytes: int = LARGE) -> None:
        self.counters = DataCounters()
        self.refusals = Refusals(burst=0)
        self.endpoint = Endpoint("graph 0", self.counters, self.refusals, max_bytes)
        self.got: list[tuple[np.ndarray, ...]] = []

    def hear(self, parts: Any) -> list[frames.Message]:
        """The replies."""
        replies = self.endpoint.handle([bytes(part) for part in parts])
        return [one for reply in replies for one in frames.opened(list(map(bytes, reply)), LARGE).messages]

    def say(self, kind: Any, text: Any = "n", number: int = 1, arrays: Any = ()) -> tuple[Any, ...]:
        """The kind and the detail of the last reply."""
        found = self.hear(frames.bundle([frames.letter(number, [kind], text, arrays)]))[-1]
        assert found.number == number
        return tuple(found.document)

    def put(self, name: str = "n") -> tuple[Any, ...]:
        return self.say("put", name, arrays=ARRAYS)

    def expect(self, name: str = "n") -> None:
        self.endpoint.expect(name, self.got.append)


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_sizes_come_first_where_tensors_exceed_a_frame(talk, monkeypatch):
    talk.endpoint.offer("n", ARRAYS)
    get = frames.bundle([frames.letter(5, ["get"], "n")])
    assert [one.document for one in talk.hear(get)] == [["tensors", None]]
    monkeypatch.setattr(frames, "PIECE_BYTES", 1024)
    coming, tensors = talk.hear(get)
    assert (coming.number, coming.document) == (5, ["coming", 8012])
    for one, other in zip(tensors.arrays, ARRAYS, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (talk.counters.gets, talk.counters.bytes_sent) == (2, 2 * 8012)


def test_a_put_is_delivered_once(talk):
    talk.expect()
    assert talk.put() == ("done", "accepted")
    (found,) = talk.got
    for one, other in zip(found, ARRAYS, strict=True):
        np.testing.assert_array_equal(one, other)
    assert talk.put() == ("done", "duplicate")
    assert len(talk.got) == 1
    assert talk.counters.puts == talk.counters.duplicates == 1
    assert talk.counters.bytes_received == 8012


def test_late_puts_are_acknowledged_and_dropped(talk):
    assert talk.put() == ("done", "late")  # never expected
    talk.expect()
    talk.endpoint.forget("n")
    assert talk.put() == ("done", "late")
    assert talk.counters.late == 2
    assert talk.got == []
    talk.expect()
    assert talk.put() == ("done", "accepted")


def test_what_cannot_be_delivered_is_logged_and_acknowledged(talk, caplog):
    def fail(arrays):
        raise RuntimeError("no room")

    talk.endpoint.expect("n", fail)
    assert talk.put() == ("done", "accepted")
    assert "no room" in caplog.text


def test_names_are_offered_and_expected_once(talk):
    talk.endpoint.offer("n", ARRAYS)
    with pytest.raises(ValueError, match="offered already"):
        talk.endpoint.offer("n", ARRAYS)
    talk.expect()
    with pytest.raises(ValueError, match="expected already"):
        talk.expect()
    talk.endpoint.withdraw("n")
    talk.endpoint.withdraw("n")
    assert talk.say("get") == ("absent", None)
    talk.endpoint.offer("n", ARRAYS)
    with pytest.raises(ValueError, match="1 to 256 characters"):
        talk.endpoint.offer("n" * 257, ARRAYS)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"kind": "get", "number": 0}, "'number' must be at least 1"),
        ({"kind": "get", "text": ""}, "1 to 256 characters, got ''"),
        ({"kind": "get", "text": 7}, "1 to 256 characters, got '7'"),
        ({"kind": "put", "text": "x" * 257}, "1 to 256 characters, got 'xx"),
        ({"kind": "get", "arrays": ARRAYS}, "a get must have no tensors"),
        ({"kind": "dance"}, "must be get or put, got ['dance']"),
    ],
)
def test_malformed_requests_are_refused(talk, message, reason):
    talk.endpoint.offer("n", ARRAYS)
    talk.expect()
    kind, text = talk.say(**message)
    assert kind == "refused"
    assert reason in text
    assert talk.refusals.count == 1
    assert (talk.counters.gets, talk.got) == (0, [])


def test_messages_come_one_at_a_time(talk):
    (found,) = talk.hear(frames.bundle([frames.letter(number, ["get"], "n") for number in (1, 2)]))
    assert "one message at a time, got 2" in found.document[1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["get", "put", "done", "?"]),
            st.sampled_from(["n", "m", ""]),
            st.integers(0, 3),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_whatever_is_said_is_answered_or_refused(said):
    """No message raises, and none is delivered that is not complete."""
    talk = Conversation()
    talk.endpoint.offer("n", ARRAYS)
    talk.expect()
    for kind, text, number, short in said:
        (first,) = frames.bundle([frames.letter(number, [kind], text, [np.zeros(3, np.uint8)])])
        talk.hear([first[: len(first) - short]])
    assert all(sum(array.nbytes for array in arrays) == 3 for arrays in talk.got)
