"""The native library: that it serves, what happens without it, row ranges, and independence of the thread count."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.ops import native
from dorylax.ops.scatter import from_slots

needs_library = pytest.mark.skipif(not native.status().available, reason=f"{native.status().reason}")

DIGEST = """
import hashlib, os, sys
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(sys.argv[1])]))
import jax, numpy as np
from dorylax import ops
from dorylax.graph.graph import Graph
rng = np.random.default_rng(0)
sources = np.concatenate([rng.integers(0, 3000, 200_000), rng.integers(0, 3000, 30_000)])
targets = np.concatenate([rng.integers(0, 3000, 200_000), np.full(30_000, 7)])
graph = Graph.from_coo(sources, targets, 3000)
x = rng.standard_normal((3000, 2, 20)).astype(np.float32)
weight = rng.standard_normal((graph.num_edges, 2)).astype(np.float32)
digest = hashlib.sha256()
for y in (ops.gather(graph, x), ops.gather(graph, x, weight), ops.gather(graph, x, reduce="max"),
          *jax.grad(lambda x, w: (ops.gather(graph, x, w) ** 2).sum(), (0, 1))(x, weight),
          *jax.grad(lambda x, s: (ops.additive_attention(graph, x, s, -s) ** 2).sum(), (0, 1))(x, x[:, :, 0])):
    digest.update(np.asarray(y).tobytes())
print(digest.hexdigest())
"""


def python(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


@needs_library
def test_the_kernels_serve_gather(monkeypatch, small):
    calls = []
    monkeypatch.setattr(
        "dorylax.ops.primitives.native_calls.reduce",
        lambda op, x, rows, **_: calls.append(op) or jnp.zeros((rows.offsets.shape[0] - 1, *x.shape[1:]), x.dtype),
    )
    ops.gather(small, jnp.ones((small.num_vertices, 1237)))  # a width that nothing else has compiled
    assert calls == ["sum"]


@needs_library
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_results_do_not_depend_on_the_thread_count():
    one, two = python(DIGEST, "1"), python(DIGEST, "2")
    assert one.returncode == two.returncode == 0, one.stderr + two.stderr
    assert one.stdout == two.stdout


@needs_library
@pytest.mark.parametrize("op", ["sum", "weighted_sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_row_ranges_on_numpy_buffers(graph, op, dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((graph.num_vertices, 2, 9)).astype(dtype)
    weight = rng.standard_normal((graph.num_edges, 2)).astype(dtype) if op == "weighted_sum" else None
    out = np.full_like(x, np.nan)
    cut = graph.num_vertices // 3
    offsets, neighbours = graph.incoming.offsets, np.ascontiguousarray(graph.incoming.neighbours)
    for begin, end in ((0, cut), (cut, graph.num_vertices)):
        native.compute_rows(op, x, offsets, neighbours, out, begin=begin, end=end, weight=weight)
    with jax.enable_x64(True):
        given = None if weight is None else from_slots(graph, weight)
        expected = ops.gather(graph, x, given, reduce={"weighted_sum": "sum"}.get(op, op))
    np.testing.assert_array_equal(out, expected)  # to the bit, whichever way a row is computed


@needs_library
def test_row_ranges_run_beside_one_another(small):
    x = np.random.default_rng(0).standard_normal((small.num_vertices, 40)).astype(np.float32)
    out = np.zeros_like(x)

    def work(row):
        for _ in range(50):
            native.compute_rows(
                "sum", x, small.incoming.offsets, small.incoming.neighbours, out, begin=row, end=row + 1
            )

    threads = [threading.Thread(target=work, args=(row,)) for row in range(small.num_vertices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(out, ops.gather(small, x))


@needs_library
def test_rows_past_2_to_the_31_edges(tmp_path):
    # A sparse file stands for the indices: its pages of zeros take no room, and only the rows asked for are read.
    offsets = np.array([0, 2**31 + 11, 2**31 + 16, 2**31 + 16], np.int64)
    neighbours = np.memmap(tmp_path / "neighbours", np.int32, "w+", shape=(int(offsets[-1]),))
    neighbours[-5:] = [0, 1, 2, 2, 1]
    x = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]], np.float32)
    out = np.zeros((3, 2), np.float32)
    native.compute_rows("sum", x, offsets, neighbours, out, begin=1, end=3)
    np.testing.assert_array_equal(out, [[0, 0], [221, 442], [0, 0]])


WITHOUT = """
import sys, warnings
from pathlib import Path
import jax.numpy as jnp, numpy as np
from dorylax import ops
from dorylax.graph.graph import Graph
from dorylax.ops import native
if "missing" in sys.argv:
    native.library_files = lambda: iter(())
