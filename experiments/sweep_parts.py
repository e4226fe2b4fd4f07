"""Sweep files with parts: each part as a document of its own, whose errors have the file's lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.config import ConfigError
from dorylax.settings.errors import shown
from dorylax.settings.strict_yaml import Document, Path
from dorylax.simulation.settings import flatten, is_of_simulation

_INHERITED = ("simulate", "seeds")


def parts_of(document: Document) -> list[tuple[str, Document]]:
    """The parts of a sweep file by name.

    A part inherits `simulate`, `seeds` and `base`, except for keys in its own base and keys that it varies. In a file that
    simulates, a part that trains does not inherit keys of simulations.

    Args:
        document: The file, a mapping with the part `parts`.

    Raises:
        ConfigError: A part is no sweep; names file and line.
    """
    parts = document.value["parts"]
    if not isinstance(parts, dict) or not parts:
        raise ConfigError(f"{document.where('parts')}: parts must hold sweeps by name, got {shown(parts)}")
    return [(name, _part(document, name, part)) for name, part in parts.items()]


def _part(document: Document, name: str, part: Any) -> Document:
    inside: Path = ("parts", name)
    if not isinstance(part, dict) or not part:
        raise ConfigError(f"{document.where(*inside)}: {name} must be a sweep, with a grid or a zip, got {shown(part)}")
    if "parts" in part:
        raise ConfigError(f"{document.where(*inside, 'parts')}: a part of a sweep has no parts itself")
    content: Mapping[str, Any] = document.value
    blocks = [part.get("grid"), *(part["zip"] if isinstance(part.get("zip"), list) else [part.get("zip")])]
    varied = {key for block in blocks if isinstance(block, dict) for key in block}
    trains = content.get("simulate") is True and part.get("simulate") is False

    def inherited(key: Any) -> bool:
        return key not in varied and not (trains and isinstance(key, str) and is_of_simulation(key))

    base: dict[str, Any] = {}
    lines: dict[Path, int] = {
        path[len(inside) :]: line for path, line in document.lines.items() if path[: len(inside)] == inside
    }
    for place, values in ((("base",), content.get("base", {})), ((*inside, "base"), part.get("base", {}))):
        if not isinstance(values, dict):
            raise ConfigError(
                f"{document.where(*place)}: base must hold keys such as train.epochs, got {shown(values)}"
            )
        base |= {key: value for key, value in flatten(values).items() if place != ("base",) or inherited(key)}
        for path, line in document.lines.items():
            if path[: len(place)] == place and path != place:
                lines["base", ".".join(map(str, path[len(place) :]))] = line
    shared = {key: content[key] for key in _INHERITED if key in content}
    return Document(document.name, {**shared, **part, "base": base}, lines)
