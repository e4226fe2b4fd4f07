"""What is written is there whole, or the old is: with a fault at every step."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NoReturn

import pytest

from dorylax.store import durable
from dorylax.store.durable import (
    arriving_file,
    make_folder,
    remove_file,
    remove_folder,
    sync_file,
    temporary_target,
    write_file,
    write_folder,
    write_json,
)


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


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced and renamed from now on."""
    found: list[str] = []
    for module, name in ((os, "fsync"), (os, "replace"), (durable, "_exchange")):
        call = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, n=name, c=call: (found.append(n), c(*args))[1])
    return found


@pytest.fixture
def no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system cannot exchange two names."""
    monkeypatch.setattr(durable, "_exchange", lambda one, other: False)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is put on disk from now on."""
    found: list[Path] = []
    sync = durable._sync
    monkeypatch.setattr(durable, "_sync", lambda path: (found.append(path), sync(path))[1])
    return found


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


def test_everything_is_on_disk_before_it_is_renamed(tmp_path: Path, done: list[str]) -> None:
    write_file(tmp_path / "file", "content")
    assert done == ["fsync", "replace", "fsync"]
    del done[:]
    write_folder(tmp_path / "folder", two_files)
    assert done == ["fsync"] * 4 + ["replace", "fsync"]  # two files, two folders
    del done[:]
    write_folder(tmp_path / "folder", two_files)
    assert done[:5] == ["fsync"] * 4 + ["_exchange"]
    assert done[5:] in (["fsync"], ["replace", "replace", "fsync"])  # where it can, and where it cannot


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


def test_an_error_that_is_only_a_text_is_told_of_the_file(tmp_path: Path) -> None:
    def short(file: BinaryIO) -> None:
        raise OSError("100 requested and 36 written")

    with pytest.raises(OSError, match="100 requested and 36 written") as caught:
        write_file(tmp_path / "file", short)
    assert (caught.value.strerror, caught.value.filename) == ("100 requested and 36 written", str(tmp_path / "file"))
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


@pytest.mark.usefixtures("no_exchange")
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


def test_there_is_no_moment_without_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, replace, seen = tmp_path / "folder", os.replace, []
    write_folder(folder, lambda new: (new / "a").write_text("old"))
    if not durable._exchange(*_two_folders(tmp_path)):
        pytest.skip("this file system cannot exchange two names")

    def watched(
        source: Path, target: Path
    ) -> None:  # a process that is killed after a rename leaves what is then there
        replace(source, target)
        seen.append(folder.exists())

    monkeypatch.setattr(durable.os, "replace", watched)
    write_folder(folder, two_files)
    assert all(seen)
    assert _content(folder) == {"a": "new", "deep/b": "new"}


def _two_folders(folder: Path) -> tuple[Path, Path]:
    one, other = folder / "one", folder / "other"
    for path in (one, other):
        path.mkdir()
        (path / "name").write_text(path.name)
    return one, other


def test_two_names_are_exchanged_or_nothing_is_changed(tmp_path: Path) -> None:
    one, other = _two_folders(tmp_path)
    exchanged = durable._exchange(one, other)
    assert [(path / "name").read_text() for path in (one, other)] == (
        ["other", "one"] if exchanged else ["one", "other"]
    )
    assert not durable._exchange(one, tmp_path / "none")  # another process has just moved it
    with pytest.raises(NotADirectoryError) as caught:
        durable._exchange(one, other / "name" / "below")
    assert caught.value.filename == str(other / "name" / "below")


def test_a_failed_exchange_leaves_the_old_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    write_folder(folder, lambda new: (new / "a").write_text("old"))
    monkeypatch.setattr(durable, "_exchange", refuse)
    with pytest.raises(OSError, match="No space left") as caught:
        write_folder(folder, two_files)
    assert caught.value.filename == str(folder)
    assert _content(folder) == {"a": "old"}
    assert list(tmp_path.iterdir()) == [folder]


