"""Checkpoints that are not in the run directory: in another folder, or in S3."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import pytest
from botocore.exceptions import ClientError

from dorylax.errors import RunError, RunWarning
from dorylax.runs.result import EpochRecord
from dorylax.store.base import StorageError
from dorylax.store.checkpoint import MANIFEST, OWNER
from dorylax.store.digest import sealed
from dorylax.store.durable import write_json
from dorylax.store.places import S3Storage, open_storage
from dorylax.store.run_directory import RunDirectory, RunDirectoryError
from dorylax.trainer import Trainer, TrainResult
from dorylax.trainer.saving.places import Places

pytestmark = pytest.mark.timeout(120)

Make = Callable[..., Trainer]


@pytest.fixture(params=["folder", "s3"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A setting of `train.checkpoints`."""
    return str(tmp_path / "elsewhere") if request.param == "folder" else in_s3(request.getfixturevalue("bucket"))


@pytest.fixture
def s3(bucket: str) -> str:
    return in_s3(bucket)


@pytest.fixture
def seen(watcher: Any) -> Any:
    """An observer that keeps what it is told."""
    return watcher()


def in_s3(bucket: str) -> str:
    return f"s3://{bucket}/some/prefix"


def place(run: Path, setting: str) -> str:
    return Places.of(RunDirectory(run), setting).place


def names(where: str) -> list[str]:
    return open_storage(where).names()


def epochs(where: str) -> list[int]:
    """Of whole checkpoints there."""
    return [int(name[6:14]) for name in names(where) if name.endswith(MANIFEST)]


def trained(trainer: Make, run: Path, setting: str | None, epochs: int = 4, **options: Any) -> TrainResult:
    given = {"checkpoint_every": 1, "resume": True} | options
    return trainer(run_directory=run, checkpoints=setting, epochs=epochs, **given).fit()


def refuse(code: str) -> Any:
    def refused(self: S3Storage, name: str = "", *_: Any) -> None:
        with self._asking(name):
            raise ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 403}}, "PutObject")

    return refused


def test_a_run_goes_on_from_there_bit_for_bit_and_predicts(
    trainer: Make, tmp_path: Path, there: str, same: Any, timeless: Any
) -> None:
    trained(trainer, tmp_path / "run", there, 4)
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert epochs(place(tmp_path / "run", there)) == [3, 4]
    result = trained(trainer, tmp_path / "run", there, 7)
    whole = trainer(epochs=7)
    straight = whole.fit()
    assert result.first_epoch == 4
    assert timeless(result.history) == timeless(straight.history)
    assert same(result.params, straight.params)
    # Who predicts may not know where they are.
    for setting in (there, None):
        found = trainer(run_directory=tmp_path / "run", checkpoints=setting).predict()
        assert same(found, whole.predict())


def test_runs_whose_directories_end_alike_share_nothing(trainer: Make, tmp_path: Path, there: str) -> None:
    runs = [tmp_path / name / "runs" / "key" for name in ("one", "other")]
    for run in runs:
        assert trained(trainer, run, there, 2).first_epoch == 0
    for run in runs:
        assert trained(trainer, run, there, 3).first_epoch == 2
    places = [place(run, there) for run in runs]
    assert [epochs(where) for where in places] == [[2, 3], [2, 3]]
    assert len(set(names(there))) == sum(len(names(where)) for where in places)


def test_a_directory_that_moved_finds_them(trainer: Make, tmp_path: Path, there: str) -> None:
    trained(trainer, tmp_path / "run", there, 2)
    where = place(tmp_path / "run", there)
    (tmp_path / "run").rename(tmp_path / "moved")
    before = names(where)
    assert trained(trainer, tmp_path / "moved", there, 4).first_epoch == 2
    assert names(where) == before  # whatever else was copied from it finds them, too
    assert epochs(place(tmp_path / "moved", there)) == [3, 4]


