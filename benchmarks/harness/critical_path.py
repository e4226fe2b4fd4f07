"""Which resource an epoch waited for: its critical path, followed backwards through the spans of a virtual run."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence

from dorylax.pipeline.timeline import Span

_SAME = 1e-12  # seconds: of times that were added up differently


def critical_path(spans: Sequence[Span], begin: float, end: float) -> Counter[str]:
    """Seconds of a stretch of time by what its critical path was on: graph, tensor, parameters or network.

    In virtual time a task begins at the very moment at which the last thing that it waits for has come: a task of its own
    interval, a free thread of its server, or a message. So the path goes from the task that ends last to one that ended as
    it began, and where none did, messages were on their way ("network"). Spans of messages last until they are
    acknowledged, which only the end of an interval's epoch waits for, and are not followed.

    Args:
        spans: all tasks of the run.
        begin: seconds of the clock.
        end: likewise.
    """
    tasks = sorted((span for span in spans if span.resource != "network"), key=lambda span: span.end)
    ends = [span.end for span in tasks]
    found: Counter[str] = Counter()
    now, last = end, None
    while now > begin + _SAME:
        stop = bisect.bisect_right(ends, now + _SAME)
        # Tasks without a duration would lead nowhere.
        while stop and tasks[stop - 1].start >= now - _SAME:
            stop -= 1
        if not stop:
            found["network"] += now - begin
            break
        first = bisect.bisect_left(ends, ends[stop - 1] - _SAME)
        candidates = [span for span in tasks[first:stop] if span.start < now - _SAME]
        chosen = max(candidates, key=lambda span: _likeness(span, last))
        found["network"] += max(0.0, now - max(chosen.end, begin))
        found[chosen.resource] += max(0.0, min(chosen.end, now) - max(chosen.start, begin))
        now, last = chosen.start, chosen
    return found


def _likeness(span: Span, last: Span | None) -> tuple[bool, bool, float]:
    """How likely it is that a task waited for this one, of those that ended as it began."""
    if last is None:
        return False, False, span.end - span.start
    same = (span.interval, span.epoch) == (last.interval, last.epoch)
    queue = (span.resource, span.server) == (last.resource, last.server)
    return same, queue, span.end - span.start