def test_a_link_to_a_folder_is_replaced(tmp_path: Path) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "link"
    write_folder(elsewhere, lambda new: (new / "a").write_text("old"))
    link.symlink_to(elsewhere)
    write_folder(link, two_files)
    assert _content(link) == {"a": "new", "deep/b": "new"}
    assert _content(elsewhere) == {"a": "old"}
    assert sorted(tmp_path.iterdir()) == [elsewhere, link]


def test_a_removed_folder_goes_at_once_and_stays_removed(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "folder", two_files)
    del synced[:]
    remove_folder(tmp_path / "folder")
    assert (synced, list(tmp_path.iterdir())) == ([tmp_path], [])
    write_folder(tmp_path / "folder", two_files)
    monkeypatch.setattr(durable.shutil, "rmtree", lambda path, **options: None)  # as if the process died here
    remove_folder(tmp_path / "folder")
    assert [temporary_target(path.name) for path in tmp_path.iterdir()] == ["folder"]


def test_leftovers_are_known_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "unlink", lambda path, **options: None)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "config.yaml", half)
    assert [temporary_target(path.name) for path in tmp_path.iterdir()] == ["config.yaml"]
    others = (
        "config.yaml",
        ".bashrc",
        "a.dorylax-0123abcd",
        ".config.yaml.20261127",
        ".config.yaml.deadbeef",
    )  # backups
    assert [temporary_target(name) for name in others] == [None] * 5


def test_a_new_folder_is_on_disk_with_those_above_it(tmp_path: Path, synced: list[Path]) -> None:
    make_folder(tmp_path / "a" / "b" / "c")
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    del synced[:]
    make_folder(tmp_path / "a" / "b" / "c")  # it may be another process's, which was killed before it came to this
    assert synced == [tmp_path / "a" / "b"]


def test_a_folder_is_made_where_one_may_not_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(durable.os, "open", forbidden)
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").is_dir()


@pytest.mark.parametrize("call", ["open", "fsync"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EINVAL])
def test_where_the_system_syncs_no_folder_files_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """As where one may write and not look, or on squashfs."""
    files: list[Path | int] = []
    real = getattr(os, call)

    def not_folders(what: Path | int, *args: int) -> object:
        if os.path.isdir(what):
            raise OSError(number, os.strerror(number))
        files.append(what)
        return real(what, *args)

    monkeypatch.setattr(durable.os, call, not_folders)
    make_folder(tmp_path / "a")
    write_file(tmp_path / "a" / "b", "new")
    write_folder(tmp_path / "c", two_files)
    remove_file(tmp_path / "a" / "b")
    assert not list((tmp_path / "a").iterdir())
    assert len(list((tmp_path / "c").iterdir())) == 2
    assert files
    monkeypatch.setattr(durable.os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left on device"):
        sync_file(tmp_path / "c" / "a")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError) as caught:
        make_folder(tmp_path / "file")
    assert caught.value.filename == str(tmp_path / "file")
    with pytest.raises(NotADirectoryError) as caught_below:
        make_folder(tmp_path / "file" / "a" / "b")
    assert caught_below.value.filename == str(tmp_path / "file" / "a" / "b")


