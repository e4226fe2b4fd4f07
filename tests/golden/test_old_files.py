"""Later versions read the files of the version that `old_files` names, and continue its runs as that version would.

The run directories, written by the wheel of commit cad1e655, stand for those of users who upgrade from that wheel.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golden import old_files
from golden.cases import kind, rounding_as_recorded

# Columns of retired settings have gone, or are those of their replacements; lines have no digests of their own any more.
RECORDED = json.loads(
    (old_files.FOLDER / "results.json")
    .read_text()
    .replace(",pipeline.oscillation_limit,", ",pipeline.stability_gate,")
    .replace(",pipeline.delay_scaling,", ",")
    .replace(" test_accuracy final_loss ", " test_accuracy test_examples final_loss ")
    .replace(" rows_by_lag calls digest", " rows_by_lag calls")
)
ZEN5 = {
    "pipeline": [
        1.124782681465149,
        1.0598684698343277,
        1.0931234955787659,
        1.1992955803871155,
        1.1264344304800034,
        1.081307202577591,
    ]
}
"""Losses of AMD's Zen 5, where one differs in its last digits from those of other processors with AVX2."""


@pytest.fixture(autouse=True)
def old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tarfile.open(old_files.FOLDER / "files.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    with rounding_as_recorded():
        yield


def plain(value: Any) -> Any:
    """The value as JSON; on another kind of processor than the recorded one without hashes of rounded outputs."""
    exact = kind() == RECORDED["kind"]
    return json.loads(json.dumps(value), object_hook=lambda o: {key: o[key] for key in o if exact or key != "hash"})


def recorded(value: Any) -> Any:
    """To the last bit on the recorded kind of processor, elsewhere nearly."""
    if kind() == RECORDED["kind"]:
        return value
    if isinstance(value, dict):
        return {key: recorded(inner) for key, inner in plain(value).items()}
    if isinstance(value, list):
        return [recorded(inner) for inner in value]
    return pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.parametrize("subject", list(old_files.FACTS))
def test_old_files_are_read_as_their_own_version_read_them(subject: str) -> None:
    """But for the columns of settings in tables: versions differ in these."""
    found, wanted = (
        json.loads(re.sub(r"\b(pipeline|tensor)\.\w+,", "", json.dumps(facts)))
        for facts in (old_files.FACTS[subject](), RECORDED["facts"][subject])
    )
    assert plain(found) == recorded(wanted)


@pytest.mark.parametrize("name", ["single", "pipeline", pytest.param("hosts", marks=pytest.mark.exhaustive)])
def test_a_run_of_the_old_wheel_continues_to_the_result_of_an_uninterrupted_run(name: str) -> None:
    """The upgrade of a run made by the wheel: `--resume` trains the epochs left by its killed process, on old shards too."""
    run = Path("out", "seed-0")  # where the command keeps it
    run.parent.mkdir()
    Path(name).rename(run)
    old_files.command("train", "--config", f"{run}/config.yaml", "--out", "out", "--resume")
    run.rename(name)
    found, wanted = plain(old_files.facts_of_run(name)), RECORDED["whole"][name]
    if name in ZEN5 and found["losses"] == ZEN5[name]:
        wanted = {**wanted, "losses": found["losses"]}
    assert found == recorded(wanted)


@pytest.mark.exhaustive  # figures take 10 s
def test_an_old_sweep_is_reported() -> None:
    old_files.command("report", "sweep", "--out", "report")
    assert {path.name for path in Path("report").iterdir()} == {"report.html", "report.md", "figures"}
    assert "async" in Path("report/report.md").read_text()
