"""Digests that JSON files carry of their own content, so that a flipped bit is not read as a value.

A digest covers values, not bytes: white space and the order of keys are free. It reveals damage, not forgery.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGEST = "digest"
"""Name of the field with the digest."""

_DIGITS = 16


def digest_of(fields: Mapping[str, Any]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of JSON values; raise ValueError for NaN or infinity.

    The hashed text has sorted keys, no white space, and escapes for characters outside ASCII.
    """
    # As a reader will find them: keys that are no text become text, which sorts in another order.
    read = json.loads(json.dumps(fields, allow_nan=False))
    return hashlib.sha256(json.dumps(read, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:_DIGITS]


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, followed by their digest."""
    return {**fields, DIGEST: digest_of(fields)}


def unsealed(content: Mapping[str, Any], *, without: int) -> dict[str, Any]:
    """Return the fields of a JSON object from `sealed` without their digest.

    Args:
        content: The object.
        without: Newest schema whose files may lack a digest.

    Raises:
        ValueError: The content differs from the written one.
    """
    fields = {name: value for name, value in content.items() if name != DIGEST}
    if DIGEST not in content:
        schema = fields.get("schema")
        if not isinstance(schema, int) or not 1 <= schema <= without:
            raise ValueError(f"its schema number is {schema!r}, and it has no digest")
    elif content[DIGEST] != digest_of(fields):
        raise ValueError("its content does not have the digest that was written with it")
    return fields
