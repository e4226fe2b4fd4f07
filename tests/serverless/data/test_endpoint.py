"""An endpoint's answers, message by message, without sockets."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.messages import decode

from dorylax.serverless.data import endpoint as module
from dorylax.serverless.data import protocol
from dorylax.serverless.data.counters import DataCounters
from dorylax.serverless.data.endpoint import Endpoint
from dorylax.serverless.data.parcel import Parcel
from dorylax.serverless.data.refusals import Refusals
from dorylax.serverless.wire import frames

RUN = "9f"
CHUNK = 1024
CREDIT = 3
LARGE = 1 << 20
ARRAYS = (np.arange(1000.0), np.ones(3, np.int32))  # 8 chunks


class Conversation:
    """An endpoint, and what a worker says to it."""

    def __init__(self, max_bytes: int = LARGE) -> None:
        self.counters = DataCounters()
        self.refusals = Refusals(burst=0)
        self.endpoint = Endpoint(
            "graph 0", RUN, self.counters, self.refusals, chunk_bytes=CHUNK, credit=CREDIT, max_bytes=max_bytes
        )
        self.now = 0.0
        self.got: list[tuple[np.ndarray, ...]] = []

    def hear(self, parts, peer: bytes = b"a"):
        replies = self.endpoint.handle(peer, [bytes(part) for part in parts], self.now)
        return [self.read(reply) for reply in replies]

    @staticmethod
    def read(reply):
        header, tensors = decode([bytes(part) for part in reply.frames])
        assert reply.nbytes == sum(tensor.nbytes for tensor in tensors)
        return header.kind, header.fields._left

    def say(self, kind: str, peer: bytes = b"a", run: str = RUN, **fields):
        return self.hear(frames.encode(run, kind, fields), peer)

    def put(self, index: int, peer: bytes = b"a", transfer: int = 1, name: str = "n", damage: bool = False):
        """Says chunk `index` of a put of ARRAYS."""
        parcel = Parcel(ARRAYS, CHUNK, LARGE)
        if index:
            parts = parcel.message(RUN, transfer, index)
        else:
            layout = {"transfer": transfer, "name": name, "chunk_bytes": CHUNK, "tensors": parcel.layout()}
            parts = parcel.message_with(RUN, protocol.PUT, layout, 0)
        if damage:
            parts = [*parts[:-1], bytes([bytes(parts[-1])[0] ^ 1]) + bytes(parts[-1])[1:]]
        return self.hear(parts, peer)

    def expect(self, name: str = "n") -> None:
        self.endpoint.expect(name, self.got.append)


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_a_get_sends_no_more_than_the_credit_and_each_further_one_a_chunk(talk):
    talk.endpoint.offer("n", ARRAYS)
    replies = talk.say("get", transfer=1, name="n", offer=0, first=0, count=100)
    assert [kind for kind, _ in replies] == ["layout"] + ["chunk"] * CREDIT
    serial = replies[0][1]["offer"]
    assert talk.say("get", transfer=1, name="n", offer=serial, first=7, count=1) == [
        ("chunk", {"transfer": 1, "index": 7})
    ]
    assert talk.counters.gets == 1


def test_a_get_that_asks_for_more_than_the_credit_is_refused(talk):
    talk.endpoint.offer("n", ARRAYS)
    serial = talk.say("get", transfer=1, name="n", offer=0, first=0, count=1)[0][1]["offer"]
    ((kind, fields),) = talk.say("get", transfer=1, name="n", offer=serial, first=0, count=CREDIT + 1)
    assert kind == "refused"
    assert "at most the credit of 3 chunks, got 4" in fields["reason"]


def test_what_was_offered_anew_is_not_mixed_with_what_was_before(talk):
    talk.endpoint.offer("n", ARRAYS)
    serial = talk.say("get", transfer=1, name="n", offer=0, first=0, count=1)[0][1]["offer"]
    talk.endpoint.withdraw("n")
    talk.endpoint.offer("n", ARRAYS)
    assert talk.say("get", transfer=1, name="n", offer=serial, first=1, count=1) == [("absent", {"transfer": 1})]


def test_a_put_may_send_as_many_chunks_as_are_granted(talk):
    talk.expect()
    assert talk.put(0) == [("grant", {"transfer": 1, "until": 1 + CREDIT})]
    assert talk.put(2) == []  # a gap: nothing new
    assert talk.put(1) == [("grant", {"transfer": 1, "until": 3 + CREDIT})]
    ((kind, fields),) = talk.put(6)
    assert kind == "refused"
    assert "below the granted 6, got 6" in fields["reason"]
    assert talk.endpoint.unfinished == 0
    assert talk.got == []


def test_a_put_in_order_is_delivered_once(talk):
    talk.expect()
    for index in range(7):
        assert talk.got == []
        talk.put(index)
    assert talk.put(7) == [("done", {"transfer": 1, "state": "accepted"})]
    (found,) = talk.got
    for one, other in zip(found, ARRAYS, strict=True):
        np.testing.assert_array_equal(one, other)
    assert talk.put(0, transfer=2) == [("done", {"transfer": 2, "state": "duplicate"})]
    assert len(talk.got) == 1
    assert talk.counters.puts == talk.counters.duplicates == 1
    assert talk.counters.bytes_received == 8012


def test_of_two_puts_at_a_time_the_first_complete_one_counts(talk):
    talk.expect()
    talk.put(0, b"a")
    for index in range(8):
        talk.put(index, b"b")
    assert talk.put(1, b"a") == [("done", {"transfer": 1, "state": "duplicate"})]
    assert len(talk.got) == 1
    assert talk.endpoint.unfinished == 0


def test_late_puts_are_acknowledged_and_dropped_whenever_they_come(talk):
    late = [("done", {"transfer": 1, "state": "late"})]
    assert talk.put(0) == late  # never expected
    talk.expect()
    talk.put(0)
    talk.endpoint.forget("n")
    assert talk.put(1) == late  # on the way when forgotten
    assert talk.put(0) == late
    assert talk.counters.late == 3
    assert talk.endpoint.unfinished == 0
    assert talk.got == []


def test_a_forgotten_name_may_be_expected_again(talk):
    talk.expect()
    for index in range(8):
        talk.put(index)
    talk.endpoint.forget("n")
    talk.expect()
    for index in range(8):
        talk.put(index, transfer=2)
    assert len(talk.got) == 2


@pytest.mark.parametrize("damaged", [0, 2])
def test_a_damaged_chunk_is_asked_for_again(talk, damaged):
    talk.expect()
    for index in range(damaged):
        talk.put(index)
    replies = talk.put(damaged, damage=True)
    assert replies[0] == ("again", {"transfer": 1, "index": damaged})
    assert talk.refusals.count == 1
    # Chunk 0 must not be said as a new put: it is a chunk like others now.
    talk.hear(Parcel(ARRAYS, CHUNK, LARGE).message(RUN, 1, damaged))
    for index in range(damaged + 1, 8):
        talk.put(index)
    np.testing.assert_array_equal(talk.got[0][0], ARRAYS[0])


def test_a_put_that_begins_again_replaces_the_unfinished_one(talk):
    talk.expect()
    talk.put(0)
    talk.put(0, transfer=2)
    assert talk.endpoint.unfinished == 1
    assert talk.put(1) == [("unknown", {"transfer": 1})]


def test_a_peer_has_few_unfinished_puts(talk):
    for transfer in range(1, 20):
        talk.expect(f"n{transfer}")
        talk.put(0, transfer=transfer, name=f"n{transfer}")
    assert talk.endpoint.unfinished == module.MOST_UNFINISHED
    assert talk.put(1, transfer=19) != [("unknown", {"transfer": 19})]  # the newest are kept
    assert talk.put(1, transfer=1) == [("unknown", {"transfer": 1})]


def test_a_peer_that_is_gone_leaves_nothing(talk):
    talk.expect()
    talk.put(0, b"a")
    talk.put(0, b"b")
    talk.endpoint.drop(b"a")
    assert talk.endpoint.unfinished == 1


def test_an_abandoned_put_is_asked_after_and_then_dropped(talk, caplog):
    talk.expect()
    talk.put(0)
    talk.now = module.PROBE_SECONDS
    ((peer, reply),) = talk.endpoint.probe(talk.now)
    assert peer == b"a"
    assert talk.read(reply) == ("grant", {"transfer": 1, "until": 4})
    assert talk.endpoint.probe(talk.now) == []
    with caplog.at_level(logging.INFO, "dorylax.data"):
        assert talk.endpoint.probe(module.ABANDONED_SECONDS) == []
    assert "unfinished after 60 s" in caplog.text
    assert talk.endpoint.unfinished == 0


def test_what_cannot_be_delivered_is_logged_and_acknowledged(talk, caplog):
    def fail(arrays):
        raise RuntimeError("no room")

    talk.endpoint.expect("n", fail)
    for index in range(7):
        talk.put(index)
    assert talk.put(7)[0][1]["state"] == "accepted"
    assert "no room" in caplog.text


def test_what_is_too_large_takes_no_memory():
    talk = Conversation(max_bytes=8000)
    talk.expect()
    ((kind, fields),) = talk.put(0)
    assert kind == "refused"
    assert "at most 8000 bytes, got 8012" in fields["reason"]
    assert talk.endpoint.unfinished == 0


def test_names_are_offered_and_expected_once(talk):
    talk.endpoint.offer("n", ARRAYS)
    with pytest.raises(ValueError, match="offered already"):
        talk.endpoint.offer("n", ARRAYS)
    talk.expect()
    with pytest.raises(ValueError, match="expected already"):
        talk.expect()
    talk.endpoint.withdraw("n")
    talk.endpoint.withdraw("n")
    talk.endpoint.offer("n", ARRAYS)
    with pytest.raises(ValueError, match="1 to 256 characters"):
        talk.endpoint.offer("n" * 257, ARRAYS)


def test_a_message_of_another_run_is_refused(talk):
    talk.endpoint.offer("n", ARRAYS)
    ((kind, fields),) = talk.say("get", run="aa", transfer=1, name="n", offer=0, first=0, count=1)
    assert (kind, fields["transfer"]) == ("refused", 0)
    assert "this is run 9f" in fields["reason"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
some_fields = st.dictionaries(
    st.sampled_from(["transfer", "name", "offer", "first", "count", "index", "chunk_bytes", "tensors"]),
    st.integers(0, 5) | st.just("n") | st.just(2048) | st.just([{"dtype": "int8", "shape": [5000]}]) | json_values,
)


@given(st.lists(st.tuples(st.sampled_from(["get", "put", "chunk", "layout", "?"]), some_fields), max_size=6))
def test_whatever_is_said_is_answered_or_refused(messages):
    """No message raises, and none is delivered that is not complete."""
    talk = Conversation()
    talk.endpoint.offer("n", ARRAYS)
    talk.expect()
    for kind, fields in messages:
        talk.hear(frames.encode(RUN, kind, fields))
        talk.hear(frames.encode(RUN, kind, fields, [np.zeros(3, np.uint8)]))
    assert all(sum(array.nbytes for array in arrays) in (0, 3) for arrays in talk.got)


@example([])
@given(st.lists(st.binary(max_size=50), max_size=3))
def test_whatever_bytes_come_are_refused(parts):
    talk = Conversation()
    ((kind, fields),) = talk.hear(parts)
    assert kind in ("refused", "damaged")
    assert parts or "got no frames" in fields["reason"]
    assert talk.refusals.count == 1


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_a_put_is_right_in_any_order_with_any_damage(order, damaged):
    """With the credit lifted, so that any order is allowed."""
    talk = Conversation()
    talk.endpoint._credit = 100
    talk.expect()
    talk.put(0, damage=0 in damaged)
    for index in (*order, *order):
        assert len(talk.got) <= 1
        talk.hear(Parcel(ARRAYS, CHUNK, LARGE).message(RUN, 1, index))
    (found,) = talk.got
    np.testing.assert_array_equal(found[0], ARRAYS[0])
