"""Names of data at an endpoint. Endpoints belong to one run, so no name holds the run; equal keys are one task.

Attempts of one task share names: they read the same, and the first complete result under a name is the task's.
"""

from __future__ import annotations

from dorylax.serverless.task import TaskKey


def artefact(sha256: str) -> str:
    """A stage artefact, as one uint8 array [bytes], by its SHA-256."""
    return f"artefact/{sha256}"


def weights(version: int, ahead: int = 0) -> str:
    """All leaves of the parameters of one version, or of what is predicted to come so many versions later, in order."""
    return f"weights/{version}+{ahead}" if ahead else f"weights/{version}"


def rows(key: TaskKey, part: int) -> str:
    """Operands of a task that are rows, in order, cut to one of its parts."""
    return f"rows/{_task(key)}/{part}"


def free(key: TaskKey) -> str:
    """Operands of a task that have no rows and are no weights, in order."""
    return f"free/{_task(key)}"


def result_rows(key: TaskKey) -> str:
    """Results of a task that are rows, in order, of all its parts together."""
    return f"result/rows/{_task(key)}"


def result_sums(key: TaskKey) -> str:
    """Results of a task that are sums over rows, in order, of all its parts together."""
    return f"result/sums/{_task(key)}"


def _task(key: TaskKey) -> str:
    return f"{key.epoch}/{key.interval}/{key.stage}/{key.chunk}"
