"""A model that cannot be split: each vertex reads the row at the other end of the features."""

from __future__ import annotations

from flax import nnx


class Reversed(nnx.Module):
    def __init__(self, in_features, out_features, *, hidden_features=8, rngs):
        self.dense = nnx.Linear(in_features, out_features, rngs=rngs)

    def __call__(self, graph, x):
        return self.dense(x[::-1])
