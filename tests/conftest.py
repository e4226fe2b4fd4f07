"""What every test shares: run-time shape and dtype checks on the whole package, and where the real graphs are."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import jax
import pytest
import type_checks
from hypothesis import settings
from support import error_texts

# Before any module of the package is imported, so that every annotated function is checked: all but what handles no arrays
# in small functions that are called a million times, which are the inside of `dorylax.program`, clocks, costs, and what
# every task of every interval calls. Settings are checked by pydantic.
PACKAGE = Path(__file__).parent.parent / "dorylax"
WITHOUT_ARRAYS = {"dorylax.jax_internals", "dorylax.program", "dorylax.clock", "dorylax.cost", "dorylax.settings"}
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
type_checks.install(
    sorted(CHECKED - WITHOUT_ARRAYS)
    + ["dorylax.layers", "dorylax.experiments"]
    + [f"dorylax.serverless.{n}" for n in ("backends", "data", "handler", "rows", "wire")]
    + [f"dorylax.pipeline.{n}" for n in WITHOUT_TASKS]
    + [f"dorylax.program.{n}" for n in WITH_ARRAYS]
)

# A shared machine may stall for longer than any deadline; examples come from a fixed seed so that CI does not flake.
settings.register_profile("dorylax", deadline=None, derandomize=True)
settings.load_profile("dorylax")


def pytest_configure(config: pytest.Config) -> None:
    """Sets up the process: Ctrl-C, and what JAX has compiled."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background: tests send it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    error_texts.configure(config)
    # Many tests make the same functions anew, and compiling is most of their time: JAX keeps what it has compiled. For this
    # process alone and until its end, so that nothing comes from another version or from a process that was stopped.
    folder = tempfile.mkdtemp(prefix="dorylax-tests-compiled-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for name, value in (
        ("jax_compilation_cache_dir", folder),
        ("jax_persistent_cache_min_compile_time_secs", 0),
        ("jax_persistent_cache_min_entry_size_bytes", -1),
    ):
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)  # of the processes that tests start


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real graphs that DORYLAX_DATA names; tests that need it skip where it is not set."""
    folder = os.environ.get("DORYLAX_DATA")
    if not folder:
        pytest.skip("DORYLAX_DATA is not set: it names the folder with cora.npz and the other real graphs")
    return Path(folder)
