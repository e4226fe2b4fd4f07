"""What the emulator's reply to an invocation means. Pure.

Lambda marks a function's errors by a header; the emulator does not. With the status of a success it sends a line of text
for a call that took too long, and JSON for an error of the handler. A runtime that ended is a 502.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any

from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.function.invocation import read_response
from dorylax.serverless.wire.errors import WireError

_TIMED_OUT = re.compile(rb"Task timed out after [0-9.]+ seconds")
_ENDED = ("Runtime.ExitError", "Function.ResponseSizeTooLarge")
_SHOWN = 500  # characters of a text that an error shows; a function's errors hold no keys


def answer_of(status: int, body: bytes) -> bytes | None:
    """The answer in a reply; None if the function was only made ready.

    Args:
        status: of HTTP.
        body: all of it.

    Raises:
        InvokeError: there is none: the call took too long ("timeout"), the runtime ended or gave no valid response
            ("died"), the function or the emulator refused the call ("refused").
    """
    kind, text = _error(body)
    if status == HTTPStatus.BAD_GATEWAY or (status == HTTPStatus.OK and kind in _ENDED):
        raise InvokeError("died", f"the function's runtime has ended ({kind or 'no reason given'}: {text})")
    if status != HTTPStatus.OK:
        raise InvokeError("refused", f"the emulator refuses the call (HTTP status {status}: {text})")
    if _TIMED_OUT.fullmatch(body):
        raise InvokeError("timeout", f"the emulator has ended the function's runtime: {text}")
    if kind is not None:
        raise InvokeError("refused", f"the function could not be called ({kind}: {text})")
    try:
        return read_response(body)
    except WireError as error:
        raise InvokeError("died", f"the function answered with something that is not a response: {error}") from None


def _error(body: bytes) -> tuple[str | None, str]:
    """Type and message of the error that a body is; None and its beginning if it is none."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and "errorType" in document:
        return str(document["errorType"])[:_SHOWN], str(document.get("errorMessage", ""))[:_SHOWN]
    return None, body[:_SHOWN].decode("utf-8", "replace")
