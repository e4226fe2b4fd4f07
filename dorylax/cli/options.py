"""Options of several commands: the keys of a configuration, the trust in its code, and the memory budget of streams."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from dorylax.config.check import Checked, check_value, unknown_key
from dorylax.config.files import Overrides, overrides_from_file
from dorylax.config.schema import KEYS, is_key
from dorylax.machine import memory_limit
from dorylax.settings.byte_sizes import parse_bytes
from dorylax.settings.errors import ConfigError
from dorylax.settings.strict_yaml import scalar
from dorylax.settings.words import type_words
from dorylax.terminal.files import INPUT, will_read
from dorylax.terminal.options import no_verify_option, option
from dorylax.user_code.references import is_reference, place_of

_SHARE = 0.8  # share of the memory of the machine or its control group; the rest is for other processes

data_option = option("--data NAME_OR_FOLDER", "Data set (`dorylax datasets`), or the path of its folder.")
trust_option = option("--trust", "Let code run that the files of a run name.")

_CONFIGURED = (
    option("--set KEY=VALUE", "Set any configuration key; repeatable.", name="settings", multiple=True),
    option("--config FILE.yaml", "Read keys from a file.", name="file", type=INPUT),
    trust_option,
    no_verify_option,
)


def configured(**keys: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options `--set`, `--config`, `--trust` and `--no-verify`, and call it with their `Overrides`.

    Args:
        keys: Parameter name → dotted key of further options of the command whose texts are values of keys.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(*, settings: tuple[str, ...], file: Path | None, trust: bool, no_verify: bool, **options: Any) -> None:
            named = {key: options.pop(name) for name, key in keys.items()}
            command(collect(file, named, settings, trust=trust, no_verify=no_verify), **options)

        for add_option in reversed(_CONFIGURED):
            call = add_option(call)
        return call

    return add


def parse_value(key: str, text: str) -> Any:
    """Parse and check the command-line value of one key, by YAML's rules for scalars.

    Raises:
        ConfigError: The key is unknown, or the value is wrong for it.
    """
    if not is_key(key):
        raise unknown_key(key)
    try:
        value = scalar(text)
    except ConfigError:
        value = text
    # `--data 10` is a name, too.
    if key in KEYS and type_words(KEYS[key]) == "text" and value is not None:
        value = text
    check_value(key, value)
    return value


def collect(
    file: Path | None,
    named: Mapping[str, str | None],
    settings: Sequence[str],
    *,
    trust: bool = False,
    no_verify: bool = False,
) -> Overrides:
    """Collect the user's values, those of a file overridden by those of the command line.

    Args:
        file: File of `--config`.
        named: Dotted key → text of a dedicated option (`--epochs`), None if not given.
        settings: Values `key=value` of `--set`.
        trust: Whether to run code named by the file if the file belongs to a run.
        no_verify: Whether `--no-verify` is given.

    Raises:
        ConfigError: A key or value is wrong, or two options give one key.
        InputError: The file belongs to a run, names code, and is not trusted.
    """
    if no_verify:
        named = {**named, "data.verify": "false"}
    flags = {key: parse_value(key, text) for key, text in named.items() if text is not None}
    for setting in settings:
        key, equals, text = map(str.strip, setting.partition("="))
        if not equals:
            raise ConfigError(f"--set takes key=value, as in train.epochs=100, got {setting!r}")
        value = parse_value(key, text)
        if key in flags:
            raise ConfigError(f"{key} is given twice on the command line")
        flags[key] = value
    given, code = overrides_from_file(file, trust=trust, overridden=flags) if file else Overrides(Checked(), None)
    values = Checked(given | flags)
    will_read(*values.values(), *map(place_of, filter(is_reference, values.values())))
    return Overrides(values, code)


class Memory(NamedTuple):
    """A budget in bytes, and whether the user set it."""

    bytes: int
    given: bool


def parse_memory(text: str) -> int:
    """Return the bytes that `--memory` gives; raise ConfigError for a text that is no amount."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"--memory: {error}") from None


def _budget(_context: click.Context, _option: click.Parameter, text: str | None) -> Memory:
    if text is not None:
        return Memory(parse_memory(text), given=True)
    limit = memory_limit()
    return Memory(2**32 if limit is None else int(_SHARE * limit.bytes), given=False)


memory_option = option(
    "--memory SIZE",
    "Memory that the process may use, as 4GiB [default: 80 % of the machine's or its control group's].",
    callback=_budget,
)
