"""Autotuner of the concurrent tensor tasks: matches the rate of their results to the speed of graph tasks."""

from __future__ import annotations

from typing import NamedTuple, final

_FIRST_STEP = 8  # the initial step is 1/8 of the limit


class AutotunerState(NamedTuple):
    """State of an autotuner.

    Attributes:
        limit: Maximum number of concurrent tensor tasks.
        seen: Queue length at the last adjustment of the limit.
        step: Size of the next change.
        direction: Sign of the last change: 1 for up, -1 for down, 0 before the first change.
    """

    limit: int
    seen: int
    step: int
    direction: int


@final
class Autotuner:
    """Lowers the limit of tensor tasks while the queue of graph tasks grows, and raises it while the queue shrinks.

    A growing queue means that tensor results arrive faster than graph tasks can consume them. An empty queue means that
    graph threads are idle. Changes of the queue within 1/8 count as noise. The step halves at each change of direction, so
    the limit converges. It grows by 1 while the direction stays the same, so the limit tracks trends.

    Args:
        start: Initial limit.
        least: Minimum limit, ≥ 1.
        most: Maximum limit.

    Raises:
        ValueError: Unless 1 ≤ least ≤ start ≤ most.

    References:
        Thorpe et al., "Dorylus", OSDI '21, section 6, "autotuner". Their initial limit is min(intervals, 100).
    """

    def __init__(self, *, start: int, least: int = 1, most: int) -> None:
        if not 1 <= least <= start <= most:
            raise ValueError(f"an autotuner needs 1 ≤ least ≤ start ≤ most, got {least}, {start}, {most}")
        self._least, self._most = least, most
        self._state = AutotunerState(start, 0, max(1, start // _FIRST_STEP), 0)

    @property
    def limit(self) -> int:
        """Maximum number of concurrent tensor tasks."""
        return self._state.limit

    def observe(self, queued: int) -> int:
        """Adapt the limit to the length of the queue of graph tasks.

        Args:
            queued: Number of graph tasks waiting for a thread, ≥ 0.

        Returns:
            New limit.

        Raises:
            ValueError: If the number is negative.
        """
        if queued < 0:
            raise ValueError(f"a queue holds ≥ 0 tasks, got {queued}")
        self._state = _next(self._state, queued, self._least, self._most)
        return self._state.limit

    def lower(self, most: int) -> None:
        """Lower the maximum limit to `most`, but not below the minimum."""
        self._most = max(self._least, min(self._most, most))
        self.restore(self._state)

    def state(self) -> AutotunerState:
        """Return the state for a checkpoint."""
        return self._state

    def restore(self, state: AutotunerState | list[int]) -> None:
        """Restore a state returned by `state`, with its limit clipped to the range from `least` to `most`."""
        limit, seen, step, direction = state
        self._state = AutotunerState(min(max(limit, self._least), self._most), seen, step, direction)


def _next(state: AutotunerState, queued: int, least: int, most: int) -> AutotunerState:
    direction = _direction(state.seen, queued)
    if not direction:
        return state
    step = state.step
    if direction == -state.direction:
        step = max(1, step // 2)
    elif direction == state.direction:
        step = min(step + 1, max(1, most // _FIRST_STEP))
    limit = min(max(state.limit + direction * step, least), most)
    return AutotunerState(limit, queued, step, direction)


def _direction(seen: int, queued: int) -> int:
    """Return the sign of the limit's next change: 1 for up, -1 for down, 0 for none."""
    noise = max(1, seen // 8)
    if queued == 0 or queued < seen - noise:
        return 1
    return -1 if queued > seen + noise else 0
