"""Places of a run's checkpoints: its directory, or a uniquely named folder in another place.

The name is the end of the directory's path and eight digits of the hash of the whole path. It must be unique because every
sweep has a `runs/KEY`, every `dorylax train` a `seed-0`, and any number of them may share one `train.checkpoints`.
environment.json notes the place, so that a moved or copied directory finds its checkpoints. The run then continues in the
place of its new path: only the run named in a place's `run.json` writes or deletes there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dorylax.errors import DorylaxError
from dorylax.store.checkpoint import Checkpoints
from dorylax.store.digest import sealed, unsealed
from dorylax.store.run_directory import RunDirectory, RunDirectoryError

_SCHEMA = 1
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_DIGITS = 8


class Places(NamedTuple):
    """Places of a run's checkpoints, as for `open_storage`.

    Attributes:
        path: Path of the run directory, which identifies the run.
        place: Place of new checkpoints.
        former: Other places that may hold checkpoints, since the setting or the directory's path may have changed.
        noted: Place in which an earlier process of the run left a `run.json`; None: none but the run directory.
        inside: Whether `place` is in the run directory.
    """

    path: Path
    place: str
    former: tuple[str, ...]
    noted: str | None
    inside: bool

    @classmethod
    def of(cls, directory: RunDirectory, checkpoints: str | None, kept_as: Path | None = None) -> Places:
        """Determine the places of a run from its directory, before anything is written.

        Args:
            directory: The run directory.
            checkpoints: The setting `train.checkpoints`.
            kept_as: Path that identifies the run if the directory is a working copy; None: the directory's path.
        """
        path = Path(kept_as or directory.path).absolute()
        inside = str(directory.checkpoints_path.absolute())
        noted = _text(lambda: directory.environment["checkpoints"]["place"])
        before = _text(lambda: directory.config["train"]["checkpoints"])
        if noted is None and before is not None:  # environment.json is damaged
            noted = _below(before, path)
        place = inside if checkpoints is None else _below(checkpoints, path)
        former = tuple(one for one in dict.fromkeys((inside, noted or inside)) if one != place)
        return cls(path, place, former, noted=noted, inside=checkpoints is None)

    def is_owner(self, owner: bytes | None) -> bool:
        """Whether a `run.json` names this run."""
        directory = _owner(owner or b"").get("directory")
        return directory is not None and os.path.realpath(directory) == os.path.realpath(self.path)

    def note(self) -> dict[str, str] | None:
        """Return the entry for environment.json; None if checkpoints are in the run directory."""
        return None if self.inside else {"place": self.place, "directory": str(self.path)}

    def owner(self) -> bytes:
        """Return the content of `run.json`, which names the owner of the place and is different at each call."""
        fields = {"schema": _SCHEMA, "directory": str(self.path), "host": socket.gethostname()}
        return json.dumps(sealed({**fields, "id": secrets.token_hex(8)}), indent=1).encode() + b"\n"


def described(owner: bytes) -> str:
    """Describe in words the run that a `run.json` names."""
    fields = _owner(owner)
    return f"the run in {fields['directory']} on {fields['host']}" if fields else "another run"


def _owner(content: bytes) -> dict[str, str]:
    """Return the directory and host in a `run.json`; empty if it is damaged."""
    try:
        fields = unsealed(json.loads(content), without=0)
        return {name: str(fields[name]) for name in ("directory", "host")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def has_checkpoints(path: Path, checkpoints: str | None) -> bool:
    """Whether checkpoints exist of the run in a directory, which may itself be gone.

    Raises:
        OSError: The place cannot be listed.
        RunError: S3 refuses the request.
    """
    return bool(Checkpoints(_place(path, checkpoints)).epochs())


def lost_newest(path: Path, checkpoints: str | None, epochs: int) -> bool:
    """Whether the checkpoint at the end of a run is damaged or gone, while its place holds other checkpoints; False for S3.

    Args:
        path: Run directory.
        checkpoints: The setting `train.checkpoints`.
        epochs: Number of the run's epochs.
    """
    place = _place(path, checkpoints)
    with contextlib.suppress(OSError, DorylaxError):  # unreadable now, unlike the results
        return not place.startswith("s3://") and Checkpoints(place).lacks(epochs)
    return False


def _place(path: Path, checkpoints: str | None) -> str:
    path = path.absolute()
    return str(path / "checkpoints") if checkpoints is None else _below(checkpoints, path)


def _below(checkpoints: str, path: Path) -> str:
    names = [_UNUSUAL.sub("-", name) for name in path.parts[-2:] if name != "/"]
    digits = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
    return f"{'/'.join([checkpoints.rstrip('/'), *names])}-{digits}"


def _text(read: Callable[[], Any]) -> str | None:
    """Return a text from a file of a run; None if it is no text, or missing, or the file is damaged."""
    with contextlib.suppress(RunDirectoryError, LookupError, TypeError):
        found = read()
        return found if isinstance(found, str) else None
    return None
