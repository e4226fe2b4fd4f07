"""`dorylax report`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dorylax.experiments.run import main

_SWEEP = "{base: {data.size: tiny, train.epochs: 2}, grid: {model.name: [mlp]}, seeds: 1}"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep of one run, without its report. Not to be changed."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "one.yaml").write_text(_SWEEP)
    assert main(["--sweep", str(folder / "one.yaml"), "--out", str(folder / "out"), "--no-report"]) == 0
    return folder / "out"


@pytest.fixture
def sweep(swept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(swept, tmp_path / "sweep")


def test_of_one_sweep_beside_it(dorylax, sweep: Path) -> None:
    assert dorylax("report", str(sweep)) == (0, f"report: {sweep / 'report.html'}\n", "")
    assert "<html" in (sweep / "report.html").read_text()
    assert (sweep / "report.md").is_file()
    assert list((sweep / "figures").iterdir())


def test_of_several_sweeps_elsewhere(dorylax, sweep: Path, swept: Path, tmp_path: Path) -> None:
    out = tmp_path / "both" / "report"
    for _ in range(2):  # the second over the first
        assert dorylax("report", str(sweep), str(swept), "--out", str(out)) == (0, f"report: {out}/report.html\n", "")
    assert (out / "report.md").read_text().startswith("# one + one\n")
    assert not (sweep / "report.html").exists()


def test_errors_are_one_line(dorylax, sweep: Path, tmp_path: Path) -> None:
    def refused(*words: object) -> str:
        code, out, err = dorylax("report", *map(str, words))
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    assert "missing argument 'DIR...'" in refused()
    assert "--out is needed with several folders" in refused(sweep, sweep)
    assert f"{tmp_path} is not the folder of a sweep" in refused(tmp_path)
    assert "is a file, not a folder" in refused(sweep, "--out", sweep / "results.csv")
    (tmp_path / "paper" / "figures").mkdir(parents=True)
    (tmp_path / "paper" / "figures" / "mine.png").touch()
    assert "would be lost" in refused(sweep, "--out", tmp_path / "paper")
    assert (tmp_path / "paper" / "figures" / "mine.png").exists()
    shutil.rmtree(sweep / "runs")
    assert "no run is done yet" in refused(sweep)
    assert not (sweep / "report.html").exists()


def test_that_nothing_is_done_has_its_reason(dorylax, sweep: Path) -> None:
    (config,) = sweep.glob("runs/*/config.yaml")
    config.write_text(config.read_text().replace("epochs: 2", "epochs: 3"))
    code, out, err = dorylax("report", str(sweep))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"no run is done yet (mlp, seed 0: {config} is not as it was written" in err
