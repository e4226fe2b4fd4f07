"""sweep.json: which sweep is in a folder."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dorylax.config import ConfigError
from dorylax.experiments.folder import check_folder, locked, read_study, write_sweep
from dorylax.experiments.runner import fail
from dorylax.experiments.sweep import Sweep, select
from dorylax.experiments.sweep_file import read
from dorylax.store.digest import sealed

_TEXT = """\
description: größer?
base: {data.size: tiny}
grid: {model.name: [gcn, gat], optimizer.learning_rate: [0.1, 1e-2]}
seeds: 2
compare: {baseline: {model.name: gcn}}
"""


def _sweep(name: str = "s") -> Sweep:
    return read(_TEXT, f"{name}.yaml", name)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_sweep(tmp_path, _sweep(), [])
    study = read_study(tmp_path)
    assert study.sweep == _sweep()
    assert study.folder == tmp_path
    assert [outcome.run for outcome in study.outcomes] == list(_sweep().runs)
    assert {outcome.status for outcome in study.outcomes} == {"open"}


def test_a_folder_that_is_locked_is_made_and_stays_if_anything_comes_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    for name in (None, "results.csv"):
        with locked(folder):
            assert folder.is_dir()
            with (
                pytest.raises(
                    ConfigError, match=f"{folder} is in use by this process, since .*, which runs a sweep there: wait"
                ),
                locked(folder),
            ):
                pass
            if name is not None:
                (folder / name).touch()
        assert folder.exists() == (name is not None)
        assert folder.parent.exists() == (name is not None)
    with locked(folder):  # one that was there, empty or not, stays
        (folder / "results.csv").unlink()
    assert folder.is_dir()


def test_what_a_disk_has_left_half_written_is_cleared(tmp_path: Path) -> None:
    ours = [f".{name}.dorylax-0123abcd" for name in ("results.csv", "results.json", "sweep.json", "timings.csv")]
    kept = {".mine.dorylax-0123abcd", "results.csv", "errors", "errors/gcn-s0.txt"}
    (tmp_path / "errors").mkdir()
    for name in (*ours, "errors/.gcn-s0.txt.dorylax-0123abcd", *kept - {"errors"}):
        (tmp_path / name).touch()
    with locked(tmp_path):
        assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {*kept, ".lock"}


def test_what_was_selected_is_selected_again(tmp_path: Path) -> None:
    conditions = [("model.name", "gat"), ("optimizer.learning_rate", "1e-2"), ("train.seed", "1")]
    selected = select(_sweep(), conditions)
    write_sweep(tmp_path, selected, conditions)
    fail(tmp_path, selected.runs[0], "Traceback …\nValueError: x\n")
    study = read_study(tmp_path)
    assert study.sweep == selected
    assert [(outcome.run.label, outcome.error) for outcome in study.outcomes] == [
        ("gat, learning_rate=0.01, seed 1", "ValueError: x")
    ]


def test_a_folder_of_no_sweep(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "none", tmp_path / "file"):
        with pytest.raises(ConfigError) as caught:
            read_study(folder)
        assert str(caught.value) == (
            f"{folder} is not the folder of a sweep (it has no sweep.json): give one that dorylax sweep or dorylax "
            "train has made"
        )


@pytest.mark.parametrize("text", ["", "{", "\udcff"])
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sweep.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        read_study(tmp_path)
    assert str(caught.value).startswith(f"{path} is damaged (")
    assert str(caught.value).endswith("which writes it anew")


def test_a_disk_that_fails_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or another sweep's tables would be written over."""
    write_sweep(tmp_path, _sweep("other"), [])

    def fail(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fail)
        for read_it in (lambda: check_folder(tmp_path, _sweep()), lambda: read_study(tmp_path)):
            with pytest.raises(OSError, match="Input/output error") as caught:
                read_it()
            assert caught.value.filename == str(tmp_path / "sweep.json")
    with pytest.raises(ConfigError, match="is the folder of sweep other, not of s"):
        check_folder(tmp_path, _sweep())


def test_a_flipped_bit_is_damage_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    write_sweep(tmp_path, _sweep(), [("train.seed", "1")])
    content, name = path.read_bytes(), read_study(tmp_path).sweep
    refused, messages = 0, set()
    for bit in range(0, 8 * len(content), 5):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert read_study(tmp_path).sweep == name
        except ConfigError as error:
            messages.add(str(error))
            refused += 1
    assert refused > len(content)
    assert all("is damaged" in message for message in messages)


def test_one_of_before_there_were_digests_is_read(tmp_path: Path) -> None:
    write_sweep(tmp_path, _sweep(), [])
    _write(tmp_path / "sweep.json", digest=...)
    assert read_study(tmp_path).sweep == _sweep()


def _write(path: Path, *, seal: bool = False, **changes: Any) -> None:
    """Changes fields, or takes them away (...)."""
    content = {key: value for key, value in {**json.loads(path.read_text()), **changes}.items() if value is not ...}
    content = sealed({key: value for key, value in content.items() if key != "digest"}) if seal else content
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"schema": None},
        {"schema": "1"},
        {"text": ...},
        {"name": ...},
        {"only": ...},
        {"only": 3},
        {"only": [["model.name"]]},
        None,
    ],
)
def test_a_damaged_file(tmp_path: Path, changes: dict[str, Any] | None, *, seal: bool) -> None:
    path = tmp_path / "sweep.json"
    write_sweep(tmp_path, _sweep(), [])
    if changes is None:
        path.write_text("[]")
    else:
        _write(path, seal=seal, **changes)
    with pytest.raises(ConfigError) as caught:
        read_study(tmp_path)
    assert str(caught.value).startswith(f"{path} is damaged (")
    check_folder(tmp_path, _sweep("other"))  # it may be written anew, which is what the message says


def test_a_newer_schema(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    write_sweep(tmp_path, _sweep(), [])
    _write(path, seal=True, schema=1000)
    with pytest.raises(ConfigError, match=r"has schema 1000, this version of dorylax reads up to \d+: update it"):
        read_study(tmp_path)


def test_a_text_that_is_no_sweep_any_more_says_where(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    write_sweep(tmp_path, _sweep(), [])
    _write(path, seal=True, text=_TEXT.replace("gat", "gta"))
    with pytest.raises(ConfigError) as caught:
        read_study(tmp_path)
    assert str(caught.value).startswith(f"{path}:3: unknown model.name 'gta': did you mean gat")


def test_a_folder_belongs_to_one_sweep(tmp_path: Path) -> None:
    check_folder(tmp_path, _sweep())
    write_sweep(tmp_path, _sweep(), [])
    check_folder(tmp_path, read(_TEXT + "exclude: [{model.name: gat}]\n", "s.yaml", "s"))  # it has changed
    with pytest.raises(ConfigError) as caught:
        check_folder(tmp_path, _sweep("other"))
    assert str(caught.value) == f"{tmp_path} is the folder of sweep s, not of other: give another --out"
