"""Memory of a model and of its compiled functions, and the estimate for a trainer that has loaded its data."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import optax

from dorylax.graph.data_shape import DataShape, abstract_data
from dorylax.graph.dataset import Dataset
from dorylax.jax_internals import debugged
from dorylax.machine import Limit, resident_bytes
from dorylax.memory.estimate import Compiled, Estimate, Process, Remedy
from dorylax.memory.phases import held, phases
from dorylax.program.model.base import ModelParts
from dorylax.trainer.model_parts import further_inputs
from dorylax.trainer.step.compiled import EpochInputs, TrainingArrays
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.gradient import Gradient
from dorylax.trainer.vertex_order import is_ordered

# If a generous guess is below this share of the limit, the estimate does not compile anything.
_CLEARLY = 0.5


def compiled_on_shapes(
    functions: StepFunctions, gradient: Gradient, parts: ModelParts, shape: DataShape, *, community: bool
) -> tuple[Compiled | None, int, float]:
    """Compile the functions that training calls, on shapes, and return their memory; training finds them compiled.

    Returns:
        The memory that XLA assigns, the bytes that compiling added to this process, and the seconds spent. The memory is
        None if JAX uses an accelerator, which has its own memory, or runs operation by operation for debugging.
    """
    if jax.default_backend() != "cpu" or debugged():
        return None, 0, 0.0
    before = resident_bytes()
    data = abstract_data(shape, reordered=True if community else None)
    V = shape.num_vertices
    masks, weights = jax.ShapeDtypeStruct((3, V), bool), jax.ShapeDtypeStruct((V,), np.float32)
    named = further_inputs(data, parts.keywords)
    arrays = TrainingArrays(data.graph, data.features, data.labels, masks, weights, named)
    functions.start.prepare(parts.params, parts.state)
    carry = functions.start.shapes(parts.params, parts.state)
    hoist, kept, seconds = gradient.prepare(arrays)
    inputs = EpochInputs(parts.streams, kept, arrays, np.uint32(0), np.uint32(0))
    step, step_seconds = functions.step(gradient).prepare(carry, inputs)
    evaluate, evaluate_seconds = functions.evaluation(gradient.forward).prepare(
        carry[0], carry[2], (parts.streams, gradient.forward.kept_of(kept), arrays)
    )
    hoisting, keeping = _assigned(hoist)
    compiled = Compiled(
        kept=keeping,
        hoist=hoisting,
        step=sum(_assigned(step)),
        evaluation=sum(_assigned(evaluate)),
        # The model's own parameters, the copy that the trainer starts from, and that of the best epoch.
        parameters=tree_bytes(carry) + 3 * tree_bytes(parts.params),
        reads_features=gradient.reads_features,
    )
    return compiled, max(0, resident_bytes() - before), seconds + step_seconds + evaluate_seconds


def _assigned(executable: Any) -> tuple[int, int]:
    """Bytes of a function's temporaries, and of results that do not reuse an argument's buffer."""
    if executable is None:
        return 0, 0
    found = executable.memory_analysis()
    return found.temp_size_in_bytes, max(0, found.output_size_in_bytes - found.alias_size_in_bytes)


def tree_bytes(tree: Any) -> int:
    """Bytes of a tree of arrays, which may be abstract."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def clearly_fits(shape: DataShape, parts: ModelParts, there: int) -> bool:
    """Whether a generous estimate is far below the available memory.

    The estimate is six copies of the data, plus arrays as wide as all parameters together: two with a row per edge (messages
    and attention, with their gradients) and eight with a row per vertex.
    """
    widths = sum(leaf.shape[-1] if leaf.ndim else 1 for leaf in jax.tree.leaves(parts.params))
    rows = 4 * (2 * widths * shape.num_edges + 8 * (widths + shape.num_features) * shape.num_vertices)
    return resident_bytes() + 6 * sum(shape.copy(reordered=True).values()) + rows < _CLEARLY * there


def estimate_trainer(
    functions: StepFunctions,
    gradient: Gradient,
    parts: ModelParts,
    data: Dataset,
    limit: Limit,
    *,
    community: bool,
    edge_ids: bool,
) -> tuple[Estimate | None, float]:
    """Estimate the memory of training on loaded data on one machine.

    Args:
        functions: Step functions.
        gradient: Gradient function.
        parts: The model.
        data: The data set.
        limit: Memory limit of the process.
        community: Whether training reorders the data.
        edge_ids: Whether the model reads edge ids.

    Returns:
        The estimate, or None if training clearly fits; and the seconds spent on compiling functions for training.
    """
    shape = dataclasses.replace(DataShape.of(data), edge_ids=edge_ids)
    if clearly_fits(shape, parts, limit.bytes - resident_bytes()):
        return None, 0.0
    # The data are counted separately, so that resident data do not count as libraries.
    data.release()
    ordered = community and is_ordered(data)
    libraries = max(0, resident_bytes() - held(shape, ordered=ordered))
    compiled, code, seconds = compiled_on_shapes(functions, gradient, parts, shape, community=community)
    process = Process(libraries, code)
    parted = phases(shape, process, community=community, loads=False, orders=not ordered, compiled=compiled)
    found = Estimate(shape, parted, limit, process, compiled)
    if community and not found.fits:
        given = phases(shape, process, community=False, loads=False, compiled=compiled)
        remedy = Remedy("single.order=given", max(phase.total for phase in given))
        found = dataclasses.replace(found, remedies=(remedy,))
    return found, seconds


def parameter_bytes(parts: ModelParts, optimizer: optax.GradientTransformation) -> int:
    """Bytes of the parameters and of the optimizer's state."""
    return tree_bytes((parts.params, jax.eval_shape(optimizer.init, parts.params)))
