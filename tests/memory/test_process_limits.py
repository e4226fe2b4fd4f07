"""What is refused before it would end in an abort, and without JAX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dorylax.errors import RunError
from dorylax.machine import ThreadLimit
from dorylax.memory import process_limits
from dorylax.memory.process_limits import check_process
from dorylax.pipeline import resources
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.resources import most_threads
from dorylax.serverless.config import TensorConfig

_ROOT = Path(__file__).parent.parent.parent
_LOCAL = PipelineConfig(servers=2, tensor=TensorConfig(backend="local", workers=3))


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, and no limits."""
    monkeypatch.setattr(resources, "cores", lambda: 2)
    monkeypatch.setattr(process_limits, "address_space_needed", lambda _: 2048 * 2**20)
    monkeypatch.setattr(process_limits, "address_space_bytes", lambda: None)
    monkeypatch.setattr(process_limits, "thread_limit", lambda: None)


def test_threads_of_runs() -> None:
    assert most_threads(None) == 36
    assert most_threads(PipelineConfig(clock="virtual")) == 40
    assert most_threads(PipelineConfig(servers=2)) == 40 + 2 * (1 + 1)
    assert most_threads(_LOCAL) == 40 + 2 * (1 + 2) + 3 + 3 * 22


def test_threads_of_runs_with_hosts() -> None:
    """Each host has XLA's own; of two graph servers on two cores each computes with one."""
    hosts = {"hosts": "processes", "servers": 2}
    assert most_threads(PipelineConfig(**hosts)) == 40 + 3 * 22 + 2 * (1 + 1 + 2) + 1
    assert most_threads(PipelineConfig(**hosts, num_hosts=1)) == 40 + 24 + 2 * (1 + 1 + 2) + 1
    local = PipelineConfig(**hosts, tensor=TensorConfig(backend="local", workers=2))
    assert most_threads(local) == 40 + 3 * 22 + 2 * (1 + 1 + 2 + 1 + 2 + 22) + 1
    assert most_threads(PipelineConfig(hosts="ray", servers=2)) == 70  # the others are on nodes


@pytest.mark.parametrize("pipeline", [None, _LOCAL])
def test_an_address_space_that_jax_does_not_fit_into(
    monkeypatch: pytest.MonkeyPatch, pipeline: PipelineConfig | None
) -> None:
    check_process(pipeline)
    monkeypatch.setattr(process_limits, "address_space_bytes", lambda: 2048 * 2**20)
    check_process(pipeline)
    monkeypatch.setattr(process_limits, "address_space_bytes", lambda: 1024 * 2**20)
    with pytest.raises(RunError) as caught:
        check_process(pipeline)
    assert str(caught.value) == (
        "the address space of this process is limited to 1.00 GiB (ulimit -v), and computing with JAX on this machine maps "
        "at least 2.00 GiB, most of it unused: raise the limit, or limit memory by a control group instead"
    )


@pytest.mark.parametrize(
    ("source", "words"), [("user", r"of this user \(ulimit -u\)"), ("cgroup", r"control group \(pids\.max\)")]
)
def test_threads_that_may_not_be_started(monkeypatch: pytest.MonkeyPatch, source: str, words: str) -> None:
    monkeypatch.setattr(process_limits, "thread_limit", lambda: ThreadLimit(36, source))
    check_process()
    with pytest.raises(
        RunError, match=rf"^this takes up to 115 threads, and 36 may still be started .* {words}: raise it"
    ) as caught:
        check_process(_LOCAL)
    assert "--jobs" not in str(caught.value)
    with pytest.raises(RunError, match=r"2 runs at a time take up to 72 threads, and 36 .*, or fewer --jobs"):
        check_process(at_a_time=2)


_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (700 * 2**20, 700 * 2**20))
from {module} import main
sys.exit(main({arguments!r}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the address space")
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("dorylax.cli", ["train", "--data", "communities", "--no-save"]),
        ("dorylax.cli", ["predict", "--run", "none"]),
        ("dorylax.cli", ["describe", "--data", "communities"]),
        ("dorylax.cli", ["partition", "--data", "communities", "--servers", "2"]),
        ("dorylax.cli", ["info"]),
        ("dorylax.experiments.run", ["--sweep"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_refuse_in_one_line_before_jax_is_loaded(module: str, arguments: list[str]) -> None:
    program = _LIMITED.format(module=module, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: the address space of this process is limited to 0.68 GiB (ulimit -v), and")
    assert done.stderr.count("\n") == 1
