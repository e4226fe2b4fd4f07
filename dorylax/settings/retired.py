"""Settings of earlier versions: the error that names their replacement, and old runs in this version's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

RETIRED: Mapping[str, str] = MappingProxyType(
    {
        "tensor.relaunch": "tensor.hedge_quantile takes its place: leave it out",
    }
)
"""What to do instead, by key."""

_REPLACED: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        "tensor.relaunch": lambda _: {
            "tensor.hedge_quantile": 0.95,
            "tensor.placement": "functions",
            "tensor.price_weight": 1.0,
        },
    }
)
"""Settings in place of a retired one, for its value in an old run."""


def upgraded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings as this version would have written them, in sections, or dotted in a section `settings`."""
    return {
        name: _upgraded("" if name == "settings" else f"{name}.", value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
    }


def _upgraded(prefix: str, options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        replaced = _REPLACED.get(f"{prefix}{name}")
        found |= (
            {name: value}
            if replaced is None
            else {key.removeprefix(prefix): one for key, one in replaced(value).items()}
        )
    return found
