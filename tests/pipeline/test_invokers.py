"""Every backend outside this process has a pool of sandboxes."""

from __future__ import annotations

import contextlib
import importlib
import typing

import pytest

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.invokers import make_data_server, make_invoker
from dorylax.pipeline.resources import Resources
from dorylax.serverless.backends.catalogue import BACKENDS, BackendName
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.data.keys import RunKeys
from dorylax.settings.errors import ConfigError


def test_every_backend_is_in_the_catalogue_and_has_what_makes_its_sandboxes() -> None:
    assert tuple(BACKENDS) == typing.get_args(BackendName)
    for entry in BACKENDS.values():
        if entry.invoker is not None:
            module, _, name = entry.invoker.partition(":")
            assert callable(getattr(importlib.import_module(module), name))
        assert set(entry.settings) <= TensorConfig.options().keys()


def test_what_is_missing_on_this_machine_is_an_error_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DORYLAX_RIE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"tensor\.backend = emulator needs AWS's Runtime Interface Emulator"):
        make_invoker(TensorConfig(backend="emulator"), RunKeys.make(), 1)


def test_functions_of_aws_find_this_machine_at_its_host() -> None:
    keys = RunKeys.make()
    with make_data_server(TensorConfig(backend="aws", host="127.0.0.1"), keys) as data:
        assert data.open("graph").startswith("tcp://127.0.0.1:")
    with make_data_server(TensorConfig(backend="local"), keys) as data:
        assert data.open("graph").startswith("ipc://")


def test_of_aws_there_are_a_hundred_unless_told_otherwise() -> None:
    aws = TensorConfig(backend="aws", host="127.0.0.1")
    assert Resources.of(PipelineConfig(servers=4, tensor=aws), None, 2) == (1, 25, 100)
    fewer = PipelineConfig(servers=4, tensor=TensorConfig(backend="aws", host="127.0.0.1", workers=6))
    assert Resources.of(fewer, None, 2) == (1, 2, 6)


def test_local_workers_start_when_they_are_needed() -> None:
    with contextlib.closing(make_invoker(TensorConfig(backend="local"), RunKeys.make(), 1)) as pool:
        assert isinstance(pool, Pool)
        assert pool.pids == ()
