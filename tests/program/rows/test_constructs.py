"""The table of constructs that models are made of: accepted ones with what they are, refused ones with their message.

A parameter's name says what it is (`INPUTS` in conftest.py): `x` `[n, 6]` and `a` `[e, 4]` have rows, `w` has none, ….
Accepted ones are also run: other rows are changed, and rows are taken apart, and nothing may change.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

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
from dorylax.program.rows.types import Free, Rows, RowType, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()


class Accepted(NamedTuple):
    """A function and what its results are."""

    fun: Callable[..., Any]
    results: tuple[RowType, ...]
    sizes: bool  # whether it may be run on some rows only


class Refused(NamedTuple):
    """A function and what its error says."""

    fun: Callable[..., Any]
    message: str


ACCEPTED: list[Accepted] = []
REFUSED: list[Refused] = []


def accepted(*results: RowType, sizes: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fun: Callable[..., Any]) -> Callable[..., Any]:
        ACCEPTED.append(Accepted(fun, results, sizes))
        return fun

    return register


def refused(message: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fun: Callable[..., Any]) -> Callable[..., Any]:
        REFUSED.append(Refused(fun, message))
        return fun

    return register


# Dense layers and activations


@accepted(V)
def dense(x, w):
    return jax.nn.relu(x @ w)


@accepted(V)
def transposed_dense(x, w):
    return (w.T @ x.T).T


@accepted(V)
def activations(x, bias):
    h = jax.nn.gelu(x) + jax.nn.silu(x) + jax.nn.elu(x) + jax.nn.leaky_relu(x) + jax.nn.softplus(x)
    return jnp.where(x > bias, h, jnp.tanh(x)) ** 2


@accepted(V)
def special_functions(x):
    p = jnp.abs(x) + 0.5
    return (
        jax.scipy.special.gammaln(p)
        + jax.scipy.special.erf(x)
        + jax.scipy.special.digamma(p)
        + jnp.cbrt(p)
        + jnp.log1p(p)
    )


@accepted(V)
def clip_and_round(x):
    return jnp.clip(jnp.round(x, 1), -1, 1) + jnp.sign(x) * jnp.floor(x) + jnp.mod(x, 2.0)


@accepted(V)
def bits_of_integers(ids):
    return ((ids << 2) ^ (ids & 3) | ~ids) + lax.population_count(ids) + (ids // 2) % 3


@accepted(V)
def batched_matmul(cube):
    return jnp.einsum("nij,nkj->nik", cube, cube)


@accepted(V)
def bilinear(x, y, square):
    return jnp.einsum("ni,ij,nj->n", x, square, y)


@accepted(V)
def heads(x, w):
    return (x @ w).reshape(-1, 3, 1).transpose(0, 2, 1)


@accepted(V)
def one_hot(ids, table):
    return jax.nn.one_hot(ids, 5) @ table


@accepted(V)
def row_with_parameters(x, bias):
    return jnp.concatenate([x, jnp.broadcast_to(bias, x.shape)], axis=1) + jnp.tile(bias, 2)


@accepted(V)
def same_row_for_each_vertex(x, bias):
    tiled = jnp.tile(bias[None], (x.shape[0], 1)) + jnp.tile(bias, (x.shape[0], 2))[:, 6:]
    return x * tiled + jnp.repeat(bias[None], x.shape[0], axis=0)


# Per-row reductions and normalisations


@accepted(V)
def softmax_over_features(x):
    return jax.nn.softmax(x, axis=-1) + jax.nn.log_softmax(x)


@accepted(V)
def l2_normalise(x):
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


@accepted(V)
def layer_norm(x):
    return nnx.LayerNorm(6, rngs=nnx.Rngs(0))(x)


@accepted(V)
def group_norm(x):
    return nnx.GroupNorm(6, num_groups=2, rngs=nnx.Rngs(0))(x)


@accepted(V)
def sort_features(x):
    return jnp.sort(x, axis=1)[:, ::-1] + jnp.argsort(x, axis=1)


@accepted(V, V)
def top_two(x):
    return lax.top_k(x, 2)


@accepted(V)
def cumulative_over_features(x):
    return jnp.cumsum(x, axis=1) + lax.cummax(x, axis=1) + lax.cumlogsumexp(x, axis=1) + jnp.cumprod(x, axis=1)


@accepted(V)
def cumulative_scan(x):
    return lax.associative_scan(jnp.add, x, axis=1, reverse=True)


@accepted(V)
def reduce_features(x):
    return x.max(1) + x.min(1) + x.prod(1) + jnp.median(x, axis=1) + jax.nn.logsumexp(x, axis=1) + x.std(1)


@accepted(V)
def extrema_of_features(x):
    return x.max(1) + x.min(1) + jax.nn.logsumexp(x, axis=1) + x.std(1)


@accepted(V)
def own_reducer(x):
    return lax.reduce(x, 0.0, jnp.maximum, (1,))


@accepted(V)
def any_and_all(x, mask):
    return jnp.where(mask, (x > 0).any(1), (x > 0).all(1))


@accepted(V)
def argmax_choice(x):
    return jnp.take_along_axis(x, jnp.argmax(x, axis=1)[:, None], axis=1)


# Layout


@accepted(V)
def columns(x):
    return x[:, :3] * x[:, -3:] + x[:, 1:2] + x[:, 2][:, None]


@accepted(V)
def columns_by_index(x, picks):
    return x[:, picks] + jnp.take(x, picks, axis=1)


@accepted(V)
def column_by_traced_index(x, index):
    return lax.dynamic_index_in_dim(x, index, axis=1) + lax.dynamic_slice(x, (0, index), (x.shape[0], 2))


@accepted(V)
def set_columns(x, col):
    return x.at[:, 0].set(col).at[:, 1:3].multiply(2.0).at[:, 3].add(1.0)


@accepted(V)
def update_columns(x, col, index):
    return lax.dynamic_update_slice(x, col[:, None], (0, index))


@accepted(V)
def split_and_stack(x):
    left, right = jnp.split(x, 2, axis=1)
    return jnp.stack([left, right], axis=1).sum(1) + jnp.hstack([left, right])[:, 1:4]


@accepted(Rows("vertex", 1))
def stack_before_rows(x, y):
    return jnp.stack([x, y])


@accepted(V)
def unstack_features(x):
    first, second, *_ = jnp.unstack(x, axis=1)
    return first * second


@accepted(V)
def shift_features(x):
    return (
        jnp.roll(x, 1, axis=1) + jnp.flip(x, axis=1) + jnp.pad(x, ((0, 0), (1, 0)))[:, :6] + jnp.repeat(x, 2, 1)[:, ::2]
    )


@accepted(Rows("vertex", 0, 6))
def flatten_rows(x):
    return jnp.sin(x.reshape(-1))


@accepted(V)
def flatten_and_back(cube, kernel):
    flat = cube.reshape(-1, 4) @ kernel[:, 0, :]
    return flat.reshape(cube.shape[0], 3, 3)


@accepted(V)
def swap_axes_and_back(cube):
    return jnp.moveaxis(jnp.cumsum(jnp.moveaxis(cube, 0, 2), axis=0), 2, 0)


@accepted(V)
def triangles(x):
    return jnp.tril(x[:, :, None] * x[:, None, :]).sum(2) + jnp.einsum("nii->ni", x[:, :, None] * x[:, None, :])


@accepted(Rows("vertex", 1))
def features_first(x):
    return x.T


# Lookups


@accepted(V)
def embedding(ids, table):
    return table[ids]


@accepted(V)
def embeddings_of_pairs(id_pairs, table):
    return jnp.take(table, id_pairs, axis=0).mean(axis=1)


@accepted(V)
def bucketise(x, bias):
    return jnp.searchsorted(jnp.sort(bias), x)


@accepted(V)
def interpolate(col):
    return jnp.interp(col, jnp.arange(5.0), jnp.arange(5.0) ** 2)


@accepted(V)
def pick_by_row(x, ids):
    return jax.vmap(lambda row, k: row[k])(x, ids)


@accepted(V)
def set_by_row(x, ids):
    return jax.vmap(lambda row, k: row.at[k].add(1.0))(x, ids)


# Modules with state, loops and attention inside a row


@accepted(V)
def attention_in_row(cube):
    return nnx.MultiHeadAttention(2, 4, 4, rngs=nnx.Rngs(0), decode=False)(cube)


@accepted(V)
def lstm_over_features(cube):
    cell = nnx.LSTMCell(4, 5, rngs=nnx.Rngs(0))
    carry = (jnp.zeros((cube.shape[0], 5)), jnp.zeros((cube.shape[0], 5)))
    _, hidden = lax.scan(cell, carry, jnp.moveaxis(cube, 1, 0))
    return jnp.moveaxis(hidden, 0, 1)


@accepted(V)
def propagate_scan(x, square):
    final, _ = lax.scan(lambda h, _: (jnp.tanh(h @ square) + 0.1 * x, None), x, None, length=3)
    return final


@accepted(V)
def scan_over_layers(x, square):
    layers = jnp.stack([square, square * 2])
    return lax.scan(lambda h, layer: (jnp.tanh(h @ layer), h.sum(1)), x, layers)[0]


@accepted(V)
def fori(x, index):
    return lax.fori_loop(0, index, lambda k, h: h * 0.5 + k, x)


@accepted(V)
def loop_of_each_row(x):
    return jax.vmap(lambda r: lax.while_loop(lambda h: (h * h).sum() > 0.1, lambda h: h * 0.5, r))(x)


@accepted(V)
def cond_on_parameter(x, scale):
    return lax.cond(scale > 0, jnp.sin, lambda h: h * scale, x)


@accepted(V)
def switch(x, index):
    return lax.switch(index, [jnp.sin, jnp.cos, jnp.tanh], x)


@accepted(V)
def remat(x, w):
    return jax.checkpoint(lambda h: jnp.sin(h @ w))(x)


@accepted(V)
def nested_jit_and_vmap(x, w):
    return jax.jit(jax.vmap(lambda row: jnp.tanh(row @ w)))(x)


@accepted(V)
def custom_derivative(x):
    return jax.nn.relu6(x) + _straight_through(x)


@jax.custom_vjp
def _straight_through(x):
    return jnp.round(x)


_straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))


@accepted(V)
def barrier(x, w):
    x, w = lax.optimization_barrier((x, w))
    return x @ w


# Convolutions, pooling, linear algebra, transforms


@accepted(V)
def convolution_over_features(x, kernel):
    return lax.conv_general_dilated(x[:, None, :], kernel, (1,), "SAME")


@accepted(V)
def convolution_of_images(image, kernel2d):
    return lax.conv_general_dilated(image, kernel2d, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@accepted(V)
def depthwise_convolution(image):
    return nnx.Conv(2, 4, (3, 3), feature_group_count=2, rngs=nnx.Rngs(0))(image)


@accepted(V)
def pooling(image):
    return linen.max_pool(image, (2, 2), (2, 2)) + linen.avg_pool(image, (2, 2), (2, 2))


@accepted(V)
def solve_in_row(cube, x):
    gram = jnp.einsum("nij,nkj->nik", cube, cube) + jnp.eye(3)
    return jnp.linalg.solve(gram, x[:, :3, None]) + jnp.linalg.inv(gram)


@accepted(V)
def factorise_in_row(cube):
    gram = jnp.einsum("nij,nkj->nik", cube, cube) + jnp.eye(3)
    return jnp.linalg.cholesky(gram) + jnp.linalg.eigh(gram)[1] ** 2 + jnp.linalg.det(gram)[:, None, None]


@accepted(V)
def triangular_system_for_rows(x, square):
    lower = jnp.tril(square) + 3 * jnp.eye(6)
    return jax.scipy.linalg.solve_triangular(lower, x.T, lower=True).T


@accepted(V)
def fourier(x):
    return jnp.abs(jnp.fft.rfft(x, axis=1)) + jnp.fft.fft(x)[:, :4].real


# Keys per row (randomness for all rows from one key is replaced before the check)


@accepted(V)
def noise_by_row_key(x, key, ids):
    keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(ids)
    return x + jax.vmap(lambda k: jax.random.normal(k, (6,)))(keys)


@accepted(V)
def noise_shared_by_rows(x, key):
    return x + jax.random.normal(key, (6,))


@accepted(V)
def choice_by_row_key(x, key, ids):
    keys = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(key, k))[0])(ids)
    return jax.vmap(jax.random.categorical)(keys, x)


# Losses and other sums


@accepted(SUM)
def cross_entropy(x, ids):
    return optax.softmax_cross_entropy_with_integer_labels(x, ids).sum()


@accepted(SUM, sizes=False)
def mean_loss(x, ids):
    return optax.softmax_cross_entropy_with_integer_labels(x, ids).mean()


@accepted(SUM)
def masked_loss(x, mask):
    return jnp.where(mask, (x * x).sum(1), 0).sum() * 0.5


@accepted(SUM)
def correct_count(x, ids):
    return (jnp.argmax(x, 1) == ids).sum().astype(jnp.float32)


@accepted(SUM)
def second_moment(x, y):
    return (x.T @ y).reshape(36)[:6] * 2 - (x * y).sum(0)


@accepted(SUM)
def sums_by_class(x, ids):
    return jax.ops.segment_sum(x, ids, num_segments=3)


@accepted(SUM)
def sums_in_a_scan(x, square):
    def step(total, layer):
        return total + (x @ layer).sum(0), None

    return lax.scan(step, jnp.zeros(6), jnp.stack([square, -square * 3]))[0]


@accepted(SUM)
def two_losses(x, y):
    losses = jnp.stack([(x * x).sum(), (x - y).sum(), 0.0])
    return jnp.concatenate([losses, jnp.zeros(2)]).sum() / 3


@accepted(FREE, V, sizes=False)
def number_of_vertices(x, scale):
    return scale / x.shape[0], x * scale / x.shape[0]


# Edges and graph operators


@accepted(E)
def edge_network(a):
    return jnp.tanh(a).sum(-1) + a.max(-1)


@accepted(V)
def graph_convolution(graph, x, w):
    return ops.gather(graph, x @ w) + ops.gather(graph, x @ w, reduce="mean")


@accepted(V)
def graph_maximum(graph, x, a):
    return ops.gather(graph, x, reduce="max") + ops.gather_edges(graph, a, reduce="max").sum(-1, keepdims=True)


@accepted(V)
def attention_over_edges(graph, x, w):
    scores = ops.scatter_src(graph, x @ w).sum(-1) + ops.scatter_dst(graph, x).sum(-1)
    return ops.gather(graph, x, ops.edge_softmax(graph, jax.nn.leaky_relu(scores)))


@accepted(E)
def message_of_edges(graph, x, a):
    return jnp.concatenate([ops.scatter_src(graph, x), a], axis=1)


@accepted(V)
def degree_scaling(graph, x):
    return x / jnp.maximum(ops.in_degrees(graph), 1)[:, None]


# Refused: normalisation and reductions over rows


@refused("reduction over the vertex axis [reduce_sum")
def batch_norm_training(x):
    return nnx.BatchNorm(6, use_running_average=False, rngs=nnx.Rngs(0))(x)


@refused("reduction over the vertex axis [reduce_sum")
def subtract_mean(x):
    return x - x.mean(axis=0)


@refused("reduction over the vertex axis [reduce_sum")
def norm_over_everything(x):
    return x / jnp.linalg.norm(x)


@refused("reduction over the vertex axis [reduce_max")
def softmax_over_vertices(x):
    return jax.nn.softmax(x, axis=0)


@refused("reduction over the vertex axis [argmax")
def best_vertex(x):
    return jnp.argmax(x, axis=0)


@refused("reduction over the vertex axis [reduce_or")
def any_vertex(x):
    return jnp.where((x > 5).any(), 0.0, x)


@refused("reduction over the vertex axis [reduce_prod")
def product_of_vertices(x):
    return jnp.prod(x, axis=0)


@refused("product summed over the vertex axis [dot_general")
def virtual_node(x, mask):
    return x + (mask.astype(jnp.float32) @ x)


@refused("reduction over the vertex axis [reduce_sum")
def nonlinear_in_sum(x):
    return jnp.log((x * x).sum())


@refused("reduction over the vertex axis [reduce_sum")
def ratio_of_sums(x, mask):
    return jnp.where(mask, x.sum(1), 0).sum() / mask.sum()


@refused("A loss is a sum over vertices, and a term without rows")
def loss_with_weight_decay(x, w):
    return (x @ w).sum() + 1e-4 * (w * w).sum()


@refused("reduction over the vertex axis [reduce_sum")
def average_of_integers(ids):
    return ids.sum() // 3


@refused("reduction over the edge axis [reduce_max")
def softmax_over_all_edges(a):
    return jax.nn.softmax(a[:, 0])


# Refused: order of rows


@refused("sort along the vertex axis [sort")
def sort_vertices(x):
    return jnp.sort(x, axis=0)


@refused("counts the vertices [iota")
def rank_vertices(col):
    return jnp.argsort(jnp.argsort(col))


@refused("the largest along the vertex axis [top_k")
def top_k_vertices(col):
    return lax.top_k(col, 1)


@refused("cumulative operation along the vertex axis [cumsum")
def cumsum_over_vertices(x):
    return jnp.cumsum(x, axis=0)


@refused("reversal along the vertex axis [rev")
def reverse_vertices(x):
    return lax.rev(x, (0,))


@refused("window over the vertex axis [reduce_window_sum")
def smooth_vertices(x):
    return lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME")


@refused("convolution over the vertex axis [conv_general_dilated")
def convolve_vertices(x, kernel):
    return lax.conv_general_dilated(x.T[:, None, :], kernel, (1,), "SAME")


@refused("padding (or shifting) along the vertex axis [pad")
def shift_vertices(x):
    return lax.pad(x, 0.0, ((1, -1, 0), (0, 0, 0)))


@refused("fft of a matrix that spans vertex rows [fft")
def fourier_of_vertices(x):
    return jnp.fft.fft(x, axis=0).real


@refused("scan over the vertex axis [scan")
def recurrence_over_vertices(x):
    return lax.scan(lambda h, row: (h * 0.5 + row, h), jnp.zeros(6), x)[1]


@refused("reduction over the vertex axis [reduce_max")
def loop_until_all_converge(x):
    return lax.while_loop(lambda h: h.max() > 0.1, lambda h: h * 0.5, x)


@refused("reduction over the vertex axis [reduce_sum")
def loop_until_sum(x):
    return lax.while_loop(lambda h: h[1] < 3.0, lambda h: (h[0] * 0.5, h[1] + h[0].sum()), (x, 0.0))[0]


@refused("reduction over the vertex axis [reduce_sum")
def running_total_used_in_rows(x):
    def step(total, _):
        return total + x.sum(0), x * total

    return lax.scan(step, jnp.zeros(6), None, length=3)[1]


@refused("reduction over the vertex axis [reduce_sum")
def branch_on_sum(x):
    return lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)


# Refused: rows by place


@refused("indexing of the vertex axis [dynamic_slice")
def first_vertex(x):
    return x - x[0]


@refused("indexing of the vertex axis [gather")
def some_vertices(x, picks):
    return x[picks]


@refused("a part of the vertex axis, of size n - 1 [gather")
def all_but_first(x):
    return x[1:]


@refused("a part of the vertex axis, of size min(n, 5) [gather")
def first_five(x):
    return x[:5]


@refused("writes to places of the vertex axis [scatter")
def mask_first(x):
    return x.at[0].set(0.0)


@refused("writes to places of the vertex axis [scatter-add")
def scatter_to_vertices(x, y, ids):
    return x.at[ids].add(y)


@refused("joins values along the vertex axis [concatenate")
def add_virtual_vertex(x, bias):
    return jnp.concatenate([x, bias[None]], axis=0)


@refused("repetition along the vertex axis [tile")
def repeat_vertices(x):
    return lax.tile(x, (2, 1))


@refused("reshape from [3, n] to [3*n] mixes axes")
def flatten_heads_first(x, w):
    return (x @ w).T.reshape(-1)


@refused("reshape from [6*n] to [6, n] mixes axes")
def reinterpret_rows(x):
    return x.reshape(-1).reshape(6, x.shape[0])


@refused("slice of the vertex axis [slice")
def every_second_element(x):
    return lax.slice(x.reshape(-1), (0,), (6 * x.shape[0],), (2,))


@refused("counts the vertices [iota")
def positional_encoding(x):
    return x * jnp.arange(x.shape[0])[:, None]


# Refused: all pairs


@refused("product of every vertex with every other [dot_general")
def all_pairs_attention(x):
    return jax.nn.softmax(x @ x.T) @ x


@refused("has two axes of rows, 0 and 1 [sub")
def all_distances(x):
    return jnp.abs(x[:, None] - x[None]).sum(-1)


@refused("has two axes of rows")
def diagonal(col):
    return jnp.diag(col)


@refused("of a matrix that spans vertex rows [")
def orthogonalise_vertices(x):
    return jnp.linalg.qr(x)[0]


# Refused: the graph's arrays, edges with vertices, randomness


@refused("computes with the arrays of the graph's structure [")
def raw_sources(graph, x):
    return x[graph.incoming.neighbours]


@refused("computes with the arrays of the graph's structure [")
def raw_segment_sum(graph, x, a):
    return jax.ops.segment_sum(a, graph.incoming.neighbours, num_segments=x.shape[0])


@refused("draws numbers for all vertices from one key [random_bits")
def noise_without_ids(x, key):
    return x + jax.random.normal(key, x.shape)


@refused("draws numbers for all vertices from one key [random_split")
def keys_by_place(x, key):
    return jax.vmap(jax.random.normal)(jax.random.split(key, x.shape[0]))


@refused("draws numbers by their place in memory [random_gamma")
def gamma_noise(x, key):
    return x * jax.random.gamma(key, jnp.exp(x))


@refused("take a matrix for each row, jnp.einsum('nf,nfg->ng', x, kernels[kind])")
def ragged_product(x, w, picks):
    return lax.ragged_dot(x, jnp.stack([w, w, w]), picks)


@refused("It calls Python in this process, and parts of a model run elsewhere: write it in jax.numpy")
def callback(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@refused("write it in jax.numpy, or compute it beforehand (an array of the data is an input of the model: Dataset(")
def callback_with_effects(x):
    return io_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@refused("Use jax.lax.top_k.")
def approximate_top_k(x):
    return lax.approx_max_k(x, 2)[0]


@refused("Collectives combine devices, or rows under vmap")
def psum_over_vertices(x):
    return jax.vmap(lambda row: row / lax.psum(row, "vertices"), axis_name="vertices")(x)


@refused("dorylax spreads rows itself: remove what says how arrays are spread over devices.")
def sharded(x):
    return lax.with_sharding_constraint(x, jax.sharding.SingleDeviceSharding(jax.devices()[0]))


@refused("A sparse matrix over vertices is a graph: multiply by it with dorylax.ops.gather(graph, x, edge_weight).")
def sparse_matrix(x):
    return sparse.bcoo_fromdense(x, nse=3, n_batch=1).todense()


@refused("the number of rows is a parameter of slice [slice")
def roll_vertices(x):
    return jnp.roll(x, 1, axis=0)


@refused("gamma, beta and poisson draw again and again")
def beta_noise(x, key):
    return x * jax.random.beta(key, jnp.exp(x), 2.0)


@refused("remove it, or train on one machine with single.optimize=false")
def printing(x):
    jax.debug.print("{}", x)
    return x


# The tests

_NAMES = [entry.fun.__name__ for entry in ACCEPTED]


def _run_only(entry: Accepted) -> bool:
    return "graph" not in inspect.signature(entry.fun).parameters


@pytest.mark.parametrize("entry", ACCEPTED, ids=_NAMES)
def test_accepted(entry: Accepted, rows: Any):
    assert tuple(rows.check(entry.fun)) == entry.results
    assert tuple(rows.check(entry.fun, flat=True)) == entry.results  # the same with calls inlined


# JAX has no gradient of these: of loops whose length is not known, and of some operations for symbolic sizes.
_NO_GRADIENT = (fori, loop_of_each_row, reduce_features, own_reducer, triangular_system_for_rows)


def _differentiable(entry: Accepted) -> bool:
    return entry.fun not in _NO_GRADIENT and FREE not in entry.results


@pytest.mark.parametrize("entry", ACCEPTED, ids=_NAMES)
def test_accepted_is_true(entry: Accepted, rows: Any):
    fun, results = entry.fun, list(entry.results)
    if _differentiable(entry):
        inputs = rows.inputs_of_gradient(fun)
        joint = rows.gradient(fun, results)
        found = rows.check(joint)
        gradients = found[len(found) - len(inputs) :]
        for kind, gradient in zip(inputs, gradients, strict=True):
            assert gradient == kind if isinstance(kind, Rows) else gradient == SUM or gradient.zero
        if found[: len(found) - len(inputs)] == results:  # not where some are integers
            fun, results = joint, found
    if _run_only(entry):
        rows.prove_numerically(fun, results, sizes=entry.sizes)


@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: entry.fun.__name__)
def test_refused(entry: Refused, rows: Any):
    with pytest.raises(RowError) as caught:
        rows.check(entry.fun)
    text = str(caught.value)
    assert entry.message in text
    assert "report it" not in text  # which is for what no user wrote
    place = re.search(r"at test_constructs\.py:(\d+) \((\S+)\)", text)
    assert place is not None, text
    lines, first = inspect.getsourcelines(entry.fun)
    assert first <= int(place[1]) < first + len(lines)
    assert place[2].split(".")[0] == entry.fun.__name__
    assert text.endswith(f"{caught.value.advice}.")
