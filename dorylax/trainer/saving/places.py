"""Where a run's checkpoints are: in its directory, or in another place, there below a name of the run's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dorylax.runs.directory import RunDirectory, RunDirectoryError

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")


def place_of(directory: RunDirectory, checkpoints: str | None) -> str:
    """The place, as `open_storage` takes it.

    Args:
        directory: of the run.
        checkpoints: the setting `train.checkpoints`.
    """
    if checkpoints is None:
        return str(directory.checkpoints_path.absolute())
    # Of one name alone there are many: every run of `dorylax train` has a `seed-0`.
    names = [_UNUSUAL.sub("-", name) for name in directory.path.absolute().parts[-2:] if name != "/"]
    return "/".join([checkpoints.rstrip("/"), *names])


def former_places(directory: RunDirectory, place: str) -> list[str]:
    """Other places where there may be checkpoints of the run, since the setting may change when it goes on.

    Args:
        directory: of the run, as it is before anything is written.
        place: where they go from now on.
    """
    try:
        train: Any = directory.config.get("train") if directory.config_path.is_file() else None
    except RunDirectoryError:  # damaged: it is known by a checkpoint in its directory
        train = None
    before = train.get("checkpoints") if isinstance(train, Mapping) else None
    places = [place_of(directory, None), place_of(directory, before if isinstance(before, str) else None)]
    return [one for one in dict.fromkeys(places) if one != place]
