"""From a command's options to configuration keys: those of a file, overridden by those of the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from dorylax.config.check import check_value, unknown_key
from dorylax.config.files import Overrides, overrides_from_file
from dorylax.config.schema import KEYS, is_key
from dorylax.settings.errors import ConfigError
from dorylax.settings.strict_yaml import scalar
from dorylax.settings.words import type_words
from dorylax.terminal.files import INPUT, will_read
from dorylax.terminal.options import no_verify_option
from dorylax.user_code.references import is_reference, place_of

Command = TypeVar("Command", bound=Callable[..., Any])

data_option = click.option(
    "--data", metavar="NAME_OR_NPZ", help="Data set (`dorylax datasets`), or the path of an .npz."
)
trust_option = click.option("--trust", is_flag=True, help="Let code run that the files of a run name.")

_CONFIGURED = (
    click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Set any configuration key; repeatable."
    ),
    click.option("--config", "file", metavar="FILE.yaml", type=INPUT, help="Read keys from a file."),
    trust_option,
    no_verify_option,
)


def configured(command: Command) -> Command:
    """Gives a command the options that any configuration comes from: `--set`, `--config`, `--trust`, `--no-verify`."""
    for option in reversed(_CONFIGURED):
        command = option(command)
    return command


def parse_value(key: str, text: str) -> Any:
    """The value of one key as typed on a command line, by YAML's rules for scalars; checked.

    Raises:
        ConfigError: an unknown key, or a value that is wrong for it.
    """
    if not is_key(key):
        raise unknown_key(key)
    try:
        value = scalar(text)
    except ConfigError:
        value = text
    # `--data 10` is a name all the same.
    if key in KEYS and type_words(KEYS[key]) == "text" and value is not None:
        value = text
    check_value(key, value)
    return value


def parse_setting(setting: str) -> tuple[str, Any]:
    """`key=value` → key and value, checked.

    Raises:
        ConfigError: no `=`, or as `parse_value`.
    """
    key, equals, text = setting.partition("=")
    if not equals:
        raise ConfigError(f"--set takes key=value, as in train.epochs=100, got {setting!r}")
    return key.strip(), parse_value(key.strip(), text.strip())


def collect(
    file: Path | None,
    named: dict[str, str | None],
    settings: Sequence[str],
    *,
    trust: bool = False,
    no_verify: bool = False,
) -> Overrides:
    """All that the user gave, dotted.

    Args:
        file: of `--config`.
        named: dotted key → text of an option of its own (`--epochs`), None where not given.
        settings: each a `key=value` of `--set`.
        trust: whether code that the file names may run if it is a run's.
        no_verify: whether `--no-verify` is given.

    Raises:
        ConfigError: a wrong key or value, or one key given by two options.
        UntrustedCodeError: the file is a run's, names code, and is not trusted.
    """
    if no_verify:
        named = {**named, "data.verify": "false"}
    flags = {key: parse_value(key, text) for key, text in named.items() if text is not None}
    for setting in settings:
        key, value = parse_setting(setting)
        if key in flags:
            raise ConfigError(f"{key} is given twice on the command line")
        flags[key] = value
    given, code = overrides_from_file(file, trust=trust, overridden=flags) if file else Overrides({}, None)
    values = given | flags
    will_read(*values.values(), *map(place_of, filter(is_reference, values.values())))
    return Overrides(values, code)
