"""Folders of arrays: every part comes back, damage of each part is found, and a write is all or nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from support.stored import assert_same_data, contents

from dorylax import Dataset, Graph, load
from dorylax.errors import RunError
from dorylax.graph import array_folder, cache, stored
from dorylax.graph.array_folder import FolderWriter, convert, write_arrays
from dorylax.graph.mapped import check_unchanged
from dorylax.graph.stored import open_arrays
from dorylax.graph.validate import GraphError

V, E = 12, 40
_RNG = np.random.default_rng(0)
ENDS = _RNG.integers(0, V, (2, E))
PARTS: dict[str, dict[str, object]] = {
    "least": {"labels": None},
    "classes": {"class_names": ["größer", "b", "c"], "num_classes": 3},
    "numbered classes": {"class_names": [7, 8, 9], "num_classes": 3},
    "names of vertices": {"original_ids": [f"v{k}" for k in range(V)]},
    "numbers of vertices": {"original_ids": np.arange(V) * 10**12},
    "several labels": {"labels": _RNG.integers(0, 2, (V, 4)), "multilabel": True},
    "targets": {"labels": _RNG.random((V, 2)), "num_classes": None},
    "masks": {"train_mask": [0, 1], "val_mask": [2], "test_mask": []},
    "further inputs": {
        "vertex_inputs": {"pos": _RNG.random((V, 2, 3)), "größe": np.arange(V), "flag": np.ones(V, bool)},
        "edge_inputs": {"w": _RNG.random(E), "vec": _RNG.integers(0, 9, (E, 2))},
    },
}


def data_of(part: str) -> Dataset:
    given: dict[str, object] = {"labels": np.arange(V) % 3, **PARTS[part]}
    return Dataset("my data", Graph.from_coo(*ENDS, V), _RNG.random((V, 5), np.float32), **given)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose arrays are memory-mapped, and whose verification is remembered."""
    monkeypatch.setattr(stored, "_LARGE", 64)
    monkeypatch.setattr(stored, "PIECE", 4096)
    monkeypatch.setattr(array_folder, "PIECE", 1000)
    monkeypatch.setattr(cache, "_RESOLUTION", -1e9)
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "data"

    def fill(writer: FolderWriter) -> None:
        writer.add("x", np.arange(2000))
        writer.add("y", np.arange(3000, dtype=np.float32).reshape(1000, 3))
        writer.add("tiny", np.arange(3, dtype=np.int8))
        writer.add("name", np.array("mine"))

    write_arrays(path, fill)
    return path


def flip(path: Path, position: int, bit: int = 1) -> None:
    """Change a bit in place, under the old times."""
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ bit]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("reordered", [False, True])
def test_every_part_of_a_data_set_comes_back(tmp_path: Path, part: str, reordered: bool) -> None:
    data = data_of(part)
    (data.reorder(_RNG.permutation(V)) if reordered else data).save(tmp_path / "d")
    assert_same_data(Dataset.from_folder(tmp_path / "d"), data)
    listed = json.loads((tmp_path / "d/manifest.json").read_text())["arrays"]
    assert len(list((tmp_path / "d").iterdir())) == len(listed) + 1, "every array has a file, and nothing else"


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 4), np.int32),
        np.zeros((3, 0)),
        np.arange(3, dtype=">f8"),
        np.array([b"ab", b"c"]),
        np.array([True]),
        np.arange(12).reshape(3, 4).T[::2],
    ],
    ids=["no rows", "no columns", "swapped", "bytes", "bool", "view"],
)
def test_an_array_comes_back_from_numpy_too(tmp_path: Path, array: np.ndarray) -> None:
    write_arrays(tmp_path / "d", lambda writer: writer.add("a b", array))
    for found in (contents(tmp_path / "d")["a b"], np.load(tmp_path / "d" / "a%20b.npy")):
        np.testing.assert_array_equal(found, array)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)


def test_large_arrays_are_mapped_where_xla_reads_them_in_place(folder: Path) -> None:
    with open_arrays(folder) as found:
        arrays = {name: found.fetch(name) for name in ("x", "y", "tiny")}
        assert [found.maps(name) for name in ("x", "y", "tiny", "name", "z")] == [True, True, False, False, False]
    assert [isinstance(array, np.memmap) for array in arrays.values()] == [True, True, False]
    assert all(array.ctypes.data % 64 == 0 for array in arrays.values())
    assert not arrays["x"].flags.writeable
    np.testing.assert_array_equal(jax.device_put(arrays["y"]), np.arange(3000).reshape(1000, 3))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x", np.arange(3), "there are two arrays x"),
        ("o", np.array([{}]), "array o holds Python objects"),
        ("a\nb", np.arange(3), "has a control character"),
        ("a" * 300, np.arange(3), "is too long for a file"),
    ],
)
def test_arrays_that_are_refused(tmp_path: Path, name: str, array: np.ndarray, message: str) -> None:
    def fill(writer: FolderWriter) -> None:
        writer.add("x", np.arange(3))
        writer.add(name, array)

    with pytest.raises(GraphError, match=message):
        write_arrays(tmp_path / "d", fill)
    assert list(tmp_path.iterdir()) == []


