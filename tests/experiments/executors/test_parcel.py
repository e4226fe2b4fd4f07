"""A run's directory as bytes, and back."""

from __future__ import annotations

from pathlib import Path

from dorylax.experiments.executors.parcel import pack, unpack
from dorylax.store.folder_lock import LOCK


def test_all_but_locks_and_half_written_files_arrives(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "runs" / "here"
    (there / "checkpoints" / "epoch-1").mkdir(parents=True)
    (there / "checkpoints" / "epoch-1" / "arrays").write_bytes(b"\0\1")
    (there / "empty").mkdir()
    (there / LOCK).touch()
    (there / ".summary.json.dorylax-0123abcd").touch()
    unpack(pack(there), here)
    assert sorted(str(path.relative_to(here)) for path in here.rglob("*")) == [
        "checkpoints",
        "checkpoints/epoch-1",
        "checkpoints/epoch-1/arrays",
        "empty",
    ]
    assert (here / "checkpoints" / "epoch-1" / "arrays").read_bytes() == b"\0\1"
