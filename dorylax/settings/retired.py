"""Settings of earlier versions: the error that names their replacement, and old runs in this version's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

RETIRED: Mapping[str, str] = MappingProxyType(
    {
        "pipeline.oscillation_limit": "pipeline.stability_gate takes its place: leave it out, or give "
        "pipeline.stability_gate=false where the limit was 1",
        "pipeline.delay_scaling": "pipeline.stability_gate keeps gradients new while curvature is high; leave it out",
        "tensor.relaunch": "tensor.hedge_quantile takes its place: leave it out",
    }
)
"""What to do instead, by key."""

_REPLACED: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        "pipeline.oscillation_limit": lambda limit: {"pipeline.stability_gate": limit != 1},
        "pipeline.delay_scaling": lambda epochs: {} if epochs is None else {"pipeline.delay_scaling": epochs},
        "tensor.relaunch": lambda _: {
            "tensor.hedge_quantile": 0.95,
            "tensor.placement": "functions",
            "tensor.price_weight": 1.0,
        },
    }
)
"""Replacements of a retired setting, from its value in an old run. Runs with scaled delays keep it and are refused."""


def upgraded(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a run's settings, in sections or with dotted keys, in this version's terms; `prefix` begins their keys."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        replace = _REPLACED.get(f"{prefix}{name}")
        if isinstance(value, Mapping):
            found[name] = upgraded(value, f"{prefix}{name}.")
        elif replace is None:
            found[name] = value
        else:
            found |= {key.removeprefix(prefix): one for key, one in replace(value).items()}
    return found