graph = Graph.from_coo(np.array([0, 1]), np.array([1, 1]), 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for width in (3, 4):
        print(np.asarray(ops.gather(graph, jnp.ones((2, width)))).tolist())
print(len(caught), *(str(w.message) for w in caught))
"""


def test_turned_off_the_segment_lowering_serves_in_silence():
    done = python(WITHOUT, DORYLAX_NATIVE="0")
    assert done.stdout.splitlines() == [
        "[[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]]",
        "[[0.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]]",
        "0",
    ], done.stderr


def test_without_the_library_one_warning_says_what_is_lost():
    done = python(WITHOUT, "missing", DORYLAX_NATIVE="")
    *results, warning = done.stdout.splitlines()
    assert len(results) == 2, done.stderr
    assert warning.startswith("1 dorylax runs without its native CPU kernels: it was not built")
    assert "ten times slower" in warning


def test_the_import_path_is_searched_for_the_library(tmp_path, monkeypatch):
    folder = tmp_path / "dorylax" / "ops"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path)])
    beside = list(native.library_files())
    (folder / "libdorylax_ops.so").touch()
    assert list(native.library_files()) == [*beside, folder / "libdorylax_ops.so"]


@needs_library
def test_a_library_of_another_version_is_left_alone(monkeypatch):
    monkeypatch.setattr(native, "_ABI", 0)
    monkeypatch.setenv("DORYLAX_NATIVE", "")
    library, reason = native._load.__wrapped__()
    assert library is None
    assert re.search(r"is of another version \(ABI \d+, expected 0\): install dorylax again", reason)


@needs_library
def test_a_slice_of_rows_has_values_per_entry_of_its_own(small):
    offsets, neighbours = small.incoming.offsets[3:6], np.ascontiguousarray(small.incoming.neighbours)
    first, last = int(offsets[0]), int(offsets[-1])
    assert 0 < first < last
    x = np.random.default_rng(0).standard_normal((9, 2, 3)).astype(np.float32)
    own, edge, padded = (
        x[3:5],
        np.repeat(x, 2, axis=0)[: last - first],
        np.full((last - first + 2, 2, 3), 7, np.float32),
    )
    where = {"begin": 0, "end": 2, "first_entry": first}

    native.compute_rows("expand", x, offsets, neighbours, padded[1:-1], **where)
    np.testing.assert_array_equal(padded[1:-1], x[neighbours[first:last]])
    native.compute_rows("expand", own, offsets, None, padded[1:-1], **where)
    np.testing.assert_array_equal(padded[1:-1], np.repeat(own, np.diff(offsets), axis=0))
    assert (padded[[0, -1]] == 7).all()

    products = np.empty((last - first, 2), np.float32)
    native.compute_rows("dot", x, offsets, neighbours, products, own=own, **where)
    expected = np.repeat(own, np.diff(offsets), axis=0) * x[neighbours[first:last]]
    np.testing.assert_allclose(products, expected.sum(-1), rtol=1e-6)

    sums = np.empty((2, 2, 3), np.float32)
    native.compute_rows("sum", edge, offsets, None, sums, **where)
    cut = offsets[1] - first
    np.testing.assert_allclose(sums, [edge[:cut].sum(0), edge[cut:].sum(0)], rtol=1e-6)


def test_an_unknown_instruction_set_is_named():
    done = python("from dorylax.ops import native; print(native.status().reason)", DORYLAX_NATIVE="sse9")
    assert "DORYLAX_NATIVE='sse9' names no instruction set that can run here" in done.stdout