def test_a_removed_file_stays_removed(tmp_path: Path, synced: list[Path]) -> None:
    (tmp_path / "file").touch()
    remove_file(tmp_path / "file")
    assert synced == [tmp_path]
    remove_file(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_what_was_appended_is_put_on_disk(tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.touch()
    sync_file(path)
    assert synced == [path, tmp_path]
    monkeypatch.setattr(durable.os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left on device") as caught:
        sync_file(path)
    assert caught.value.filename == str(path)


def test_an_error_in_a_new_folder_names_the_file_where_it_is_to_come(tmp_path: Path) -> None:
    def deep(folder: Path) -> None:
        (folder / "none" / "file").touch()

    with pytest.raises(FileNotFoundError) as caught:
        write_folder(tmp_path / "folder", deep)
    assert caught.value.filename == str(tmp_path / "folder" / "none" / "file")
    with pytest.raises(OSError, match="No space left on device") as unnamed:
        write_folder(tmp_path / "folder", lambda new: refuse())
    assert unnamed.value.filename == str(tmp_path / "folder")
    with pytest.raises(FileNotFoundError) as other:
        write_folder(tmp_path / "folder", lambda new: (tmp_path / "input").read_bytes())
    assert other.value.filename == str(tmp_path / "input")


@pytest.mark.usefixtures("no_exchange")
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


def test_a_disk_that_fails_once_leaves_nothing_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove, failures = shutil.rmtree, iter([True])
    monkeypatch.setattr(shutil, "rmtree", lambda path, **options: next(failures, False) or remove(path, **options))
    write_folder(tmp_path / "folder", lambda new: (new / "file").touch())
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_large_file_arrives_and_what_killed_processes_left_of_it_goes(tmp_path: Path) -> None:
    path, other, dead = tmp_path / "a.npz", tmp_path / ".b.npz.dorylax-01234567", tmp_path / ".a.npz.dorylax-89abcdef"
    for one in (path, other, dead):
        one.write_bytes(b"old")
    with arriving_file(path) as first, arriving_file(path) as second:
        # A process that begins meanwhile takes neither of them for a leftover.
        assert not dead.exists()
        assert len(list(tmp_path.iterdir())) == 4
        first.write(b"first")
        second.write(b"second")
        second.close()
        with arriving_file(path) as third:
            third.write(b"third")
        assert path.read_bytes() == b"third"
    assert path.read_bytes() == b"first"
    assert {one.name for one in tmp_path.iterdir()} == {"a.npz", other.name}


def test_every_write_removes_what_killed_processes_left_of_its_target(tmp_path: Path) -> None:
    def leave() -> None:
        (tmp_path / ".a.dorylax-01234567").write_text("file")
        (tmp_path / ".a.dorylax-89abcdef" / "new").mkdir(parents=True)

    backups = [".a.20261127", ".a.deadbeef", ".b.dorylax-01234567"]
    for name in backups:
        (tmp_path / name).write_text("mine")
    for write in (lambda: write_file(tmp_path / "a", ""), lambda: write_folder(tmp_path / "a", two_files)):
        leave()
        write()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*backups, "a"])
        (tmp_path / "a").unlink() if (tmp_path / "a").is_file() else None


def test_a_running_process_keeps_its_temporary_folder(tmp_path: Path) -> None:
    def fill(new: Path) -> None:
        write_folder(tmp_path / "a", two_files)  # of another process
        (new / "c").write_text("new")

    write_folder(tmp_path / "a", fill)
    assert _content(tmp_path / "a") == {"c": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF])
def test_without_locks_age_tells_what_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def no_locks(*_: object) -> NoReturn:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(durable.fcntl, "flock", no_locks)
    for name in (".a.dorylax-01234567", ".a.dorylax-89abcdef"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "new").write_text("whole")
    old, grown = (tmp_path / name for name in (".a.dorylax-0000aaaa", ".a.dorylax-01234567"))
    old.write_text("old")
    month = 30 * 86400
    for path in (old, grown, *(path for path in tmp_path.rglob("*") if "89abcdef" in str(path))):
        os.utime(path, (path.stat().st_mtime - month,) * 2)
    write_file(tmp_path / "a", "new")
    assert {path.name for path in tmp_path.iterdir()} == {"a", grown.name}  # a file in it is new


def test_a_large_file_that_is_taken_for_a_leftover_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, stolen = durable.fcntl.flock, []

    def late(file: BinaryIO, how: int) -> None:
        if not stolen:
            stolen.extend(tmp_path.iterdir())
            stolen[0].unlink()
        lock(file, how)

    monkeypatch.setattr(durable.fcntl, "flock", late)
    with arriving_file(tmp_path / "a.npz") as file:
        file.write(b"whole")
    assert len(stolen) == 1
    assert (tmp_path / "a.npz").read_bytes() == b"whole"
