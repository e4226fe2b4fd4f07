"""What every test shares: run-time shape and dtype checks on the whole package, and where the real graphs are."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import jax
import pytest
import type_checks
from hypothesis import settings
from support import compilation, error_texts
from support.ray_cluster import ray_cluster  # noqa: F401

# Before any module of the package is imported, so that every annotated function is checked: all but what handles no arrays
# in small functions that are called a million times, which are the inside of `dorylax.program`, clocks, costs, and what
# every task of every interval calls. Settings are checked by pydantic.
PACKAGE = Path(__file__).parent.parent / "dorylax"
WITHOUT_ARRAYS = {
    f"dorylax.{name}" for name in ("jax_internals", "program", "clock", "cost", "settings", "ray_cluster", "streaming")
}
CHECKED = {f"dorylax.{path.stem}" for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
WITH_ARRAYS = (
    "model",
    "single.function",
    "tracing.arguments",
    "tracing.spec",
    "program",
    "tracing.trace",
)
WITHOUT_TASKS = (
    "engine",
    "parameters.group",
    "parameters.update",
    "plan",
    "prepare",
    "saved",
    "staleness",
)
PLANS = {"layout", "residency", "schedule"}  # of streaming, which compares hundreds of plans
STREAMING = sorted({path.stem for path in (PACKAGE / "streaming").glob("*.py")} - PLANS - {"__init__"})
type_checks.install(
    sorted(CHECKED - WITHOUT_ARRAYS)
    + ["dorylax.layers", "dorylax.experiments"]
    + [f"dorylax.serverless.{n}" for n in ("backends", "data", "handler", "rows", "wire")]
    + [f"dorylax.pipeline.{n}" for n in WITHOUT_TASKS]
    + [f"dorylax.program.{n}" for n in WITH_ARRAYS]
    + [f"dorylax.streaming.{n}" for n in STREAMING]
)

# A shared machine may stall for longer than any deadline; examples come from a fixed seed so that CI does not flake.
settings.register_profile("dorylax", deadline=None, derandomize=True)
settings.load_profile("dorylax")


def pytest_configure(config: pytest.Config) -> None:
    """Sets up the process: signals, and what JAX has compiled."""
    # Tests send these. Shells let what runs in the background ignore the one, `nohup` the other.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    error_texts.configure(config)
    compilation.quickly()
    compilation.in_one_context()
    # Many tests make the same functions anew, and compiling is most of their time: JAX keeps what it has compiled. For this
    # session alone and until its end, so that nothing comes from another version or from a process that was stopped.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.mkdtemp(prefix="dorylax-tests-compiled-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # of pytest-xdist's processes, and of those that tests start
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives all files that use the Ray cluster to one process, so that there is one cluster; each other file to any."""
    from xdist.scheduler import LoadFileScheduling

    @functools.cache
    def uses_ray(file: str) -> bool:
        return "ray_cluster" in (config.rootpath / file).read_text("utf-8")

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "ray" if uses_ray(file) else file

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real graphs that DORYLAX_DATA names; tests that need it skip where it is not set."""
    folder = os.environ.get("DORYLAX_DATA")
    if not folder:
        pytest.skip("DORYLAX_DATA is not set: it names the folder with cora.npz and the other real graphs")
    return Path(folder)
