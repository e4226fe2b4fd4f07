"""Types of options that name files; no command writes over a file that it reads.

An option or argument of the type `INPUT` names a file or folder that its command reads. The type `OUTPUT` names a file that
it writes into an existing folder, and `OUTPUT_FOLDER` a folder, or a file whose folder it makes. `will_read` adds files that
other values name, such as the data set of a configuration.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, final

import click

from dorylax.graph.manifest import is_array_folder
from dorylax.settings.errors import CONTROL, ConfigError

_KEY = "dorylax.files"


@final
class _FileType(click.Path):
    """A path that the command reads, or one that it writes."""

    def __init__(self, *, written: bool, file: bool = False) -> None:
        super().__init__(path_type=Path)
        self._written, self._file = written, file

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType`.

        Raises:
            ConfigError: The name has control characters, a file cannot be written there, or the command also reads it.
        """
        name = os.fsdecode(value)
        if CONTROL.search(name):
            raise ConfigError(f"the name of a file must have no control characters, got {name!r}")
        path = Path(os.fsdecode(super().convert(name, param, ctx)))
        if ctx is not None and param is not None:
            if self._file:
                _check_writable(param.opts[0], path)
            _note(ctx, path, param.opts[0] if self._written else None)
        return path


INPUT, OUTPUT, OUTPUT_FOLDER = _FileType(written=False), _FileType(written=True, file=True), _FileType(written=True)


def will_read(*names: object) -> None:
    """Refuse to go on if the current command would write over one of these files.

    Args:
        names: Paths, and names of data sets in $DORYLAX_DATA; other texts and values are ignored. Outside a command nothing
            is checked.

    Raises:
        ConfigError: An `OUTPUT` of the command is the same file, also by a link or another spelling of its name.
    """
    context = click.get_current_context(silent=True)
    directory = os.environ.get("DORYLAX_DATA", "")
    for name in names:
        if context is not None and isinstance(name, str | Path) and name:
            _note(context, Path(os.path.expanduser(name)), None)
            for suffix in ("", ".npz") if directory else ():
                _note(context, Path(os.path.expanduser(directory), f"{name}{suffix}"), None)


def _check_writable(option: str, path: Path) -> None:
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a folder: give a file in it")
    if path.exists() and not path.is_file():
        raise ConfigError(f"{option} {path} is no regular file: choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"{option} {path}: {path.parent} may not be written by you")


def _note(context: click.Context, path: Path, option: str | None) -> None:
    """Remember a file that is read (`option` is None) or written, and compare it with those of the other kind."""
    if option is None and is_array_folder(path):
        for file in path.iterdir():
            _note(context, file, None)
    files: list[tuple[Path, str | None]] = context.meta.setdefault(_KEY, [])
    for other, other_option in files:
        if (option is None) != (other_option is None) and _same(path, other):
            written, read = (path, other) if other_option is None else (other, path)
            raise ConfigError(
                f"{option or other_option} {written} is a file that this command reads, {read}: choose another name"
            )
    files.append((path, option))


def _same(one: Path, other: Path) -> bool:
    """Whether two names mean one file or one data set; other folders may be read and written."""
    try:
        return (one.is_file() or is_array_folder(one)) and one.samefile(other)
    except (OSError, ValueError):  # one is not there, or is no path
        return False
