from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import resource
import shutil
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dorylax.runs import checkpoint_places, orbax_arrays
from dorylax.store import checkpoint
from dorylax.store.checkpoint import CheckpointError, CheckpointMismatchError, Checkpoints, CheckpointWarning
from dorylax.store.digest import DIGEST, sealed

ARRAYS = {
    "params": {
        "convs.0.kernel": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
        "half": np.array([1.5, -2.25], ml_dtypes.bfloat16),
        "empty": np.zeros((0, 5), np.float32),
        "a/b": np.array([np.nan, np.inf, -0.0], np.float32),
        "table": np.random.default_rng(0).standard_normal((130, 64)).astype(ml_dtypes.bfloat16).repeat(8, axis=1),
    },
    "opt_state": {"count": np.array(4, np.int32), "key": np.array([1, 2**32 - 1], np.uint32)},
    "state": {},
}
RECORD = {"history": [0.1, 1 / 3], "best": None}


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_round_trip_is_bit_identical(tmp_path):
    store = Checkpoints(tmp_path / "checkpoints")
    assert store.restore() is None
    path = store.save(7, ARRAYS, RECORD)
    read = store.restore()
    assert (read.epochs, read.path, read.record) == (7, path, RECORD)
    assert_same(read.arrays, ARRAYS)


