"""Format of a function's invocations and responses: small JSON objects that any runtime passes on unchanged.

Any sandbox may process an invocation, so each one carries the settings, including the run's keys, and the event. AWS
encrypts invocations in transit and at rest. Never log them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

from dorylax.net.errors import WireError
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.wire.fields import Fields, read_object, write_object

VERSION = 1
MAX_INVOCATION_BYTES = 1024 * 1024
"""Limit of an invocation: far above the largest event with its settings, and far below AWS's limit of 6 MB."""

_INVOCATION = "dorylax invocation"
_RESPONSE = "dorylax response"


class Invocation(NamedTuple):
    """One call of a function.

    Attributes:
        settings: Settings of the sandbox, constant for a run.
        event: Encoded `wire.Event`, possibly damaged in transit, or None to only warm up the sandbox.
    """

    settings: SandboxSettings
    event: bytes | None

    def encode(self) -> bytes:
        """Encode the invocation as ASCII JSON, which contains the run's keys."""
        event = None if self.event is None else base64.b64encode(self.event).decode("ascii")
        settings = self.settings.to_line().decode("ascii")
        return write_object(
            {"format": _INVOCATION, "version": VERSION, "settings": settings, "event": event}, "invocation"
        )

    @classmethod
    def read(cls, document: object) -> Invocation:
        """Read an invocation from the runtime's parsed JSON.

        Raises:
            WireError: If the object is not an invocation of this version. The text never contains keys.
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
    """Build the response for an encoded `wire.Answer`, or for None after a warm-up."""
    text = None if answer is None else base64.b64encode(answer).decode("ascii")
    return {"format": _RESPONSE, "version": VERSION, "answer": text}


def read_response(payload: bytes) -> bytes | None:
    """Extract the encoded `wire.Answer` from a response. Returns None after a warm-up.

    Raises:
        WireError: If the payload is not a response of this version.
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
