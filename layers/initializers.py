"""The default initialisers of layers; any of `jax.nn.initializers` may be given instead."""

from __future__ import annotations

import jax

# Glorot & Bengio, AISTATS 2010: uniform in ±√(6 / (fan_in + fan_out)), as in the GCN and GAT papers.
glorot_uniform = jax.nn.initializers.glorot_uniform()
zeros = jax.nn.initializers.zeros
