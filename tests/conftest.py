"""Set up every test session: compilation, type checks, the choice of tests, and the folder of real graphs."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import settings
from support import compilation, tiers, type_checks
from support.ray_cluster import ray_cluster  # noqa: F401

# Before any other conftest.py imports the package: a module that is imported earlier stays unchecked. Options are not parsed
# yet, so the part comes from the environment and from the commit.
type_checks.install(tiers.Slice(int(os.environ.get("DORYLAX_TYPE_CHECKS", "4")), tiers.commit()))

# A shared machine may stall for longer than any deadline. Examples come from a fixed seed so that CI does not flake.
# An exhaustive run takes a new seed; failures name a `@reproduce_failure`. Keep their examples with `@example`.
settings.register_profile("dorylax", deadline=None, derandomize=True)
settings.register_profile("exhaustive", deadline=None, print_blob=True)
settings.load_profile("dorylax")


def pytest_configure(config: pytest.Config) -> None:
    """Set up the process: the choice of tests, signals, and the cache of compiled programs."""
    tiers.configure(config)
    if config.option.markexpr == "exhaustive":
        settings.load_profile("exhaustive")
    # Tests send these signals. Background jobs of a shell ignore the first, and programs under `nohup` the second.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    compilation.quickly()
    compilation.in_one_context()
    # Tests compile the same functions again and again. JAX caches them on disk, in a folder of this session alone: another
    # version of the package, or a stopped process, may have written any other cache.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.mkdtemp(prefix="dorylax-tests-compiled-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # of pytest-xdist's processes, and of those that tests start
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options that choose tests."""
    tiers.add_options(parser)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a whole file to one process, and all files that use the Ray cluster to the same one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return tiers.scope_of(nodeid, config.rootpath)

    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Exempt all modules and tests from garbage collection, which would visit them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Fail a test that leaves a logger of dorylax changed: later tests of this process would miss its messages."""
    before = _loggers()
    yield
    assert _loggers() == before, "the test changed a logger of dorylax for good"


def _loggers() -> tuple[int, bool, list[str]]:
    """Return the level of the root of dorylax's loggers, whether others see its messages, and all that are disabled."""
    root = logging.getLogger("dorylax")
    disabled = [
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if name.startswith("dorylax") and isinstance(logger, logging.Logger) and logger.disabled
    ]
    return root.level, root.propagate, disabled


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real graphs, or skip the test if DORYLAX_DATA does not name it."""
    folder = os.environ.get("DORYLAX_DATA")
    if not folder:
        pytest.skip("DORYLAX_DATA is not set: it names the folder with cora.npz and the other real graphs")
    return Path(folder)
