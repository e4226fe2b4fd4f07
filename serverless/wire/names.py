"""Names of data at an endpoint. Endpoints belong to one run, so names omit the run; equal keys mean one task.

Attempts of one task share names: they read the same data, and the first complete result under a name counts.
"""

from __future__ import annotations

from dorylax.serverless.task import TaskKey


def artefact(sha256: str) -> str:
    """A stage artefact, as one uint8 array [bytes], by its SHA-256."""
    return f"artefact/{sha256}"


def weights(version: int, ahead: int = 0) -> str:
    """All leaves of the parameters of a version, or of those predicted `ahead` versions later, in order."""
    return f"weights/{version}+{ahead}" if ahead else f"weights/{version}"


def rows(key: TaskKey, part: int) -> str:
    """Row operands of a task, in order, cut to one part."""
    return f"rows/{_task(key)}/{part}"


def free(key: TaskKey) -> str:
    """Operands of a task without rows except weights, in order."""
    return f"free/{_task(key)}"


def result_rows(key: TaskKey) -> str:
    """Row results of a task over all parts, in order."""
    return f"result/rows/{_task(key)}"


def result_sums(key: TaskKey) -> str:
    """Results of a task that are sums over the rows of all parts, in order."""
    return f"result/sums/{_task(key)}"


def _task(key: TaskKey) -> str:
    return f"{key.epoch}/{key.interval}/{key.stage}/{key.chunk}"