# Damage


@pytest.mark.parametrize("name", ["x", "y", "tiny"])
def test_every_bit_of_an_array_counts(folder: Path, name: str) -> None:
    path = folder / f"{name}.npy"
    whole = path.read_bytes()
    contents(folder)
    for position in [0, 7, 20, *range(128, len(whole), 397), len(whole) - 1]:
        path.write_bytes(whole)
        flip(path, position, 1 << position % 8)
        with pytest.raises(GraphError, match=rf"data: array {name} (is damaged|is not what|cannot be read)"):
            contents(folder)
    flip(path, len(whole) - 1, 1 << (len(whole) - 1) % 8)
    contents(folder)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: data[:50], bytes])
@pytest.mark.parametrize("name", ["x", "tiny"])
def test_truncated_and_extended_arrays(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    path = folder / f"{name}.npy"
    path.write_bytes(b"" if change is bytes else change(path.read_bytes()))
    for verify in (True, False):
        with (
            pytest.raises(GraphError, match=rf"data: array {name} (has [0-9,]+ bytes, expected|cannot be read)"),
            open_arrays(folder, verify=verify) as found,
        ):
            found.fetch(name)


def test_missing_and_replaced_arrays(folder: Path) -> None:
    (folder / "x.npy").rename(folder / "kept")
    with pytest.raises(GraphError, match=r"data: array x is missing: there is no x\.npy: restore it"):
        contents(folder)
    for array, message in (
        (np.arange(2000.0), "is not what manifest.json lists, <i8"),
        (np.arange(2000)[::-1], "damaged"),
    ):
        np.save(folder / "x.npy", array)
        with pytest.raises(GraphError, match=f"array x .*{message}"):
            contents(folder)
    np.save(folder / "x.npy", np.asfortranarray(np.arange(2000)))
    contents(folder)  # the same bytes


@pytest.mark.parametrize("position", range(0, 880, 13))
def test_damage_of_the_manifest_is_found(folder: Path, position: int) -> None:
    path = folder / "manifest.json"
    position = min(position, path.stat().st_size - 3)
    text = path.read_bytes()
    flip(path, position, 2)
    if text[position : position + 1] not in b" \n":  # blanks between fields do not count
        with pytest.raises(GraphError, match=r"manifest\.json"):
            contents(folder)
    path.write_bytes(text[:position])
    with pytest.raises(GraphError, match=r"manifest\.json is damaged"):
        contents(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is damaged"),
        ("{}", "is damaged"),
        ('{"format": "other", "version": 1}', "is not the manifest of a folder of arrays: its format must"),
        ('{"format": "dorylax-arrays", "version": 2}', "has version 2, and this dorylax reads version 1"),
        ("[" * 10**5, "is damaged"),
        ('{"format": "dorylax-arrays", "version": 1, "arrays": {"x": {"shape": [-1]}}, "sha256": ""}', "is damaged"),
    ],
)
def test_other_manifests(folder: Path, content: str, message: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(GraphError, match=rf"manifest\.json {message}"):
        contents(folder)


def test_a_folder_without_a_manifest_is_no_data_set(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(GraphError, match=r"data is a folder without manifest\.json: give one that dorylax wrote"):
        contents(folder)
    with pytest.raises(FileNotFoundError, match="nothing"):
        contents(folder / "nothing")


def test_without_verification_damage_is_taken(folder: Path, tmp_path: Path) -> None:
    flip(folder / "x.npy", 999)
    flip(folder / "tiny.npy", 129)
    with open_arrays(folder, verify=False) as found:
        found.fetch("x")
        found.fetch("tiny")
    assert not (tmp_path / "cache").exists()


def test_a_mapped_array_is_verified_once_per_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    is_right = stored.Place.is_right
    monkeypatch.setattr(stored.Place, "is_right", lambda place: reads.append("") or is_right(place))
    for _ in range(3):
        contents(folder)
    assert len(reads) == 2  # x and y
    os.utime(folder / "x.npy")
    contents(folder)
    assert len(reads) == 3, "another time"
    shutil.copytree(folder, folder.with_name("copy"))
    contents(folder.with_name("copy"))
    assert len(reads) == 5, "other files of the same content and times"
    time.sleep(0.02)  # more than a tick of the kernel's clock
    flip(folder / "x.npy", 500)
    with pytest.raises(
        GraphError, match=r"array x is damaged: the content of x\.npy is not what was written.*--no-verify"
    ):
        contents(folder)
    monkeypatch.setattr(cache, "_RESOLUTION", 3.0)
    flip(folder / "x.npy", 500)
    reads.clear()
    for _ in range(2):
        contents(folder)
    assert len(reads) == 2, "a file as new as its verification is verified again"


# Changes while a folder is used


def test_arrays_that_change_while_they_are_used_are_noticed(folder: Path) -> None:
    with open_arrays(folder) as found:
        array = found.fetch("x")
        found.check_unchanged()
        check_unchanged(array)
        time.sleep(0.02)
        flip(folder / "x.npy", 500)
        with pytest.raises(RunError, match=r"x\.npy has changed since it was loaded"):
            check_unchanged(array)
        with pytest.raises(RunError, match=r"x\.npy has changed since it was loaded"):
            found.check_unchanged()


def test_a_folder_that_is_replaced_while_it_is_used_is_noticed(folder: Path) -> None:
    with open_arrays(folder) as found:
        array = found.fetch("y")
        write_arrays(folder, lambda writer: writer.add("y", np.zeros((1000, 3), np.float32)))
        with pytest.raises(RunError, match="another file has its name now"):
            check_unchanged(array)
        with pytest.raises(RunError, match="another file has its name now"):
            found.check_unchanged()
    assert array[-1, -1] == 2999, "the old arrays stay as long as they are mapped"


# Writing


def test_a_failed_write_leaves_the_old_folder_and_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(folder)

    def interrupted(writer: FolderWriter) -> None:
        writer.add("x", np.arange(5))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_arrays(folder, interrupted)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dorylax.store.durable._sync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_arrays(folder, lambda writer: writer.add("x", np.arange(5)))
    assert str(caught.value.filename).startswith(str(folder))
    assert [path.name for path in folder.parent.iterdir() if path.name != "cache"] == ["data"]
    assert contents(folder).keys() == before.keys()


def test_the_manifest_is_written_last(tmp_path: Path) -> None:
    """What a killed process leaves loads nowhere."""

    def look(writer: FolderWriter) -> None:
        writer.add("x", np.arange(5))
        assert not (writer.folder / "manifest.json").exists()
        (left,) = tmp_path.iterdir()
        assert left.name.startswith(".d.dorylax-")

    write_arrays(tmp_path / "d", look)
    assert (tmp_path / "d/manifest.json").exists()


def test_only_folders_that_dorylax_wrote_are_replaced(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path) -> None:
        write_arrays(path, lambda writer: writer.add("x", np.arange(5)))

    write(folder)
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    (tmp_path / "link").symlink_to(folder)
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x.npy").write_text("mine")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    np.save(folder / "z.npy", np.arange(3))
    monkeypatch.chdir(tmp_path / "empty")
    for path, message in [
        (tmp_path / "file", "is a file"),
        (tmp_path / "mine", r"holds x\.npy, which dorylax did not write"),
        (folder, r"holds z\.npy, which dorylax did not write"),
        (tmp_path / "empty", "is the current folder"),
        (tmp_path / "broken", "broken symbolic link"),
        (tmp_path / "a.npz", "data sets are folders: give .*/a$"),
    ]:
        with pytest.raises(GraphError, match=message):
            write(path)
    assert (tmp_path / "mine/x.npy").read_text() == "mine"
    assert (folder / "z.npy").exists()


def test_a_folder_that_the_user_fills_meanwhile_is_kept(tmp_path: Path) -> None:
    def fill(writer: FolderWriter) -> None:
        writer.add("x", np.arange(5))
        (tmp_path / "d").mkdir()
        (tmp_path / "d/notes").write_text("mine")

    with pytest.raises(GraphError, match="holds notes, which dorylax did not write"):
        write_arrays(tmp_path / "d", fill)
    assert (tmp_path / "d/notes").read_text() == "mine"


# Old archives


@pytest.mark.parametrize("pack", [np.savez, np.savez_compressed])
def test_old_archives_are_converted(tmp_path: Path, pack: Callable[..., None], folder: Path) -> None:
    data_of("further inputs").save(tmp_path / "d")
    arrays = contents(tmp_path / "d")
    pack(tmp_path / "old.npz", class_names=np.array([b"a", b"b", b"c"]), **arrays)
    convert(tmp_path / "old.npz", tmp_path / "new")
    one, other = Dataset.from_folder(tmp_path / "old.npz"), Dataset.from_folder(tmp_path / "new")
    assert_same_data(one, other)
    assert one.class_names is not None
    assert one.class_names.tolist() == ["a", "b", "c"]
    assert contents(tmp_path / "new").keys() == contents(tmp_path / "old.npz").keys()
    made = json.loads((tmp_path / "new/manifest.json").read_text())["provenance"]
    assert (made["command"], made["sources"]) == ("dorylax convert", [str(tmp_path / "old.npz")])
    with pytest.raises(GraphError, match="has no array indptr"):
        convert(folder, tmp_path / "other")


def test_load_takes_folders(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data_of("masks").save("mine")
    for name in ("mine", "./mine", tmp_path / "mine"):
        assert load(name).name == "my data"
    with pytest.raises(ValueError, match=r"there is no folder \./other"):
        load("./other")
    data_of("masks").save("cora")
    with pytest.raises(ValueError, match=r"'cora' is the name of a data set and of a folder here: give \./cora"):
        load("cora")
    assert load("./cora").name == "my data"
