"""docs/configuration.md says what the schema says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dorylax.config import RunConfig, schema
from dorylax.config.optimizers import OPTIMIZERS
from dorylax.config.schema import KEYS, NULL_SAYS_SOMETHING
from dorylax.config.tasks import SPECS
from dorylax.layers.registry import MODELS
from dorylax.program.single import narrow
from dorylax.settings.errors import shown
from dorylax.settings.words import expected, nullable

_PAGE = Path(__file__).parent.parent.parent / "docs" / "configuration.md"


def _rows() -> list[list[str]]:
    lines = [line for line in _PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_key_is_there_in_order_with_type_default_and_meaning() -> None:
    rows = {row[0].strip("`"): row[1:] for row in _rows() if "." in row[0] and len(row) == 4}
    assert list(rows) == list(KEYS)
    for key, field in KEYS.items():
        section = key.split(".")[0]
        takes = expected(field) + (", or null" if nullable(field) and section in NULL_SAYS_SOMETHING else "")
        own = section in ("model", "optimizer", "task") and field.default is None
        default = "see below" if own else f"`{shown(field.default)}`"
        assert rows[key] == [takes, default, field.description], key


def test_how_rows_are_stored_is_said_alike_where_settings_load_no_jax() -> None:
    assert schema.Gathered == narrow.Gathered


def _table(title: str) -> list[list[str]]:
    """The cells of the table whose header begins with `title`, without header and rule."""
    lines = _PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {title} |"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def _recipe(name: str) -> str:
    """What a run of the model gets, in the order of the schema, without what is null."""
    values = RunConfig.resolve({"model.name": name, "data.name": "cora"}).dotted()
    chosen = [key for key in values if key.startswith("model.") and key != "model.name"]
    chosen += [key for key in MODELS[name].recipe if not key.startswith("model.") and key != "optimizer.name"]
    return ", ".join(f"{key.partition('.')[2]} {shown(values[key])}" for key in chosen)


def test_the_recipes_are_those_of_the_registry_and_no_others() -> None:
    assert all(spec.recipe["optimizer.name"] == "adam" for spec in MODELS.values()), "the page says so below the table"
    assert _table("model") == [[f"`{name}`", _recipe(name), spec.source] for name, spec in MODELS.items()]


def test_the_tasks_are_those_that_there_are_and_no_others() -> None:
    def listed(options: Mapping[str, Any]) -> str:
        return ", ".join(f"{key.rpartition('.')[2]} {shown(value)}" for key, value in options.items())

    expected = [
        [f"`{name}`", listed(spec.options) or "–", listed(spec.recipe) or "the model's"] for name, spec in SPECS.items()
    ]
    assert _table("task") == expected


def test_the_optimizers_are_those_that_there_are_and_no_others() -> None:
    rows = [
        [f"`{name}`", ", ".join(f"{option} {number}" for option, number in spec.options.items()) or "–"]
        for name, spec in OPTIMIZERS.items()
    ]
    assert _table("optimizer") == rows
