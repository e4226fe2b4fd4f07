"""Every backend outside this process has a pool of sandboxes."""

from __future__ import annotations

import contextlib
import importlib
import re
import typing

import pytest

from dorylax.net.keys import RunKeys
from dorylax.pipeline import invokers
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.invokers import check_descriptors, make_data_server
from dorylax.pipeline.resources import Resources
from dorylax.serverless.backends.catalogue import BACKENDS, BackendName
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError


def test_every_backend_is_in_the_catalogue_and_has_what_makes_its_sandboxes() -> None:
    assert tuple(BACKENDS) == typing.get_args(BackendName)
    for entry in BACKENDS.values():
        if entry.invoker is not None:
            module, _, name = entry.invoker.partition(":")
            assert callable(getattr(importlib.import_module(module), name))
        assert set(entry.settings) <= TensorConfig.options().keys()


def test_functions_of_aws_find_this_machine_at_its_host() -> None:
    keys = RunKeys.make()
    with make_data_server(TensorConfig(backend="aws", host="127.0.0.1"), keys) as data:
        assert data.open("graph").address.startswith("tcp://127.0.0.1:")
    with make_data_server(TensorConfig(backend="local"), keys) as data:
        assert data.open("graph").address.startswith("ipc://")


@pytest.mark.parametrize("backend", ["ray", "aws"])
def test_on_a_cluster_that_is_the_address_of_the_node(
    monkeypatch: pytest.MonkeyPatch, backend: typing.Literal["ray", "aws"]
) -> None:
    monkeypatch.setattr(invokers, "node_address", lambda: "127.0.0.3")
    with make_data_server(TensorConfig(backend=backend), RunKeys.make()) as data:
        assert data.open("graph").address.startswith("tcp://127.0.0.3:")


@pytest.mark.parametrize(
    ("limit", "workers", "enough"),
    [(256, 2, None), (128, 2, 256), (256, 8, None), (256, 64, 1024), (1024, 64, None), (65_536, 1000, None)],
)
def test_a_run_that_needs_more_connections_than_there_may_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: int, workers: int, enough: int | None
) -> None:
    monkeypatch.setattr(invokers, "raise_limit", lambda: limit)
    expected = contextlib.nullcontext()
    if enough is not None:
        problem = rf"^tensor\.workers = {workers} needs .* may have {limit} in all, .*\(ulimit -n {enough}\)"
        expected = pytest.raises(ConfigError, match=problem)
    with expected:
        check_descriptors(TensorConfig(backend="local"), workers, servers=1, parameter_servers=1)


def test_workers_that_fetch_ahead_need_more_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invokers, "raise_limit", lambda: 128)
    for streaming, connections in ((False, 16 * 3), (True, 16 * 5)):
        tensor = TensorConfig(backend="local", streaming=streaming)
        with pytest.raises(ConfigError, match=rf"needs {connections} connections"):
            check_descriptors(tensor, 16, servers=2, parameter_servers=1)


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_where_strangers_could_use_up_the_descriptors_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, transport: typing.Literal["ipc", "tcp"]
) -> None:
    tensor = TensorConfig(backend="local", transport=transport)
    monkeypatch.setattr(invokers, "raise_limit", lambda: 1024)
    check_descriptors(tensor, 2, servers=1, parameter_servers=1)
    said = re.findall(r"may have 1024 .* (\d+) would do", caplog.text)
    assert len(said) == (transport == "tcp")
    caplog.clear()
    monkeypatch.setattr(invokers, "raise_limit", lambda: 4096)
    check_descriptors(tensor, 2, servers=1, parameter_servers=1)
    assert not caplog.text


def test_of_aws_there_are_a_hundred_unless_told_otherwise() -> None:
    aws = TensorConfig(backend="aws", host="127.0.0.1")
    assert Resources.of(PipelineConfig(servers=4, tensor=aws), None, 2) == (1, 25, 100)
    fewer = PipelineConfig(servers=4, tensor=TensorConfig(backend="aws", host="127.0.0.1", workers=6))
    assert Resources.of(fewer, None, 2) == (1, 2, 6)
