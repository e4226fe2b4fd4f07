"""Options that several programs have."""

from __future__ import annotations

import click

from dorylax.settings.byte_sizes import parse_bytes

no_verify_option = click.option(
    "--no-verify",
    is_flag=True,
    help="Take the large arrays of an .npz as they are, instead of comparing them with their checksums.",
)
"""Of every command that loads data: `data.verify=false`."""


def _bytes(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None


memory_option = click.option(
    "--memory",
    metavar="SIZE",
    callback=_bytes,
    help="Memory to keep to, as in 4GiB [default: all that this process may have].",
)
"""Of every command whose work goes through memory piece by piece."""
