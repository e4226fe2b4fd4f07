"""Where two configurations differ, key by key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ, sorted, each with the old value and the new; a missing one is None."""
    changed: dict[str, tuple[Any, Any]] = {}
    for key in sorted({*old, *new}, key=str):
        name, a, b = f"{prefix}{key}", old.get(key), new.get(key)
        sections = [value for value in (a, b) if value is not None]
        if sections and all(isinstance(value, Mapping) for value in sections):
            changed.update(differences(a or {}, b or {}, f"{name}."))
        elif a != b:
            changed[name] = (a, b)
    return changed


def listed(changed: Mapping[str, tuple[Any, Any]], most: int = 5) -> str:
    """Differences for an error: `train.seed: 0 there, 1 here; …`."""
    lines = [f"{name}: {json.dumps(old)} there, {json.dumps(new)} here" for name, (old, new) in changed.items()]
    return "; ".join(lines[:most]) + (f"; and {len(lines) - most} more" if len(lines) > most else "")
