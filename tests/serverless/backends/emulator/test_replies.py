"""What each reply of the emulator means; the bodies are real ones (`aws-sam-cli` 1.170.0)."""

from __future__ import annotations

import json

import pytest

from dorylax.net.errors import TaskFailedError
from dorylax.serverless.backends.emulator.replies import answer_of
from dorylax.serverless.function.invocation import response


@pytest.mark.parametrize("answer", [None, b"", b"an answer"])
def test_an_answer(answer: bytes | None) -> None:
    assert answer_of(200, json.dumps(response(answer)).encode()) == answer


_BOOM = {"errorMessage": "boom", "errorType": "ValueError", "requestId": "8", "stackTrace": ['  File "h.py"\n']}
_KILLED = {"errorType": "Runtime.ExitError", "errorMessage": "Error: Runtime exited with error: signal: killed"}
_LARGE = {"errorType": "Function.ResponseSizeTooLarge", "errorMessage": "Response payload size exceeded"}


@pytest.mark.parametrize(
    ("status", "body", "reason", "text"),
    [
        (200, b"Task timed out after 3.00 seconds", "timeout", "Task timed out after 3.00 seconds"),
        (200, json.dumps(_BOOM).encode(), "refused", r"could not be called \(ValueError: boom\)"),
        (200, json.dumps(_KILLED).encode(), "died", "signal: killed"),
        (502, json.dumps(_KILLED).encode(), "died", r"has ended \(Runtime.ExitError: .*signal: killed\)"),
        (502, json.dumps(_LARGE).encode(), "died", "Function.ResponseSizeTooLarge"),
        (502, b"", "died", "no reason given"),
        (404, b"404 page not found\n", "refused", "HTTP status 404: 404 page not found"),
        (500, b"\xff" * 10_000, "refused", "HTTP status 500"),
        (200, b"", "died", "something that is not a response"),
        (200, b"null", "died", "something that is not a response"),
        (200, b'{"format": "other"}', "died", "something that is not a response"),
        (200, json.dumps(response(b"an answer")).encode()[:-5], "died", "something that is not a response"),
        (200, b"[" * 100_000, "died", "something that is not a response"),
        (200, b"Task timed out after 3.00 seconds and more", "died", "something that is not a response"),
    ],
)  # fmt: skip
def test_what_is_no_answer(status: int, body: bytes, reason: str, text: str) -> None:
    with pytest.raises(TaskFailedError, match=text) as caught:
        answer_of(status, body)
    assert caught.value.reason == reason
    assert len(str(caught.value)) < 2000
