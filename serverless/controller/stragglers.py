"""Which calls take suspiciously long: longer than a multiple of what calls of the same stage usually take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final


@final
class Stragglers:
    """Running means of the seconds that calls take, per stage.

    The mean is over all calls until there are `window`, then it forgets exponentially: it follows a run whose calls become
    slower or faster, and cold starts at its beginning do not matter for ever.

    Args:
        factor: a call that takes more than this many times the mean is a straggler, > 1.
        least: calls of a stage before its mean means anything, ≥ 1.
        window: calls over which the mean is taken, ≥ 1.

    Raises:
        ValueError: a number out of range.

    References:
        Thorpe et al., "Dorylus", OSDI '21, section 6: relaunch at 5 times the mean.
    """

    def __init__(self, *, factor: float = 5.0, least: int = 10, window: int = 200) -> None:
        if not 1 < factor < math.inf:
            raise ValueError(f"the factor of stragglers must be finite and > 1, got {factor}")
        for name, value in (("least", least), ("window", window)):
            if value < 1:
                raise ValueError(f"{name} of stragglers must be ≥ 1 call, got {value}")
        self._factor, self._least, self._window = factor, least, window
        self._calls: dict[int, int] = {}
        self._means: dict[int, float] = {}

    def observe(self, stage: int, seconds: float) -> None:
        """Records a call that was answered.

        Args:
            stage: the number of the task in the program.
            seconds: that the call took, ≥ 0.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds of a call must be finite and ≥ 0, got {seconds}")
        calls = self._calls.get(stage, 0) + 1
        mean = self._means.get(stage, 0.0)
        self._calls[stage] = calls
        self._means[stage] = mean + (seconds - mean) / min(calls, self._window)

    def threshold(self, stage: int) -> float | None:
        """Seconds after which a call is a straggler; None if too little is known, or calls take no time at all."""
        if self._calls.get(stage, 0) < self._least:
            return None
        return self._factor * self._means[stage] or None

    def state(self) -> dict[str, tuple[int, float]]:
        """What has been observed, for a checkpoint: calls and mean seconds, by stage."""
        return {str(stage): (calls, self._means[stage]) for stage, calls in self._calls.items()}

    def restore(self, state: Mapping[str, tuple[int, float] | list[int | float]]) -> None:
        """Continues from what `state` gave, and forgets what has been observed since."""
        self._calls = {int(stage): int(calls) for stage, (calls, _) in state.items()}
        self._means = {int(stage): float(mean) for stage, (_, mean) in state.items()}
