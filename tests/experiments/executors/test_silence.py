"""When a process that says nothing is taken to hang."""

from __future__ import annotations

from dorylax.experiments.executors.silence import Silence


def test_what_speaks_is_left_alone() -> None:
    silence = Silence(100.0, 60.0)
    assert not silence.asks_for_a_look(159.0)
    silence.broken(159.0)
    assert not silence.asks_for_a_look(218.0)
    assert not silence.unanswered(1e9)


def test_one_that_uses_no_time_between_two_looks_hangs() -> None:
    silence = Silence(0.0, 60.0)
    assert silence.asks_for_a_look(60.0)
    assert not silence.asks_for_a_look(61.0)  # one look at a time
    assert not silence.hangs(61.0, 7.5)
    assert not silence.asks_for_a_look(120.0)
    assert silence.asks_for_a_look(121.0)
    assert not silence.hangs(122.0, 9.0)  # it computes, and holds Python's lock
    assert silence.asks_for_a_look(182.0)
    assert silence.hangs(182.5, 9.0)


def test_what_was_heard_between_two_looks_counts() -> None:
    silence = Silence(0.0, 60.0)
    assert silence.asks_for_a_look(60.0)
    assert not silence.hangs(60.0, 7.5)
    silence.broken(61.0)
    assert silence.asks_for_a_look(121.0)
    assert not silence.hangs(121.0, 7.5)


def test_a_process_that_is_gone_is_as_one_that_hangs() -> None:
    silence = Silence(0.0, 60.0)
    assert silence.asks_for_a_look(60.0)
    assert silence.hangs(60.0, None)


def test_a_look_that_nobody_answers() -> None:
    silence = Silence(0.0, 60.0)
    assert silence.asks_for_a_look(60.0)
    assert not silence.unanswered(119.0)
    assert silence.unanswered(120.0)
    silence.broken(119.0)  # something else was heard: the look may come late
    assert not silence.unanswered(120.0)
