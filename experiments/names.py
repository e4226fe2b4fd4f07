"""Short names of settings, for tables, legends and progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.settings.errors import shown

_MODE, _STALENESS, _UPDATE = "pipeline.mode", "pipeline.staleness", "pipeline.update"
_NAMES = ("data.name", "model.name", "optimizer.name", _MODE, _UPDATE, "pipeline.partitioner")
"""Keys whose values say what they are."""


def short_name(setting: Mapping[str, Any]) -> str:
    """The values of a setting in a few words, those of a pipeline's mode joined: `gcn, async S=0 per_epoch`.

    Keys that are not set (null) are left out where the mode says it all.
    """
    words = []
    for key, value in setting.items():
        if key in (_STALENESS, _UPDATE) and _MODE in setting:
            continue
        if key == _MODE:
            words.append(_mode(setting))
        elif key in _NAMES:
            words.append(str(value).rpartition(":")[2])  # of the user's own (FILE.py:NAME) the name
        else:
            words.append(f"{key.partition('.')[2]}={value if isinstance(value, str) else shown(value)}")
    return ", ".join(words)


def _mode(setting: Mapping[str, Any]) -> str:
    staleness, update = setting.get(_STALENESS), setting.get(_UPDATE)
    parts = [str(setting[_MODE])]
    if staleness is not None:
        parts.append(f"S={staleness}")
    if update is not None:
        parts.append(str(update))
    return " ".join(parts)
