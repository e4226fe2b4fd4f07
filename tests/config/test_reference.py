"""docs/configuration.md says what the schema says."""

from __future__ import annotations

from pathlib import Path

from dorylax.config.check import KEYS
from dorylax.config.errors import shown
from dorylax.config.schema import expected, nullable
from dorylax.layers.registry import MODELS
from dorylax.optimizers import OPTIMIZERS

_PAGE = Path(__file__).parent.parent.parent / "docs" / "configuration.md"


def _rows() -> list[list[str]]:
    lines = [line for line in _PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_key_is_there_in_order_with_type_default_and_meaning() -> None:
    rows = {row[0].strip("`"): row[1:] for row in _rows() if "." in row[0] and len(row) == 4}
    assert list(rows) == list(KEYS)
    for key, field in KEYS.items():
        section = key.split(".")[0]
        takes = expected(field) + (", or null" if nullable(field) and section in ("data", "train") else "")
        own = section in ("model", "optimizer") and field.default is None
        default = "see below" if own else f"`{shown(field.default)}`"
        assert rows[key] == [takes, default, field.description], key


def test_every_recipe_is_there() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    for name, spec in MODELS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        for key, value in spec.recipe.items():
            if key.startswith("model.") or key in ("optimizer.learning_rate", "train.patience"):
                assert f"{key.partition('.')[2]} {shown(value)}" in row, (name, key)
    for name, optimizer in OPTIMIZERS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        for option, number in optimizer.options.items():
            assert f"{option} {number}" in row, (name, option)
