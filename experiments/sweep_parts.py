"""Sweep files that consist of several sweeps: each part as a document of its own, whose errors have the file's lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.config import ConfigError
from dorylax.settings.errors import shown
from dorylax.settings.strict_yaml import Document, Path
from dorylax.simulation.settings import flatten, is_of_simulation

_INHERITED = ("simulate", "seeds")
_FORBIDDEN = ("parts",)


def parts_of(document: Document) -> list[tuple[str, Document]]:
    """The parts of a sweep file that has some, by name.

    Each has what the file says for all, `simulate`, `seeds` and `base`, where it says nothing else itself: neither in its
    own base nor by varying a key. Where the file simulates and a part does not, those of simulations are for the others.

    Args:
        document: the file; a mapping with the part `parts`.

    Raises:
        ConfigError: what is no part; with file and line.
    """
    content: Mapping[str, Any] = document.value
    parts = content["parts"]
    if not isinstance(parts, dict) or not parts:
        raise ConfigError(f"{document.where('parts')}: parts must hold sweeps by name, got {shown(parts)}")
    return [(name, _part(document, name, part)) for name, part in parts.items()]


def _part(document: Document, name: str, part: Any) -> Document:
    inside: Path = ("parts", name)
    if not isinstance(part, dict) or not part:
        raise ConfigError(f"{document.where(*inside)}: {name} must be a sweep, with a grid or a zip, got {shown(part)}")
    for key in _FORBIDDEN:
        if key in part:
            raise ConfigError(f"{document.where(*inside, key)}: a part of a sweep has no parts itself")
    content: Mapping[str, Any] = document.value
    shared = {key: content[key] for key in _INHERITED if key in content}
    bases = [(("base",), content.get("base", {})), ((*inside, "base"), part.get("base", {}))]
    varied = _varied(part)
    trains = content.get("simulate") is True and part.get("simulate") is False

    def inherited(key: Any) -> bool:
        return key not in varied and not (trains and isinstance(key, str) and is_of_simulation(key))

    base: dict[str, Any] = {}
    lines: dict[Path, int] = {
        path[len(inside) :]: line for path, line in document.lines.items() if path[: len(inside)] == inside
    }
    for place, values in bases:
        if not isinstance(values, dict):
            raise ConfigError(
                f"{document.where(*place)}: base must hold keys such as train.epochs, got {shown(values)}"
            )
        base |= {key: value for key, value in flatten(values).items() if place != ("base",) or inherited(key)}
        for path, line in document.lines.items():
            if path[: len(place)] == place and path != place:
                lines["base", ".".join(map(str, path[len(place) :]))] = line
    return Document(document.name, {**shared, **part, "base": base}, lines)


def _varied(part: Mapping[str, Any]) -> set[str]:
    """The keys that a part varies; of a part that is not as it should be those that can be found."""
    blocks = [part.get("grid"), *(part["zip"] if isinstance(part.get("zip"), list) else [part.get("zip")])]
    return {key for block in blocks if isinstance(block, dict) for key in block}
