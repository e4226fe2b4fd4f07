"""Strict JSON: reads an object key by key and refuses unknown keys.

Python's reader is too lenient for a protocol: it accepts NaN, repeated keys, true for 1 and 1.0 for 1.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from types import UnionType
from typing import Any, Literal, final, get_args, get_origin, get_type_hints

from dorylax.net.errors import WireError

MAX_INTEGER = 2**63 - 1
"""Largest integer for sizes, versions and epochs."""

MAX_TEXT = 64 * 1024
"""Limit of a text in characters."""

_SIMPLE = (int, float, bool, str)
_LEAST = {"factor": 1}
"""Lower bounds of integers in nested objects other than 0."""

_SHOWN = 80  # characters of a wrong value in an error


hints = functools.cache(get_type_hints)
"""Types of the fields of a class."""


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

    def read(self, name: str, hint: Any, *, least: int = 0) -> Any:
        """Read a value of an annotated type.

        Args:
            name: Key of the value.
            hint: `int` (from `least` to `MAX_INTEGER`), `float` (finite, ≥ 0), `bool`, `str` (at most `MAX_TEXT`
                characters), `str | None`, a `Literal` of texts, a named tuple or dataclass, read from an object, or a tuple
                of these. Floats in a tuple have the format of `float.hex`, which preserves all bits.
            least: Lower bound of integers.

        Raises:
            WireError: The value is missing or has another type.
        """
        return self._convert(name, hint, self.take(name), least)

    def format(self, name: str, version: int) -> None:
        """Check the "format" and "version" of a message.

        Raises:
            WireError: The version differs.
        """
        self.read("format", Literal[name])
        found = self.read("version", int)
        if found != version:
            raise WireError(
                f"{self._what} has version {found}, expected {version}: both ends must run the same release"
            )

    def end(self) -> None:
        """Refuse unread keys."""
        if self._left:
            raise WireError(f"{self._what} has unknown keys: {_shown(sorted(self._left))}")

    def _convert(self, name: str, hint: Any, value: Any, least: int) -> Any:
        if hint in _SIMPLE:
            self._check(name, *_fits(hint, value, least), value)
            return float(value) if hint is float else value
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Literal:
            fine = isinstance(value, str) and value in arguments
            self._check(name, fine, " or ".join(map(repr, arguments)), value)
            return value
        if origin is UnionType:
            return None if value is None else self._convert(name, arguments[0], value, least)
        if origin is tuple:
            self._check(name, isinstance(value, list), "a list", value)
            if arguments[0] is float:
                return tuple(self._exact_float(name, one) for one in value)
            return tuple(self._convert(f"{name}[{k}]", arguments[0], one, least) for k, one in enumerate(value))
        fields = Fields(value, f"{self._what}: {name!r}")
        found = {key: fields.read(key, kind, least=_LEAST.get(key, 0)) for key, kind in hints(hint).items()}
        fields.end()
        return hint(**found)

    def _exact_float(self, name: str, value: object) -> float:
        number = math.nan
        if isinstance(value, str):
            with contextlib.suppress(ValueError, OverflowError):
                number = float.fromhex(value)
        self._check(name, number.hex() == value, "a number as float.hex writes it", value)
        return number

    def _check(self, name: str, fine: bool, wanted: str, value: object) -> None:
        if not fine:
            raise WireError(f"{self._what}: {name!r} must be {wanted}, got {_shown(value)}")


def _fits(hint: Any, value: Any, least: int) -> tuple[bool, str]:
    """Return whether a value has a simple type, and the expectation."""
    if hint is int:
        fine = type(value) is int and least <= value <= MAX_INTEGER  # a bool is an int too
        return fine, f"an integer from {least} to {MAX_INTEGER}"
    if hint is float:
        return type(value) in (int, float) and 0 <= value <= MAX_INTEGER, "a finite number ≥ 0"
    if hint is bool:
        return isinstance(value, bool), "true or false"
    return isinstance(value, str) and len(value) <= MAX_TEXT, f"a text of at most {MAX_TEXT} characters"


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
