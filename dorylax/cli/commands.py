"""Groups of commands: similar names for unknown commands, and imports on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

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

    def all_commands(self) -> dict[str, click.Command]:
        """Return all commands by name, in the order of their definition."""
        return dict(self.commands)


class LazyCommands(Commands):
    """A group that imports a command when it is first used; the help of the group imports none.

    Args:
        lazy: For each command the place of its definition as `MODULE:NAME`, and its help in one sentence.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands, sorted."""
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if necessary."""
        if cmd_name in self.lazy and cmd_name not in self.commands:
            module, _, name = self.lazy[cmd_name][0].partition(":")
            self.add_command(getattr(importlib.import_module(module), name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def all_commands(self) -> dict[str, click.Command]:
        """Import all commands; return them by name, in the order of their definition."""
        found = {name: self.get_command(click.Context(self), name) for name in self.lazy}
        return {name: command for name, command in found.items() if command is not None}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their sentences."""
        described = {name: click.Command(name, help=sentence) for name, (_, sentence) in self.lazy.items()}
        click.Group(commands=described).format_commands(ctx, formatter)
