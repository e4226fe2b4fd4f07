"""What a function is invoked with, and what it returns: small JSON objects, which any runtime passes on unchanged.

Nobody can know which sandbox will answer, so each invocation carries everything: the settings, which hold the run's keys,
and the event. It travels encrypted (AWS encrypts invocations in transit and at rest) and must not be logged.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.fields import Fields, read_object, write_object

VERSION = 1
MAX_INVOCATION_BYTES = 1024 * 1024
"""Far above what an event of the largest size and its settings need, far below what AWS lets through (6 MB)."""

_INVOCATION = "dorylax invocation"
_RESPONSE = "dorylax response"


class Invocation(NamedTuple):
    """One call of a function.

    Attributes:
        settings: of the sandbox; a run's are always the same.
        event: `wire.Event`, encoded, perhaps damaged on its way; None only makes the sandbox ready.
    """

    settings: SandboxSettings
    event: bytes | None

    def encode(self) -> bytes:
        """The invocation as JSON, ASCII. It holds keys."""
        event = None if self.event is None else base64.b64encode(self.event).decode("ascii")
        settings = self.settings.to_line().decode("ascii")
        return write_object(
            {"format": _INVOCATION, "version": VERSION, "settings": settings, "event": event}, "invocation"
        )

    @classmethod
    def read(cls, document: object) -> Invocation:
        """The invocation in the object that a runtime has parsed.

        Raises:
            WireError: it is not an invocation of this version; the text shows no key.
        """
        if not isinstance(document, Mapping):
            raise WireError(f"an invocation must be an object, got a {type(document).__name__}")
        fields = Fields(dict(document), "invocation")
        fields.format(_INVOCATION, VERSION)
        settings, event = fields.take("settings"), fields.take("event")
        fields.end()
        try:
            found = SandboxSettings.from_line(settings.encode("ascii"))  # type: ignore[attr-defined]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise WireError("invocation: 'settings' must be those of a sandbox") from None
        return cls(found, None if event is None else _bytes(event, "invocation: 'event'"))


def response(answer: bytes | None) -> dict[str, Any]:
    """What a function returns for an answer, `wire.Answer` encoded; None if it was only made ready."""
    text = None if answer is None else base64.b64encode(answer).decode("ascii")
    return {"format": _RESPONSE, "version": VERSION, "answer": text}


def read_response(payload: bytes) -> bytes | None:
    """The answer in the response to an invocation.

    Raises:
        WireError: it is not a response of this version.
    """
    fields = read_object(payload, "response", MAX_INVOCATION_BYTES)
    fields.format(_RESPONSE, VERSION)
    answer = fields.take("answer")
    fields.end()
    return None if answer is None else _bytes(answer, "response: 'answer'")


def _bytes(text: object, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, ValueError, TypeError):
        raise WireError(f"{what} must be base64 or null") from None
