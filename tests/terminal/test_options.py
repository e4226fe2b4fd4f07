"""Options that are made from a section of settings."""

from __future__ import annotations

from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner
from pydantic import Field

from dorylax.settings.section import Section
from dorylax.terminal.options import section_options


class Bread(Section):
    loaves: Annotated[int, Field(ge=1, le=9)] = Field(default=2, description="loaves at a time")
    flour: str | None = Field(default=None, description="name of the flour")
    seeds: tuple[str, ...] = Field(default=(), description="seed on the crust")
    steam: bool = Field(default=False, description="bake with steam")


FLAGS = {"loaves": "--loaves N", "flour": "--flour NAME", "seeds": "--seed NAME", "steam": "--steam"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"loaves": None, "flour": None, "seeds": (), "steam": None}),
        (
            ["--loaves", "3", "--seed", "a", "--seed", "b", "--steam"],
            {"loaves": 3, "flour": None, "seeds": ("a", "b"), "steam": True},
        ),
    ],
)
def test_values_have_the_types_of_the_settings(words: list[str], expected: dict[str, Any]) -> None:
    given: dict[str, Any] = {}
    command = click.command()(section_options(Bread, FLAGS)(lambda **values: given.update(values)))
    assert CliRunner().invoke(command, words).exit_code == 0
    assert given == expected


def test_help_has_descriptions_bounds_and_defaults_in_order() -> None:
    command = click.command()(section_options(Bread, FLAGS)(lambda **values: None))
    lines = CliRunner().invoke(command, ["--help"], terminal_width=200).output.splitlines()
    assert [line.strip() for line in lines[3:-1]] == [
        "--loaves N    Loaves at a time (in 1 … 9) [default: 2].",
        "--flour NAME  Name of the flour.",
        "--seed NAME   Seed on the crust; repeatable.",
        "--steam       Bake with steam.",
    ]
