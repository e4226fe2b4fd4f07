"""Every backend outside this process has a pool of sandboxes."""

from __future__ import annotations

import typing

import pytest

from dorylax.pipeline import invokers
from dorylax.pipeline.invokers import make_invoker
from dorylax.serverless.config import BackendName, TensorConfig, TensorConfigError
from dorylax.serverless.data.keys import RunKeys


def test_every_backend_has_one() -> None:
    assert set(invokers._INVOKERS) == set(typing.get_args(BackendName)) - {"inline"}


def test_what_is_missing_on_this_machine_is_an_error_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DORYLAX_RIE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TensorConfigError, match=r"tensor\.backend = emulator needs AWS's Runtime Interface Emulator"):
        make_invoker(TensorConfig(backend="emulator"), RunKeys.make(), 1)


def test_local_workers_start_when_they_are_needed() -> None:
    pool = make_invoker(TensorConfig(backend="local"), RunKeys.make(), 1)
    pool.close()
