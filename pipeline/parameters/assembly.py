"""Collects what the stages of intervals push until an interval's epoch is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from dorylax.pipeline.parameters.epochs_seen import EpochsSeen
from dorylax.pipeline.parameters.messages import Push, Sums


@final
class Assembly:
    """Sums by (interval, epoch, stage), each taken once however often it comes.

    Args:
        stages: the stages that push in every interval and epoch.
        first: the first epoch.

    Raises:
        ValueError: no stage.
    """

    def __init__(self, stages: Sequence[int], first: int) -> None:
        if not stages:
            raise ValueError("stages must name at least one stage that pushes, got none")
        self._stages = tuple(sorted(set(stages)))
        self._parts: dict[tuple[int, int], dict[int, Sums]] = {}
        self._whole = EpochsSeen(first)

    def __len__(self) -> int:
        """How many (interval, epoch) pairs have some of their sums and not all."""
        return len(self._parts)

    def add(self, push: Push) -> Mapping[int, Sums] | None:
        """Takes what a stage gives.

        Returns:
            The sums of all stages, in stage order, when this was the last that was missing: once per interval and epoch.

        Raises:
            ValueError: a stage that is not one of those that push.
        """
        if push.stage not in self._stages:
            raise ValueError(
                f"stage {push.stage} pushes no gradient: those that do are {', '.join(map(str, self._stages))}"
            )
        pair = (push.interval, push.epoch)
        if pair in self._whole:
            return None
        parts = self._parts.setdefault(pair, {})
        parts.setdefault(push.stage, push.sums)
        if len(parts) < len(self._stages):
            return None
        del self._parts[pair]
        self._whole.add(*pair)
        return {stage: parts[stage] for stage in self._stages}
