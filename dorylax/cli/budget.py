"""`--memory`: the memory budget of a command that streams."""

from __future__ import annotations

from typing import NamedTuple

import click

from dorylax.machine import memory_limit
from dorylax.settings.byte_sizes import parse_bytes

_SHARE = 0.8  # share of the memory of the machine or its control group; the rest is for other processes


class Memory(NamedTuple):
    """A budget in bytes, and whether the user set it."""

    bytes: int
    given: bool


def _read(_context: click.Context, _option: click.Parameter, text: str | None) -> Memory:
    if text is None:
        limit = memory_limit()
        return Memory(2**32 if limit is None else int(_SHARE * limit.bytes), given=False)
    try:
        return Memory(parse_bytes(text), given=True)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


memory_option = click.option(
    "--memory",
    metavar="SIZE",
    callback=_read,
    help="Memory that the process may use, as 4GiB [default: 80 % of the machine's or its control group's].",
)
"""Of every command that streams."""
