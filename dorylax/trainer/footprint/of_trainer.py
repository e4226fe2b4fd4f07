"""The check of memory before a trainer begins, on data that are there already."""

from __future__ import annotations

import dataclasses

from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.machine import memory_limit, resident_bytes
from dorylax.memory.estimate import Estimate, MemoryLimitError, Remedy
from dorylax.memory.phases import Process, held, phases
from dorylax.program.model.base import ModelParts
from dorylax.trainer.footprint.compiled import clearly_fits, compiled_on_shapes
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.gradient import Gradient
from dorylax.trainer.vertex_order import is_ordered


def check_trainer(
    functions: StepFunctions,
    gradient: Gradient,
    parts: ModelParts,
    data: Dataset,
    *,
    community: bool,
    edge_ids: bool,
) -> float:
    """Refuses to train on data that are there already, if what is to come does not fit.

    Args:
        functions: of the model and the optimizer.
        gradient: how gradients are computed.
        parts: the model.
        data: the data set.
        community: whether it will be reordered.
        edge_ids: whether the model reads edge ids.

    Returns:
        Seconds spent on compiling what training will use.

    Raises:
        MemoryLimitError: what the process holds and what training adds to it is more than there is.
    """
    limit, shape = memory_limit(), dataclasses.replace(DataShape.of(data), edge_ids=edge_ids)
    if limit is None or clearly_fits(shape, parts, limit.bytes - resident_bytes()):
        return 0.0
    # The data are counted apart: those that are there are no part of the libraries.
    data.release()
    ordered = community and is_ordered(data)
    libraries = max(0, resident_bytes() - held(shape, ordered=ordered))
    compiled, code, seconds = compiled_on_shapes(functions, gradient, parts, shape, community=community)
    process = Process(libraries, code)
    parted = phases(shape, process, community=community, loads=False, orders=not ordered, compiled=compiled)
    found = Estimate(shape, parted, limit, process, compiled)
    if found.fits:
        return seconds
    ways = []
    if community:
        given = phases(shape, process, community=False, loads=False, compiled=compiled)
        ways = [Remedy("single.order=given", max(phase.total for phase in given))]
    raise MemoryLimitError(found.refusal(ways))
