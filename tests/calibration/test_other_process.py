from __future__ import annotations

import os
from multiprocessing.connection import Connection

import pytest

from dorylax.calibration.other_process import ProcessEndedError, other_process
from dorylax.terminal.failures import FAILED, explain


def echo(pipe: Connection, more: int) -> None:
    try:
        while True:
            pipe.send((os.getpid(), pipe.recv() + more))
    except EOFError:
        return


def end(pipe: Connection) -> None:
    pipe.recv()
    os._exit(3)


def test_it_answers_and_ends() -> None:
    with other_process(echo, 40) as pipe:
        pipe.send(2)
        process, answer = pipe.recv()
        assert (process != os.getpid(), answer) == (True, 42)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_one_that_ends_is_one_line() -> None:
    def ask() -> None:
        with other_process(end) as pipe:
            pipe.send(1)
            pipe.recv()

    with pytest.raises(ProcessEndedError, match="with exit code 3 ") as caught:
        ask()
    explained = explain(caught.value)
    assert explained is not None
    assert (explained.code, "\n" in explained.line) == (FAILED, False)
