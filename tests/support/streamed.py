"""Programs that are streamed, on small data in tiny units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylax.graph.compressed import as_int64
from dorylax.program.program import Program
from dorylax.program.tracing.arguments import RunData
from dorylax.streaming.data import StreamData
from dorylax.streaming.executor import StreamedProgram
from dorylax.streaming.layout import INDEX, Layout
from dorylax.streaming.residency import TooLittleMemoryError, lay_out
from dorylax.streaming.units import Units, cut

PLENTY = 1 << 40


def units_of(graph: Any, rows: int, entries: int = 1 << 30) -> Units:
    return cut(as_int64(graph.incoming.offsets), rows, entries)


def layout_of(program: Program, data: RunData, rows: int, budget: int = PLENTY) -> Layout:
    """As if all inputs lay in files, with the edges from labelled vertices kept apart where that may be."""
    names = {entry.name for entry in program.traced.inputs} | {INDEX}
    units, symmetric = units_of(data.graph, rows), data.graph.symmetric
    labelled = np.asarray(data.weights) != 0
    edges = np.diff(as_int64(data.graph.incoming.offsets))[labelled].sum()
    kept_apart = int(edges) if symmetric and not labelled.all() else None
    return lay_out(program, units, budget, symmetric=symmetric, mapped=frozenset(names), labelled_edges=kept_apart)


def tightest(program: Program, data: RunData, rows: int) -> int:
    """The least budget that will do, as the refusal states it; one byte less is refused."""
    with pytest.raises(TooLittleMemoryError) as refused:
        layout_of(program, data, rows, 0)
    least = refused.value.missing
    with pytest.raises(TooLittleMemoryError):
        layout_of(program, data, rows, least - 1)
    return least


def streamed(layout: Layout, data: RunData, scratch: Path) -> StreamedProgram:
    given = StreamData(data.graph, [np.asarray(x) for x in data.inputs], np.asarray(data.labels), data.weights != 0)
    return StreamedProgram(layout, given, scratch)
