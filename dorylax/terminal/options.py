"""Options that several programs have."""

from __future__ import annotations

import click

no_verify_option = click.option(
    "--no-verify",
    is_flag=True,
    help="Take the arrays of a data set as they are, instead of comparing them with their checksums.",
)
"""Of every command that loads data: `data.verify=false`."""
