"""Estimates memory, disk space and traffic of a streamed run, from the sizes of its data alone."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, NamedTuple

from dorylax.graph.data_shape import abstract_data
from dorylax.machine import Limit
from dorylax.memory.estimate import Estimate, gibibytes
from dorylax.memory.phases import held
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts
from dorylax.program.tracing.spec import DataSpec
from dorylax.streaming.layout import INDEX
from dorylax.streaming.residency import even_units
from dorylax.trainer.step.objective import Objective
from dorylax.trainer.streamed import Layouts, Plan, Programs, free_bytes, lay_out_both, plan_within, programs


class StreamedEstimate(NamedTuple):
    """The layouts of a streamed run's programs, and the bytes that its process holds in addition."""

    layouts: Layouts
    base: int

    @property
    def memory(self) -> int:
        """Peak bytes in memory."""
        training, evaluation = self.layouts
        return self.base + max(training.bytes, training.lasting_bytes + evaluation.bytes)

    @property
    def disk(self) -> int:
        """Bytes of files during the run."""
        return sum(layout.scratch_bytes for layout in self.layouts)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON values, in bytes; "edges" are those traversed in an epoch."""
        training = self.layouts.training
        read, written = training.traffic
        edges = training.index_reads * training.num_edges
        return {
            "memory": self.memory,
            "disk": self.disk,
            "epoch": {"read": read, "written": written, "edges": edges},
            "once": {"read": training.traffic_of_once[0], "written": training.traffic_of_once[1]},
        }

    def __str__(self) -> str:
        training = self.layouts.training
        read, written = training.traffic
        times = training.index_reads
        return (
            f"streams its data from disk: {gibibytes(self.memory)} in memory, {gibibytes(self.disk)} of files; an epoch "
            f"reads {gibibytes(read)}, writes {gibibytes(written)} and goes through the edges {times} "
            f"time{'' if times == 1 else 's'}"
        )


def estimate_streamed(
    found: Estimate, parts: ModelParts, objective: Objective, limit: Limit, scratch: Path | None
) -> StreamedEstimate:
    """Estimate a run whose data do not fit into memory.

    Args:
        found: Estimate of the run in memory.
        parts: The model.
        objective: Loss and metric.
        limit: Memory limit of the process.
        scratch: Folder for its files; None: not known, and the disk is assumed to be large enough.

    Raises:
        SplitError: The model cannot be split.
        SplitError: The streamed run does not fit either, or its data cannot even be loaded.
    """
    shape, load = found.shape, found.phases[0]
    V, E, train = shape.num_vertices, shape.num_edges, shape.num_labelled
    mapped = [name for name in ("features", "graph") if shape.storage(name) == "mapped"]
    # The system evicts pages of mapped files if memory is scarce.
    stays = load.total - sum(load.parts.get(name, 0) for name in mapped)
    if load.name == "load" and stays > limit.bytes:
        raise SplitError(
            f"loading the data takes {gibibytes(stays)}: give an archive that can be used where it lies "
            "(features as float32, indices as int32, every edge with its reverse, written by dorylax)"
        )
    spec = dataclasses.replace(DataSpec.of(abstract_data(shape), parts.keywords), edge_ids_fit=shape.edge_ids_fit)
    # Expected `edges_from_labelled`; all edges, the upper bound, if the number of training vertices is unknown.
    labelled = None if not shape.symmetric or train == V else E if train is None else round(E * train / V)

    def base_of(pair: Programs) -> int:
        reads_order = any(one.reads_edges("ids", "places", "rows") for one in pair)
        return found.process.libraries + held(shape, ordered=False) + (4 * E if reads_order else 0)

    def plan(hoists: bool, keeps_apart: bool) -> Plan:
        pair = programs(parts, spec, objective, hoists=hoists)
        units = even_units(V, E, *pair)
        layouts = lay_out_both(
            pair,
            units,
            limit.bytes,
            base_of(pair),
            symmetric=shape.symmetric,
            mapped=frozenset(INDEX if name == "graph" else name for name in mapped),
            labelled_edges=labelled if keeps_apart else None,
        )
        return Plan(pair, units, layouts)

    room = sys.maxsize if scratch is None else free_bytes(scratch)
    planned = plan_within(room, plan, scratch or Path())
    return StreamedEstimate(planned.layouts, base_of(planned.programs))
