"""Checks that a process's limits suffice for a run, since XLA aborts without a message if it lacks resources later.

The module does not load JAX, which may itself exceed the limits.
"""

from __future__ import annotations

from dorylax.errors import RunError
from dorylax.machine import address_space_bytes, address_space_needed, thread_limit
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.resources import most_threads

_GIB = 2**30
_RAISE = {
    "user": "of this user (ulimit -u): raise it, or end other processes",
    "cgroup": "of the control group (pids.max): raise it (docker: --pids-limit)",
}


def check_process(pipeline: PipelineConfig | None = None, *, at_a_time: int = 1) -> None:
    """Refuse work that would exceed the limits of address space and threads.

    Args:
        pipeline: Configuration of the run's pipeline; None: one machine.
        at_a_time: Number of such runs, each in a separate process.

    Raises:
        RunError: The limit of address space is below the size that JAX maps, or the limit of threads is below the
            number that will start.
    """
    threads = most_threads(pipeline)
    space, needed = address_space_bytes(), address_space_needed(threads)
    if space is not None and space < needed:
        raise RunError(
            f"the address space of this process is limited to {space / _GIB:.2f} GiB (ulimit -v), and computing with JAX on "
            f"this machine maps at least {needed / _GIB:.2f} GiB, most of it unused: raise the limit, or limit memory by a "
            "control group instead"
        )
    limit, all_threads = thread_limit(), at_a_time * threads
    if limit is not None and limit.left < all_threads:
        runs = f"{at_a_time} runs at a time take" if at_a_time > 1 else "this takes"
        fewer = ", or fewer --jobs" if at_a_time > 1 else ""
        raise RunError(
            f"{runs} up to {all_threads} threads, and {limit.left} may still be started within the limit "
            f"{_RAISE[limit.source]}{fewer}, or run on fewer cores (taskset)"
        )
