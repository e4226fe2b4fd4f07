"""The exact forward pass of evaluations, without dropout and without updates.

A model that trains with its optimised program is also evaluated with one. It reuses values that training computes once and
keeps (Â·X) if it needs exactly the same, and keeps no others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts, ModelStructure, Tree
from dorylax.program.passes import PASSES, optimise
from dorylax.program.program import trace
from dorylax.program.single import ProgramFunction
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.step.arrays import TrainingArrays


class Forward(ABC):
    """Computation of an evaluation's outputs; compared and hashed by identity.

    Attributes:
        by_rows: Whether it provably treats each row by itself, so that rows may be reordered.
    """

    by_rows = False

    def kept_of(self, kept: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ARG002
        """Return the arrays that it needs, from those that training keeps."""
        return ()

    @abstractmethod
    def __call__(self, params: Tree, state: Tree, streams: Tree, kept: tuple[Any, ...], arrays: TrainingArrays) -> Any:
        """Return the model's output: a pure function, to be jitted."""


@final
class PlainForward(Forward):
    """Forward pass of the plain model."""

    def __init__(self, structure: ModelStructure) -> None:
        self._structure = structure

    def __call__(self, params: Tree, state: Tree, streams: Tree, kept: tuple[Any, ...], arrays: TrainingArrays) -> Any:  # noqa: ARG002
        """See `Forward`."""
        return self._structure.apply_evaluate(params, streams, state, arrays.graph, arrays.features, **arrays.named)


@final
class ProgramForward(Forward):
    """Forward pass by the model's program.

    Args:
        function: Function of the program without a loss.
        places: Positions of its kept arrays among those that training keeps; None: it computes them in every call, because
            training does not keep them all.
    """

    by_rows = True

    def __init__(self, function: ProgramFunction, places: tuple[int, ...] | None) -> None:
        self._function = function
        self._places = places

    @classmethod
    def of(cls, parts: ModelParts, spec: DataSpec, keys: tuple[str, ...]) -> ProgramForward:
        """Build the forward pass of a model on data of known numbers of vertices and edges.

        Args:
            parts: The model.
            spec: Specification of the data.
            keys: Keys of the arrays that training keeps (`ProgramFunction.keys`).

        Raises:
            SplitError: The model cannot be split.
        """
        traced = trace(parts, spec, loss=None, metrics=None, fused=True)

        def function(*without: str) -> ProgramFunction:
            program = optimise(traced, [name for name in PASSES if name not in without])
            return program.as_function(spec.num_vertices or 0, spec.num_edges or 0)

        hoisted = function()
        if all(key in keys for key in hoisted.keys):
            return cls(hoisted, tuple(keys.index(key) for key in hoisted.keys))
        plain = function("hoist")  # keeps only arrays that move values per edge into slots
        return cls(plain, None if plain.keys else ())

    def kept_of(self, kept: tuple[Any, ...]) -> tuple[Any, ...]:
        """See `Forward`."""
        return (*(kept[place] for place in self._places or ()), *self._function.constants)

    def __call__(self, params: Tree, state: Tree, streams: Tree, kept: tuple[Any, ...], arrays: TrainingArrays) -> Any:
        """See `Forward`."""
        data = arrays.run_data
        if self._places is None:
            kept = (*self._function.prepare(data)[: len(self._function.keys)], *kept)
        return self._function.output(kept, data, params, streams, state)


def forward_of(parts: ModelParts, spec: DataSpec, keys: tuple[str, ...]) -> Forward:
    """Return `ProgramForward.of`, or the plain model's forward pass if only training can be split."""
    try:
        return ProgramForward.of(parts, spec, keys)
    except SplitError:
        return PlainForward(parts.structure)
