"""Parts of a cluster's description: frozen dataclasses whose values pydantic checks, with errors that name the key."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, dataclass_transform

import pydantic
from pydantic import Field, ValidationError

from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import ConfigError
from dorylax.settings.words import expected, problem

NotNegative = Annotated[float, Field(ge=0)]
_Part = TypeVar("_Part")


@dataclass_transform(frozen_default=True)
def part(cls: type[_Part]) -> type[_Part]:
    """Make a class a frozen dataclass whose constructor raises a ConfigError for a value of another type or out of range."""
    made: Any = pydantic.dataclasses.dataclass(frozen=True, config={"strict": True, "allow_inf_nan": False})(cls)
    validated = made.__init__

    @functools.wraps(validated)
    def checked(self: Any, *arguments: Any, **values: Any) -> None:
        try:
            validated(self, *arguments, **values)
        except ValidationError as error:
            raise _refusal(made, error) from None

    made.__init__ = checked
    found: type[_Part] = made
    return found


def entries(value: Any, key: str, known: Sequence[str], owner: str = "a cluster") -> dict[str, Any]:
    """Return a copy of the section `key` of a file; a ConfigError names an unknown key of the owner, or no mapping."""
    if not isinstance(value, dict):
        raise ConfigError.of(key, f"must hold keys such as {known[0]}, got {value!r}")
    for name in value:
        if name not in known:
            raise ConfigError.of(key_in(key, name), f"is not a key of {owner}: {did_you_mean(name, known)}")
    return dict(value)


def key_in(section: str, name: str) -> str:
    """Return the dotted key of an entry."""
    return f"{section}.{name}" if section else str(name)


@contextmanager
def inside(section: str) -> Iterator[None]:
    """Add the section to the keys of errors that the body raises."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError.of(key_in(section, error.key), error.problem) from None


def _refusal(cls: Any, error: ValidationError) -> ConfigError:
    """Return the first of pydantic's errors in this project's words."""
    first, fields = error.errors()[0], cls.__pydantic_fields__
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, ConfigError):
        return raised
    place = first["loc"][0]
    name = list(fields)[place] if isinstance(place, int) else place
    if first["type"] == "missing":
        return ConfigError.of(name, f"is missing: expected {expected(fields[name])}")
    return ConfigError.of(name, problem(fields[name], first["input"], first["type"]))
