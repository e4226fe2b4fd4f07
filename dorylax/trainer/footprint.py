"""What a run would hold in memory, with what XLA assigns to its functions, and the check before a run.

The functions compiled here are those that training calls, on shapes instead of arrays, and they are kept: a run that
is let through does not compile them again.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from dorylax.config.resolve import RunConfig
from dorylax.graph.abstract import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets.communities import NAME as GENERATED
from dorylax.graph.datasets.communities import SIZES
from dorylax.memory.estimate import Estimate, MemoryLimitError, Remedy
from dorylax.memory.limit import memory_limit, resident_bytes
from dorylax.memory.phases import Compiled, Process, XlaBytes, held, phases
from dorylax.memory.shapes import DataShape, abstract_data
from dorylax.memory.sources import shape_of
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.from_config import build_model, build_optimizer
from dorylax.trainer.model_parts import further_inputs
from dorylax.trainer.step.arrays import EpochInputs, TrainingArrays
from dorylax.trainer.step.functions import StepFunctions, step_functions
from dorylax.trainer.step.gradient import Gradient
from dorylax.trainer.validate import check_model
from dorylax.trainer.vertex_order import effective_order, is_ordered

# Where a generous guess is below this share of the limit, nothing is compiled to know better.
_CLEARLY = 0.5
_FEWEST_HIDDEN = 8
# Models that are to be compiled to know what they would need are tried for so many seconds.
_PATIENCE = 20.0
_PARTIAL = ("single.order", "data.row_normalise")
_HOST = ("load", "order")  # phases that no model changes


def estimate(config: RunConfig, like: Estimate | None = None) -> Estimate | None:
    """What a run would hold; its data are neither loaded nor generated.

    Args:
        config: of a run without a pipeline.
        like: an estimate of this process whose `process` also counts here; by default it is measured.

    Returns:
        The estimate; None where there is no such data set.

    Raises:
        ValueError, OSError: the data set's file or the model is not usable.
    """
    shape = shape_of(config.data)
    return None if shape is None else _estimate(config, shape, like)


def remedies(config: RunConfig, found: Estimate) -> list[Remedy]:
    """Settings by which a run would need less, each computed: of each key the mildest that makes it fit.

    Those of `_PARTIAL` are named also where they save without being enough. What would have to be compiled is left out
    where that would take too long, going by how long it took for `found`.
    """
    begin = time.perf_counter()
    better: list[Remedy] = []
    settled: set[str] = set()
    for change, like in _changes(config, found):
        ((key, value),) = change.items()
        late = like.compiled is None and time.perf_counter() - begin + found.seconds > _PATIENCE
        if key in settled or late:
            continue
        other = estimate(config.resolve(config.to_dict(), change), like)
        if other is not None and other.peak.total < found.peak.total and (other.fits or key in _PARTIAL):
            settled.add(key)
            shown = str(value).lower() if isinstance(value, bool) else value
            better.append(Remedy(f"{key}={shown}", other.peak.total))
    return better


def check_config(config: RunConfig) -> None:
    """Refuses a run that does not fit, before its data are loaded. Cheap where it clearly fits.

    Raises:
        MemoryLimitError: it needs more than there is; says in which phase, and what would make it fit.
        ValueError, OSError: as `estimate`.
    """
    limit = memory_limit()
    if config.single.memory == "ignore" or config.pipeline is not None or limit is None:
        return
    shape = shape_of(config.data)
    if shape is None:
        return
    _, parts, shape = _model(config, shape)
    if _clearly_fits(shape, parts, limit.bytes):
        return
    found = _estimate(config, shape)
    if not found.fits:
        raise MemoryLimitError(_refusal(found, remedies(config, found)))


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
    if limit is None or _clearly_fits(shape, parts, limit.bytes - resident_bytes()):
        return 0.0
    # The data are counted apart: those that are there are no part of the libraries.
    data.release()
    ordered = community and is_ordered(data)
    libraries = max(0, resident_bytes() - held(shape, ordered=ordered))
    compiled, code, seconds = _compiled(functions, gradient, parts, shape, community=community)
    process = Process(libraries, code)
    parted = phases(shape, process, community=community, loads=False, orders=not ordered, compiled=compiled)
    found = Estimate(shape, parted, limit, process, compiled)
    if found.fits:
        return seconds
    ways = []
    if community:
        given = phases(shape, process, community=False, loads=False, compiled=compiled)
        ways = [Remedy("single.order=given", max(phase.total for phase in given))]
    raise MemoryLimitError(_refusal(found, ways))


def _refusal(found: Estimate, ways: list[Remedy]) -> str:
    return f"the run {found.verdict(ways)}. To try all the same: single.memory=ignore"


def _estimate(config: RunConfig, shape: DataShape, like: Estimate | None = None) -> Estimate:
    begin = time.perf_counter()
    functions, parts, shape = _model(config, shape)
    data = abstract_data(shape)
    order = effective_order(
        config.single.order, data, lambda: _gradient(functions, parts, data, config).forward.by_rows
    )
    community = order == "community"
    libraries = resident_bytes()
    compiled, code = None if like is None else like.compiled, 0
    if compiled is None:
        compiled, code, _ = _compiled(
            functions, _gradient(functions, parts, data, config), parts, shape, community=community
        )
    seconds = 0.0 if like is not None and like.compiled is not None else time.perf_counter() - begin
    process = Process(libraries, code) if like is None else like.process
    parted = phases(shape, process, community=community, row_normalise=config.data.row_normalise, compiled=compiled)
    return Estimate(shape, parted, memory_limit(), process, compiled, seconds)


def _model(config: RunConfig, shape: DataShape) -> tuple[StepFunctions, ModelParts, DataShape]:
    """With the shape as this model reads it."""
    data = abstract_data(shape)
    parts = take_apart(build_model(config, data))
    functions = step_functions(parts.structure, build_optimizer(config.optimizer))
    reads = check_model(functions, parts, data).edge_ids
    return functions, parts, dataclasses.replace(shape, edge_ids=reads)


def _gradient(functions: StepFunctions, parts: ModelParts, data: AbstractData, config: RunConfig) -> Gradient:
    """As the trainer chooses it."""
    if not config.single.optimize:
        return functions.plain
    try:
        spec = DataSpec.of(data, parts.keywords)
        return functions.optimised(parts, spec, gathered=config.single.gathered)[0]
    except SplitError:
        return functions.plain


def _compiled(
    functions: StepFunctions, gradient: Gradient, parts: ModelParts, shape: DataShape, *, community: bool
) -> tuple[Compiled | None, int, float]:
    """What the functions take, how much compiling them has added to this process, and the seconds it took.

    Nothing is known where JAX does not compute on the CPU: the memory is then another one.
    """
    if jax.default_backend() != "cpu":
        return None, 0, 0.0
    before = resident_bytes()
    data = abstract_data(shape, reordered=True if community else None)
    V = shape.num_vertices
    masks, weights = jax.ShapeDtypeStruct((3, V), bool), jax.ShapeDtypeStruct((V,), np.float32)
    named = further_inputs(data, parts.keywords)
    arrays = TrainingArrays(data.graph, data.features, data.labels, masks, weights, named)
    start, _ = functions.start.prepare(parts.params, parts.state)
    carry = start(parts.params, parts.state)
    hoist, kept, seconds = gradient.prepare(arrays)
    inputs = EpochInputs(parts.streams, kept, arrays, np.uint32(0), np.uint32(0))
    step, step_seconds = functions.step(gradient).prepare(carry, inputs)
    evaluate, evaluate_seconds = functions.evaluation(gradient.forward).prepare(
        carry[0], carry[2], (parts.streams, gradient.forward.kept_of(kept), arrays)
    )
    # The model's own parameters, the copy that the trainer starts from, and that of the best epoch.
    parameters = _size(carry) + 3 * _size(parts.params)
    compiled = Compiled(_assigned(hoist), _assigned(step), _assigned(evaluate), parameters, gradient.reads_features)
    return compiled, max(0, resident_bytes() - before), seconds + step_seconds + evaluate_seconds


def _assigned(executable: Any) -> XlaBytes:
    if executable is None:
        return XlaBytes(0, 0)
    found = executable.memory_analysis()
    return XlaBytes(found.temp_size_in_bytes, max(0, found.output_size_in_bytes - found.alias_size_in_bytes))


def _size(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _clearly_fits(shape: DataShape, parts: ModelParts, there: int) -> bool:
    """Whether a generous guess is far below what is there.

    It is six copies of the data and, of the width of all parameters together, twice an array with a row per edge
    (messages and attention, with their gradients) and eight times one with a row per vertex.
    """
    widths = sum(leaf.shape[-1] if leaf.ndim else 1 for leaf in jax.tree.leaves(parts.params))
    rows = 4 * (2 * widths * shape.num_edges + 8 * (widths + shape.num_features) * shape.num_vertices)
    return resident_bytes() + 6 * sum(shape.copy(reordered=True).values()) + rows < _CLEARLY * there


def _changes(config: RunConfig, found: Estimate) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Settings to try in turn, of one key those that change least first, with the estimate that knows part of the answer."""
    measured = dataclasses.replace(found, compiled=None)
    if config.single.order != "given":
        yield {"single.order": "given"}, found  # ids of vertices and edges are arguments: what XLA assigns stays
    if config.data.row_normalise:
        yield {"data.row_normalise": False}, found
    hidden = config.model.hidden_features
    there = math.inf if found.limit is None else float(found.limit.bytes)
    if hidden is not None and all(phase.total <= there for phase in found.phases if phase.name in _HOST):
        while hidden > _FEWEST_HIDDEN:
            hidden = max(hidden // 2, _FEWEST_HIDDEN)
            yield {"model.hidden_features": hidden}, measured
    if config.data.name == GENERATED:
        sizes = sorted(SIZES.items(), key=lambda item: -item[1].num_edges)
        for name, size in sizes:
            if size.num_edges < found.shape.num_edges:
                yield {"data.size": name}, measured
