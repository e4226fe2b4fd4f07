"""Randomness keyed by row ids."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.graph.graph import Graph
from dorylax.ops.row_random import bernoulli_rows, edge_ids, loop_ids, row_bits, vertex_ids


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_rows_equal_the_rows_of_jax_random_bits(width):
    key, ids = jax.random.key(3), jnp.asarray([5, 0, 99, 5])
    np.testing.assert_array_equal(row_bits(key, ids, width), jax.random.bits(key, (100, width), "uint32")[ids])


@pytest.mark.parametrize("bit_width", [8, 16, 64])
def test_words_of_other_widths(bit_width):
    with jax.enable_x64(True):
        key, ids = jax.random.key(3), jnp.asarray([5, 0, 99, 5])
        expected = jax.random.bits(key, (100, 3), f"uint{bit_width}")[ids]
        np.testing.assert_array_equal(row_bits(key, ids, 3, bit_width), expected)


def test_positions_past_32_bits_are_exact():
    from dorylax.jax_internals import threefry2x32_p

    key = jax.random.key(1)
    for row, width in [(2**32 - 1, 70_000), (2**31 + 7, 602), (123_456_789, 65_537)]:
        bits = row_bits(key, jnp.asarray([row], jnp.uint32), width)
        for column in (0, 1, width - 1):
            position = row * width + column
            words = [jnp.asarray([word], jnp.uint32) for word in (position >> 32, position & 0xFFFFFFFF)]
            a, b = threefry2x32_p.bind(*jax.random.key_data(key), *words)
            assert bits[0, column] == (a ^ b)[0]


def test_bernoulli_has_its_probability():
    drawn = bernoulli_rows(jax.random.key(0), 0.3, jnp.arange(2000), 50)
    # Five standard deviations of the mean of 100,000 draws.
    assert abs(float(drawn.mean()) - 0.3) < 5 * (0.3 * 0.7 / 1e5) ** 0.5
    assert not bernoulli_rows(jax.random.key(0), 0.0, jnp.arange(2000), 50).any()


@pytest.mark.parametrize("width", [1, 3, 4, 41])
def test_bernoulli_rows_do_not_depend_on_the_rows_asked_for(width):
    key, ids = jax.random.key(5), jnp.asarray([7, 0, 31, 7])
    every = bernoulli_rows(key, 0.5, jnp.arange(32), width)
    np.testing.assert_array_equal(bernoulli_rows(key, 0.5, ids, width), every[ids])
    assert not (every[:16] == every[16:]).all()


def test_bernoulli_elements_are_independent():
    drawn = np.asarray(bernoulli_rows(jax.random.key(0), 0.5, jnp.arange(4000), 12), np.float64) * 2 - 1
    correlation = drawn.T @ drawn / 4000 - np.eye(12)
    assert np.abs(correlation).max() < 6 / 4000**0.5


def test_ids_follow_the_user_not_the_memory():
    graph = Graph.from_coo(np.array([0, 1, 2]), np.array([1, 2, 0]), 3)
    np.testing.assert_array_equal(vertex_ids(graph), [0, 1, 2])
    np.testing.assert_array_equal(edge_ids(graph), [0, 1, 2])
    np.testing.assert_array_equal(loop_ids(graph), 2**31 + np.arange(3))
    renamed = graph.reorder([2, 0, 1])
    np.testing.assert_array_equal(vertex_ids(renamed), [2, 0, 1])
    np.testing.assert_array_equal(edge_ids(renamed), [0, 1, 2])
    np.testing.assert_array_equal(loop_ids(renamed), 2**31 + np.array([2, 0, 1]))


def test_ids_of_implicit_loops_are_no_edges():
    graph = Graph.from_coo(np.array([0, 1, 1]), np.array([1, 0, 2]), 3).symmetrise()
    assert edge_ids(graph).max() == 5  # above the number of edges
    assert not np.isin(loop_ids(graph), edge_ids(graph)).any()


def test_other_key_types_are_refused():
    with pytest.raises(ValueError, match="needs a threefry2x32 key, got rbg"):
        row_bits(jax.random.key(0, impl="rbg"), jnp.arange(3), 2)
