"""A trainer in a notebook or at a prompt: what is shown, and what Ctrl-C and a cell that runs again lead to."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from flax import nnx

from dorylax.pipeline.config import PipelineConfig
from dorylax.store.run_directory import RunDirectoryError
from dorylax.trainer import Trainer, TrainingError
from dorylax.trainer import trainer as module


@pytest.fixture
def interrupted(watcher: Any) -> Any:
    """An observer that presses Ctrl-C in an epoch, once."""
    left = [True]

    def press(record: Any) -> None:
        if record.epoch == 6 and left:
            left.clear()
            signal.raise_signal(signal.SIGINT)

    return watcher(press)


@pytest.fixture(params=["in memory", "directory", "pipe", "async"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "in memory":
        return {}
    if request.param == "directory":
        return {"run_directory": tmp_path / "run"}
    return {"pipeline": PipelineConfig(mode=request.param, servers=2, intervals=2, clock="virtual")}


def test_ctrl_c_gives_what_there_is_and_says_how_to_go_on(
    trainer: Any, interrupted: Any, options: dict[str, Any], *, capsys: Any, same: Any, timeless: Any
) -> None:
    straight = trainer(**({} if "run_directory" in options else options)).fit()
    runner = trainer(observers=[interrupted], **options)
    stopped = runner.fit(interactive=True)
    assert stopped.stopped == "signal"
    assert 7 <= len(stopped.history) < 20
    assert stopped.predict(runner.data.graph, runner.data.features).shape == (48, 3)
    *_, said = capsys.readouterr().err.splitlines()
    assert said.startswith(
        f"interrupted after {len(stopped.history)} of 20 epochs; this is the result so far. To go on: "
    )
    assert ("later Trainer(…, run_directory=" in said) is ("run_directory" in options)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    history = list(stopped.history)
    resumed = runner.fit(resume=True)
    assert resumed.first_epoch == len(history)
    assert stopped.history == history  # as it was
    if resumed.pipeline is None or resumed.pipeline["mode"] == "pipe":  # else all intervals have met before the end
        assert same(resumed.last_params, straight.last_params)
        assert timeless(resumed.history) == timeless(straight.history)
    again = runner.fit(resume=True)  # a cell that runs again: there is nothing left to do
    assert same(again.last_params, resumed.last_params)


def test_sessions_are_known_by_themselves(trainer: Any, interrupted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_interactive", lambda: True)
    assert trainer(observers=[interrupted]).fit().stopped == "signal"


def test_interrupted_in_the_last_epoch_is_done(trainer: Any, interrupted: Any, capsys: Any) -> None:
    assert trainer(epochs=7, observers=[interrupted]).fit(interactive=True).stopped == "epochs"
    assert "interrupted" not in capsys.readouterr().err


def test_a_bar_is_shown_where_it_is_asked_for(trainer: Any, capsys: Any) -> None:
    assert trainer(epochs=1).fit(interactive=True).stopped == "epochs"
    assert capsys.readouterr().err.startswith("Net on small: test accuracy ")
    for interactive in (None, False):
        trainer(epochs=1).fit(interactive=interactive)
        assert capsys.readouterr() == ("", "")


def test_nothing_to_go_on_from(trainer: Any) -> None:
    with pytest.raises(TrainingError, match="goes on from a fit before, and there was none"):
        trainer().fit(resume=True)


def test_a_cell_that_runs_again_names_ways_out(trainer: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    runner = trainer(epochs=2, run_directory=run)
    runner.fit()
    (tmp_path / "run-2").touch()
    message = rf"continue it \(resume=True, --resume\), or choose another run directory, such as {tmp_path}/run-3$"
    for once_more in (runner, trainer(epochs=2, run_directory=run)):
        with pytest.raises(RunDirectoryError, match=message):
            once_more.fit()
        assert len(once_more.fit(resume=True).history) == 2
    with pytest.raises(RunDirectoryError, match=rf"seed.*such as {tmp_path}/run-3, or delete this one"):
        trainer(epochs=2, seed=3, run_directory=run).fit()


def test_a_trainer_is_a_line(trainer: Any, data: Any, adam: Any, net: Any, tmp_path: Path) -> None:
    runner = trainer(run_directory=tmp_path)
    assert repr(runner) == f"Trainer(Net on small, 20 epochs at most, on one machine, in {tmp_path}, not trained yet)"
    config = PipelineConfig(servers=2, intervals=3)
    piped = Trainer(net(rngs=nnx.Rngs(0)), data, optimizer=adam, epochs=1, pipeline=config)
    piped.fit()
    assert (
        repr(piped) == "Trainer(Net on small, 1 epochs at most, pipe on 2 servers with 3 intervals, 1 epochs trained)"
    )
