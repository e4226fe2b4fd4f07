"""A group of commands that knows the near ones of a wrong word."""

from __future__ import annotations

import click

from dorylax.near_matches import did_you_mean


class Commands(click.Group):
    """A group that answers an unknown command with the near ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, apart from the error."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r}: {did_you_mean(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)
