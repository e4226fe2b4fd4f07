"""Estimates memory, disk space and traffic of a streamed run, from the sizes of its data alone."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, final

from dorylax.graph.data_shape import DataShape, abstract_data
from dorylax.jax_internals import type_of
from dorylax.machine import Limit
from dorylax.memory.estimate import Estimate, gibibytes
from dorylax.memory.phases import held
from dorylax.program.model.base import ModelParts
from dorylax.program.tracing.spec import DataSpec
from dorylax.streaming.layout import INDEX
from dorylax.streaming.residency import NotStreamedError, even_units
from dorylax.trainer.step.objective import Objective
from dorylax.trainer.streamed import Layouts, Plan, Programs, free_bytes, lay_out_both, plan_within, programs


@final
@dataclasses.dataclass(frozen=True)
class StreamedEstimate:
    """The layouts of a streamed run's programs, and the bytes that its process holds in addition."""

    layouts: Layouts
    base: int

    @property
    def memory(self) -> int:
        """Peak bytes in memory."""
        training, evaluation = self.layouts
        return self.base + max(training.bytes, training.lasting_bytes + evaluation.bytes)

    @property
    def edges(self) -> int:
        """Number of edges traversed in an epoch."""
        return self.layouts.training.index_reads * self.layouts.training.num_edges

    @property
    def transferred(self) -> int:
        """Bytes that an epoch reads and writes."""
        return sum(self.layouts.training.traffic)

    @property
    def width(self) -> int:
        """Width of most gathers in an epoch: columns of the widest whole value or block."""
        training = self.layouts.training
        row_bytes = training.program.analysis.row_bytes
        columns: list[int] = [row_bytes[var] // type_of(var).dtype.itemsize for var in training.epoch.whole]
        return max([*columns, *training.blocked.values(), 1])

    @property
    def disk(self) -> int:
        """Bytes of files during the run."""
        return sum(layout.scratch_bytes for layout in self.layouts)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON values, in bytes."""
        training = self.layouts.training
        return {
            "memory": self.memory,
            "disk": self.disk,
            "epoch": {"read": training.traffic[0], "written": training.traffic[1], "edges": self.edges},
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
        NotStreamedError: The streamed run does not fit either, or its data cannot even be loaded.
    """
    shape = found.shape
    load = found.phases[0]
    # The system evicts pages of mapped files if memory is scarce.
    stays = load.total - sum(load.parts.get(name, 0) for name in _mapped_parts(shape))
    if load.name == "load" and stays > limit.bytes:
        raise NotStreamedError(
            f"loading the data takes {gibibytes(stays)}: give an archive that can be used where it lies "
            "(features as float32, indices as int32, every edge with its reverse, written by dorylax)"
        )
    spec = dataclasses.replace(DataSpec.of(abstract_data(shape), parts.keywords), edge_ids_fit=shape.edge_ids_fit)
    base = found.process.libraries + held(shape, ordered=False)

    def plan(hoists: bool, keeps_apart: bool) -> Plan:
        pair = programs(parts, spec, objective, hoists=hoists)
        units = even_units(shape.num_vertices, shape.num_edges, *pair)
        mapped = frozenset(INDEX if name == "graph" else name for name in _mapped_parts(shape))
        how: Any = {"symmetric": shape.symmetric, "mapped": mapped}
        how["labelled_edges"] = _labelled_edges(shape) if keeps_apart else None
        return Plan(pair, units, lay_out_both(pair, units, limit.bytes, base + order_of(pair), **how))

    def order_of(pair: Programs) -> int:
        return 4 * shape.num_edges if any(one.reads_edges("ids", "places", "rows") for one in pair) else 0

    room = sys.maxsize if scratch is None else free_bytes(scratch)
    found_plan = plan_within(room, plan, scratch or Path())
    return StreamedEstimate(found_plan.layouts, base + order_of(found_plan.programs))


def _labelled_edges(shape: DataShape) -> int | None:
    """Expected `edges_from_labelled`; all edges, the upper bound, if the number of training vertices is unknown."""
    V, train = shape.num_vertices, shape.num_labelled
    if not shape.symmetric or train == V:
        return None
    return shape.num_edges if train is None else round(shape.num_edges * train / V)


def _mapped_parts(shape: DataShape) -> list[str]:
    storage = {"features": shape.features_in, "graph": shape.graph_in}
    return [name for name, where in storage.items() if where == "mapped"]
