"""Which requests are handled: each once, and those of other generations never."""

from __future__ import annotations

from dorylax.pipeline.transport.delivery import Answered, Inbox


def test_a_request_is_begun_once() -> None:
    inbox = Inbox()
    assert inbox.begin("one", 4) is True
    assert inbox.begin("one", 4) is False  # while it is being answered
    assert inbox.begin("other", 4) is True


def test_its_answer_is_given_again_until_whoever_asked_has_it() -> None:
    inbox = Inbox()
    inbox.begin("one", 4)
    inbox.answer("one", 4, None)
    assert inbox.begin("one", 4) == Answered(None)
    inbox.forget("one", 4)
    assert inbox.begin("one", 4) == Answered(None)
    inbox.forget("one", 5)
    assert inbox.begin("one", 4) is False
    inbox.forget("one", 2)  # a message that another has overtaken
    assert inbox.begin("one", 4) is False
    inbox.answer("one", 3, "late")
    assert inbox.begin("one", 3) is False


def test_what_was_given_up_may_come_again() -> None:
    inbox = Inbox()
    inbox.begin("one", 4)
    inbox.give_up("one", 4)
    assert inbox.begin("one", 4) is True
    inbox.give_up("nobody", 1)


def test_only_whole_processes_answer_other_generations() -> None:
    inbox = Inbox()
    assert inbox.refuses(0, "graph")
    inbox.generation = 1
    assert inbox.refuses(0, "graph")
    assert inbox.refuses(2, "ledger")
    assert not inbox.refuses(1, "graph")
    assert not inbox.refuses(0, "process")
    assert not inbox.refuses(2, "driver")
    assert inbox.refused == 3
