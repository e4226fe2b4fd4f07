"""Strict JSON: reads an object key by key and refuses unknown keys.

Python's reader is too lenient for a protocol: it accepts NaN, repeated keys, true for 1 and 1.0 for 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, final

from dorylax.net.errors import WireError

MAX_INTEGER = 2**63 - 1
"""Largest integer for sizes, versions and epochs."""

MAX_TEXT = 64 * 1024
"""Limit of a text in characters."""

_SHOWN = 80  # characters of a wrong value in an error


def write_object(document: dict[str, Any], what: str) -> bytes:
    """Return an object as compact ASCII JSON.

    Raises:
        WireError: The object holds NaN or an unsupported type.
    """
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"{what} must be made of texts, finite numbers and lists: {error}") from error


def read_object(content: bytes | bytearray | memoryview, what: str, limit: int) -> Fields:
    """Read an object from JSON.

    Args:
        content: UTF-8 bytes.
        what: Name of the object in errors.
        limit: Limit of its size in bytes.

    Raises:
        WireError: The bytes are not a JSON object of at most `limit` bytes.
    """
    if len(content) > limit:
        raise WireError(f"{what} must have at most {limit} bytes, got {len(content)}")
    try:
        document = json.loads(
            bytes(content).decode("utf-8"), object_pairs_hook=_without_repetition, parse_constant=_refuse_constant
        )
    except WireError as error:
        raise WireError(f"{what}: {error}") from error
    except (ValueError, RecursionError) as error:  # also too many digits or levels
        raise WireError(f"{what} must be JSON: {error}") from error
    return Fields(document, what)


@final
class Fields:
    """The unread keys of an object; `end` refuses the remaining ones.

    Args:
        document: The parsed object.
        what: Name of the object in errors.

    Raises:
        WireError: The document is not an object.
    """

    def __init__(self, document: object, what: str) -> None:
        if not isinstance(document, dict):
            raise WireError(f"{what} must be an object, got {_shown(document)}")
        self._left: dict[str, object] = dict(document)
        self._what = what

    def take(self, name: str) -> object:
        """Read a value of any type."""
        try:
            return self._left.pop(name)
        except KeyError:
            raise WireError(f"{self._what} must have {name!r}") from None

    def text(self, name: str, *, limit: int = MAX_TEXT) -> str:
        """Read a text of at most `limit` characters."""
        value = self.take(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        if len(value) > limit:
            raise WireError(f"{self._what}: {name!r} must have at most {limit} characters, got {len(value)}")
        return value

    def optional_text(self, name: str) -> str | None:
        """Read a text or null."""
        if self._left.get(name, "") is None:
            self.take(name)
            return None
        return self.text(name)

    def integer(self, name: str, *, least: int = 0, most: int = MAX_INTEGER) -> int:
        """Read an integer from `least` to `most`."""
        return self._integer(name, self.take(name), least, most)

    def integers(self, name: str, *, least: int = 0, most: int = MAX_INTEGER) -> tuple[int, ...]:
        """Read a list of integers."""
        return tuple(self._integer(name, value, least, most) for value in self._list(name))

    def seconds(self, name: str) -> float:
        """Read a finite number ≥ 0."""
        value = self.take(name)
        if type(value) not in (int, float) or not 0 <= value <= MAX_INTEGER:  # type: ignore[operator]
            raise self._wrong(name, "a finite number ≥ 0", value)
        return float(value)  # type: ignore[arg-type]

    def flag(self, name: str) -> bool:
        """Read true or false."""
        value = self.take(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def exact_floats(self, name: str) -> tuple[float, ...]:
        """Read a list of numbers in the format of `float.hex`, which preserves all bits."""
        return tuple(self._exact_float(name, value) for value in self._list(name))

    def nested(self, name: str) -> Fields:
        """Read an object."""
        return Fields(self.take(name), f"{self._what}: {name!r}")

    def objects(self, name: str) -> Iterator[Fields]:
        """Read a list of objects."""
        for k, value in enumerate(self._list(name)):
            yield Fields(value, f"{self._what}: {name}[{k}]")

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Read one of the given texts."""
        value = self.take(name)
        if not isinstance(value, str) or value not in choices:
            raise self._wrong(name, " or ".join(map(repr, choices)), value)
        return value

    def format(self, name: str, version: int) -> None:
        """Check the "format" and "version" of a message.

        Raises:
            WireError: The version differs.
        """
        self.choice("format", (name,))
        found = self.integer("version")
        if found != version:
            raise WireError(
                f"{self._what} has version {found}, expected {version}: both ends must run the same release"
            )

    def end(self) -> None:
        """Refuse unread keys."""
        if self._left:
            raise WireError(f"{self._what} has unknown keys: {_shown(sorted(self._left))}")

    def _list(self, name: str) -> list[object]:
        value = self.take(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return value

    def _integer(self, name: str, value: object, least: int, most: int) -> int:
        if type(value) is not int or not least <= value <= most:  # a bool is an int too
            raise self._wrong(name, f"an integer from {least} to {most}", value)
        return value

    def _exact_float(self, name: str, value: object) -> float:
        if isinstance(value, str):
            try:
                number = float.fromhex(value)
            except (ValueError, OverflowError):
                number = math.nan
            if number.hex() == value:
                return number
        raise self._wrong(name, "a number as float.hex writes it", value)

    def _wrong(self, name: str, wanted: str, value: object) -> WireError:
        return WireError(f"{self._what}: {name!r} must be {wanted}, got {_shown(value)}")


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise WireError("a key occurs twice")
    return document


def _refuse_constant(text: str) -> None:
    raise WireError(f"numbers must be finite, got {text}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
