"""A group of commands that suggests similar names for an unknown command."""

from __future__ import annotations

import click

from dorylax.near_matches import did_you_mean


class Commands(click.Group):
    """A group that suggests similar names for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group`; only the error differs."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r}: {did_you_mean(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)
