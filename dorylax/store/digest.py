"""Digests that files carry of their own content, so that a flipped bit is not read as a value.

A digest is over values, not over bytes: white space and the order of keys are free. It tells damage, not a forger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dorylax.errors import DorylaxError

DIGEST = "digest"
"""The field that holds it."""

_DIGITS = 16


class DigestError(DorylaxError, ValueError):
    """Content that is not what was written."""


def digest_of(fields: Mapping[str, Any]) -> str:
    """The digest of JSON values: the first 16 hexadecimal digits of the SHA-256 of their canonical JSON.

    Canonical: keys sorted, no white space, characters outside ASCII escaped.

    Raises:
        ValueError: a value that JSON does not know (NaN, infinity).
    """
    # As a reader will find them: keys that are no text become text, which sorts in another order.
    read = json.loads(json.dumps(fields, allow_nan=False))
    return hashlib.sha256(json.dumps(read, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:_DIGITS]


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, and last their digest."""
    return {**fields, DIGEST: digest_of(fields)}


def unsealed(content: Mapping[str, Any], *, without: int) -> dict[str, Any]:
    """The fields without their digest.

    Args:
        content: as `sealed` gave it; any object of JSON values.
        without: the newest schema whose files had no digest; those of later ones must have theirs.

    Raises:
        DigestError: the content is not what was written.
    """
    fields = {name: value for name, value in content.items() if name != DIGEST}
    if DIGEST not in content:
        schema = fields.get("schema")
        if not isinstance(schema, int) or not 1 <= schema <= without:
            raise DigestError(f"its schema number is {schema!r}, and it has no digest")
        return fields
    try:
        found = digest_of(fields)
    except ValueError as error:
        raise DigestError(str(error)) from None
    if content[DIGEST] != found:
        raise DigestError("its content does not have the digest that was written with it")
    return fields
