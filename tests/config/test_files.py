"""Configuration files: nested or dotted, with the line of each error."""

from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.config import ConfigError, RunConfig
from dorylax.config.files import overrides_from_file, overrides_from_yaml


def test_nested_and_dotted_are_the_same() -> None:
    nested = overrides_from_yaml("schema: 1\nmodel:\n  name: gat\n  heads: 4\ntrain:\n  epochs: 3\n", "f").values
    assert nested == overrides_from_yaml("model.name: gat\nmodel.heads: 4\ntrain.epochs: 3\n", "f").values
    assert nested == {"model.name": "gat", "model.heads": 4, "train.epochs": 3}


def test_an_empty_file_gives_nothing() -> None:
    assert overrides_from_yaml("# nothing yet\n", "f") == ({}, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train:\n  epochs: 0\n", "f.yaml:2: train.epochs must be ≥ 1, got 0"),
        ("train:\n  seed: 1\n  epoch: 2\n", "f.yaml:3: unknown key 'train.epoch': did you mean train.epochs?"),
        ("train.epochs: 1\ntrain:\n  epochs: 2\n", "f.yaml:3: train.epochs is given twice"),
        ("train: 3\n", "f.yaml:1: train is a section and must hold keys such as train.epochs, got 3"),
        ("- 1\n", "f.yaml:1: must hold keys such as train.epochs, got [1]"),
        ("train.epochs: 3\nschema: 7\n", "f.yaml:2: schema must be 1, got 7"),
    ],
)
def test_errors_have_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_yaml(text, "f.yaml")
    assert str(caught.value) == message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml: No such file or directory"):
        overrides_from_file(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not a text file in UTF-8"):
        RunConfig.load(tmp_path / "binary.yaml")
