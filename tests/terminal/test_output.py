from __future__ import annotations

import pytest
from rich.table import Table

from dorylax.terminal.output import print_table


def test_brackets_and_colons_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("h[/b] and more words than the title", title="t[/b] [red]x :smile:")
    table.add_row("c[/b] :smile:")
    print_table(table)
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("t[/b] [red]x :smile:", "h[/b]", "c[/b] :smile:"))


def test_where_there_is_no_terminal_a_wide_table_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    headers = [f"a.rather.long.name.of.column.{k}" for k in range(12)]
    table = Table(*headers, title="wide")
    table.add_row(*map(str, range(12)))
    print_table(table)
    printed = capsys.readouterr().out
    assert all(header in printed for header in headers)
    assert "…" not in printed
