"""Configuration files: keys in YAML, nested or dotted, each error with its file and line.

Reading fills in no defaults, so that the command line can override the values of a file (recipe < file < flags).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, final

from dorylax.config.check import Checked, checked
from dorylax.config.schema import REFERENCES, SECTIONS
from dorylax.settings import strict_yaml
from dorylax.settings.errors import ConfigError, shown
from dorylax.settings.retired import upgraded
from dorylax.settings.strict_yaml import read_text
from dorylax.store.run_directory import RunDirectory
from dorylax.user_code.references import is_reference
from dorylax.user_code.trust import FolderCode

SCHEMA = 1
"""Version of stored configurations (docs/run-directory.md)."""


@final
class Overrides(NamedTuple):
    """The content of a configuration file.

    Attributes:
        values: Values by dotted keys.
        code: The user code that the file names, if a run wrote the file; None if it names none, or is the user's.
    """

    values: Checked
    code: FolderCode | None


def overrides_from_file(path: Path, *, trust: bool = False, overridden: Collection[str] = ()) -> Overrides:
    """Read a YAML file of keys, nested or dotted.

    Args:
        path: The file.
        trust: Whether user code that a run's file names may run; without trust, such code raises InputError.
        overridden: Dotted keys that get other values.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or holds a wrong key or value; names file and line.
        OSError: The machine fails to read the file.
    """
    run = RunDirectory(path.parent)
    others = (run.environment_path, run.metrics_path, run.checkpoints_path)
    of_run = path.name == run.config_path.name and any(other.exists() for other in others)
    files = {place: run.located(noted["file"]) for place, noted in run.user_code.items()} if of_run else {}
    return overrides_from_yaml(
        read_text(path), str(path), trust=trust, overridden=overridden, of_run=of_run, files=files
    )


def overrides_from_yaml(
    text: str,
    name: str,
    *,
    trust: bool = False,
    overridden: Collection[str] = (),
    of_run: bool = False,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Overrides:
    """Read the text of a configuration file, called `name` in errors; otherwise as `overrides_from_file`.

    Args:
        text: The YAML document.
        name: Name of the document.
        trust: As in `overrides_from_file`.
        overridden: As in `overrides_from_file`.
        of_run: Whether a run wrote the document. A document with a schema number counts as a run's anyway.
        files: Earlier paths of the user's files, for a run's document; see `FolderCode`.
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
    given = overrides_from_mapping(document, upgraded(values) if of_run else values)
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
    """Return the checked values of the mapping at the path `inside` of a document; errors name file and line."""
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
