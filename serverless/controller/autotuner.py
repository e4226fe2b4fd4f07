"""How many tensor tasks should run at a time, so that their answers come as fast as graph tasks can use them."""

from __future__ import annotations

from typing import NamedTuple, final

_FIRST_STEP = 8  # the first step is 1/8 of the limit


class AutotunerState(NamedTuple):
    """What an autotuner knows.

    Attributes:
        limit: how many tensor tasks may run at a time.
        seen: the length of the queue when the limit was last confirmed or changed.
        step: by how much the limit changes next.
        direction: of the last change: 1 up, -1 down, 0 if there was none.
    """

    limit: int
    seen: int
    step: int
    direction: int


@final
class Autotuner:
    """Fewer tensor tasks while the queue of graph tasks grows, more while it drains or is empty.

    A growing queue means that answers come faster than graph tasks can use them; an empty one, that graph threads wait for
    answers. Changes of the queue within 1/8 are noise. The step halves whenever the direction changes, so that the limit
    settles, and grows by 1 while the direction stays, so that it follows.

    Args:
        start: the limit to begin with.
        least: the limit is never smaller, ≥ 1.
        most: the limit is never larger.

    Raises:
        ValueError: not 1 ≤ least ≤ start ≤ most.

    References:
        Thorpe et al., "Dorylus", OSDI '21, section 6, "autotuner", which begins with min(intervals, 100).
    """

    def __init__(self, *, start: int, least: int = 1, most: int) -> None:
        if not 1 <= least <= start <= most:
            raise ValueError(f"an autotuner needs 1 ≤ least ≤ start ≤ most, got {least}, {start}, {most}")
        self._least, self._most = least, most
        self._state = AutotunerState(start, 0, max(1, start // _FIRST_STEP), 0)

    @property
    def limit(self) -> int:
        """How many tensor tasks may run at a time."""
        return self._state.limit

    def observe(self, queued: int) -> int:
        """Takes the length of the queue of graph tasks, and adapts the limit.

        Args:
            queued: graph tasks that wait for a thread, ≥ 0.

        Returns:
            The new limit.

        Raises:
            ValueError: a negative queue.
        """
        if queued < 0:
            raise ValueError(f"a queue holds ≥ 0 tasks, got {queued}")
        self._state = _next(self._state, queued, self._least, self._most)
        return self._state.limit

    def lower(self, most: int) -> None:
        """Lowers the largest limit to this many, ≥ 1, from now on."""
        self._most = max(self._least, min(self._most, most))
        self.restore(self._state)

    def state(self) -> AutotunerState:
        """What it knows, for a checkpoint."""
        return self._state

    def restore(self, state: AutotunerState | list[int]) -> None:
        """Continues from what `state` gave; the limit stays between `least` and `most`."""
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
    """Which way the limit goes: 1 up, -1 down, 0 nowhere."""
    noise = max(1, seen // 8)
    if queued == 0 or queued < seen - noise:
        return 1
    return -1 if queued > seen + noise else 0
