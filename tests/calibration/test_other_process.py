from __future__ import annotations

import os

import pytest
from support.other_ends import echo, end

from dorylax.calibration.steps import other_process
from dorylax.errors import RunError
from dorylax.terminal.failures import FAILED, explain


def test_it_answers_and_ends() -> None:
    with other_process(echo, 40) as worker:
        worker.send(2)
        process, answer = worker.receive()
        assert (process != os.getpid(), answer) == (True, 42)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_one_that_ends_is_one_line_also_where_it_has_not_read_what_it_was_sent() -> None:
    def ask() -> None:
        with other_process(end, 3) as worker:
            worker.send(1)
            worker.receive()

    with pytest.raises(RunError, match="with exit code 3 ") as caught:
        ask()
    explained = explain(caught.value)
    assert explained is not None
    assert (explained.code, "\n" in explained.line) == (FAILED, False)
