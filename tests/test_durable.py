"""What is written is there whole, or the old is: with a fault at every step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NoReturn

import pytest

from dorylax import durable
from dorylax.durable import leftover_of, remove_folder, write_file, write_folder, write_json


def refuse(*args: object, **options: object) -> NoReturn:
    raise OSError(28, "No space left on device")


def half(file: BinaryIO) -> None:
    file.write(b"half")
    refuse()


def two_files(folder: Path) -> None:
    (folder / "a").write_text("new")
    (folder / "deep").mkdir()
    (folder / "deep" / "b").write_text("new")


def half_a_folder(folder: Path) -> None:
    (folder / "a").write_text("new")
    refuse()


@pytest.mark.parametrize("content", ["grün\n", "grün\n".encode(), lambda file: file.write("grün\n".encode())])
def test_a_file_is_replaced(tmp_path: Path, content: str | bytes | Callable[[BinaryIO], object]) -> None:
    path = tmp_path / "file"
    path.write_text("a longer content")
    write_file(path, content)
    assert path.read_bytes() == "grün\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_is_that_of_any_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "file", "")
        write_folder(tmp_path / "folder", two_files)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"file": 0o640, "folder": 0o750, "a": 0o640, "deep": 0o750, "b": 0o640}


def test_everything_is_on_disk_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(durable.os, name, lambda *args, n=name, c=call: (done.append(n), c(*args))[1])
    write_file(tmp_path / "file", "content")
    assert done == ["fsync", "replace", "fsync"]
    del done[:]
    write_folder(tmp_path / "folder", two_files)
    assert done == ["fsync"] * 4 + ["replace", "fsync"]  # two files, two folders
    del done[:]
    write_folder(tmp_path / "folder", two_files)
    assert done == ["fsync"] * 4 + ["replace", "replace", "fsync"]


@pytest.mark.parametrize("fault", ["open", "write", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})
    if fault == "open":
        monkeypatch.setattr(Path, "open", refuse)
    elif fault != "write":
        monkeypatch.setattr(durable.os, fault, refuse)
    with pytest.raises(OSError, match="No space left") as caught:
        write_file(path, half if fault == "write" else b"new")
    monkeypatch.undo()
    assert str(caught.value) == f"[Errno 28] No space left on device: '{path}'"
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_file(tmp_path / "none" / "file", "")
    assert str(caught.value) == f"[Errno 2] No such file or directory: '{tmp_path / 'none' / 'file'}'"
    (tmp_path / "folder" / "held").mkdir(parents=True)
    with pytest.raises(IsADirectoryError) as caught:  # of a rename, which knows two names
        write_file(tmp_path / "folder", "")
    assert str(caught.value) == f"[Errno 21] Is a directory: '{tmp_path / 'folder'}'"


def test_an_error_that_is_only_a_text_stays_one(tmp_path: Path) -> None:
    def short(file: BinaryIO) -> None:
        raise OSError("100 requested and 36 written")

    with pytest.raises(OSError, match=r"^100 requested and 36 written$"):
        write_file(tmp_path / "file", short)
    assert not list(tmp_path.iterdir())


def test_json_is_strict(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "file", {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


def _content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_folder(folder, lambda new: (new / "old").touch())
    write_folder(folder, two_files)
    assert _content(folder) == {"a": "new", "deep/b": "new"}
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("fault", ["fill", "fsync", "first rename", "second rename"])
def test_a_failed_write_leaves_the_old_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    folder, replace = tmp_path / "folder", os.replace
    write_folder(folder, lambda new: (new / "a").write_text("old"))
    faults = {"first rename": folder, "second rename": None}
    if fault == "fsync":
        monkeypatch.setattr(durable.os, "fsync", refuse)
    elif fault in faults:

        def rename(source: Path, target: Path) -> None:
            if source == faults[fault] or (fault == "second rename" and source.name == "new"):
                refuse()
            replace(source, target)

        monkeypatch.setattr(durable.os, "replace", rename)
    with pytest.raises(OSError, match="No space left"):
        write_folder(folder, half_a_folder if fault == "fill" else two_files)
    monkeypatch.undo()
    assert _content(folder) == {"a": "old"}
    assert list(tmp_path.iterdir()) == [folder]


def test_what_is_removed_goes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "folder", two_files)
    monkeypatch.setattr(durable.shutil, "rmtree", lambda path, **options: None)  # as if the process died here
    remove_folder(tmp_path / "folder")
    assert [leftover_of(path) for path in tmp_path.iterdir()] == ["folder"]


def test_leftovers_are_known_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "unlink", lambda path, **options: None)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "config.yaml", half)
    assert [leftover_of(path) for path in tmp_path.iterdir()] == ["config.yaml"]
    assert [leftover_of(Path(name)) for name in ("config.yaml", ".bashrc", ".config.yaml", "a.0123abcd")] == [None] * 4


def test_a_folder_that_another_process_writes_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when ours has moved the old one away, and then again: the last one stays, whole."""
    path = tmp_path / "folder"
    replace, others = os.replace, iter(["first", "second"])

    def with_another(source: Path, target: Path) -> None:
        replace(source, target)
        if source == path and (text := next(others, None)) is not None:
            path.mkdir()
            (path / "file").write_text(text)

    write_folder(path, lambda new: (new / "file").write_text("old"))
    monkeypatch.setattr(os, "replace", with_another)
    write_folder(path, lambda new: (new / "file").write_text("ours"))
    assert (path / "file").read_text() == "ours"
    assert list(tmp_path.iterdir()) == [path]
