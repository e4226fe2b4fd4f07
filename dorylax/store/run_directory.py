"""The directory of a run: paths, checks, and the reader and writer of its small files.

    RUN/config.yaml        resolved configuration
    RUN/environment.json   versions and machine (`dorylax.environment`)
    RUN/metrics.jsonl      a line per epoch (`dorylax.store.metrics`)
    RUN/servers.jsonl      a line per server and epoch of a pipeline (`dorylax.store.servers`)
    RUN/trace.json         tasks of a pipeline (`dorylax.store.trace`)
    RUN/checkpoints/       see `dorylax.store.checkpoint`
    RUN/summary.json       results and SHA-256 of the files of lines; written last
    RUN/.lock              while a process trains there (`dorylax.store.folder_lock`)

`docs/run-directory.md` documents every field. The trainer decides the content of summary and metrics.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, final

import yaml

from dorylax.errors import DorylaxError, RunWarning, one_line
from dorylax.settings.retired import upgraded
from dorylax.settings.strict_yaml import dump
from dorylax.store import durable
from dorylax.store.base import content_of
from dorylax.store.digest import digest_of, sealed, unsealed
from dorylax.store.folder_lock import LOCK, locked

SCHEMA = 1

UserCode: TypeAlias = Mapping[str, Mapping[str, str]]
"""`FILE.py`, as a configuration names it → `file`, its path, and `sha256` of the executed code."""

_COMPLETE = ("epochs", "target", "patience")
_DIGEST_LINE = re.compile(r"[^\n]*digest ([0-9a-f]{16})")
REMEDY = (
    "go on with the run, which writes it anew from its checkpoint (the same command with --resume, or the same sweep "
    "again)"
)
"""Remedy for damaged files that a resumed run writes again."""
_EDITED = (
    "undo the edit, or go on with the run by the same command and settings with --resume, which writes it anew; to train "
    "with other settings, give a copy of it by --config"
)
FILES = ("config.yaml", "environment.json", "metrics.jsonl", "servers.jsonl", "summary.json", "trace.json")
"""Names of the files of a run, apart from its lock and checkpoints."""


@final
class RunDirectoryError(DorylaxError, RuntimeError):
    """A path that cannot serve as the directory of this run, or a file there with unexpected content.

    Attributes:
        damaged: Whether the content of a file differs from the written one.
        refused: Whether the file system refuses to read or write: a full disk, or a folder without permission.
        user_error: Whether the user made a mistake (exit code 2), or the machine failed (1).
    """

    def __init__(self, text: str, *, damaged: bool = False, refused: bool = False) -> None:
        super().__init__(text)
        self.damaged, self.refused = damaged, refused
        self.user_error = not (damaged or refused)


def damaged_file(path: Path, reason: object, remedy: str = REMEDY) -> RunDirectoryError:
    """Return the error of a damaged file."""
    return RunDirectoryError(f"{path} is damaged ({one_line(reason)}): {remedy}", damaged=True)


@contextlib.contextmanager
def access(what: object, done: str) -> Iterator[None]:
    """Turn errors of the file system into RunDirectoryError."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(f"{what} cannot be {done}: {error}", refused=True) from error


