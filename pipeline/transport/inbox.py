"""Which requests have come to a process: each is handled once, however often, and however late, it comes again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, final

from dorylax.pipeline.transport.base import WHOLE_PROCESS, Role


class Answered(NamedTuple):
    """A request that was answered before.

    Attributes:
        reply: what was answered, and is to be answered again: it may have been lost.
    """

    reply: Any


@final
class Inbox:
    """Remembers requests by who has asked and by their numbers, and replies for as long as they may be asked for again.

    Whoever asks counts its requests up, and says with each message below which number it has all answers.

    Attributes:
        generation: of the run, -1 before the first.
        refused: how many requests of other generations have come.
    """

    def __init__(self) -> None:
        self.generation = -1
        self.refused = 0
        self._begun: dict[Hashable, dict[int, Answered | None]] = {}
        self._oldest: dict[Hashable, int] = {}

    def refuses(self, generation: int, role: Role) -> bool:
        """Whether a request of a generation is not to be answered: of another one, unless a whole process is asked."""
        refused = generation != self.generation and role not in WHOLE_PROCESS
        self.refused += refused
        return refused

    def begin(self, source: Hashable, number: int) -> Answered | bool:
        """Whether a request is to be handled; what was answered to it, where that was so already."""
        if number < self._oldest.get(source, 0):
            return False
        begun = self._begun.setdefault(source, {})
        if number in begun:
            return begun[number] or False
        begun[number] = None
        return True

    def answer(self, source: Hashable, number: int, reply: Any) -> None:
        """Keeps what was answered."""
        if number >= self._oldest.get(source, 0):
            self._begun.setdefault(source, {})[number] = Answered(reply)

    def give_up(self, source: Hashable, number: int) -> None:
        """A request was not answered, and will not be; should it come again, it is a new one."""
        self._begun.get(source, {}).pop(number, None)

    def forget(self, source: Hashable, oldest: int) -> None:
        """Who has asked has the answers to all requests below a number."""
        if oldest > self._oldest.get(source, 0):
            self._oldest[source] = oldest
            begun = self._begun.get(source, {})
            for number in [number for number in begun if number < oldest]:
                del begun[number]
