from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from dorylax.errors import InputError, RunError, RunWarning
from dorylax.store import checkpoint, places
from dorylax.store.arrays import write_part
from dorylax.store.checkpoint import Checkpoints
from dorylax.store.digest import DIGEST, sealed
from dorylax.store.places import S3Storage

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


def save_with_orbax(folder: Path, epochs: int, arrays: dict[str, dict[str, np.ndarray]], record: dict) -> Path:
    """Writes a checkpoint as the first version did."""
    path = folder / f"epoch-{epochs:08d}"
    path.mkdir(parents=True)
    stored = {group: {name: array for name, array in named.items() if array.size} for group, named in arrays.items()}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(path / "arrays", args=ocp.args.PyTreeSave(stored))
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


def array_file(folder: Path) -> Path:
    (found,) = folder.glob("arrays-*.bin")
    return found


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    "change_to",
    [
        {"arrays": [1]},
        {"arrays": {"params": {"w": {"shape": 3}}}},
        {"arrays": {"params": {"w": {"shape": [3]}}}},
        {"arrays": {"state": {"w": {"shape": [0], "dtype": "none", "offset": 0}}}},
        {"arrays": {"state": {"w": {"shape": [2**40], "dtype": "int8", "offset": 0}}}},
        {"arrays": {"state": {"w": {"shape": [1], "dtype": "object", "offset": 0}}}},
        {"own": "no-such-file"},
        {"files": {}},
        {"files": {"../epoch-00000002/manifest.json": {"bytes": 1, "sha256": ""}}},
        {"parts": {"server 0": {"file": "none"}}},
        {"epochs": 2},
    ],
)
def test_a_manifest_of_other_content_is_damage_even_if_its_digest_is_right(tmp_path, change_to):
    path = Checkpoints(tmp_path).save(1, ARRAYS, RECORD)
    change(path / "manifest.json", **change_to)
    with (
        pytest.warns(RunWarning, match=r"epoch-00000001 is damaged and not used: [^\n]*\Z"),
        pytest.raises(RunError, match="every checkpoint in"),
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
            if harm is Path.unlink and path.name == "manifest.json":  # then it is unfinished
                assert Checkpoints(tmp_path).restore().record == {"which": 1}
                path.write_bytes(content)
                continue
            with pytest.warns(RunWarning, match="epoch-00000002 is damaged and not used") as seen:
                assert Checkpoints(tmp_path).restore().record == {"which": 1}
            assert len(seen) == 1
            if harm is cut and path.name != "manifest.json":
                assert f"has {len(content) - 1:,} bytes, expected {len(content):,}" in str(seen[0].message)
            path.write_bytes(content)
    assert Checkpoints(tmp_path).restore().record == {"which": 2}


def test_damaged_ones_do_not_count_as_kept(tmp_path):
    for epochs in (1, 2):
        Checkpoints(tmp_path).save(epochs, ARRAYS, {})
    flip(array_file(tmp_path / "epoch-00000002"))
    store = Checkpoints(tmp_path)
    with pytest.warns(RunWarning):
        store.restore()
    store.save(3, ARRAYS, {})
    assert store.epochs() == [1, 3]


def test_one_that_is_written_again_is_whole_again(tmp_path):
    store = Checkpoints(tmp_path)
    for epochs in (1, 2):
        store.save(epochs, ARRAYS, {})
    flip(array_file(store.path(2)))
    with pytest.warns(RunWarning):
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
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = Checkpoints(tmp_path).restore()  # and no mismatch, which would refuse the run
        damaged_ones += len(seen)
        assert found.record == {"which": 1 if seen else 2}
        assert found.arrays["params"]["w"].tolist() == [0, 1, 2]
    assert damaged_ones > 0.9 * len(bits)
    path.write_bytes(content.replace(b'"schema": 4', b'"schema": 5'))
    with pytest.warns(RunWarning, match="does not have the digest that was written with it"):
        assert Checkpoints(tmp_path).restore().record == {"which": 1}


def change(path: Path, *, seal: bool = True, **values: object) -> None:
    content = {key: value for key, value in json.loads(path.read_text()).items() if key != DIGEST} | values
    path.write_text(json.dumps(sealed(content) if seal else content))


def test_a_folder_that_was_renamed_is_damage(tmp_path):
    store = Checkpoints(tmp_path)
    for which in (1, 2):
        store.save(which, ARRAYS, {"which": which})
    store.path(2).rename(store.path(3))
    with pytest.warns(RunWarning, match="it is of 2 epochs, not of 3: its folder was renamed"):
        assert Checkpoints(tmp_path).restore().record == {"which": 1}


def test_one_of_the_schema_before_is_read_and_followed_by_those_of_now(tmp_path):
    store = Checkpoints(tmp_path)
    save_with_orbax(tmp_path, 1, ARRAYS, RECORD)
    read = store.restore()
    assert (read.epochs, read.record) == (1, RECORD)
    assert_same(read.arrays, ARRAYS)
    flip(array_file(store.save(2, read.arrays, {})))
    with pytest.warns(RunWarning):
        assert_same(store.restore().arrays, ARRAYS)


def test_one_of_before_there_were_digests_is_read(tmp_path):
    change(save_with_orbax(tmp_path, 1, ARRAYS, {"which": 1}) / "manifest.json", seal=False)
    assert Checkpoints(tmp_path).restore().record == {"which": 1}


@pytest.mark.parametrize("schema", [2, 3, 4])
def test_without_a_digest_a_schema_of_after_there_were_digests_is_damage(tmp_path, schema):
    store = Checkpoints(tmp_path)
    store.save(1, ARRAYS, {"which": 1})
    change(store.save(2, ARRAYS, {"which": 2}) / "manifest.json", seal=False, schema=schema)
    with pytest.warns(RunWarning, match=f"its schema number is {schema}, and it has no digest"):
        assert store.restore().record == {"which": 1}


def test_another_version_s_is_no_damage(tmp_path):
    store = Checkpoints(tmp_path)
    manifest = store.save(1, ARRAYS, {}) / "manifest.json"
    assert json.loads(manifest.read_text())["schema"] == 4
    change(manifest, schema=5, files=None)
    with pytest.raises(InputError, match="has schema 5, this version of dorylax reads 1 to 4"):
        store.restore()


def test_without_orbax_an_old_one_says_what_to_install(tmp_path, monkeypatch):
    save_with_orbax(tmp_path, 1, ARRAYS, RECORD)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(RunError, match=r'older version: pip install "dorylax\[old-checkpoints\]"'):
        Checkpoints(tmp_path).restore()


def test_orbax_is_not_loaded(tmp_path):
    code = (
        "import sys, pathlib; from dorylax.store.checkpoint import Checkpoints as C; c = C(pathlib.Path(sys.argv[1]));"
        "c.save(1, {'params': {'w': [1.0]}}, {}); c.restore(); print({'orbax', 'boto3', 'jax'} & sys.modules.keys())"
    )
    answer = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("where", ["manifest", "digest", "arrays"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_what_this_process_cannot_read_now_is_no_damage(tmp_path, monkeypatch, where, number):
    store = Checkpoints(tmp_path)
    for epochs in (1, 2):
        store.save(epochs, ARRAYS, {"which": epochs})

    def fail(*args, **options):
        raise OSError(number, os.strerror(number), "file")

    with monkeypatch.context() as patch:
        of = {"manifest": (Path, "read_bytes"), "digest": (hashlib, "file_digest"), "arrays": (np, "fromfile")}
        patch.setattr(*of[where], fail)
        with pytest.raises(RunError, match=f"epoch-00000002 cannot be read: .*{os.strerror(number)}: '"):
            store.restore()
    store.save(3, ARRAYS, {"which": 3})
    assert store.epochs() == [2, 3]  # nothing else was dropped than what is too many


@pytest.mark.filterwarnings("error")
def test_a_disk_without_room_for_a_copy_is_no_damage_of_one_in_s3(bucket, monkeypatch):
    store = Checkpoints(f"s3://{bucket}/checkpoints")
    store.save(1, ARRAYS, RECORD)

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "copy")

    with monkeypatch.context() as patch:
        patch.setattr(S3Storage, "copy_to", fail)
        with pytest.raises(RunError, match=r"epoch-00000001 cannot be read: .*No space left on device"):
            store.restore()
    assert_same(store.restore().arrays, ARRAYS)


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


def test_unfinished_saves_are_cleared_without_a_save(tmp_path):
    Checkpoints(tmp_path / "none").clear_unfinished()
    (tmp_path / ".epoch-00000009.dorylax-0123abcd" / "new" / "arrays").mkdir(parents=True)
    (tmp_path / "epoch-00000008").mkdir()
    (tmp_path / "epoch-00000008" / "arrays-0123abcd.bin").touch()
    (tmp_path / "epoch-00000007").mkdir()
    (tmp_path / "epoch-00000007" / ".arrays-0123abcd.bin.dorylax-0123abcd").touch()
    Checkpoints(tmp_path).clear_unfinished()
    assert not tmp_path.exists()


def test_the_folder_is_on_disk_before_a_checkpoint_is_acknowledged(tmp_path, monkeypatch):
    made = []
    make_folder = places.make_folder
    monkeypatch.setattr(places, "make_folder", lambda path: (made.append(path), make_folder(path)))
    path = Checkpoints(tmp_path / "run" / "checkpoints").save(1, ARRAYS, {})
    assert set(made) == {path}


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


def test_real_write_failure_keeps_the_one_before(tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, ARRAYS, {"which": 1})
    noise = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # a write past this fails as on a full disk
    try:
        with pytest.raises(RunError) as caught:
            store.save(2, {"params": {"noise": noise}}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert re.fullmatch(
        f"the checkpoint after 2 epochs could not be written to {tmp_path}: \\[Errno 27\\] File too large: "
        f"'{store.path(2)}/arrays-[0-9a-f]{{8}}.bin'. The one before is untouched: {store.path(1)}",
        str(caught.value),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000001"]
    assert store.restore().record == {"which": 1}


@pytest.mark.filterwarnings("error")
def test_a_folder_that_cannot_be_listed_now_hides_no_failure_and_makes_none(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "file")

    store = Checkpoints(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(places.os, "walk", fail)
        with pytest.raises(RunError, match=r"Too many open files: '\S+'\Z"):
            store.save(1, ARRAYS, {"which": 1})
    store.save(1, ARRAYS, {"which": 1})
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_part", fail)
        patch.setattr(Checkpoints, "epochs", fail)
        message = rf"the checkpoint after 2 epochs could not be written to {tmp_path}: .*Too many open files: '\S+'\Z"
        with pytest.raises(RunError, match=message):
            store.save(2, ARRAYS, {"which": 2})
    assert store.restore().record == {"which": 1}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("RESOURCE_EXHAUSTED")])
def test_failure_anywhere_keeps_the_one_before(tmp_path, monkeypatch, error):
    store = Checkpoints(tmp_path)
    store.save(1, ARRAYS, {"which": 1})

    def fail(*args):
        raise error

    before = files(tmp_path)
    for step in ("write_part", "sealed"):
        for epochs in (1, 2):
            with monkeypatch.context() as patch:
                patch.setattr(checkpoint, step, fail)
                with pytest.raises(RunError, match="could not be written"):
                    store.save(epochs, ARRAYS, {"which": 2})
            assert Checkpoints(tmp_path).restore().record == {"which": 1}
    assert not (tmp_path / "epoch-00000002").exists()
    store.save(1, ARRAYS, {"which": 3})
    assert len(files(tmp_path)) == len(before)  # the file of the attempt that failed is gone too
    assert store.restore().record == {"which": 3}


def test_what_a_host_of_a_lost_cluster_still_writes_changes_nothing(tmp_path):
    """Into a checkpoint that was written without it, into one that is dropped meanwhile, and after both."""
    place, buffers = Checkpoints(tmp_path, keep=1), {"server 0/rows": np.arange(3.0)}

    def hosts(folder):
        return {"server 0": write_part(folder, "server 0", buffers)}

    first = place.save(1, ARRAYS, {}, hosts)
    late = write_part(str(first), "server 0", {"server 0/rows": np.zeros(3)})
    assert np.array_equal(place.restore().arrays["pipeline"]["server 0/rows"], np.arange(3.0))
    place.save(2, ARRAYS, {}, hosts)
    assert place.epochs() == [2]
    write_part(late.place, "server 0", {"server 0/rows": np.zeros(3)})
    assert place.epochs() == [2]
    assert place.restore().epochs == 2
    place.clear_unfinished()
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000002"]


def test_a_host_that_writes_while_its_folder_is_dropped_neither_keeps_it_nor_stops_the_run(tmp_path, monkeypatch):
    place = Checkpoints(tmp_path, keep=1)
    first = place.save(1, ARRAYS, {})
    rmtree = shutil.rmtree

    def write_then_remove(path, **options):
        (Path(path) / "late").write_bytes(b"late")
        rmtree(path, **options)

    with open(first / ".server-0-0123abcd.bin.dorylax-0123abcd", "wb") as late:
        monkeypatch.setattr(shutil, "rmtree", write_then_remove)
        place.save(2, ARRAYS, {})
        late.write(b"late")
        with pytest.raises(FileNotFoundError):
            os.replace(late.name, first / "server-0-0123abcd.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000002"]


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([{}]), np.array([1.0], ">f4")], ids=str)
def test_arrays_that_cannot_be_read_again_are_refused(tmp_path, array):
    with pytest.raises(RunError, match=r"an array of dtype \S+ cannot be stored"):
        Checkpoints(tmp_path / "checkpoints").save(1, {"params": {"w": array}}, {})
    assert list(tmp_path.iterdir()) == []


def test_keep_is_checked(tmp_path):
    with pytest.raises(ValueError, match="keep must be ≥ 1, got 0"):
        Checkpoints(tmp_path, keep=0)
