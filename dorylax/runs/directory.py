"""The directory that a run leaves behind: where each file lies, and how small files are written.

    RUN/config.yaml        the resolved configuration
    RUN/environment.json   what it ran on
    RUN/metrics.jsonl      one line per epoch (`dorylax.runs.metrics`)
    RUN/summary.json       the results, once it has ended
    RUN/trace.json         the tasks of a pipeline (`dorylax.runs.trace`)
    RUN/servers.jsonl      what its servers did, a line per server and epoch (`dorylax.runs.servers`)
    RUN/checkpoints/       `dorylax.runs.checkpoint`
    RUN/.lock              while a process trains there (`dorylax.folder_lock`)

`docs/run-directory.md` documents every field. What is *in* summary and metrics is decided by the trainer; this module
only says where, and keeps files whole (`dorylax.durable`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, final

import yaml

from dorylax import durable
from dorylax.durable import leftover_of
from dorylax.errors import DorylaxError
from dorylax.folder_lock import LOCK, FolderHeldError, locked
from dorylax.runs.differences import differences, listed
from dorylax.runs.digest import DigestError, digest_of, sealed, unsealed
from dorylax.runs.environment import UserCode, environment, now
from dorylax.settings.strict_yaml import dump

SCHEMA = 1

_COMPLETE = ("epochs", "target", "patience")
_DIGEST_LINE = re.compile(r"[^\n]*digest ([0-9a-f]{16})")
FILES = ("config.yaml", "environment.json", "metrics.jsonl", "servers.jsonl", "summary.json", "trace.json")
"""Names of the files of a run, apart from its lock and checkpoints."""


class RunDirectoryError(DorylaxError, RuntimeError):
    """A path that cannot serve as this run's directory, or a file in it that is not what it should be.

    Attributes:
        user_error: whether the user asked for what cannot be (exit code 2), or the machine failed (1).
    """

    user_error: ClassVar[bool] = True


@final
class RunDirectoryAccessError(RunDirectoryError):
    """The file system refuses to read or write: a full disk, a folder without permission."""

    user_error: ClassVar[bool] = False


@final
class DamagedFileError(RunDirectoryError):
    """A file whose content is not what was written. Going on with the run writes it anew."""

    user_error: ClassVar[bool] = False

    @classmethod
    def of(cls, path: Path, reason: object) -> DamagedFileError:
        """For a file that the checkpoint of its run knows all of."""
        return cls(
            f"{path} is damaged ({_one_line(reason)}): go on with the run, which writes it anew from its checkpoint "
            "(the same command with --resume, or the same sweep again)"
        )


@final
class RunDirectoryWarning(UserWarning):
    """A file of a run was edited or damaged, and the run goes on without it."""


@final
class RunDirectory:
    """One run's directory; make it with `create` or `open`.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], config: Mapping[str, Any], *, free: Collection[str] = ()
    ) -> RunDirectory:
        """Makes the directory, or takes up one that already belongs to a run of the same configuration.

        Args:
            path: the directory; parents are made.
            config: nested dict of plain YAML values.
            free: dotted keys in which a configuration that is already there may differ; config.yaml then gets the new.

        Raises:
            RunDirectoryError: as `claim`, or the file system refuses.
        """
        run = cls.claim(path, config, free=free)
        run.write_start(config)
        return run

    @classmethod
    def claim(
        cls,
        path: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        free: Collection[str] = (),
        resume: bool = False,
    ) -> RunDirectory:
        """The first half of `create`: all its checks, and nothing changed; `write_start` is the second.

        Args:
            path: as for `create`.
            config: as for `create`.
            free: as for `create`.
            resume: whether the caller compares the run with its checkpoint, if there is one: a configuration that was
                edited or damaged is then passed over.

        Warns:
            RunDirectoryWarning: it was passed over.

        Raises:
            RunDirectoryError: there is something else at the path, or a run of another configuration.
        """
        run = cls(Path(path))
        _check_no_file(run.path)
        try:
            str(run.path.absolute()).encode()
        except UnicodeEncodeError:  # neither JSON nor Orbax can write it
            raise RunDirectoryError(
                f"the path of a run directory must be UTF-8, got {str(run.path.absolute())!r}"
            ) from None
        if run.path.is_dir() and any(leftover_of(entry) is None and entry.name != LOCK for entry in _entries(run.path)):
            if not run.config_path.is_file():
                raise RunDirectoryError(
                    f"{run.path} is not empty and not a run directory (it has no config.yaml): choose an empty one"
                )
            try:
                there = run.config
            except DamagedFileError:
                if not resume or not run._known_by_its_checkpoint():
                    raise
                warnings.warn(
                    f"{run.config_path} is not as it was written, and is written anew from the settings given now: its run "
                    f"is known by its checkpoint. (To train with other settings, give a copy of it by --config.)",
                    RunDirectoryWarning,
                    stacklevel=2,
                )
                return run
            changed = differences(there, _plain(config))
            if changed.keys() - set(free):
                raise RunDirectoryError(
                    f"{run.path} belongs to a run of another configuration ({listed(changed)}): "
                    f"choose another run directory, such as {free_name(run.path)}, or delete this one"
                )
        return run

    def write_start(
        self,
        config: Mapping[str, Any],
        user_code: UserCode = MappingProxyType({}),
        checkpoints: Mapping[str, str] | None = None,
    ) -> None:
        """Makes the directory, writes config.yaml and environment.json.

        Args:
            config: as of `create`.
            user_code: for environment.json.
            checkpoints: likewise.

        Raises:
            RunDirectoryAccessError: the file system refuses.
        """
        _guarded(durable.make_folder, self.path)
        write_text(self.config_path, _config_text({"schema": SCHEMA, **_plain(config)}))
        where = {"directory": str(self.path.absolute()), "started_in": str(Path.cwd())}
        found = environment(user_code, checkpoints) | where | {"started": now()}
        _guarded(durable.write_json, self.environment_path, sealed({"schema": SCHEMA, **found}))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """An existing run.

        Raises:
            RunDirectoryError: there is none at the path.
        """
        run = cls(Path(path))
        if not run.config_path.is_file():
            raise RunDirectoryError(f"{run.path} is not a run directory: it has no config.yaml")
        return run

    def _known_by_its_checkpoint(self) -> bool:
        """Whether a configuration that cannot be trusted is one of ours, and a checkpoint says of which run.

        A stranger's folder may hold a config.yaml and checkpoints, too.
        """
        ours = _DIGEST_LINE.match(self.config_path.read_text(encoding="utf-8", errors="replace"))
        if ours is None:
            return False
        with contextlib.suppress(RunDirectoryError):
            if self.environment_path.is_file() and "checkpoints" in self.environment:
                return True  # in another place, where it will be missed
        return any(self.checkpoints_path.glob("epoch-*/manifest.json"))

    @property
    def config_path(self) -> Path:
        """config.yaml."""
        return self.path / "config.yaml"

    @property
    def environment_path(self) -> Path:
        """environment.json."""
        return self.path / "environment.json"

    @property
    def metrics_path(self) -> Path:
        """metrics.jsonl."""
        return self.path / "metrics.jsonl"

    @property
    def summary_path(self) -> Path:
        """summary.json."""
        return self.path / "summary.json"

    @property
    def trace_path(self) -> Path:
        """trace.json."""
        return self.path / "trace.json"

    @property
    def servers_path(self) -> Path:
        """servers.jsonl."""
        return self.path / "servers.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def config(self) -> dict[str, Any]:
        """The configuration in config.yaml, without its schema number.

        Raises:
            DamagedFileError: edited or damaged.
            RunDirectoryError: unreadable, or of a newer schema.
        """
        try:
            text = self.config_path.read_text(encoding="utf-8")
            written = _DIGEST_LINE.match(text)
            content = yaml.safe_load(text)
        except OSError as error:
            raise RunDirectoryAccessError(f"{self.config_path} cannot be read: {error}") from error
        except (ValueError, RecursionError, yaml.YAMLError) as error:
            raise _config_damage(self.config_path, error) from error
        if written is not None and (not isinstance(content, dict) or written[1] != _digest(content)):
            raise _config_damage(self.config_path, "its digest is of other values")
        return _checked(content, self.config_path)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The results in summary.json, without schema number and digest; None while the run has not ended.

        Raises:
            DamagedFileError: its content is not what was written.
            RunDirectoryError: unreadable, or of a newer schema.
        """
        return _read_json(self.summary_path) if self.summary_path.is_file() else None

    @property
    def environment(self) -> dict[str, Any]:
        """What the run ran on, from environment.json, without schema number and digest.

        Raises:
            DamagedFileError: its content is not what was written.
            RunDirectoryError: missing, unreadable, or of a newer schema.
        """
        return _read_json(self.environment_path)

    @property
    def user_code(self) -> UserCode:
        """The files of the user's own code that ran, from environment.json; none where that cannot be read."""
        try:
            noted = self.environment.get("user_code")
        except RunDirectoryError:
            return {}
        files = noted.items() if isinstance(noted, dict) else ()
        wanted = ("file", "sha256")
        return {
            place: {name: fields[name] for name in wanted}
            for place, fields in files
            if isinstance(fields, dict) and all(isinstance(fields.get(name), str) for name in wanted)
        }

    def located(self, file: str) -> str:
        """Path of a file or data set that the run names; its name if it is not found.

        Names are relative to the folder that the run was started in. Run and file may have moved together.
        """
        try:
            then = self.environment
        except RunDirectoryError:
            return file
        directory, folder = then.get("directory"), then.get("started_in")
        if not isinstance(directory, str) or not isinstance(folder, str):  # of an earlier version
            return file
        there = os.path.join(folder, file)
        moved = os.path.normpath(self.path.absolute() / os.path.relpath(there, directory))
        return next((path for path in (there, moved) if os.path.exists(path)), file)

    @property
    def complete(self) -> bool:
        """Whether the run came to its own end: all epochs, target or patience; not a signal, not diverged."""
        summary = self.summary
        return summary is not None and summary.get("stopped") in _COMPLETE

    def write_summary(self, fields: Mapping[str, Any]) -> None:
        """Writes summary.json: the schema number, these fields, their digest. The last file of a run: it says complete."""
        _guarded(durable.write_json, self.summary_path, sealed({"schema": SCHEMA, **fields}))

    def remove_outdated_summary(self, config: Mapping[str, Any]) -> None:
        """Takes the summary away if the run, by the configuration to be written, does not end where it says.

        Before `write_start`: a process that is killed after it would else leave a run that seems complete.
        """
        try:
            there = self.config if self.config_path.is_file() else {}
        except RunDirectoryError:  # damaged: nothing says where it was to end
            there = {}
        if there.get("train") != _plain(config).get("train"):
            self.remove_summary()

    def remove_summary(self) -> None:
        """Takes an earlier summary away, when the run goes on."""
        _guarded(durable.remove_file, self.summary_path)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Keeps every other process from training in a run directory, which is made if need be.

    Raises:
        RunDirectoryError: somebody else trains there, or it is a file.
        RunDirectoryAccessError: the file system refuses.
    """
    _check_no_file(path)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
        except FolderHeldError as error:
            raise RunDirectoryError(
                f"{path} is in use by {error.holder}: wait for it, or choose another run directory"
            ) from error
        except OSError as error:
            raise RunDirectoryAccessError(f"the run directory cannot be written: {error}") from error
        yield


def _check_no_file(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"{path} is a file: choose another run directory")


def free_name(path: Path) -> Path:
    """A path beside a directory, where there is nothing: `run-2`, say."""
    names = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(name for name in names if not name.exists())


def write_text(path: Path, text: str) -> None:
    """Writes a file of a run.

    Raises:
        RunDirectoryAccessError: the file system refuses (a full disk, say); the old content is still there.
    """
    _guarded(durable.write_file, path, text)


def append_text(path: Path, text: str) -> None:
    """Appends to a file of a run, and hands it to the operating system.

    Raises:
        RunDirectoryAccessError: the file is a symbolic link, or the file system refuses (a full disk, say).
    """
    try:
        with os.fdopen(
            durable.open_in_place(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "w", encoding="utf-8"
        ) as file:
            file.write(text)
    except OSError as error:
        raise RunDirectoryAccessError(f"{path} cannot be written: {error}") from error


def _guarded(action: Any, *args: Any, **options: Any) -> None:
    try:
        action(*args, **options)
    except OSError as error:
        raise RunDirectoryAccessError(f"the run directory cannot be written: {error}") from error


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise RunDirectoryAccessError(f"the run directory cannot be read: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunDirectoryAccessError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedFileError.of(path, error) from error
    if isinstance(content, dict):
        try:
            content = unsealed(content, without=SCHEMA)
        except DigestError as error:
            raise DamagedFileError.of(path, error) from None
    return _checked(content, path)


def _checked(content: Any, path: Path) -> dict[str, Any]:
    """The content without its schema number, which must be one that this version knows."""
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise RunDirectoryError(f"{path} is not a file of a dorylax run: it has no schema number")
    if content["schema"] > SCHEMA:
        raise RunDirectoryError(
            f"{path} has schema {content['schema']}, this version of dorylax reads up to {SCHEMA}: update dorylax"
        )
    return {key: value for key, value in content.items() if key != "schema"}


def _config_text(content: Mapping[str, Any]) -> str:
    """config.yaml. Its digest is in a comment, so that the file and edited copies of it are configurations for --config."""
    return (
        f"# Written by dorylax with the digest {digest_of(content)} of its values. Leave it as it is:\n"
        f"# to train with other settings, edit a copy and give that by --config.\n{dump(content)}"
    )


def _config_damage(path: Path, reason: object) -> DamagedFileError:
    return DamagedFileError(
        f"{path} is not as it was written ({_one_line(reason)}): undo the edit, or go on with the run by the same command "
        "and settings with --resume, which writes it anew; to train with other settings, give a copy of it by --config"
    )


def _digest(content: dict[str, Any]) -> str | None:
    """Of what was read from YAML; None where it holds what JSON cannot (a date, say)."""
    try:
        return digest_of(content)
    except (TypeError, ValueError):
        return None


def _one_line(reason: object) -> str:
    return " ".join(str(reason).split())


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """As YAML will give it back (tuples become lists), so that comparing with a file is fair."""
    return dict(json.loads(json.dumps(config, allow_nan=False)))
