"""Random bits keyed by row id: the same for a vertex wherever and however often its row is computed.

`jax.random.bits(key, (N, W))` hashes the flat position i·W + j of each element (threefry, the partitionable form that
JAX uses by default). Hashing only the positions of chosen rows gives bit-identical rows without drawing the others.
Dropout therefore does not depend on vertex order, on cuts into intervals, or on retries.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Integer, PRNGKeyArray, UInt, UInt32

from dorylax.graph.compressed import CompressedGraph
from dorylax.jax_internals import threefry2x32_p


def vertex_ids(graph: CompressedGraph) -> Integer[Array, " V"]:
    """Return the user's id of each vertex, `[V]`, the key of per-vertex randomness."""
    if graph.vertex_ids is None:
        return jnp.arange(graph.num_vertices, dtype=jnp.int32)
    return jnp.asarray(graph.vertex_ids)


def edge_ids(graph: CompressedGraph) -> Integer[Array, " E"]:
    """Return the id of each edge, `[E]`, in order of per-edge arrays, the key of per-edge randomness."""
    graph.require_edge_ids()
    if graph.edge_ids is None:
        return jnp.arange(graph.num_edges, dtype=jnp.int32)
    return jnp.asarray(graph.edge_ids)


def loop_ids(graph: CompressedGraph) -> Integer[Array, " V"]:
    """Return the id of each vertex's implicit self-loop, 2³¹ + v, uint32 `[V]`, above all possible edge ids."""
    return vertex_ids(graph).astype(jnp.uint32) + jnp.uint32(1 << 31)


def row_bits(key: PRNGKeyArray, ids: Integer[Array, " R"], width: int, bit_width: int = 32) -> UInt[Array, "R {width}"]:
    """Random bits of chosen rows.

    Args:
        key: A threefry key (`jax.random.key`).
        ids: Row ids in 0 … 2³²-1, `[R]`, in any order, repeated or not.
        width: W, the number of words in a row.
        bit_width: B, bits in a word: 8, 16, 32, or 64 (with x64).

    Returns:
        Unsigned, `[R, W]`; row k equals `jax.random.bits(key, (N, W), f"uint{B}")[ids[k]]` for every N > ids[k].

    Raises:
        ValueError: The key is not a threefry key.
    """
    a, b = _hash(key, ids, width)
    if bit_width == 64:
        return (a.astype(jnp.uint64) << jnp.uint64(32)) | b.astype(jnp.uint64)
    return (a ^ b).astype(f"uint{bit_width}")


# Jitted so that a model with many layers traces it once per shape.
@functools.partial(jax.jit, static_argnames=("probability", "width"))
def bernoulli_rows(
    key: PRNGKeyArray, probability: float, ids: Integer[Array, " R"], width: int
) -> Bool[Array, "R {width}"]:
    """Return True with the given probability, independently for each element of the chosen rows, for any choice of rows.

    Hashing dominates the cost of dropout, so each hash (64 bits) serves four elements of 16 bits. This is four times as fast
    as `jax.random.bernoulli`, with the probability rounded to a multiple of 2⁻¹⁶.
    """
    words = -(-width // 4)
    a, b = _hash(key, ids, words)
    quarters = jnp.stack([a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16], axis=-1).reshape(ids.shape[0], 4 * words)
    return quarters[:, :width] < jnp.uint32(round(probability * 65536))


def _hash(
    key: PRNGKeyArray, ids: Integer[Array, " R"], width: int
) -> tuple[UInt32[Array, "R {width}"], UInt32[Array, "R {width}"]]:
    if jax.random.key_impl(key) != "threefry2x32":
        raise ValueError(
            f"row randomness needs a threefry2x32 key, got {jax.random.key_impl(key)}: use jax.random.key(seed)"
        )
    k1, k2 = jax.random.key_data(key)
    high, low = _positions(ids.astype(jnp.uint32), width)
    a, b = threefry2x32_p.bind(k1, k2, high, low)
    return a, b


def _positions(ids: UInt32[Array, " R"], width: int) -> tuple[UInt32[Array, "R W"], UInt32[Array, "R W"]]:
    """Return high and low words of the 64-bit numbers ids·width + j, by schoolbook multiplication in 16-bit digits."""
    digit, mask = jnp.uint32(16), jnp.uint32(0xFFFF)
    w0, w1 = jnp.uint32(width & 0xFFFF), jnp.uint32(width >> 16)
    a0, a1 = ids & mask, ids >> digit
    low, mid1, mid2, high = a0 * w0, a1 * w0, a0 * w1, a1 * w1
    carry = (low >> digit) + (mid1 & mask) + (mid2 & mask)
    product_low = (low & mask) | (carry << digit)
    product_high = high + (mid1 >> digit) + (mid2 >> digit) + (carry >> digit)
    column = jnp.arange(width, dtype=jnp.uint32)[None]
    low_word = product_low[:, None] + column
    return product_high[:, None] + (low_word < column).astype(jnp.uint32), low_word
