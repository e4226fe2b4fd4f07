"""Where a run's checkpoints are: in its directory, or in another place, there below a name of the run's own.

The name is the end of the directory's path and eight digits of all of it: every sweep has a `runs/KEY`, every `dorylax
train` a `seed-0`, and any number of them may have one `train.checkpoints`. environment.json notes the place, so that a
directory that was moved or copied finds its checkpoints. It goes on in a place of its own: only `run.json` in a place says
whose the place is, and nobody else writes or deletes there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dorylax.runs.checkpoint_places import place_at
from dorylax.runs.digest import DigestError, sealed, unsealed
from dorylax.runs.directory import RunDirectory, RunDirectoryError

_SCHEMA = 1
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_DIGITS = 8


class Places(NamedTuple):
    """The places of a run's checkpoints, as `open_storage` takes them.

    Attributes:
        path: of the run directory, by which the run is known.
        place: where they go from now on.
        former: where else there may be some, since the setting may change, or the directory move, when the run goes on.
        noted: where a process of the run has been before, and has left `run.json`; None: nowhere but in its directory.
        inside: whether `place` is in the run directory.
    """

    path: Path
    place: str
    former: tuple[str, ...]
    noted: str | None
    inside: bool

    @classmethod
    def of(cls, directory: RunDirectory, checkpoints: str | None, kept_as: Path | None = None) -> Places:
        """Those of a run, as its directory is before anything is written.

        Args:
            directory: of the run.
            checkpoints: the setting `train.checkpoints`.
            kept_as: the path by which the run is known, where the directory is a copy to work in; None: its own.
        """
        path = Path(kept_as or directory.path).absolute()
        before, noted = _before(directory)
        inside = str(directory.checkpoints_path.absolute())
        if noted is None and before is not None:  # of a damaged environment.json
            noted = _below(before, path)
        place = inside if checkpoints is None else _below(checkpoints, path)
        former = tuple(one for one in dict.fromkeys((inside, noted or inside)) if one != place)
        return cls(path, place, former, noted=noted, inside=checkpoints is None)

    def is_owner(self, owner: bytes | None) -> bool:
        """Whether a `run.json` names this run."""
        directory = _owner(owner or b"").get("directory")
        return directory is not None and os.path.realpath(directory) == os.path.realpath(self.path)

    def note(self) -> dict[str, str] | None:
        """For environment.json; None where they are in the run directory."""
        return None if self.inside else {"place": self.place, "directory": str(self.path)}

    def owner(self) -> bytes:
        """For `run.json`: whose the place is, each time another content."""
        fields = {"schema": _SCHEMA, "directory": str(self.path), "host": socket.gethostname()}
        return json.dumps(sealed({**fields, "id": secrets.token_hex(8)}), indent=1).encode() + b"\n"


def described(owner: bytes) -> str:
    """The run that a `run.json` names, in words."""
    fields = _owner(owner)
    return f"the run in {fields['directory']} on {fields['host']}" if fields else "another run"


def _owner(content: bytes) -> dict[str, str]:
    """The directory and host in a `run.json`; nothing if it is damaged."""
    try:
        fields = unsealed(json.loads(content), without=0)
        return {name: str(fields[name]) for name in ("directory", "host")}
    except (DigestError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def has_checkpoints(path: Path, checkpoints: str | None) -> bool:
    """Whether there are any of the run that was in a directory, which may be gone.

    Raises:
        OSError: the place cannot be listed.
        AwsError: S3 cannot be asked.
    """
    return bool(place_at(Places.of(RunDirectory(path), checkpoints).place).numbers())


def _below(checkpoints: str, path: Path) -> str:
    names = [_UNUSUAL.sub("-", name) for name in path.parts[-2:] if name != "/"]
    digits = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
    return f"{'/'.join([checkpoints.rstrip('/'), *names])}-{digits}"


def _before(directory: RunDirectory) -> tuple[str | None, str | None]:
    """The setting that the run had, and the place that is noted."""
    setting: Any = None
    place: Any = None
    with contextlib.suppress(RunDirectoryError):  # damaged
        if directory.config_path.is_file():
            setting = _mapping(directory.config.get("train")).get("checkpoints")
    with contextlib.suppress(RunDirectoryError):
        if directory.environment_path.is_file():
            place = _mapping(directory.environment.get("checkpoints")).get("place")
    return (setting if isinstance(setting, str) else None), (place if isinstance(place, str) else None)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
