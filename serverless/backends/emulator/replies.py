"""Pure classification of the emulator's replies.

Lambda marks a function's errors with a header, but the emulator does not. It reports a timeout as a line of text and a
handler error as JSON, both with a success status. A dead runtime causes status 502.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any

from dorylax.net.errors import TaskFailedError, WireError
from dorylax.serverless.function.invocation import read_response

_TIMED_OUT = re.compile(rb"Task timed out after [0-9.]+ seconds")
_ENDED = ("Runtime.ExitError", "Function.ResponseSizeTooLarge")
_SHOWN = 500  # maximum characters of a text in an error; a function's errors never contain keys


def answer_of(status: int, body: bytes) -> bytes | None:
    """Extract the encoded `Answer` from a reply. Returns None after a warm-up without an event.

    Args:
        status: HTTP status.
        body: Complete body.

    Raises:
        TaskFailedError: With "timeout" if the call took too long, "died" if the runtime ended or returned an invalid
            response, or "refused" if the function or the emulator refused the call.
    """
    kind, text = _error(body)
    if status == HTTPStatus.BAD_GATEWAY or (status == HTTPStatus.OK and kind in _ENDED):
        raise TaskFailedError(f"the function's runtime has ended ({kind or 'no reason given'}: {text})", "died")
    if status != HTTPStatus.OK:
        raise TaskFailedError(f"the emulator refuses the call (HTTP status {status}: {text})", "refused")
    if _TIMED_OUT.fullmatch(body):
        raise TaskFailedError(f"the emulator has ended the function's runtime: {text}", "timeout")
    if kind is not None:
        raise TaskFailedError(f"the function could not be called ({kind}: {text})", "refused")
    try:
        return read_response(body)
    except WireError as error:
        raise TaskFailedError(f"the function answered with something that is not a response: {error}", "died") from None


def _error(body: bytes) -> tuple[str | None, str]:
    """Parse the type and message of an error. For other bodies, return None and the start of the body."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and "errorType" in document:
        return str(document["errorType"])[:_SHOWN], str(document.get("errorMessage", ""))[:_SHOWN]
    return None, body[:_SHOWN].decode("utf-8", "replace")
