"""A deep model's equal layers share their stages' artefacts."""

from __future__ import annotations

from flax import nnx

from dorylax.layers import GCNII
from dorylax.program import DataSpec, RowSpec, optimise, trace
from dorylax.program.artefact.canonical import share


def test_64_layers_are_few_artefacts() -> None:
    """The first layers, the last and the one between differ; all others are alike, though each has a β of its own."""
    spec = DataSpec((RowSpec("vertex", (9,)),), RowSpec("vertex", (), "int32"), self_loops="none")
    counts = {}
    for depth in (4, 64):
        program = optimise(trace(GCNII(9, 8, 3, num_layers=depth, rngs=nnx.Rngs(0)), spec))
        stages = [program.function_of(k) for k, task in enumerate(program.tasks) if task.kind == "stage"]
        assert len(stages) > depth
        counts[depth] = len(share(stages))
    assert counts[64] <= counts[4] + 1
    assert counts[64] < 10
