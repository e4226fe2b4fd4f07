from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import jax
import pytest

from dorylax import version
from dorylax.serverless.backends.environment import jax_settings, worker_environment

PARENT = {"HOME": "/nowhere", "JAX_PLATFORMS": "cuda", "PJRT_NPROC": "64", "OMP_NUM_THREADS": "9"}


def test_threads_and_platform_are_the_workers_own() -> None:
    found = worker_environment(PARENT, 3)
    assert found["HOME"] == "/nowhere"
    assert found["JAX_PLATFORMS"] == "cpu"
    assert {found[name] for name in ("PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")} == {
        "3"
    }
    assert found["PYTHONSAFEPATH"] == "1"
    assert PARENT["PJRT_NPROC"] == "64"


def test_credentials_of_clouds_stay_with_the_parent() -> None:
    names = (
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_CLIENT_SECRET",
    )
    found = worker_environment(PARENT | dict.fromkeys(names, "secret"), 1)
    assert "secret" not in found.values()
    assert found["HOME"] == "/nowhere"


def test_a_checkout_comes_before_the_parent_s_own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "__file__", "/a/checkout/dorylax/__init__.py")
    assert worker_environment({}, 1)["PYTHONPATH"] == "/a/checkout"
    assert worker_environment({"PYTHONPATH": "/more"}, 1)["PYTHONPATH"] == f"/a/checkout{os.pathsep}/more"


def test_an_installed_package_changes_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "__file__", str(Path(sysconfig.get_path("purelib")) / "dorylax" / "__init__.py"))
    assert "PYTHONPATH" not in worker_environment({}, 1)
    assert worker_environment({"PYTHONPATH": "/more"}, 1)["PYTHONPATH"] == "/more"


def test_settings_of_jax_are_the_parent_s() -> None:
    with jax.enable_x64(True):
        assert jax_settings() == {"jax_enable_x64": True}
    assert jax_settings() == {"jax_enable_x64": False}
