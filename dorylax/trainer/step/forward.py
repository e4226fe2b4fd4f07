"""The exact forward pass that evaluations run: without dropout, and nothing updated.

A model that trains by its optimised program is evaluated by one too. What training computes once and keeps (Â·X) is then
not computed again, where the forward pass has use for the very same; nothing else is kept for it.
"""

from __future__ import annotations

from typing import Any, Protocol, final, runtime_checkable

from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts, ModelStructure, Tree
from dorylax.program.passes import PASSES, optimise
from dorylax.program.program import trace
from dorylax.program.single.function import ProgramFunction
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.step.arrays import TrainingArrays


@runtime_checkable
class Forward(Protocol):
    """How the outputs of an evaluation are computed; compared and hashed by identity.

    Attributes:
        by_rows: whether it was proved to treat every row by itself.
    """

    by_rows: bool

    def kept_of(self, kept: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arrays that it takes, from those that training keeps."""
        ...

    def __call__(self, params: Tree, state: Tree, streams: Tree, kept: tuple[Any, ...], arrays: TrainingArrays) -> Any:
        """The model's output: a pure function, to be jitted."""
        ...


@final
class PlainForward:
    """The model as it is."""

    by_rows = False

    def __init__(self, structure: ModelStructure) -> None:
        self._structure = structure

    def kept_of(self, kept: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ARG002
        """None."""
        return ()

    def __call__(self, params: Tree, state: Tree, streams: Tree, kept: tuple[Any, ...], arrays: TrainingArrays) -> Any:  # noqa: ARG002
        """See `Forward`."""
        return self._structure.apply_evaluate(params, streams, state, arrays.graph, arrays.features, **arrays.named)


@final
class ProgramForward:
    """The model's program.

    Args:
        function: of the program without a loss.
        places: where each array that it keeps stands among those that training keeps; None where it makes them anew in
            every call, because training does not keep them all.
    """

    by_rows = True

    def __init__(self, function: ProgramFunction, places: tuple[int, ...] | None) -> None:
        self._function = function
        self._places = places

    @classmethod
    def of(cls, parts: ModelParts, spec: DataSpec, keys: tuple[str, ...]) -> ProgramForward:
        """That of a model on data like these.

        Args:
            parts: the model.
            spec: the data, whose numbers of vertices and edges are known.
            keys: of the arrays that training keeps (`ProgramFunction.keys`).

        Raises:
            SplitError: the model cannot be split.
        """
        traced = trace(parts, spec, loss=None, metrics=None, fused=True)

        def function(*without: str) -> ProgramFunction:
            program = optimise(traced, [name for name in PASSES if name not in without])
            return program.as_function(spec.num_vertices or 0, spec.num_edges or 0)

        hoisted = function()
        if all(key in keys for key in hoisted.keys):
            return cls(hoisted, tuple(keys.index(key) for key in hoisted.keys))
        plain = function("hoist")  # only what leads values per edge into slots is left
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
    """As `ProgramForward.of`; the model as it is where only its training can be split."""
    try:
        return ProgramForward.of(parts, spec, keys)
    except SplitError:
        return PlainForward(parts.structure)
