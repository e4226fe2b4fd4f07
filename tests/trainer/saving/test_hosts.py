"""Hosts write their own files of a checkpoint, in S3 or in a folder that all see, and whoever goes on reads them there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.in_hosts import be_elsewhere, fill_disk, first_in_hosts
from support.leftovers import nothing_left
from support.pipelines import messy_data, piped_trainer

from dorylax.errors import RunError
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.launcher import HostError
from dorylax.settings.errors import ConfigError
from dorylax.store.checkpoint import MANIFEST, OWNER
from dorylax.store.places import open_storage
from dorylax.store.run_directory import RunDirectory
from dorylax.trainer import Trainer, TrainResult
from dorylax.trainer.saving.places import Places

pytestmark = pytest.mark.timeout(240)

DATA = messy_data(60, 240)


@pytest.fixture
def temporary(aws: Any) -> Iterator[Path]:
    """Where hosts and this process make temporary files, of which none is left."""
    with nothing_left() as folder:
        yield folder


def trainer(run: Path, setting: str | None, epochs: int, **options: Any) -> Trainer:
    given: dict[str, Any] = {
        "servers": 2,
        "intervals": 2,
        "mode": "async",
        "staleness": 0,
        "freshness": 0,
        "hosts": "processes",
    }
    given["stability_gate"] = False  # a run of 8 epochs ends before it opens
    config = PipelineConfig(**given | options)
    return piped_trainer(DATA, run, epochs, config, checkpoint_every=2, checkpoints=setting)


def trained(run: Path, setting: str | None, epochs: int, **options: Any) -> TrainResult:
    return trainer(run, setting, epochs, **options).fit()


def files(run: Path, setting: str) -> set[str]:
    """Those of checkpoints, without the random digits in the names of files of arrays."""
    found = open_storage(Places.of(RunDirectory(run), setting).place).names()
    return {re.sub(r"-[0-9a-f]{8}\.bin", ".bin", name) for name in found}


def test_others_go_on_with_what_hosts_have_saved_and_predict(tmp_path: Path, bucket: str, temporary: Path) -> None:
    run, setting = tmp_path / "run", f"s3://{bucket}/runs"
    trained(run, setting, 2)
    of_hosts = {f"epoch-00000002/server-{server}.bin" for server in (0, 1)}
    assert files(run, setting) >= of_hosts | {f"epoch-00000002/{MANIFEST}", "epoch-00000002/arrays.bin"}
    for epochs, options in ((4, {"num_hosts": 1}), (6, {"hosts": "inline"}), (8, {})):
        result = trained(run, setting, epochs, **options)
        assert result.first_epoch == epochs - 2
        assert [record.epoch for record in result.history] == list(range(epochs))
    # The rows of the epoch before were there: nobody has filled them by a synchronous epoch.
    assert result.pipeline is not None
    assert result.pipeline["rows_by_lag"]["1"] > 0
    here = trainer(run, setting, 8)
    np.testing.assert_allclose(here.predict("last"), trainer(run, None, 8, hosts="inline").predict("last"), rtol=1e-5)
    assert list(temporary.iterdir()) == []


def test_they_move_with_the_setting(tmp_path: Path, bucket: str, temporary: Path) -> None:
    """Their files too, which hosts then read in the new place: the former one is gone."""
    run = tmp_path / "run"
    settings = [None, f"s3://{bucket}/runs", str(tmp_path / "folder"), None]
    for number, setting in enumerate(settings, start=1):
        result = trained(run, setting, 2 * number)
        assert result.first_epoch == 2 * (number - 1)
        assert (run / "checkpoints").exists() == (setting is None)
    assert open_storage(f"s3://{bucket}/runs").names() == open_storage(str(tmp_path / "folder")).names() == []


def test_a_host_that_cannot_write_is_named_and_the_one_before_stays(
    tmp_path: Path, bucket: str, temporary: Path
) -> None:
    run, setting = tmp_path / "run", f"s3://{bucket}/runs"
    trained(run, setting, 2)
    before = files(run, setting)
    where = Places.of(RunDirectory(run), setting).place
    with first_in_hosts(fill_disk), pytest.raises(RunError) as caught:
        trained(run, setting, 4)
    assert str(caught.value) == (
        f"the checkpoint after 4 epochs could not be written to {where}: graph server 0: [Errno 28] No space left on device"
        f". The one before is untouched: {where}/epoch-00000002"
    )
    assert files(run, setting) == before
    assert trained(run, setting, 4).first_epoch == 2


def test_a_place_that_hosts_do_not_see_is_refused_before_they_train(tmp_path: Path, temporary: Path) -> None:
    """A folder of the driver's machine, where hosts are on others."""
    run, setting = tmp_path / "run", str(tmp_path / "folder")
    with (
        first_in_hosts(be_elsewhere, setting),
        pytest.raises(
            ConfigError, match=r"^train\.checkpoints must be a place that all hosts see: graph server 0 does not find"
        ),
    ):
        trained(run, setting, 2)
    assert open_storage(setting).names() == [
        f"{Path(Places.of(RunDirectory(run), setting).place).relative_to(setting)}/{OWNER}"
    ]


def test_a_host_s_file_that_is_damaged_or_gone_is_named(tmp_path: Path, bucket: str, temporary: Path) -> None:
    run, setting = tmp_path / "run", f"s3://{bucket}/runs"
    trained(run, setting, 2)
    where = Places.of(RunDirectory(run), setting).place
    storage = open_storage(where)
    (name,) = (name for name in storage.names() if "/server-1-" in name)
    storage.put(name, storage.read(name)[:-1] + b"?")
    with pytest.raises(
        HostError, match=rf"^graph server 1: checkpoint {where}/epoch-00000002 cannot be used \({where}/.*"
    ):
        trained(run, setting, 4)
    # Who reads all of it passes it over.
    with (
        pytest.warns(UserWarning, match="epoch-00000002 is damaged"),
        pytest.raises(RunError, match="every checkpoint"),
    ):
        trained(run, setting, 4, hosts="inline")
    storage.delete(name)
    with (
        pytest.warns(UserWarning, match=r"epoch-00000002 is damaged and not used: server-1-\w+.bin is missing"),
        pytest.raises(RunError, match="every checkpoint"),
    ):
        trained(run, setting, 4)
