"""The dense layer of layers and models: Flax's, with this package's dtype policy and initialiser."""

from __future__ import annotations

import functools

from flax import nnx

from dorylax.layers.initializers import glorot_uniform
from dorylax.layers.inputs import follow_input

linear = functools.partial(nnx.Linear, kernel_init=glorot_uniform, promote_dtype=follow_input)
"""Has the arguments of `nnx.Linear`."""
