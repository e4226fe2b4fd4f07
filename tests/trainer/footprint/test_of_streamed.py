"""What a run that streams would take, by its sizes; and commands that say so, or go on where a run was refused before."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import dorylax
from dorylax.cli import main
from dorylax.config import RunConfig
from dorylax.errors import RunError
from dorylax.graph.data_shape import DataShape
from dorylax.program.jaxpr.errors import SplitError
from dorylax.streaming import residency
from dorylax.trainer.footprint import of_config
from dorylax.trainer.footprint.of_config import StreamedEstimate

_GIB = 2**30


def shape(**options: str | int) -> DataShape:
    """Of the study's graph, in an archive."""
    given = {"features_in": "mapped", "graph_in": "mapped"} | options
    found = DataShape(65_600_000, 3_600_000_000, 32, 50, symmetric=True, self_loops="none", origin="archive")
    given = {"num_labelled": 39_360_000} | given
    return dataclasses.replace(found, **given)  # type: ignore[arg-type]


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_config, "shape_of", lambda _: shape())
    monkeypatch.setattr(of_config, "resident_bytes", lambda: 400 << 20)  # whatever other tests have left


def config(limit: str, **overrides: object) -> RunConfig:
    given = {"model.hidden_features": 16, "model.dropout": 0.0, "single.memory_limit": limit} | {
        key.replace("__", "."): value for key, value in overrides.items()
    }
    return RunConfig.resolve({"data.size": "tiny"}, given)


def estimate(one: RunConfig) -> StreamedEstimate:
    found = of_config.estimate(one)
    assert found is not None
    assert not found.fits
    return of_config.streamed(one, found)


@pytest.mark.usefixtures("mapped")
def test_the_studys_graph_within_twelve_gibibytes() -> None:
    found = estimate(config("12GiB"))
    assert 4 * _GIB < found.memory <= 12 * _GIB
    assert found.disk < 40 * _GIB
    content = found.to_dict()
    assert content["epoch"]["edges"] == 2 * 3_600_000_000
    assert 28e9 < content["epoch"]["read"] < 60e9
    assert "goes through the edges 2 times" in str(found)
    of_config.check_config(config("12GiB"))


@pytest.mark.usefixtures("mapped")
def test_files_are_as_large_as_edges_of_vertices_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    # As much of other values as memory is left for is not in files either: another test's concern.
    monkeypatch.setattr(residency, "_spread", lambda *_: frozenset())
    found = []
    for train in (None, 65_600_000, 656_000):
        monkeypatch.setattr(of_config, "shape_of", lambda _, train=train: shape(num_labelled=train))
        found.append(estimate(config("12GiB")).disk)
    unknown, all_of_them, few = found
    assert unknown - all_of_them == 8 * 3_600_000_000 + 4 * 65_600_000
    assert few == all_of_them, "edges of a hundredth of the vertices are in memory"


@pytest.mark.usefixtures("mapped")
def test_what_cannot_be_streamed_is_refused_with_its_reason() -> None:
    for limit, overrides, reason in (
        ("700MiB", {}, r"loading the data takes \S+ GiB"),
        ("12GiB", {"single__order": "community"}, "single.order=community holds the data twice"),
        ("12GiB", {"single__gathered": "bfloat16"}, "single.gathered=bfloat16 is for steps in memory"),
    ):
        with pytest.raises(RunError, match=f"does not fit.*cannot be streamed from disk either: .*{reason}"):
            of_config.check_config(config(limit, **overrides))


@pytest.mark.usefixtures("mapped")
def test_a_limit_that_is_too_small_is_told_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    smaller = dataclasses.replace(shape(), num_vertices=6_000_000, num_edges=300_000_000)
    monkeypatch.setattr(of_config, "shape_of", lambda _: smaller)
    with pytest.raises(SplitError, match=r"GCN takes \d+ MiB .* may have 650 MiB: raise the limit \(s") as caught:
        estimate(config("650MiB"))
    found = re.search(r"single\.memory_limit=(\d+)MiB", str(caught.value))
    assert found is not None
    least = int(found[1])
    assert 650 < least < 2048
    assert estimate(config(f"{least}MiB")).memory <= least << 20
    with pytest.raises(SplitError, match=rf"limit={least}MiB"):
        estimate(config(f"{least - 2}MiB"))


def test_data_that_cannot_even_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_config, "resident_bytes", lambda: 400 << 20)
    monkeypatch.setattr(of_config, "shape_of", lambda _: shape(features_in="elsewhere", graph_in="elsewhere"))
    with pytest.raises(SplitError, match=r"loading the data takes \S+ GiB: give an archive"):
        estimate(config("12GiB"))


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_config, "resident_bytes", lambda: 400 << 20)  # whatever other tests have left
    path = tmp_path / "graph"
    dorylax.load("communities", num_vertices=60_000, num_edges=2_000_000, num_features=128).save(path)
    words = ["--data", str(path), "--model", "gcn", "--set", "single.memory_limit=900MiB"]
    words += ["--set", "model.hidden_features=512", "--set", "model.num_layers=4", "--set", "single.order=given"]
    assert main(["info", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["fits"]
    assert found["limit"] == {"bytes": 900 * 2**20, "source": "setting"}
    assert found["streamed"]["memory"] <= 900 * 2**20
    assert found["streamed"]["seconds"] > 0
    assert main(["info", *words]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "single.memory_limit has 900 MiB" in text or "single.memory_limit has 0.9 GiB" in text
    assert "streams its data from disk" in text
    assert "ns an edge at width 512" in text
