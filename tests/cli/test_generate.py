"""`dorylax generate`: the folder that Python's function writes, and one line where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.graph import datasets
from dorylax.graph.array_folder import ArrayWriter


def test_it_writes_the_file(dorylax, tmp_path: Path) -> None:
    out, same = tmp_path / "a", tmp_path / "same"
    words = (
        "--size",
        "tiny",
        "--memory",
        "4GiB",
        *("--set", "order=community", "--set", "seed=3", "--set", "split_seed=1"),
    )
    code, said, error = dorylax("generate", "communities", *words, "--out", str(out))
    assert (code, error) == (0, "")
    assert said.startswith(f"communities: {out}, ")
    datasets.generate("communities", same, size="tiny", order="community", seed=3, split_seed=1)
    for path in same.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()
    answer = dorylax("train", "--data", str(out), "--epochs", "2", "--out", str(tmp_path / "run"))
    assert answer.code == 0


def test_where_it_cannot_be_written(dorylax, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for out, message in (
        (tmp_path, "is a folder that holds mine, which dorylax did not write"),
        (tmp_path / "mine", "is a file"),
        (tmp_path / "a.npz", "data sets are folders: give"),
    ):
        code, _, error = dorylax("generate", "communities", "--size", "tiny", "--out", str(out))
        assert code in (1, 2)
        assert message in error
        assert error.count("\n") == 1


def test_interrupted(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ArrayWriter, "write", stop)
    out = tmp_path / "out"
    code, text, err = dorylax("generate", "communities", "--size", "tiny", "--out", str(out))
    assert (code, text, err.strip()) == (130, "", f"interrupted: {out} is what it was; the same command begins anew")
    assert list(tmp_path.iterdir()) == []
