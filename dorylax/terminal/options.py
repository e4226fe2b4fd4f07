"""Options of commands: declared by their words, shared by several programs, or made from a section of settings."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from dorylax.settings.section import Section
from dorylax.settings.words import bound_words, core

Command = TypeVar("Command", bound=Callable[..., Any])

COUNT = click.IntRange(min=1)


def option(
    words: str, text: str, *, name: str | None = None, parse: Callable[[Any], Any] | None = None, **settings: Any
) -> Callable[[Command], Command]:
    """Give a command an option.

    Args:
        words: The option with a word for its value, `--memory MB`. Without one and without a type it is a switch.
        text: Help, to which click adds the default value.
        name: Name of the parameter; by default that of the option.
        parse: Called with a given value; the command gets the result.
        settings: Further arguments of `click.option`.
    """
    flag, _, metavar = words.partition(" ")
    if not metavar and "type" not in settings and "/" not in flag:
        settings["is_flag"] = True
    if parse is not None:
        settings["callback"] = lambda _context, _option, value: None if value is None else parse(value)
    settings = {"show_default": settings.get("default") is not None, "metavar": metavar or None} | settings
    return click.option(*filter(None, (flag, name)), help=text, **settings)


no_verify_option = option(
    "--no-verify", "Take the arrays of a data set as they are, instead of comparing them with their checksums."
)
"""Of every command that loads data: `data.verify=false`."""

json_option = option("--json", "Print one JSON object.", name="as_json")


def section_options(section: type[Section], flags: Mapping[str, str]) -> Callable[[Command], Command]:
    """Give a command an option for each of some settings; type, help, bounds and default come from the section's model.

    Args:
        section: The section.
        flags: For each setting the words of its option (see `option`). The command gets the value under the setting's name,
            None if it is not given; a setting with several values repeats the option.
    """

    def add(command: Command) -> Command:
        for name, words in reversed(list(flags.items())):
            field = section.model_fields[name]
            several = typing.get_origin(core(field)) is tuple
            bounds = f" ({bound_words(field)})" if bound_words(field) else ""
            usual = f" [default: {field.default}]" if field.default else ""
            text = f"{field.description}{bounds}{'; repeatable' * several}{usual}."
            kind: Any = {"type": int if core(field) is int else str, "multiple": several} if " " in words else {}
            command = option(words, text[:1].upper() + text[1:], name=name, default=None, **kind)(command)
        return command

    return add
