"""Options that several programs have, and options made from a section of settings."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from dorylax.settings.section import Section
from dorylax.settings.words import bound_words, core

Command = TypeVar("Command", bound=Callable[..., Any])

no_verify_option = click.option(
    "--no-verify",
    is_flag=True,
    help="Take the arrays of a data set as they are, instead of comparing them with their checksums.",
)
"""Of every command that loads data: `data.verify=false`."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def section_options(section: type[Section], flags: Mapping[str, str]) -> Callable[[Command], Command]:
    """Give a command an option for each of some settings; type, help, bounds and default come from the section's model.

    Args:
        section: The section.
        flags: For each setting its option, `--memory MB`; without a word for the value it is a switch. The command gets
            the value under the setting's name, None if it is not given; a setting with several values repeats the option.
    """

    def add(command: Command) -> Command:
        for name, words in reversed(list(flags.items())):
            field = section.model_fields[name]
            flag, _, metavar = words.partition(" ")
            several = typing.get_origin(core(field)) is tuple
            kind: dict[str, Any] = {"metavar": metavar, "type": int if core(field) is int else str}
            if not metavar:
                kind = {"is_flag": True}
            elif several:
                kind["multiple"] = True
            bounds = f" ({bound_words(field)})" if bound_words(field) else ""
            usual = f" [default: {field.default}]" if field.default else ""
            text = f"{field.description}{bounds}{'; repeatable' * several}{usual}."
            options = {"default": None, "help": text[:1].upper() + text[1:], **kind}
            command = click.option(flag, name, **options)(command)
        return command

    return add