@final
class RunDirectory:
    """The directory of one run: `claim` one before training, `open` an existing one.

    All methods and properties raise RunDirectoryError if a file is damaged, has a newer schema, or cannot be accessed.

    Attributes:
        path: The directory.
        config_path, environment_path, metrics_path, servers_path, summary_path, trace_path: Its files.
        checkpoints_path: Its folder of checkpoints.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints_path = path, path / "checkpoints"
        self.config_path, self.environment_path, self.metrics_path = (path / name for name in FILES[:3])
        self.servers_path, self.summary_path, self.trace_path = (path / name for name in FILES[3:])

    @classmethod
    def claim(
        cls,
        path: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        free: Collection[str] = (),
        resume: bool = False,
    ) -> RunDirectory:
        """Check, without changing anything, that a run may use a directory; `write_start` then makes its first files.

        Args:
            path: The directory, which need not exist.
            config: Nested dict of plain YAML values.
            free: Dotted keys in which an existing configuration may differ; config.yaml then gets the new values.
            resume: Whether the caller compares the run with its checkpoint, if there is one. An edited or damaged
                configuration is then skipped, with a RunWarning.

        Raises:
            RunDirectoryError: The path is a file, a folder of something else, or of a run with another configuration.
        """
        run = cls(Path(path))
        _check_no_file(run.path)
        try:
            str(run.path.absolute()).encode()
        except UnicodeEncodeError:  # JSON cannot hold it
            shown = repr(str(run.path.absolute()))
            raise RunDirectoryError(f"the path of a run directory must be UTF-8, got {shown}") from None
        with access("the run directory", "read"):
            names = os.listdir(run.path) if run.path.is_dir() else []
        if all(durable.is_temporary(name) or name == LOCK for name in names):
            return run
        if not run.config_path.is_file():
            raise RunDirectoryError(
                f"{run.path} is not empty and not a run directory (it has no config.yaml): choose an empty one"
            )
        try:
            changed = differences(run.config, _plain(config))
        except RunDirectoryError as error:
            if not (error.damaged and resume and run._known_by_its_checkpoint()):
                raise
            warnings.warn(
                f"{run.config_path} is not as it was written, and is written anew from the settings given now: its run "
                f"is known by its checkpoint. (To train with other settings, give a copy of it by --config.)",
                RunWarning,
                stacklevel=2,
            )
            return run
        if changed.keys() - set(free):
            raise RunDirectoryError(
                f"{run.path} belongs to a run of another configuration ({listed(changed)}): "
                f"choose another run directory, such as {free_name(run.path)}, or delete this one"
            )
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Return the directory of an existing run; raise RunDirectoryError if the path holds none."""
        run = cls(Path(path))
        if not run.config_path.is_file():
            raise RunDirectoryError(f"{run.path} is not a run directory: it has no config.yaml")
        return run

    def write_start(self, config: Mapping[str, Any], environment: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Make the directory, and write config.yaml and environment.json.

        Args:
            config: As for `claim`.
            environment: Description of this process (`dorylax.environment`).
        """
        content = {"schema": SCHEMA, **_plain(config)}
        # The digest is in a comment, so that copies of the file serve as --config.
        text = (
            f"# Written by dorylax with the digest {digest_of(content)} of its values. Leave it as it is:\n"
            f"# to train with other settings, edit a copy and give that by --config.\n{dump(content)}"
        )
        where = {"directory": str(self.path.absolute()), "started_in": str(Path.cwd())}
        with access("the run directory", "written"):
            durable.make_folder(self.path)
            durable.write_file(self.config_path, text)
            durable.write_json(
                self.environment_path, sealed({"schema": SCHEMA, **environment, **where, "started": now()})
            )

    def _known_by_its_checkpoint(self) -> bool:
        """Whether a damaged configuration is one of ours, whose run a checkpoint describes."""
        if _DIGEST_LINE.match(self.config_path.read_text(encoding="utf-8", errors="replace")) is None:
            return False  # a folder of something else may hold a config.yaml and checkpoints, too
        with contextlib.suppress(RunDirectoryError):
            if self.environment_path.is_file() and "checkpoints" in self.environment:
                return True  # in another place, where the trainer looks for it
        return any(self.checkpoints_path.glob("epoch-*/manifest.json"))

    @property
    def config(self) -> dict[str, Any]:
        """The configuration in config.yaml, without its schema number. An edited file counts as damaged."""
        try:
            with access(self.config_path, "read"):
                text = self.config_path.read_text(encoding="utf-8")
            written, content = _DIGEST_LINE.match(text), yaml.safe_load(text)
            if written is not None and (not isinstance(content, dict) or written[1] != digest_of(content)):
                raise ValueError("its digest is of other values")
        except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:  # JSON holds no dates
            problem = f"{self.config_path} is not as it was written ({one_line(error)})"
            raise RunDirectoryError(f"{problem}: {_EDITED}", damaged=True) from error
        return upgraded(_without_schema(content, self.config_path))

    @property
    def summary(self) -> dict[str, Any] | None:
        """The results in summary.json; None while the run has not ended."""
        content = read_json(self.summary_path) if self.summary_path.is_file() else None
        return None if content is None else {name: value for name, value in content.items() if name != "files"}

    @property
    def complete(self) -> bool:
        """Whether the run came to its own end: all epochs, target or patience; not a signal, not diverged."""
        return (self.summary or {}).get("stopped") in _COMPLETE

    @property
    def environment(self) -> dict[str, Any]:
        """Versions and machine of the run, from environment.json."""
        return read_json(self.environment_path)

    @property
    def user_code(self) -> UserCode:
        """The user's own code that ran, from environment.json; empty if the file cannot be read."""
        with contextlib.suppress(RunDirectoryError, AttributeError, KeyError, TypeError):
            noted = self.environment["user_code"].items()
            return {place: {name: str(fields[name]) for name in ("file", "sha256")} for place, fields in noted}
        return {}

    def located(self, file: str) -> str:
        """Return the path of a file named relative to the working folder of the run; the name itself if it is missing.

        A file that has moved together with the run is found in its new place.
        """
        places: tuple[str, ...] = ()
        with contextlib.suppress(RunDirectoryError, KeyError, TypeError):  # damaged, or of an earlier version
            then = self.environment
            there = os.path.join(then["started_in"], file)
            places = (there, os.path.normpath(self.path.absolute() / os.path.relpath(there, then["directory"])))
        return next(filter(os.path.exists, places), file)

    def write_summary(self, fields: Mapping[str, Any]) -> None:
        """Write summary.json, the last file of a run, which marks it as complete; it seals the files of lines."""
        with access("the run directory", "written"):
            lines = [path for path in (self.metrics_path, self.servers_path) if path.exists()]
            files = {path.name: dict(zip(("bytes", "sha256"), content_of(path), strict=True)) for path in lines}
            durable.write_json(self.summary_path, sealed({"schema": SCHEMA, **fields, "files": files}))

    def remove_outdated_summary(self, config: Mapping[str, Any]) -> None:
        """Remove the summary if the run, with a new configuration, ends elsewhere.

        Call it before `write_start`: a process that is killed in between would leave a run that seems complete.
        """
        there: Mapping[str, Any] = {}
        with contextlib.suppress(RunDirectoryError):  # missing, or damaged, so the former end is unknown
            there = self.config
        if there.get("train") != _plain(config).get("train"):
            self.remove_summary()

    def remove_summary(self) -> None:
        """Remove an earlier summary, because the run continues."""
        with access("the run directory", "written"):
            durable.remove_file(self.summary_path)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep every other process from training in a run directory, which is made if missing.

    Raises:
        RunDirectoryError: Another process trains there, the path is a file, or the file system refuses.
    """

    def refuse(holder: str) -> None:
        raise RunDirectoryError(f"{path} is in use by {holder}: wait for it, or choose another run directory")

    _check_no_file(path)
    with contextlib.ExitStack() as stack:
        with access("the run directory", "written"):
            stack.enter_context(locked(path, waiting=refuse))
        yield


def _check_no_file(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"{path} is a file: choose another run directory")


def free_name(path: Path) -> Path:
    """Return an unused path next to a directory: `run-2`, say."""
    names = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(name for name in names if not name.exists())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object with a digest, without its digest and schema number."""
    try:
        with access(path, "read"):
            content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            content = unsealed(content, without=SCHEMA)
    except (ValueError, RecursionError) as error:
        raise damaged_file(path, error) from error
    return _without_schema(content, path)


def _without_schema(content: Any, path: Path) -> dict[str, Any]:
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise RunDirectoryError(f"{path} is not a file of a dorylax run: it has no schema number")
    check_schema(str(path), content.pop("schema"), SCHEMA)
    return content


def check_schema(what: str, schema: Any, newest: int) -> None:
    """Raise RunDirectoryError if a file, or a line of it, has a schema of a newer version."""
    if schema > newest:
        raise RunDirectoryError(
            f"{what} has schema {schema}, this version of dorylax reads up to {newest}: update dorylax"
        )


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration as YAML gives it back (tuples become lists), for comparison with a file."""
    return dict(json.loads(json.dumps(config, allow_nan=False)))


def now() -> str:
    """Return the present time in UTC, to the second: `2026-11-26T01:40:00+00:00`."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys whose values differ, sorted, each with the old and the new value; None for a missing one."""
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
    """Describe differences for an error: `train.seed: 0 there, 1 here; …`."""
    lines = [f"{name}: {json.dumps(old)} there, {json.dumps(new)} here" for name, (old, new) in changed.items()]
    return "; ".join(lines[:most]) + (f"; and {len(lines) - most} more" if len(lines) > most else "")
