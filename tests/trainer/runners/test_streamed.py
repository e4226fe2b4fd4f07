"""Runs that stream: the ordinary run's losses and parameters, evaluations and predictions, resumed and stopped like any."""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import dorylax
from dorylax.errors import InputError, RunError
from dorylax.graph.dataset import Dataset
from dorylax.layers import GAT, GCN, GIN, GraphSAGE
from dorylax.program.jaxpr.errors import SplitError
from dorylax.runs.result import TrainResult
from dorylax.settings.errors import ConfigError
from dorylax.store.checkpoint import Checkpoints
from dorylax.streaming import residency
from dorylax.streaming.columns import file_of
from dorylax.trainer import Trainer, one_machine, streamed
from dorylax.trainer.footprint import of_trainer

MODELS: dict[str, Callable[..., Any]] = {
    "GCN": GCN,
    "GAT": lambda *widths, rngs: GAT(*widths, heads=2, rngs=rngs),
    "SAGE max": lambda *widths, rngs: GraphSAGE(*widths, aggregation="max", rngs=rngs),
    "GIN": GIN,
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that features and index are mapped."""
    path = tmp_path_factory.mktemp("data") / "graph"
    dorylax.load("communities", num_vertices=20_000, num_edges=1_200_000, num_features=64, num_classes=7).save(path)
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fits, but for what is streamed."""
    estimate = of_trainer.estimate_trainer

    def never(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(of_trainer, "clearly_fits", lambda *_: False)
        found, seconds = estimate(*arguments, **options)
        assert found is not None
        limit = found.limit._replace(bytes=1)  # type: ignore[union-attr]
        return type(found)(found.shape, found.phases, limit, found.process, found.compiled), seconds

    monkeypatch.setattr(one_machine, "estimate_trainer", never)
    monkeypatch.setattr(streamed, "resident_bytes", lambda: 0)
    monkeypatch.setattr(residency, "most_rows", lambda _: 2_000)
    monkeypatch.setattr(residency, "most_entries", lambda widest: 50_000 if widest else 100_000)


def trainer(data: Dataset, model: str = "GCN", **options: Any) -> Trainer:
    made = MODELS[model](data.num_features, 8, data.num_classes, rngs=nnx.Rngs(0))
    given = {"optimizer": optax.adam(0.01), "epochs": 3, "order": "given"} | options
    return Trainer(made, data, **given)


def limit(mebibytes: int) -> str:
    """So much for rows."""
    return f"{(streamed._COMPILED / 2**20 + mebibytes) / (1 - streamed._KEPT_BY_ALLOCATORS):.3f}MiB"


def losses(result: TrainResult) -> list[float]:
    return [record.loss for record in result.history]


@functools.cache
def streaming_run(archive: Path, model: str = "GCN") -> tuple[Trainer, TrainResult]:
    """A run that streams with memory for everything, shared by all tests; the fixture `small` makes it stream."""
    made = trainer(Dataset.from_folder(archive), model)
    return made, made.fit()


# tests/streaming/test_executor.py streams models of all kinds.
@pytest.mark.parametrize(
    "model",
    [pytest.param(name, marks=[] if name in ("GCN", "SAGE max") else [pytest.mark.exhaustive]) for name in MODELS],
)
def test_a_run_that_streams_is_the_ordinary_run_but_for_rounding(
    model: str, archive: Path, request: pytest.FixtureRequest
) -> None:
    data = Dataset.from_folder(archive)
    ordinary = trainer(data, model)
    expected = ordinary.fit()
    request.getfixturevalue("small")
    streaming, found = streaming_run(archive, model)
    assert streaming._machine.streamed is not None
    np.testing.assert_allclose(losses(found), losses(expected), rtol=2e-5)
    for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
    for one, other in zip(found.history, expected.history, strict=True):
        assert abs(one.val_accuracy - other.val_accuracy) < 2e-3  # type: ignore[operator]
    # Of the same weights: those of the other run differ by rounding, of which some processors' GIN makes whole numbers.
    exact = streaming.predict(graph=data.graph, x=data.features)
    np.testing.assert_allclose(streaming.predict(), exact, rtol=1e-4, atol=1e-6 * np.abs(exact).max())


def test_what_fits_streams_if_asked_to_and_gives_the_bits_of_less_memory(archive: Path, tmp_path: Path) -> None:
    data = Dataset.from_folder(archive)
    asked = trainer(data, memory="stream", scratch=tmp_path)
    found = asked.fit()
    assert asked._machine.streamed is not None
    assert asked._machine.streamed.layouts.training.traffic == (0, 0)
    tight = trainer(data, memory="stream", memory_limit=tight_limit(data, tmp_path), scratch=tmp_path)
    again = tight.fit()
    assert tight._machine.streamed.layouts.training.traffic[0] > 0  # type: ignore[union-attr]
    assert not any(tmp_path.iterdir())
    assert losses(again) == losses(found)
    for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(again.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_indices_that_change_on_disk_end_the_run(archive: Path, tmp_path: Path) -> None:
    """With an error, not with a kernel that reads wherever they point."""
    data = Dataset.from_folder(shutil.copytree(archive, tmp_path / "graph"))
    file = tmp_path / "graph/indices.npy"
    place = file_of(np.asarray(data.graph.incoming.neighbours))
    assert place is not None

    def write(_: object) -> None:
        with file.open("r+b") as out:
            out.seek(place[1])
            out.write(np.full(1000, 0x7F7F7F7F, np.int32).tobytes())

    observer = SimpleNamespace(started=lambda *_: None, epoch=write, finished=lambda _: None)
    options = {"memory": "stream", "memory_limit": tight_limit(data, tmp_path), "scratch": tmp_path}
    run = trainer(data, **options, run_directory=tmp_path / "run", checkpoint_every=1, observers=[observer])
    with pytest.raises(RunError, match=f"^{file} has changed since it was loaded"):
        run.fit()
    assert run._machine.streamed is not None
    assert Checkpoints(tmp_path / "run" / "checkpoints").epochs() == [1]


def tight_limit(data: Dataset, scratch: Path) -> str:
    """The least that will do, which a refusal says, and a little more."""
    refused = r"single\.memory=stream: the run cannot be streamed from disk: .*single\.memory_limit=(\d+)MiB"
    with pytest.raises(RunError, match=refused) as info:
        trainer(data, memory="stream", memory_limit="1MiB", scratch=scratch).fit()
    number = re.search(refused, str(info.value))
    assert number is not None
    return f"{int(number[1]) + 4}MiB"


def test_what_cannot_stream_is_refused_where_that_is_asked_for(archive: Path) -> None:
    data = Dataset.from_folder(archive)
    with pytest.raises(ConfigError, match=r"single\.memory = stream cannot be: single\.order=community holds"):
        trainer(data, memory="stream", order="community")
    with pytest.raises(ConfigError, match=r"single\.memory = stream cannot be: single\.optimize=false trains on"):
        trainer(data, memory="stream", optimize=False)


def test_a_resumed_run_goes_on_bit_for_bit(archive: Path, small: None, tmp_path: Path) -> None:
    data = Dataset.from_folder(archive)
    _, whole = streaming_run(archive)
    trainer(data, epochs=2, run_directory=tmp_path / "run").fit()
    assert not list((tmp_path / "run").glob("dorylax-rows*"))
    resumed = trainer(data, run_directory=tmp_path / "run", resume=True).fit()
    assert losses(resumed) == losses(whole)
    for a, b in zip(jax.tree.leaves(resumed.last_params), jax.tree.leaves(whole.last_params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_full_disk_ends_a_run_and_its_checkpoint_stays(
    archive: Path, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Dataset.from_folder(archive)
    options: Any = {"checkpoint_every": 1, "run_directory": tmp_path / "run", "memory_limit": limit(14)}
    trainer(data, epochs=1, **options).fit()
    writing, count = os.pwritev, 0

    def full(*arguments: Any) -> int:
        nonlocal count
        count += 1
        if count > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return writing(*arguments)

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="No space left on device"):
        trainer(data, resume=True, **options).fit()
    monkeypatch.setattr(os, "pwritev", writing)
    assert not list((tmp_path / "run").glob("dorylax-rows*"))
    assert len(trainer(data, resume=True, **options).fit().history) == 3


def test_what_never_changes_is_computed_anew_where_the_disk_has_no_room(
    archive: Path, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Dataset.from_folder(archive)
    made = functools.partial(GCN, data.num_features, 8, data.num_classes, dropout=0.0)
    given: dict[str, Any] = {"memory_limit": limit(14), "scratch": tmp_path / "new", "order": "given", "epochs": 2}
    found = []
    for room in (1 << 40, 0):
        monkeypatch.setattr(streamed, "free_bytes", lambda _, room=room: room)
        one = Trainer(made(rngs=nnx.Rngs(0)), data, optimizer=optax.adam(0.01), **given)
        found.append(one.fit())
        run = one._machine.streamed
        assert run is not None
        assert ("hoist" in run.passes) is (room > 0)
        assert (run.layouts.training.scratch_bytes > 0) is (room > 0)
    np.testing.assert_allclose(losses(found[0]), losses(found[1]), rtol=2e-5)


def test_edges_give_way_before_what_never_changes() -> None:
    needs = {(True, True): 5, (True, False): 4, (False, True): 2, (False, False): 1}

    def plan(*options: bool) -> Any:
        training = SimpleNamespace(scratch_bytes=needs[options])
        return streamed.Plan(None, None, SimpleNamespace(training=training))  # type: ignore[arg-type]

    for room in needs.values():
        found = streamed.plan_within(room, plan, Path("fast"))
        assert found.layouts.training.scratch_bytes == room


def test_a_disk_without_room_is_told_before_anything_runs() -> None:
    layouts = SimpleNamespace(training=SimpleNamespace(scratch_bytes=3 << 30))
    with pytest.raises(SplitError, match=r"takes 3\.0 GiB of files in fast, whose disk has 1\.0 GiB free: make room"):
        streamed.plan_within(1 << 30, lambda *_: SimpleNamespace(layouts=layouts), Path("fast"))  # type: ignore[arg-type]


def test_the_room_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert abs(streamed.free_bytes(tmp_path / "a" / "b") - shutil.disk_usage(tmp_path).free) < 1 << 30


def test_an_optimizer_that_searches_along_a_line_is_refused(archive: Path, small: None) -> None:
    with pytest.raises(InputError, match="evaluates the loss at other parameters"):
        trainer(Dataset.from_folder(archive), optimizer=optax.lbfgs()).fit()


def test_a_metric_that_ranks_all_examples(archive: Path, request: pytest.FixtureRequest) -> None:
    data = Dataset.from_folder(archive)
    expected = trainer(data, metric="macro_f1").fit()
    request.getfixturevalue("small")
    found = trainer(data, metric="macro_f1").fit()
    assert abs(found.history[-1].val_score - expected.history[-1].val_score) < 5e-3  # type: ignore[operator]