def save_schema_1(folder: Path, epochs: int, arrays: dict[str, dict[str, np.ndarray]], record: dict) -> Path:
    """Writes a checkpoint as versions did before small arrays were packed."""
    path = folder / f"epoch-{epochs:08d}"
    path.mkdir(parents=True)
    stored = {group: {name: array for name, array in named.items() if array.size} for group, named in arrays.items()}
    orbax_arrays.write(path / "arrays", stored)
    shapes = {
        group: {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in named.items()}
        for group, named in arrays.items()
    }
    content = {"schema": 1, "epochs": epochs, "arrays": shapes, "record": record}
    (path / "record.json").write_text(json.dumps(content))
    listing = {
        file.relative_to(path).as_posix(): {
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        for file in files(path)
    }
    (path / "manifest.json").write_text(json.dumps(sealed({"schema": 1, "files": listing})))
    return path


def assert_same(found: dict[str, dict[str, np.ndarray]], arrays: dict[str, dict[str, np.ndarray]]) -> None:
    """To the bit, and to the shape and dtype."""
    assert {group: sorted(named) for group, named in found.items()} == {
        group: sorted(named) for group, named in arrays.items()
    }
    for group, named in arrays.items():
        for name, array in named.items():
            back = found[group][name]
            assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_two_stay_unless_another_number_is_asked_for(tmp_path):
    for folder, options, left in (("two", {}, [2, 3]), ("one", {"keep": 1}, [3])):
        store = Checkpoints(tmp_path / "in" / folder, **options)
        for epochs in (1, 2, 3):
            store.save(epochs, ARRAYS, {})
        assert store.epochs() == left


def test_going_back_drops_later_ones(tmp_path):
    for epochs in (5, 10):
        Checkpoints(tmp_path).save(epochs, ARRAYS, {})
    Checkpoints(tmp_path).save(7, ARRAYS, {"again": True})
    assert Checkpoints(tmp_path).epochs() == [5, 7]
    Checkpoints(tmp_path).save(7, ARRAYS, {"again": 2})
    assert Checkpoints(tmp_path).restore().record == {"again": 2}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x80\x04", "record"),
        (b"{", "record"),
        (b"[]", "record"),
        (b'{"epochs": 1, "record": {}}', "record"),
        (b'{"epochs": 1, "record": {}, "arrays": [1]}', "record"),
        (b'{"epochs": 1, "record": {}, "arrays": {"params": {"w": {"shape": 3}}}}', "record"),
        (b'{"epochs": 1, "record": {}, "arrays": {"params": {"w": {"shape": [3]}}}}', "arrays"),
        (b'{"epochs": 1, "record": {}, "arrays": {"state": {"w": {"shape": [0], "dtype": "none"}}}}', "arrays"),
    ],
)
def test_a_record_that_is_none_is_damage_even_if_its_checksum_is_right(tmp_path, content, what):
    path = Checkpoints(tmp_path).save(1, ARRAYS, RECORD)
    (path / "record.json").write_bytes(content)
    listing = json.loads((path / "manifest.json").read_text())["files"]
    listing["record.json"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    change(path / "manifest.json", files=listing)
    with (
        pytest.warns(CheckpointWarning, match=rf"is damaged and not used: its {what} cannot be read: [^\n]*\Z"),
        pytest.raises(CheckpointError, match="every checkpoint in"),
    ):
        Checkpoints(tmp_path).restore()


def test_any_damage_to_any_file_is_found(tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, ARRAYS, {"which": 1})
    store.save(2, ARRAYS, {"which": 2})
    for path in files(store.path(2)):
        content = path.read_bytes()
        for harm in (flip, cut, Path.unlink):
            if path.name == "manifest.json" and harm is cut:  # its last byte is a newline
                path.write_bytes(content[: len(content) // 2])
            else:
                harm(path)
            with pytest.warns(CheckpointWarning, match="epoch-00000002 is damaged and not used") as seen:
                assert Checkpoints(tmp_path).restore().record == {"which": 1}
            assert len(seen) == 1
            if harm is cut and path.name != "manifest.json":
                assert f"has {len(content) - 1} bytes, {len(content)} were written" in str(seen[0].message)
            path.write_bytes(content)
    assert Checkpoints(tmp_path).restore().record == {"which": 2}


def test_damaged_ones_do_not_count_as_kept(tmp_path):
    for epochs in (1, 2):
        Checkpoints(tmp_path).save(epochs, ARRAYS, {})
    flip(tmp_path / "epoch-00000002" / "record.json")
    store = Checkpoints(tmp_path)
    with pytest.warns(CheckpointWarning):
        store.restore()
    store.save(3, ARRAYS, {})
    assert store.epochs() == [1, 3]


def test_one_that_is_written_again_is_whole_again(tmp_path):
    store = Checkpoints(tmp_path)
    for epochs in (1, 2):
        store.save(epochs, ARRAYS, {})
    flip(store.path(2) / "record.json")
    with pytest.warns(CheckpointWarning):
        store.restore()
    store.save(2, ARRAYS, {})
    store.save(3, ARRAYS, {})
    assert store.epochs() == [2, 3]


def test_any_flipped_bit_of_a_manifest_leads_to_the_one_before_or_changes_nothing(tmp_path):
    store = Checkpoints(tmp_path)
    for which in (1, 2):
        store.save(which, {"params": {"w": np.arange(3.0)}}, {"which": which})
    path = store.path(2) / "manifest.json"
    content = path.read_bytes()
    damaged_ones, bits = 0, range(0, 8 * len(content), 9)  # prime to 8: each of a byte's bits
    for bit in bits:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            checkpoint._verify(store.path(2), store.path(2), parts=True)
        except checkpoint._DamagedError:  # and no mismatch, which would refuse the run
            damaged_ones += 1
    assert damaged_ones > 0.9 * len(bits)
    path.write_bytes(content.replace(b'"schema": 2', b'"schema": 4'))
    with pytest.warns(CheckpointWarning, match="does not have the digest that was written with it"):
        assert Checkpoints(tmp_path).restore().record == {"which": 1}


def change(path: Path, *, seal: bool = True, **values: object) -> None:
    content = {key: value for key, value in json.loads(path.read_text()).items() if key != DIGEST} | values
    path.write_text(json.dumps(sealed(content) if seal else content))


def test_a_folder_that_was_renamed_is_damage(tmp_path):
    store = Checkpoints(tmp_path)
    for which in (1, 2):
        store.save(which, ARRAYS, {"which": which})
    store.path(2).rename(store.path(3))
    with pytest.warns(CheckpointWarning, match="it is of 2 epochs, not of 3: its folder was renamed"):
        assert Checkpoints(tmp_path).restore().record == {"which": 1}


def test_one_of_the_schema_before_is_read_and_followed_by_those_of_now(tmp_path):
    store = Checkpoints(tmp_path)
    save_schema_1(tmp_path, 1, ARRAYS, RECORD)
    read = store.restore()
    assert (read.epochs, read.record) == (1, RECORD)
    assert_same(read.arrays, ARRAYS)
    flip(store.save(2, read.arrays, {}) / "record.json")
    with pytest.warns(CheckpointWarning):
        assert_same(store.restore().arrays, ARRAYS)


def test_one_of_before_there_were_digests_is_read(tmp_path):
    change(save_schema_1(tmp_path, 1, ARRAYS, {"which": 1}) / "manifest.json", seal=False)
    assert Checkpoints(tmp_path).restore().record == {"which": 1}


@pytest.mark.parametrize("schema", [2, 3])
def test_without_a_digest_a_schema_of_after_there_were_digests_is_damage(tmp_path, schema):
    store = Checkpoints(tmp_path)
    store.save(1, ARRAYS, {"which": 1})
    change(store.save(2, ARRAYS, {"which": 2}) / "manifest.json", seal=False, schema=schema)
    with pytest.warns(CheckpointWarning, match=f"its schema number is {schema}, and it has no digest"):
        assert store.restore().record == {"which": 1}


def test_another_version_s_is_no_damage(tmp_path):
    store = Checkpoints(tmp_path)
    manifest = store.save(1, ARRAYS, {}) / "manifest.json"
    assert json.loads(manifest.read_text())["schema"] == 2
    change(manifest, schema=4, files=None)
    with pytest.raises(CheckpointMismatchError, match="has schema 4, this version of dorylax reads 1 to 3") as caught:
        store.restore()
    assert caught.value.user_error


def test_a_manifest_without_the_record_is_damage(tmp_path):
    store = Checkpoints(tmp_path)
    change(store.save(1, ARRAYS, {}) / "manifest.json", files={})
    with pytest.warns(CheckpointWarning, match=r"does not list record\.json"), pytest.raises(CheckpointError) as caught:
        store.restore()
    assert not caught.value.user_error


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("where", ["_sha256", "json", "orbax_arrays"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_what_this_process_cannot_read_now_is_no_damage(tmp_path, monkeypatch, where, number):
    store = Checkpoints(tmp_path)
    for epochs in (1, 2):
        store.save(epochs, ARRAYS, {"which": epochs})

    def fail(*args, **options):
        raise OSError(number, os.strerror(number), "file")

    with monkeypatch.context() as patch:
        of = {"_sha256": (checkpoint, "_sha256"), "json": (Path, "read_text"), "orbax_arrays": (orbax_arrays, "read")}
        patch.setattr(*of[where], fail)
        with pytest.raises(CheckpointError, match=f"epoch-00000002 cannot be read: .*{os.strerror(number)}: 'file'"):
            store.restore()
    store.save(3, ARRAYS, {"which": 3})
    assert store.epochs() == [2, 3]  # nothing else was dropped than what is too many


@pytest.mark.filterwarnings("error")
def test_one_that_is_dropped_while_it_is_read_is_no_damage(tmp_path, monkeypatch):
    """By a run that goes on: here between each listing and the reading of it, three times."""
    running = Checkpoints(tmp_path, keep=1)
    running.save(1, ARRAYS, {"epochs": 1})
    listed, last = Checkpoints.epochs, 1

    def epochs(store):
        nonlocal last
        found = listed(store)
        if store is reader and last < 4:
            last += 1
            running.save(last, ARRAYS, {"epochs": last})
        return found

    reader = Checkpoints(tmp_path)
    monkeypatch.setattr(Checkpoints, "epochs", epochs)
    assert reader.restore().record == {"epochs": 4}


def test_unfinished_saves_are_ignored_and_cleared(tmp_path):
    (tmp_path / ".epoch-00000009.dorylax-0123abcd" / "new" / "arrays").mkdir(parents=True)
    store = Checkpoints(tmp_path)
    assert store.restore() is None
    store.save(1, ARRAYS, {})
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000001"]


def test_unfinished_saves_are_cleared_without_a_save(tmp_path):
    Checkpoints(tmp_path / "none").clear_unfinished()
    (tmp_path / ".epoch-00000009.dorylax-0123abcd" / "new" / "arrays").mkdir(parents=True)
    (tmp_path / ".other.dorylax-0123abcd").mkdir()
    Checkpoints(tmp_path).clear_unfinished()
    assert [path.name for path in tmp_path.iterdir()] == [".other.dorylax-0123abcd"]


def test_the_folder_is_on_disk_before_a_checkpoint_is_acknowledged(tmp_path, monkeypatch):
    made = []
    make_folder = checkpoint_places.make_folder
    monkeypatch.setattr(checkpoint_places, "make_folder", lambda path: (made.append(path), make_folder(path)))
    Checkpoints(tmp_path / "run" / "checkpoints").save(1, ARRAYS, {})
    assert made == [tmp_path / "run" / "checkpoints"]


def test_what_could_not_be_removed_at_once_is_removed_after_all(tmp_path, monkeypatch):
    store, rmtree, refused = Checkpoints(tmp_path, keep=1), shutil.rmtree, []

    def once(path, **options):
        if Path(path).name.startswith(".epoch-00000001") and not refused:
            refused.append(path)
        else:
            rmtree(path, **options)

    monkeypatch.setattr(shutil, "rmtree", once)
    store.save(1, ARRAYS, {})
    refused.clear()
    store.save(2, ARRAYS, {})
    assert refused
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000002"]


def test_a_leftover_that_cannot_be_removed_stops_nobody(tmp_path):
    leftover = tmp_path / ".epoch-00000009.dorylax-0123abcd"
    leftover.write_text("no folder")
    Checkpoints(tmp_path).save(1, ARRAYS, {})
    assert Checkpoints(tmp_path).epochs() == [1]


def test_real_write_failure_keeps_the_one_before(tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, ARRAYS, {"which": 1})
    noise = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # a write past this fails as on a full disk
    try:
        with pytest.raises(CheckpointError) as caught:
            store.save(2, {"params": {"noise": noise}}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(caught.value) == (
        f"the checkpoint after 2 epochs could not be written to {tmp_path}: [Errno 27] File too large: "
        f"'{store.path(2) / 'arrays'}'. The one before is untouched: {store.path(1)}"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000001"]
    assert store.restore().record == {"which": 1}


@pytest.mark.filterwarnings("error")
def test_a_folder_that_cannot_be_listed_now_hides_no_failure_and_makes_none(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "file")

    store = Checkpoints(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", fail)
        store.save(1, ARRAYS, {"which": 1})
        patch.setattr(checkpoint, "_sha256", fail)
        message = rf"the checkpoint after 2 epochs could not be written to {tmp_path}: .*Too many open files: '\S+'\Z"
        with pytest.raises(CheckpointError, match=message):
            store.save(2, ARRAYS, {"which": 2})
    assert store.restore().record == {"which": 1}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("RESOURCE_EXHAUSTED")])
def test_failure_anywhere_keeps_the_one_before(tmp_path, monkeypatch, error):
    store = Checkpoints(tmp_path)
    store.save(1, ARRAYS, {"which": 1})

    def fail(*args):
        raise error

    monkeypatch.setattr(checkpoint, "_sha256", fail)
    with pytest.raises(CheckpointError, match="could not be written"):
        store.save(1, ARRAYS, {"which": 2})
    monkeypatch.undo()
    assert store.restore().record == {"which": 1}


def test_many_small_arrays_leave_no_more_memory_allocated_than_one(tmp_path):
    """TensorStore keeps four objects for each array that it is given, until the process ends."""
    store, saves = Checkpoints(tmp_path), 5
    arrays = {"pipeline": {f"server {number}/rows": np.full((3, number + 1), number) for number in range(400)}}
    for epochs in range(1, 4):
        store.save(epochs, arrays, {})
    gc.collect()
    before = sys.getallocatedblocks()
    for epochs in range(4, 4 + saves):
        store.save(epochs, arrays, {})
    gc.collect()
    assert (sys.getallocatedblocks() - before) / saves < 400


def test_no_group_may_have_the_name_of_the_packed_arrays(tmp_path):
    with pytest.raises(CheckpointError, match="no group of arrays may be called 'packed'"):
        Checkpoints(tmp_path).save(1, {"packed": {}}, {})


def test_no_thread_is_left_behind(tmp_path):
    before = threading.enumerate()
    store = Checkpoints(tmp_path)
    store.save(1, ARRAYS, {})
    store.restore()
    assert threading.enumerate() == before


def test_keep_is_checked(tmp_path):
    with pytest.raises(ValueError, match="keep must be ≥ 1, got 0"):
        Checkpoints(tmp_path, keep=0)