def test_a_copy_goes_its_own_way(trainer: Make, tmp_path: Path, there: str) -> None:
    trained(trainer, tmp_path / "run", there, 2)
    before = names(where := place(tmp_path / "run", there))
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert trained(trainer, tmp_path / "copy", there, 3).first_epoch == 2
    assert names(where) == before
    assert epochs(place(tmp_path / "copy", there)) == [2, 3]
    assert trained(trainer, tmp_path / "run", there, 5).first_epoch == 2


@pytest.mark.parametrize("setting", ["the same", "none", "another"])
def test_copies_of_a_run_that_was_renamed_take_nothing_from_each_other(
    trainer: Make, tmp_path: Path, there: str, setting: str
) -> None:
    trained(trainer, tmp_path / "run", there, 2)
    where = place(tmp_path / "run", there)
    (tmp_path / "run").rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "copy")
    before = names(where)
    now = {"the same": there, "none": None, "another": f"{there}/other"}[setting]
    assert trained(trainer, tmp_path / "copy", now, 3).first_epoch == 2
    assert names(where) == before
    assert trained(trainer, tmp_path / "moved", there, 3).first_epoch == 2


@pytest.mark.parametrize("setting", [None, "elsewhere"])
def test_a_run_directory_that_names_the_checkpoints_of_another_takes_nothing(
    trainer: Make, tmp_path: Path, setting: str | None
) -> None:
    for name in ("mine", "theirs"):
        trained(trainer, tmp_path / name, None, 2)

    def files() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (tmp_path / "mine").rglob("*")}

    before = files()
    environment = RunDirectory(tmp_path / "theirs").environment
    environment["checkpoints"] = {
        "place": str(tmp_path / "mine" / "checkpoints"),
        "directory": str(tmp_path / "theirs"),
    }
    shutil.rmtree(tmp_path / "theirs" / "checkpoints")
    write_json(tmp_path / "theirs" / "environment.json", sealed({"schema": 1, **environment}))
    trained(trainer, tmp_path / "theirs", None if setting is None else str(tmp_path / setting), 3)
    assert files() == before


