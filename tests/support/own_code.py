"""A file of the user's own: a model and an optimizer, by whose names configurations know them."""

from __future__ import annotations

OWN_CODE = """\
import jax.numpy as jnp
import optax
from flax import nnx
from dorylax import ops


class Own(nnx.Module):
    def __init__(self, in_features, out_features, *, hidden_features=8, rngs):
        self.first = nnx.Linear(in_features, hidden_features, rngs=rngs)
        self.second = nnx.Linear(2 * hidden_features, out_features, rngs=rngs)

    def __call__(self, graph, x):
        h = nnx.relu(self.first(x))
        return self.second(jnp.concatenate([h, ops.gather(graph, h, reduce="mean")], axis=-1))


def lion(learning_rate, beta1=0.8):
    return optax.lion(learning_rate, b1=beta1)
"""

MARK = "ran"
"""The file that `MARKING_CODE` leaves beside itself when it is executed."""

MARKING_CODE = f"""\
import pathlib

pathlib.Path(__file__).with_name({MARK!r}).touch()

{OWN_CODE}"""
