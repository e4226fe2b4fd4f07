"""The table of constructs that models are made of: accepted ones with what they are, refused ones with their message.

A parameter's name says what it is (`INPUTS` in conftest.py): `x` `[n, 6]` and `a` `[e, 4]` have rows, `w` has none, ….
Accepted ones are also run: other rows are changed, and rows are taken apart, and nothing may change.
"""

# ruff: noqa: PLW0108  (a lambda that only calls gives its parameters the names that say what they are)

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax import lax
from jax.experimental import io_callback, sparse

from dorylax import ops
from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()


def activations(x, bias):
    h = jax.nn.gelu(x) + jax.nn.silu(x) + jax.nn.elu(x) + jax.nn.leaky_relu(x) + jax.nn.softplus(x)
    return jnp.where(x > bias, h, jnp.tanh(x)) ** 2


def special_functions(x):
    p = jnp.abs(x) + 0.5
    return (
        jax.scipy.special.gammaln(p)
        + jax.scipy.special.erf(x)
        + jax.scipy.special.digamma(p)
        + jnp.cbrt(p)
        + jnp.log1p(p)
    )


def same_row_for_each_vertex(x, bias):
    tiled = jnp.tile(bias[None], (x.shape[0], 1)) + jnp.tile(bias, (x.shape[0], 2))[:, 6:]
    return x * tiled + jnp.repeat(bias[None], x.shape[0], axis=0)


def split_and_stack(x):
    left, right = jnp.split(x, 2, axis=1)
    return jnp.stack([left, right], axis=1).sum(1) + jnp.hstack([left, right])[:, 1:4]


def unstack_features(x):
    first, second, *_ = jnp.unstack(x, axis=1)
    return first * second


def flatten_and_back(cube, kernel):
    flat = cube.reshape(-1, 4) @ kernel[:, 0, :]
    return flat.reshape(cube.shape[0], 3, 3)


def lstm_over_features(cube):
    cell = nnx.LSTMCell(4, 5, rngs=nnx.Rngs(0))
    carry = (jnp.zeros((cube.shape[0], 5)), jnp.zeros((cube.shape[0], 5)))
    _, hidden = lax.scan(cell, carry, jnp.moveaxis(cube, 1, 0))
    return jnp.moveaxis(hidden, 0, 1)


def propagate_scan(x, square):
    final, _ = lax.scan(lambda h, _: (jnp.tanh(h @ square) + 0.1 * x, None), x, None, length=3)
    return final


def scan_over_layers(x, square):
    layers = jnp.stack([square, square * 2])
    return lax.scan(lambda h, layer: (jnp.tanh(h @ layer), h.sum(1)), x, layers)[0]


@jax.custom_vjp
def _straight_through(x):
    return jnp.round(x)


_straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))


def barrier(x, w):
    x, w = lax.optimization_barrier((x, w))
    return x @ w


def solve_in_row(cube, x):
    gram = jnp.einsum("nij,nkj->nik", cube, cube) + jnp.eye(3)
    return jnp.linalg.solve(gram, x[:, :3, None]) + jnp.linalg.inv(gram)


def factorise_in_row(cube):
    gram = jnp.einsum("nij,nkj->nik", cube, cube) + jnp.eye(3)
    return jnp.linalg.cholesky(gram) + jnp.linalg.eigh(gram)[1] ** 2 + jnp.linalg.det(gram)[:, None, None]


def triangular_system_for_rows(x, square):
    lower = jnp.tril(square) + 3 * jnp.eye(6)
    return jax.scipy.linalg.solve_triangular(lower, x.T, lower=True).T


def noise_by_row_key(x, key, ids):
    keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(ids)
    return x + jax.vmap(lambda k: jax.random.normal(k, (6,)))(keys)


def choice_by_row_key(x, key, ids):
    keys = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(key, k))[0])(ids)
    return jax.vmap(jax.random.categorical)(keys, x)


def sums_in_a_scan(x, square):
    def step(total, layer):
        return total + (x @ layer).sum(0), None

    return lax.scan(step, jnp.zeros(6), jnp.stack([square, -square * 3]))[0]


def two_losses(x, y):
    losses = jnp.stack([(x * x).sum(), (x - y).sum(), 0.0])
    return jnp.concatenate([losses, jnp.zeros(2)]).sum() / 3


