"""Configuration files: keys in YAML, nested or dotted, each error with its file and line.

Nothing is filled in here, so that what a file says can still be overridden (recipe < file < flags).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, final

from dorylax.config.check import Checked, checked
from dorylax.config.schema import REFERENCES, SECTIONS
from dorylax.runs.directory import RunDirectory
from dorylax.settings import strict_yaml
from dorylax.settings.errors import ConfigError, shown
from dorylax.settings.text_file import read_text
from dorylax.user_code.references import is_reference
from dorylax.user_code.trust import FolderCode

SCHEMA = 1
"""The number that says how a stored configuration is to be read (docs/run-directory.md)."""


@final
class Overrides(NamedTuple):
    """What a document says.

    Attributes:
        values: of dotted keys.
        code: what it names of somebody's own code, if dorylax has written the document: it is a run's, or was copied from
            one. None where it names nothing, or is the user's.
    """

    values: Checked
    code: FolderCode | None


def overrides_from_file(path: Path, *, trust: bool = False, overridden: Collection[str] = ()) -> Overrides:
    """Read a YAML file of keys, nested or dotted, without filling anything in.

    Args:
        path: the file.
        trust: whether code that it names may run if it is a run's file.
        overridden: dotted keys that get other values.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or holds a wrong key or value; with file and line.
        InputError: it is a run's, names code, and is not trusted.
        OSError: the machine fails to read it.
    """
    run = _run_of(path)
    files = {} if run is None else {place: run.located(noted["file"]) for place, noted in run.user_code.items()}
    return overrides_from_yaml(
        read_text(path), str(path), trust=trust, overridden=overridden, of_run=run is not None, files=files
    )


def _run_of(path: Path) -> RunDirectory | None:
    """The run whose config.yaml a file is; None where it is none."""
    run = RunDirectory(path.parent)
    others = (run.environment_path, run.metrics_path, run.checkpoints_path)
    return run if path.name == run.config_path.name and any(other.exists() for other in others) else None


def overrides_from_yaml(
    text: str,
    name: str,
    *,
    trust: bool = False,
    overridden: Collection[str] = (),
    of_run: bool = False,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Overrides:
    """`overrides_from_file` for a document that is already text.

    Args:
        text: the document.
        name: what errors call it.
        trust: as of `overrides_from_file`.
        overridden: likewise.
        of_run: whether it is a run's even if it carries no schema number, which all that dorylax writes carry.
        files: where files of the user's own code were, if it is a run's; see `FolderCode`.
    """
    document = strict_yaml.parse(text, name)
    if document.value is None:
        return Overrides(Checked(), None)
    if not isinstance(document.value, dict):
        raise ConfigError(f"{document.where()}: must hold keys such as train.epochs, got {shown(document.value)}")
    values = dict(document.value)
    of_run = of_run or "schema" in values
    schema = values.pop("schema", SCHEMA)
    if schema != SCHEMA:
        raise ConfigError(f"{document.where('schema')}: schema must be {SCHEMA}, got {shown(schema)}")
    given = overrides_from_mapping(document, values)
    references = {given[key] for key in REFERENCES if key in given and key not in overridden}
    named = frozenset(filter(is_reference, references))
    if not (of_run and named):
        return Overrides(given, None)
    code = FolderCode(name, named, trusted=trust, files=dict(files))
    code.check()
    return Overrides(given, code)


def overrides_from_mapping(
    document: strict_yaml.Document, mapping: dict[str, Any], inside: strict_yaml.Path = ()
) -> Checked:
    """`overrides_from_file` for a part of a document; `inside` is where in it the mapping stands."""
    given = Checked()
    for key, entry in mapping.items():
        # One entry at a time, so that each error can have its line.
        entries = entry.items() if key in SECTIONS and isinstance(entry, dict) else [(None, entry)]
        for option, value in entries:
            path = (key,) if option is None else (key, option)
            try:
                for dotted, one in checked({".".join(path): value}).items():
                    if dotted in given:
                        raise ConfigError(f"{dotted} is given twice")
                    given[dotted] = one
            except ConfigError as error:
                raise error.at(document.where(*inside, *path)) from None
    return given
