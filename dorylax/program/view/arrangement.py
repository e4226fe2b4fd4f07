"""Where the tasks of a program are drawn, and how lines between them run.

Neighbouring rows are joined directly. Everything else runs in a channel, between the halves or at the right, one
vertical line for each task that is read from afar, so that no line crosses a box.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, final

from dorylax.jax_internals import Var
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.view.boxes import BOX_HEIGHT, BOX_WIDTH, Box, place_in_columns, place_in_rows, ties_of
from dorylax.program.view.svg import Point

_PITCH = BOX_WIDTH + 28
_TRACK = 13.0  # between parallel lines
_MARGIN = 24.0
_ZONE = 20.0  # above and below the lines between two rows, for arrow heads and labels
_EDGE_OF_BOX = 10.0  # from a box's side to its outermost line
_LEFT, _RIGHT = -1, 1_000_000  # places of the halves, before and after all lines of the channel between them


class Line(NamedTuple):
    """A direct line between neighbouring rows: the values, and its two ends."""

    source: int
    target: int
    values: tuple[Var, ...]
    start: Point
    end: Point


class Branch(NamedTuple):
    """The end of a net at a reader."""

    target: int
    values: tuple[Var, ...]
    points: tuple[Point, ...]  # from the task that is read


class Net(NamedTuple):
    """What is read of one task from afar: a line to each reader, with a common beginning."""

    source: int
    branches: tuple[Branch, ...]


@final
@dataclasses.dataclass(frozen=True)
class Arrangement:
    """A drawing's geometry.

    Attributes:
        boxes: of all tasks, in their order.
        lines: direct ones.
        nets: the others.
        width, height: of all that.
        once_bottom: height of the line below what runs once; None where nothing does.
        centre: x between the halves.
    """

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    nets: tuple[Net, ...]
    width: float
    height: float
    once_bottom: float | None
    centre: float


def arrange(program: SplitModel, top: float) -> Arrangement:
    """Places all tasks of a program.

    Args:
        program: any.
        top: height that the drawing begins at.
    """
    return _Arranger(program, top).arrangement()


class _Trunk(NamedTuple):
    source: int
    readers: tuple[int, ...]
    centre: bool  # in the channel between the halves, or that at the right


class _Arranger:
    def __init__(self, program: SplitModel, top: float) -> None:
        self._top = top
        self._ties = ties_of(program)
        self._boxes, self._above = place_in_rows(program.tasks, self._ties)
        self._counts = place_in_columns(self._boxes, program.tasks)
        self._direct = [tie for tie in self._ties if self._neighbours(*tie)]
        self._trunks = self._make_trunks()

    def _neighbours(self, writer: int, reader: int) -> bool:
        a, b = self._boxes[writer], self._boxes[reader]
        # What runs once is set apart, even from the row right below it.
        return a.right == b.right and (a.row < self._above) == (b.row < self._above) and a.gap(True) == b.gap(False)

    def _make_trunks(self) -> list[_Trunk]:
        far: dict[int, list[int]] = defaultdict(list)
        direct = set(self._direct)
        for writer, reader in self._ties:
            if (writer, reader) not in direct:
                far[writer].append(reader)
        boxes = self._boxes
        return [
            _Trunk(writer, tuple(readers), not all(boxes[k].right for k in (writer, *readers)))
            for writer, readers in far.items()
        ]

    def arrangement(self) -> Arrangement:
        rows = 1 + max(box.row for box in self._boxes)
        channel_tracks = self._channel_tracks()
        gap_tracks = self._gap_tracks(channel_tracks)
        used = [
            1 + max((track for (side, _), track in channel_tracks.items() if side == s), default=-1)
            for s in (True, False)
        ]
        left = _MARGIN
        channel = left + self._counts[0] * _PITCH
        middle_width = max(2 * _TRACK, (used[0] + 1) * _TRACK)
        right = channel + middle_width + 28
        outer = right + self._counts[1] * _PITCH
        width = (outer + (used[1] + 1) * _TRACK if self._counts[1] else channel + middle_width) + _MARGIN
        y, tops = self._top, []
        heights = [0] * (rows + 1)
        for (_, gap), track in gap_tracks.items():
            heights[gap] = max(heights[gap], track + 1)
        gap_tops = []
        for row in range(rows + 1):
            gap_tops.append(y)
            if row or heights[row]:
                y += 2 * _ZONE + max(0, heights[row] - 1) * _TRACK + (_ZONE + 6 if row and row == self._above else 0)
            tops.append(y)
            y += BOX_HEIGHT if row < rows else 0
        for box in self._boxes:
            box.x = (right if box.right else left) + box.column * _PITCH
            box.y = tops[box.row]

        def track_x(trunk: _Trunk) -> float:
            start = channel if trunk.centre else outer
            return start + (1 + channel_tracks[trunk.centre, trunk.source]) * _TRACK - (_PITCH - BOX_WIDTH) / 2

        def track_y(trunk: _Trunk, gap: int) -> float:
            return gap_tops[gap] + _ZONE + gap_tracks[trunk.source, gap] * _TRACK

        nets = self._nets(track_x, track_y)
        once = gap_tops[self._above] + (tops[self._above] - gap_tops[self._above]) - _ZONE - 6 if self._above else None
        middle = channel + (middle_width + 28 - (_PITCH - BOX_WIDTH)) / 2
        return Arrangement(tuple(self._boxes), tuple(self._lines()), tuple(nets), width, y + _MARGIN, once, middle)

    def _stops(self, trunk: _Trunk) -> list[tuple[int, bool]]:
        """The boxes that a trunk joins, and whether it leaves them."""
        return [(trunk.source, True), *((reader, False) for reader in trunk.readers)]

    def _gap_tracks(self, channel_tracks: dict[tuple[bool, int], int]) -> dict[tuple[int, int], int]:
        """(source, gap) → number of the horizontal line there, from the top; lines that do not meet share one."""
        found: dict[tuple[int, int], int] = {}
        taken: dict[int, list[list[tuple[int, int]]]] = defaultdict(list)
        for trunk in self._trunks:
            # Places from left to right, for comparison only: left half, channel, right half, channel.
            turn = channel_tracks[trunk.centre, trunk.source] + (0 if trunk.centre else _RIGHT + 1)
            for gap in dict.fromkeys(self._boxes[k].gap(out) for k, out in self._stops(trunk)):
                stops = [self._boxes[k].right for k, out in self._stops(trunk) if self._boxes[k].gap(out) == gap]
                places = [turn, *(_RIGHT if right else _LEFT for right in stops)]
                low, high = min(places), max(places)
                tracks = taken[gap]
                free = (n for n, spans in enumerate(tracks) if all(b < low or high < a for a, b in spans))
                track = next(free, len(tracks))
                if track == len(tracks):
                    tracks.append([])
                tracks[track].append((low, high))
                found[trunk.source, gap] = track
        return found

    def _channel_tracks(self) -> dict[tuple[bool, int], int]:
        """(channel, source) → number of the vertical line there; those whose heights do not meet share one."""
        found: dict[tuple[bool, int], int] = {}
        ends: dict[bool, list[int]] = {True: [], False: []}
        spans = []
        for trunk in self._trunks:
            gaps = [self._boxes[k].gap(out) for k, out in self._stops(trunk)]
            spans.append((min(gaps), max(gaps), trunk))
        for low, high, trunk in sorted(spans, key=lambda span: (span[0], span[1])):
            column = ends[trunk.centre]
            track = next((n for n, end in enumerate(column) if end < low), len(column))
            column[track : track + 1] = [high]
            found[trunk.centre, trunk.source] = track
        return found

    def _lines(self) -> Iterable[Line]:
        starts, ends = defaultdict(list), defaultdict(list)
        for writer, reader in self._direct:
            starts[writer].append((self._boxes[reader].x, reader))
            ends[reader].append((self._boxes[writer].x, writer))
        for writer, reader in self._direct:
            a, b = self._boxes[writer], self._boxes[reader]
            start = (a.centre + _spread(sorted(starts[writer]), reader), a.side(True))
            end = (b.centre + _spread(sorted(ends[reader]), writer), b.side(False))
            yield Line(writer, reader, self._ties[writer, reader], start, end)

    def _nets(self, track_x: Callable[[_Trunk], float], track_y: Callable[[_Trunk, int], float]) -> Iterable[Net]:
        ports = self._ports()
        for trunk in self._trunks:
            branches = []
            x = track_x(trunk)
            source = self._boxes[trunk.source]
            out = track_y(trunk, source.gap(True))
            start = ports[trunk.source, trunk.source, True]
            for reader in trunk.readers:
                box = self._boxes[reader]
                into = track_y(trunk, box.gap(False))
                end = ports[trunk.source, reader, False]
                points = [
                    (start, source.side(True)),
                    (start, out),
                    (x, out),
                    (x, into),
                    (end, into),
                    (end, box.side(False)),
                ]
                branches.append(Branch(reader, self._ties[trunk.source, reader], tuple(_without_repeats(points))))
            yield Net(trunk.source, tuple(branches))

    def _ports(self) -> dict[tuple[int, int, bool], float]:
        """(source, box, whether it leaves) → x: each box's nets beside each other, on the side of their channel."""
        groups: dict[tuple[int, bool, bool], list[_Trunk]] = defaultdict(list)
        for trunk in self._trunks:
            for k, out in self._stops(trunk):
                groups[k, out, trunk.centre and self._boxes[k].right].append(trunk)
        found = {}
        for (k, out, at_left), trunks in groups.items():
            first = _EDGE_OF_BOX if out else 2 * _EDGE_OF_BOX
            step = min(8.0, 50 / len(trunks))
            for number, trunk in enumerate(trunks):
                offset = first + number * step
                box = self._boxes[k]
                found[trunk.source, k, out] = box.x + (offset if at_left else BOX_WIDTH - offset)
        return found


def _spread(ordered: Sequence[tuple[float, int]], index: int) -> float:
    """Offsets of a box's direct lines from its middle, in the order of their other ends."""
    place = [other for _, other in ordered].index(index)
    return (place - (len(ordered) - 1) / 2) * min(36, 80 / len(ordered))


def _without_repeats(points: Iterable[Point]) -> Iterable[Point]:
    """A path without points that it passes straight through."""
    kept: list[Point] = []
    for point in points:
        if kept and kept[-1] == point:
            continue
        if len(kept) > 1 and any(kept[-2][axis] == kept[-1][axis] == point[axis] for axis in (0, 1)):
            kept.pop()
        kept.append(point)
    return kept