def attention_over_edges(graph, x, w):
    scores = ops.scatter_src(graph, x @ w).sum(-1) + ops.scatter_dst(graph, x).sum(-1)
    return ops.gather(graph, x, ops.edge_softmax(graph, jax.nn.leaky_relu(scores)))


def running_total_used_in_rows(x):
    def step(total, _):
        return total + x.sum(0), x * total

    return lax.scan(step, jnp.zeros(6), None, length=3)[1]


def printing(x):
    jax.debug.print("{}", x)
    return x


# By name: the function, and the types of its results.
ACCEPTED: dict[str, tuple[Any, ...]] = {
    # Dense layers and activations
    "dense": (lambda x, w: jax.nn.relu(x @ w), V),
    "transposed_dense": (lambda x, w: (w.T @ x.T).T, V),
    "activations": (activations, V),
    "special_functions": (special_functions, V),
    "clip_and_round": (lambda x: jnp.clip(jnp.round(x, 1), -1, 1) + jnp.sign(x) * jnp.floor(x) + jnp.mod(x, 2.0), V),
    "bits_of_integers": (lambda ids: ((ids << 2) ^ (ids & 3) | ~ids) + lax.population_count(ids) + (ids // 2) % 3, V),
    "batched_matmul": (lambda cube: jnp.einsum("nij,nkj->nik", cube, cube), V),
    "bilinear": (lambda x, y, square: jnp.einsum("ni,ij,nj->n", x, square, y), V),
    "heads": (lambda x, w: (x @ w).reshape(-1, 3, 1).transpose(0, 2, 1), V),
    "one_hot": (lambda ids, table: jax.nn.one_hot(ids, 5) @ table, V),
    "row_with_parameters": (
        lambda x, bias: jnp.concatenate([x, jnp.broadcast_to(bias, x.shape)], axis=1) + jnp.tile(bias, 2),
        V,
    ),
    "same_row_for_each_vertex": (same_row_for_each_vertex, V),
    # Per-row reductions and normalisations
    "softmax_over_features": (lambda x: jax.nn.softmax(x, axis=-1) + jax.nn.log_softmax(x), V),
    "l2_normalise": (lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True), V),
    "layer_norm": (lambda x: nnx.LayerNorm(6, rngs=nnx.Rngs(0))(x), V),
    "group_norm": (lambda x: nnx.GroupNorm(6, num_groups=2, rngs=nnx.Rngs(0))(x), V),
    "sort_features": (lambda x: jnp.sort(x, axis=1)[:, ::-1] + jnp.argsort(x, axis=1), V),
    "top_two": (lambda x: lax.top_k(x, 2), V, V),
    "cumulative_over_features": (
        lambda x: jnp.cumsum(x, axis=1) + lax.cummax(x, axis=1) + lax.cumlogsumexp(x, axis=1) + jnp.cumprod(x, axis=1),
        V,
    ),
    "cumulative_scan": (lambda x: lax.associative_scan(jnp.add, x, axis=1, reverse=True), V),
    "reduce_features": (
        lambda x: x.max(1) + x.min(1) + x.prod(1) + jnp.median(x, axis=1) + jax.nn.logsumexp(x, axis=1) + x.std(1),
        V,
    ),
    "extrema_of_features": (lambda x: x.max(1) + x.min(1) + jax.nn.logsumexp(x, axis=1) + x.std(1), V),
    "own_reducer": (lambda x: lax.reduce(x, 0.0, jnp.maximum, (1,)), V),
    "any_and_all": (lambda x, mask: jnp.where(mask, (x > 0).any(1), (x > 0).all(1)), V),
    "argmax_choice": (lambda x: jnp.take_along_axis(x, jnp.argmax(x, axis=1)[:, None], axis=1), V),
    # Layout
    "columns": (lambda x: x[:, :3] * x[:, -3:] + x[:, 1:2] + x[:, 2][:, None], V),
    "columns_by_index": (lambda x, picks: x[:, picks] + jnp.take(x, picks, axis=1), V),
    "column_by_traced_index": (
        lambda x, index: lax.dynamic_index_in_dim(x, index, axis=1) + lax.dynamic_slice(x, (0, index), (x.shape[0], 2)),
        V,
    ),
    "set_columns": (lambda x, col: x.at[:, 0].set(col).at[:, 1:3].multiply(2.0).at[:, 3].add(1.0), V),
    "update_columns": (lambda x, col, index: lax.dynamic_update_slice(x, col[:, None], (0, index)), V),
    "split_and_stack": (split_and_stack, V),
    "stack_before_rows": (lambda x, y: jnp.stack([x, y]), Rows("vertex", 1)),
    "unstack_features": (unstack_features, V),
    "shift_features": (
        lambda x: (
            jnp.roll(x, 1, axis=1)
            + jnp.flip(x, axis=1)
            + jnp.pad(x, ((0, 0), (1, 0)))[:, :6]
            + jnp.repeat(x, 2, 1)[:, ::2]
        ),
        V,
    ),
    "flatten_rows": (lambda x: jnp.sin(x.reshape(-1)), Rows("vertex", 0, 6)),
    "flatten_and_back": (flatten_and_back, V),
    "swap_axes_and_back": (lambda cube: jnp.moveaxis(jnp.cumsum(jnp.moveaxis(cube, 0, 2), axis=0), 2, 0), V),
    "triangles": (
        lambda x: jnp.tril(x[:, :, None] * x[:, None, :]).sum(2) + jnp.einsum("nii->ni", x[:, :, None] * x[:, None, :]),
        V,
    ),
    "features_first": (lambda x: x.T, Rows("vertex", 1)),
    # Lookups
    "embedding": (lambda ids, table: table[ids], V),
    "embeddings_of_pairs": (lambda id_pairs, table: jnp.take(table, id_pairs, axis=0).mean(axis=1), V),
    "bucketise": (lambda x, bias: jnp.searchsorted(jnp.sort(bias), x), V),
    "interpolate": (lambda col: jnp.interp(col, jnp.arange(5.0), jnp.arange(5.0) ** 2), V),
    "pick_by_row": (lambda x, ids: jax.vmap(lambda row, k: row[k])(x, ids), V),
    "set_by_row": (lambda x, ids: jax.vmap(lambda row, k: row.at[k].add(1.0))(x, ids), V),
    # Modules with state, loops and attention inside a row
    "attention_in_row": (lambda cube: nnx.MultiHeadAttention(2, 4, 4, rngs=nnx.Rngs(0), decode=False)(cube), V),
    "lstm_over_features": (lstm_over_features, V),
    "propagate_scan": (propagate_scan, V),
    "scan_over_layers": (scan_over_layers, V),
    "fori": (lambda x, index: lax.fori_loop(0, index, lambda k, h: h * 0.5 + k, x), V),
    "loop_of_each_row": (
        lambda x: jax.vmap(lambda r: lax.while_loop(lambda h: (h * h).sum() > 0.1, lambda h: h * 0.5, r))(x),
        V,
    ),
    "cond_on_parameter": (lambda x, scale: lax.cond(scale > 0, jnp.sin, lambda h: h * scale, x), V),
    "switch": (lambda x, index: lax.switch(index, [jnp.sin, jnp.cos, jnp.tanh], x), V),
    "remat": (lambda x, w: jax.checkpoint(lambda h: jnp.sin(h @ w))(x), V),
    "nested_jit_and_vmap": (lambda x, w: jax.jit(jax.vmap(lambda row: jnp.tanh(row @ w)))(x), V),
    "custom_derivative": (lambda x: jax.nn.relu6(x) + _straight_through(x), V),
    "barrier": (barrier, V),
    # Convolutions, pooling, linear algebra, transforms
    "convolution_over_features": (lambda x, kernel: lax.conv_general_dilated(x[:, None, :], kernel, (1,), "SAME"), V),
    "convolution_of_images": (
        lambda image, kernel2d: lax.conv_general_dilated(
            image, kernel2d, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        V,
    ),
    "depthwise_convolution": (lambda image: nnx.Conv(2, 4, (3, 3), feature_group_count=2, rngs=nnx.Rngs(0))(image), V),
    "pooling": (lambda image: linen.max_pool(image, (2, 2), (2, 2)) + linen.avg_pool(image, (2, 2), (2, 2)), V),
    "solve_in_row": (solve_in_row, V),
    "factorise_in_row": (factorise_in_row, V),
    "triangular_system_for_rows": (triangular_system_for_rows, V),
    "fourier": (lambda x: jnp.abs(jnp.fft.rfft(x, axis=1)) + jnp.fft.fft(x)[:, :4].real, V),
    # Keys per row (randomness for all rows from one key is replaced before the check)
    "noise_by_row_key": (noise_by_row_key, V),
    "noise_shared_by_rows": (lambda x, key: x + jax.random.normal(key, (6,)), V),
    "choice_by_row_key": (choice_by_row_key, V),
    # Losses and other sums
    "cross_entropy": (lambda x, ids: optax.softmax_cross_entropy_with_integer_labels(x, ids).sum(), SUM),
    "mean_loss": (lambda x, ids: optax.softmax_cross_entropy_with_integer_labels(x, ids).mean(), SUM),
    "masked_loss": (lambda x, mask: jnp.where(mask, (x * x).sum(1), 0).sum() * 0.5, SUM),
    "correct_count": (lambda x, ids: (jnp.argmax(x, 1) == ids).sum().astype(jnp.float32), SUM),
    "second_moment": (lambda x, y: (x.T @ y).reshape(36)[:6] * 2 - (x * y).sum(0), SUM),
    "sums_by_class": (lambda x, ids: jax.ops.segment_sum(x, ids, num_segments=3), SUM),
    "sums_in_a_scan": (sums_in_a_scan, SUM),
    "two_losses": (two_losses, SUM),
    "number_of_vertices": (lambda x, scale: (scale / x.shape[0], x * scale / x.shape[0]), FREE, V),
    # Edges and graph operators
    "edge_network": (lambda a: jnp.tanh(a).sum(-1) + a.max(-1), E),
    "graph_convolution": (lambda graph, x, w: ops.gather(graph, x @ w) + ops.gather(graph, x @ w, reduce="mean"), V),
    "graph_maximum": (
        lambda graph, x, a: (
            ops.gather(graph, x, reduce="max") + ops.gather_edges(graph, a, reduce="max").sum(-1, keepdims=True)
        ),
        V,
    ),
    "attention_over_edges": (attention_over_edges, V),
    "message_of_edges": (lambda graph, x, a: jnp.concatenate([ops.scatter_src(graph, x), a], axis=1), E),
    "degree_scaling": (lambda graph, x: x / jnp.maximum(ops.in_degrees(graph), 1)[:, None], V),
}

# By name: the function, and a part of its error.
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    # Normalisation and reductions over rows
    "batch_norm_training": (
        lambda x: nnx.BatchNorm(6, use_running_average=False, rngs=nnx.Rngs(0))(x),
        "reduction over the vertex axis [reduce_sum",
    ),
    "subtract_mean": (lambda x: x - x.mean(axis=0), "reduction over the vertex axis [reduce_sum"),
    "norm_over_everything": (lambda x: x / jnp.linalg.norm(x), "reduction over the vertex axis [reduce_sum"),
    "softmax_over_vertices": (lambda x: jax.nn.softmax(x, axis=0), "reduction over the vertex axis [reduce_max"),
    "best_vertex": (lambda x: jnp.argmax(x, axis=0), "reduction over the vertex axis [argmax"),
    "any_vertex": (lambda x: jnp.where((x > 5).any(), 0.0, x), "reduction over the vertex axis [reduce_or"),
    "product_of_vertices": (lambda x: jnp.prod(x, axis=0), "reduction over the vertex axis [reduce_prod"),
    "virtual_node": (
        lambda x, mask: x + (mask.astype(jnp.float32) @ x),
        "product summed over the vertex axis [dot_general",
    ),
    "nonlinear_in_sum": (lambda x: jnp.log((x * x).sum()), "reduction over the vertex axis [reduce_sum"),
    "ratio_of_sums": (
        lambda x, mask: jnp.where(mask, x.sum(1), 0).sum() / mask.sum(),
        "reduction over the vertex axis [reduce_sum",
    ),
    "loss_with_weight_decay": (
        lambda x, w: (x @ w).sum() + 1e-4 * (w * w).sum(),
        "A loss is a sum over vertices, and a term without rows",
    ),
    "average_of_integers": (lambda ids: ids.sum() // 3, "reduction over the vertex axis [reduce_sum"),
    "softmax_over_all_edges": (lambda a: jax.nn.softmax(a[:, 0]), "reduction over the edge axis [reduce_max"),
    # Order of rows
    "sort_vertices": (lambda x: jnp.sort(x, axis=0), "sort along the vertex axis [sort"),
    "rank_vertices": (lambda col: jnp.argsort(jnp.argsort(col)), "counts the vertices [iota"),
    "top_k_vertices": (lambda col: lax.top_k(col, 1), "the largest along the vertex axis [top_k"),
    "cumsum_over_vertices": (lambda x: jnp.cumsum(x, axis=0), "cumulative operation along the vertex axis [cumsum"),
    "reverse_vertices": (lambda x: lax.rev(x, (0,)), "reversal along the vertex axis [rev"),
    "smooth_vertices": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME"),
        "window over the vertex axis [reduce_window_sum",
    ),
    "convolve_vertices": (
        lambda x, kernel: lax.conv_general_dilated(x.T[:, None, :], kernel, (1,), "SAME"),
        "convolution over the vertex axis [conv_general_dilated",
    ),
    "shift_vertices": (
        lambda x: lax.pad(x, 0.0, ((1, -1, 0), (0, 0, 0))),
        "padding (or shifting) along the vertex axis [pad",
    ),
    "fourier_of_vertices": (lambda x: jnp.fft.fft(x, axis=0).real, "fft of a matrix that spans vertex rows [fft"),
    "recurrence_over_vertices": (
        lambda x: lax.scan(lambda h, row: (h * 0.5 + row, h), jnp.zeros(6), x)[1],
        "scan over the vertex axis [scan",
    ),
    "loop_until_all_converge": (
        lambda x: lax.while_loop(lambda h: h.max() > 0.1, lambda h: h * 0.5, x),
        "reduction over the vertex axis [reduce_max",
    ),
    "loop_until_sum": (
        lambda x: lax.while_loop(lambda h: h[1] < 3.0, lambda h: (h[0] * 0.5, h[1] + h[0].sum()), (x, 0.0))[0],
        "reduction over the vertex axis [reduce_sum",
    ),
    "running_total_used_in_rows": (running_total_used_in_rows, "reduction over the vertex axis [reduce_sum"),
    "branch_on_sum": (
        lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
        "reduction over the vertex axis [reduce_sum",
    ),
    # Rows by place
    "first_vertex": (lambda x: x - x[0], "indexing of the vertex axis [dynamic_slice"),
    "some_vertices": (lambda x, picks: x[picks], "indexing of the vertex axis [gather"),
    "all_but_first": (lambda x: x[1:], "a part of the vertex axis, of size n - 1 [gather"),
    "first_five": (lambda x: x[:5], "a part of the vertex axis, of size min(n, 5) [gather"),
    "mask_first": (lambda x: x.at[0].set(0.0), "writes to places of the vertex axis [scatter"),
    "scatter_to_vertices": (lambda x, y, ids: x.at[ids].add(y), "writes to places of the vertex axis [scatter-add"),
    "add_virtual_vertex": (
        lambda x, bias: jnp.concatenate([x, bias[None]], axis=0),
        "joins values along the vertex axis [concatenate",
    ),
    "repeat_vertices": (lambda x: lax.tile(x, (2, 1)), "repetition along the vertex axis [tile"),
    "flatten_heads_first": (lambda x, w: (x @ w).T.reshape(-1), "reshape from [3, n] to [3*n] mixes axes"),
    "reinterpret_rows": (lambda x: x.reshape(-1).reshape(6, x.shape[0]), "reshape from [6*n] to [6, n] mixes axes"),
    "every_second_element": (
        lambda x: lax.slice(x.reshape(-1), (0,), (6 * x.shape[0],), (2,)),
        "slice of the vertex axis [slice",
    ),
    "positional_encoding": (lambda x: x * jnp.arange(x.shape[0])[:, None], "counts the vertices [iota"),
    # All pairs
    "all_pairs_attention": (
        lambda x: jax.nn.softmax(x @ x.T) @ x,
        "product of every vertex with every other [dot_general",
    ),
    "all_distances": (lambda x: jnp.abs(x[:, None] - x[None]).sum(-1), "has two axes of rows, 0 and 1 [sub"),
    "diagonal": (lambda col: jnp.diag(col), "has two axes of rows"),
    "orthogonalise_vertices": (lambda x: jnp.linalg.qr(x)[0], "of a matrix that spans vertex rows ["),
    # The graph's arrays, edges with vertices, randomness
    "raw_sources": (
        lambda graph, x: x[graph.incoming.neighbours],
        "computes with the arrays of the graph's structure [",
    ),
    "raw_segment_sum": (
        lambda graph, x, a: jax.ops.segment_sum(a, graph.incoming.neighbours, num_segments=x.shape[0]),
        "computes with the arrays of the graph's structure [",
    ),
    "noise_without_ids": (
        lambda x, key: x + jax.random.normal(key, x.shape),
        "draws numbers for all vertices from one key [random_bits",
    ),
    "keys_by_place": (
        lambda x, key: jax.vmap(jax.random.normal)(jax.random.split(key, x.shape[0])),
        "draws numbers for all vertices from one key [random_split",
    ),
    "gamma_noise": (
        lambda x, key: x * jax.random.gamma(key, jnp.exp(x)),
        "draws numbers by their place in memory [random_gamma",
    ),
    "ragged_product": (
        lambda x, w, picks: lax.ragged_dot(x, jnp.stack([w, w, w]), picks),
        "take a matrix for each row, jnp.einsum('nf,nfg->ng', x, kernels[kind])",
    ),
    "callback": (
        lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
        "It calls Python in this process, and parts of a model run elsewhere: write it in jax.numpy",
    ),
    "callback_with_effects": (
        lambda x: io_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
        "write it in jax.numpy, or compute it beforehand (an array of the data is an input of the model: Dataset(",
    ),
    "approximate_top_k": (lambda x: lax.approx_max_k(x, 2)[0], "Use jax.lax.top_k."),
    "psum_over_vertices": (
        lambda x: jax.vmap(lambda row: row / lax.psum(row, "vertices"), axis_name="vertices")(x),
        "Collectives combine devices, or rows under vmap",
    ),
    "sharded": (
        lambda x: lax.with_sharding_constraint(x, jax.sharding.SingleDeviceSharding(jax.devices()[0])),
        "dorylax spreads rows itself: remove what says how arrays are spread over devices.",
    ),
    "sparse_matrix": (
        lambda x: sparse.bcoo_fromdense(x, nse=3, n_batch=1).todense(),
        "A sparse matrix over vertices is a graph: multiply by it with dorylax.ops.gather(graph, x, edge_weight).",
    ),
    "roll_vertices": (lambda x: jnp.roll(x, 1, axis=0), "the number of rows is a parameter of slice [slice"),
    "beta_noise": (
        lambda x, key: x * jax.random.beta(key, jnp.exp(x), 2.0),
        "gamma, beta and poisson draw again and again",
    ),
    "printing": (printing, "remove it, or train on one machine with single.optimize=false"),
}

# JAX has no gradient of these: of loops whose length is not known, and of some operations for symbolic sizes.
_NO_GRADIENT = ("fori", "loop_of_each_row", "reduce_features", "own_reducer", "triangular_system_for_rows")
_READ_HOW_MANY_ROWS = ("mean_loss", "number_of_vertices")


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str, rows: Any):
    fun, *results = ACCEPTED[name]
    assert rows.check(fun) == results
    assert rows.check(fun, flat=True) == results  # the same with calls inlined


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_is_true(name: str, rows: Any):
    fun, *results = ACCEPTED[name]
    if name not in _NO_GRADIENT and FREE not in results:
        inputs = rows.inputs_of_gradient(fun)
        joint = rows.gradient(fun, results)
        found = rows.check(joint)
        gradients = found[len(found) - len(inputs) :]
        for kind, gradient in zip(inputs, gradients, strict=True):
            assert gradient == kind if isinstance(kind, Rows) else gradient == SUM or gradient.zero
        if found[: len(found) - len(inputs)] == results:  # not where some are integers
            fun, results = joint, found
    if "graph" not in rows.names(fun):
        rows.prove_numerically(fun, results, sizes=name not in _READ_HOW_MANY_ROWS)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, rows: Any):
    fun, message = REFUSED[name]
    with pytest.raises(RowError) as caught:
        rows.check(fun)
    text = str(caught.value)
    assert message in text
    assert "report it" not in text  # which is for what no user wrote
    place = re.search(r"at test_constructs\.py:(\d+) \((\S+)\)", text)
    assert place is not None, text
    lines = [line for *_, line in fun.__code__.co_lines() if line is not None]
    assert min(lines) <= int(place[1]) <= max(lines)
    assert place[2].split(".")[0] == fun.__name__
    assert text.endswith(f"{caught.value.advice}.")
