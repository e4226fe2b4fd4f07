"""An endpoint's replies, message by message, without sockets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dorylax.serverless.data import messages
from dorylax.serverless.data.endpoint import DataCounters, Endpoint
from dorylax.serverless.data.messages import Header, Tensors
from dorylax.serverless.data.refusals import Refusals

RUN = "9f"
LARGE = 1 << 20
ARRAYS = (np.arange(1000.0), np.ones(3, np.int32))


class Conversation:
    """An endpoint, and what a worker says to it."""

    def __init__(self, max_bytes: int = LARGE) -> None:
        self.counters = DataCounters()
        self.refusals = Refusals(burst=0)
        self.endpoint = Endpoint("graph 0", RUN, self.counters, self.refusals, max_bytes)
        self.got: list[tuple[np.ndarray, ...]] = []

    def hear(self, parts) -> list[Header]:
        """The headers of the replies."""
        replies = self.endpoint.handle([bytes(part) for part in parts])
        headers = [messages.decode_header(bytes(reply.frames[0])) for reply in replies]
        for reply, header in zip(replies, headers, strict=True):
            if header.kind == messages.TENSORS:
                arrays = messages.decode_tensors(header, reply.frames[1:], LARGE)
                assert reply.nbytes == sum(array.nbytes for array in arrays)
        return headers

    def say(self, kind: str, text: str = "n", number: int = 1, run: str = RUN, arrays=()) -> tuple[str, str]:
        """The kind and the text of the last reply."""
        outgoing = Tensors.of(arrays, LARGE)
        head = Header(run, kind, number, text, outgoing.specs).encode()
        header = self.hear([head, *outgoing.frames])[-1]
        assert header.number == (number if run == RUN else 0)
        return header.kind, header.text

    def put(self, name: str = "n") -> tuple[str, str]:
        return self.say("put", name, arrays=ARRAYS)

    def expect(self, name: str = "n") -> None:
        self.endpoint.expect(name, self.got.append)


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_sizes_come_first_where_tensors_exceed_a_frame(talk, monkeypatch):
    talk.endpoint.offer("n", ARRAYS)
    get = Header(RUN, "get", 5, "n", ()).encode()
    assert [header.kind for header in talk.hear([get])] == ["tensors"]
    monkeypatch.setattr(messages, "PIECE_BYTES", 1024)
    talk.endpoint.withdraw("n")
    talk.endpoint.offer("n", ARRAYS)
    coming, tensors = talk.hear([get])
    assert (coming.kind, coming.number, coming.specs) == ("coming", 5, tensors.specs)
    assert talk.counters.gets == 2


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


def test_a_name_that_is_forgotten_while_its_put_is_read_is_late(talk, monkeypatch):
    talk.expect()
    decode = messages.decode_tensors
    monkeypatch.setattr(messages, "decode_tensors", lambda *a: (talk.endpoint.forget("n"), decode(*a))[1])
    assert talk.put() == ("done", "late")
    assert talk.got == []


def test_what_cannot_be_delivered_is_logged_and_acknowledged(talk, caplog):
    def fail(arrays):
        raise RuntimeError("no room")

    talk.endpoint.expect("n", fail)
    assert talk.put() == ("done", "accepted")
    assert "no room" in caplog.text


def test_what_is_too_large_is_refused():
    talk = Conversation(max_bytes=8000)
    talk.expect()
    kind, reason = talk.put()
    assert kind == "refused"
    assert "at most 8000 bytes, got 8012" in reason
    assert talk.got == []


def test_names_are_offered_and_expected_once(talk):
    talk.endpoint.offer("n", ARRAYS)
    with pytest.raises(ValueError, match="offered already"):
        talk.endpoint.offer("n", ARRAYS)
    talk.expect()
    with pytest.raises(ValueError, match="expected already"):
        talk.expect()
    talk.endpoint.withdraw("n")
    talk.endpoint.withdraw("n")
    assert talk.say("get") == ("absent", "")
    talk.endpoint.offer("n", ARRAYS)
    with pytest.raises(ValueError, match="1 to 256 characters"):
        talk.endpoint.offer("n" * 257, ARRAYS)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"kind": "get", "run": "aa"}, "this is run 9f, got a message of run 'aa'"),
        ({"kind": "get", "number": 0}, "'number' must be at least 1"),
        ({"kind": "get", "text": ""}, "1 to 256 characters, got 0"),
        ({"kind": "put", "text": "x" * 257}, "1 to 256 characters, got 257"),
        ({"kind": "get", "arrays": ARRAYS}, "a get must have no tensors"),
        ({"kind": "dance"}, "'kind' must be get or put, got 'dance'"),
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
        outgoing = Tensors.of([np.zeros(3, np.uint8)], LARGE)
        talk.hear([Header(RUN, kind, number, text, outgoing.specs).encode(), *outgoing.frames[short:]])
    assert all(sum(array.nbytes for array in arrays) == 3 for arrays in talk.got)


@example([])
@given(st.lists(st.binary(max_size=50), max_size=3))
def test_whatever_bytes_come_are_refused(parts):
    talk = Conversation()
    (header,) = talk.hear(parts)
    assert (header.kind, header.number) == ("refused", 0)
    assert parts or "got no frames" in header.text
    assert talk.refusals.count == 1