def test_a_link_to_the_checkpoints_of_another_run_is_refused(trainer: Make, tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        trained(trainer, tmp_path / name, None, 2)
    shutil.rmtree(tmp_path / "theirs" / "checkpoints")
    (tmp_path / "theirs" / "checkpoints").symlink_to(tmp_path / "mine" / "checkpoints")
    with pytest.raises(RunDirectoryError, match="theirs/checkpoints is a symbolic link"):
        trained(trainer, tmp_path / "theirs", None, 3)
    assert epochs(str(tmp_path / "mine" / "checkpoints")) == [1, 2]


def test_they_move_with_the_setting(trainer: Make, tmp_path: Path, s3: str, same: Any, timeless: Any) -> None:
    run, folder = tmp_path / "run", str(tmp_path / "elsewhere")
    settings = [None, s3, folder, f"{s3}/other", None]
    for number, setting in enumerate(settings, start=1):
        result = trained(trainer, run, setting, number)
        assert result.first_epoch == number - 1
        there = [where for where in (s3, folder) if names(where)]
        assert there == [where for where in (s3, folder) if setting is not None and setting.startswith(where)]
        assert (run / "checkpoints").exists() == (setting is None)
    assert names(s3) == names(folder) == []  # nor is it said whose they were
    assert timeless(result.history) == timeless(trainer(epochs=5).fit().history)


def test_only_old_checkpoints_of_the_run_are_dropped(trainer: Make, tmp_path: Path, there: str) -> None:
    run = tmp_path / "run"
    others = ["mine", "epoch-3", "epoch-00000001-mine/manifest.json", "epochs/epoch-00000001/manifest.json"]
    with_others = [open_storage(there), open_storage(place(run, there))]
    for storage in with_others:
        for name in others:
            storage.put(name, b"mine")
    trained(trainer, run, there, 6, keep_checkpoints=3)
    found = names(place(run, there))
    assert {name.partition("/")[0] for name in found} == {
        *(OWNER, "mine", "epoch-3", "epoch-00000001-mine", "epochs"),
        *("epoch-00000004", "epoch-00000005", "epoch-00000006"),
    }
    for storage in with_others:
        assert [storage.read(name) for name in others] == [b"mine"] * 4


def test_a_new_run_takes_nothing_that_is_there(trainer: Make, tmp_path: Path, there: str) -> None:
    """Of a directory that was deleted, say: whoever means to go on from there says so."""
    trained(trainer, tmp_path / "run", there, 2)
    shutil.rmtree(tmp_path / "run")
    where = place(tmp_path / "run", there)
    with pytest.raises(
        RunDirectoryError, match=f"^{where} already holds checkpoints of a run in {tmp_path}/run: continue"
    ):
        trained(trainer, tmp_path / "run", there, 4, resume=False)
    assert not (tmp_path / "run" / "config.yaml").exists()
    assert trained(trainer, tmp_path / "run", there, 4).first_epoch == 2


def test_what_is_gone_is_no_reason_to_begin_again(trainer: Make, tmp_path: Path, there: str) -> None:
    trained(trainer, tmp_path / "run", there, 2)
    where = place(tmp_path / "run", there)
    storage = open_storage(where)
    for name in storage.names():
        storage.delete(name)
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(
        RunDirectoryError,
        match=f"^the checkpoints of {tmp_path}/run are gone: there is nothing in {where}, where they went",
    ):
        trained(trainer, tmp_path / "run", there, 4)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == metrics
    with pytest.raises(RunDirectoryError, match="are gone"):
        trained(trainer, tmp_path / "run", str(tmp_path / "new"), 4)


def test_one_that_was_killed_before_its_first_checkpoint_begins_again(
    trainer: Make, tmp_path: Path, there: str, watcher: Any
) -> None:
    class Killed(BaseException):
        pass

    def kill(_: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        trained(trainer, tmp_path / "run", there, 4, observers=[watcher(kill)])
    assert trained(trainer, tmp_path / "run", there, 4).first_epoch == 0


def test_a_damaged_one_is_passed_over(trainer: Make, tmp_path: Path, there: str) -> None:
    trained(trainer, tmp_path / "run", there, 2)
    storage = open_storage(where := place(tmp_path / "run", there))
    for name in [name for name in storage.names() if name.startswith("epoch-00000002/")]:
        storage.put(name, storage.read(name)[:-9])
        with pytest.warns(RunWarning, match=f"^checkpoint {where}/epoch-00000002 is damaged and not used: "):
            assert trained(trainer, tmp_path / "run", there, 2).first_epoch == 1


# What goes wrong.


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("s3://nobodys-bucket/x", "there is no bucket nobodys-bucket: make one, or name another"),
        ("/proc/nowhere", "No such file or directory"),
    ],
)
def test_a_place_that_cannot_be_is_refused_before_anything_runs(
    trainer: Make, tmp_path: Path, seen: Any, setting: str, said: str
) -> None:
    with pytest.raises(OSError, match=said) as caught:
        trained(trainer, tmp_path / "run", setting, observers=[seen])
    assert setting in str(caught.value)
    assert "\n" not in str(caught.value)
    assert seen.calls == []
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_right_that_is_missing_is_missed_before_anything_runs(
    trainer: Make, tmp_path: Path, s3: str, seen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("names", "put", "delete", "read"):
        with monkeypatch.context() as patch:
            patch.setattr(S3Storage, method, refuse("AccessDenied"))
            with pytest.raises(
                StorageError, match=rf"^{s3}/.*: S3 refuses \(AccessDenied\): the credentials must allow"
            ):
                trained(trainer, tmp_path / "run", s3, observers=[seen])
        assert seen.calls == []


def test_a_full_disk_is_a_line_that_names_the_place(
    trainer: Make, tmp_path: Path, s3: str, watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: S3Storage, name: str, content: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", name)

    def fill(record: Any) -> None:
        if record.epoch == 2:
            monkeypatch.setattr(S3Storage, "put", full)

    trained(trainer, tmp_path / "run", s3, 2)
    with pytest.raises(RunError) as caught:
        trained(trainer, tmp_path / "run", s3, observers=[watcher(fill)])
    where = place(tmp_path / "run", s3)
    assert str(caught.value).startswith(
        f"the checkpoint after 3 epochs could not be written to {where}: [Errno 28] No space"
    )
    assert str(caught.value).endswith(f". The one before is untouched: {where}/epoch-00000002")
    assert "\n" not in str(caught.value)
    monkeypatch.undo()


@final
class Breaking:
    """S3 that takes so many files, and none after them.

    Args:
        files: how many it takes.
    """

    def __init__(self, files: int) -> None:
        self.left = files

    def instead_of(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(storage: S3Storage, name: str, *rest: Any) -> Any:
            if name != OWNER:
                if not self.left:
                    refuse("InternalError")(storage, name)
                self.left -= 1
            return method(storage, name, *rest)

        return asked


@pytest.mark.parametrize("cleared", [True, False], ids=["refused", "killed"])
def test_an_upload_that_stops_anywhere_leaves_the_one_before(
    trainer: Make, tmp_path: Path, s3: str, cleared: bool
) -> None:
    """The manifest is the last: without it nothing is read, and the next start clears what came."""
    trained(trainer, tmp_path / "run", s3, 1)
    where = place(tmp_path / "run", s3)
    count = len([name for name in names(where) if name != OWNER])
    for files in range(count):
        with pytest.MonkeyPatch.context() as patch:
            breaking = Breaking(files)
            patch.setattr(S3Storage, "put", breaking.instead_of(S3Storage.put))
            if not cleared:
                patch.setattr(S3Storage, "clear", lambda *_: None)
            with pytest.raises(RunError, match="could not be written"):
                trained(trainer, tmp_path / "run", s3, 2)
        assert len([name for name in names(where) if name.startswith("epoch-00000002")]) == (0 if cleared else files)
        assert epochs(where) == [1]
        assert trained(trainer, tmp_path / "run", s3, 1).first_epoch == 1
        assert [name for name in names(where) if name.startswith("epoch-00000002")] == []
    assert trained(trainer, tmp_path / "run", s3, 2).first_epoch == 1


def test_another_process_that_goes_on_with_the_run_keeps_this_one_from_saving(
    trainer: Make, tmp_path: Path, there: str, watcher: Any
) -> None:
    """On another machine, to which both directories have the same path."""
    where = place(tmp_path / "run", there)

    def begin(record: Any) -> None:
        if record.epoch == 2:
            open_storage(where).put(OWNER, Places.of(RunDirectory(tmp_path / "run"), there).owner())

    with pytest.raises(RunError) as caught:
        trained(trainer, tmp_path / "run", there, observers=[watcher(begin)])
    assert str(caught.value).startswith(f"{where} belongs to the run in {tmp_path}/run on ")
    assert epochs(where) == [1, 2]


def test_who_lost_the_name_of_the_owner_writes_it_again(
    trainer: Make, tmp_path: Path, there: str, watcher: Any
) -> None:
    """By a rule of the bucket, say, that drops old objects."""
    where = place(tmp_path / "run", there)

    def drop(record: EpochRecord) -> None:
        if record.epoch == 0:  # later, a thread may be saving
            open_storage(where).delete(OWNER)

    trained(trainer, tmp_path / "run", there, observers=[watcher(drop)])
    assert OWNER in names(where)


def test_no_connection_and_no_file_is_left(
    trainer: Make, tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    trained(trainer, tmp_path / "run", s3)
    trained(trainer, tmp_path / "run", s3, 5)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not [name for name in names(place(tmp_path / "run", s3)) if name.startswith(".")]
