"""The gather kernel compared with its peers and the machine's limit: GB/s of gathered rows, on one power-law graph.

    python benchmarks/gather.py                  # the full table, half an hour on two cores
    python benchmarks/gather.py --widths 64 128 --rounds 3 --json gather.json

Forward is `y = A·x`, backward `dx = Aᵀ·dy`, A unweighted for dorylax and segment_sum; torch has no unweighted sparse
matrices, so its matrix has ones. Every peer gets the best inputs for it: A and Aᵀ ready in CSR with int32 indices, and all
threads. Results overwrite the last ones (a donated array for JAX, `out=` for torch), as inside a step that is compiled as a
whole: with `--fresh` they are allocated, and the system then clears their pages on first use. A gathered row is `width · 4`
bytes for each edge. The rounds of all peers take turns, so that noise of the machine meets all of them, and each begins with
a forward run that does not count; the table gives medians. Peers that are not installed are left out, and named.

The **limit** is the rate at which the machine reads rows: `ROW_READ`, built with the compiler that builds the kernel, adds
the same rows in the same order into registers, on all cores, and writes nothing. It has the better of two medians, with
and without prefetching.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import statistics
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from dorylax import ops
from dorylax.aligned import empty
from dorylax.graph.graph import Graph
from dorylax.ops import native
from harness.command_line import parsed, parser_of, write_json
from harness.measure import timed

Run = Callable[[], object]

AHEAD = 16  # rows that the kernel prefetches ahead, and one of the limit's two loops

# Bytes of all gathered rows together: segment_sum makes an array of them. Wide rows are gathered over fewer edges.
_MOST_BYTES = 14e9

# Seconds before each timed run: segment_sum frees gigabytes, which the kernel goes on unmapping while the next peer runs.
_SETTLE = 0.5

ROW_READ = """
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>
typedef float Lanes __attribute__((vector_size(64)));
static float read_block(const float *x, int64_t width, const int32_t *index, int64_t begin, int64_t end, int64_t ahead) {
  Lanes sum[4] = {}, v;
  float rest = 0;
  for (int64_t k = begin; k < end; ++k) {
    if (ahead && k + ahead < end)
      for (int64_t c = 0; c < width; c += 16) __builtin_prefetch(x + index[k + ahead] * width + c);
    const float *row = x + index[k] * width;
    int64_t c = 0;
    for (; c + 64 <= width; c += 64)
      for (int i = 0; i < 4; ++i) memcpy(&v, row + c + 16 * i, sizeof v), sum[i] += v;
    for (int i = 0; c + 16 <= width; c += 16, ++i) memcpy(&v, row + c, sizeof v), sum[i] += v;
    if (c < width && width >= 16)
      memcpy(&v, row + width - 16, sizeof v), sum[3] += v;
    else
      for (; c < width; ++c) rest += row[c];
  }
  sum[0] += sum[1] + sum[2] + sum[3];
  for (int i = 0; i < 16; ++i) rest += sum[0][i];
  return rest;
}
extern "C" void read_rows(const float *x, int64_t width, const int32_t *index, int64_t count, int64_t ahead, int64_t cores,
                          float *sums) {
  const int64_t block = 8192;
  std::atomic<int64_t> next{0};
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < cores; ++t)
    threads.emplace_back([&, t] {
      for (int64_t k = next.fetch_add(block); k < count; k = next.fetch_add(block))
        sums[t] += read_block(x, width, index, k, k + block < count ? k + block : count, ahead);
    });
  for (auto &thread : threads) thread.join();
}
"""


def power_law_graph(num_vertices: int, num_edges: int, seed: int) -> Graph:
    """Both ends of each edge drawn with probability ∝ rank^-0.6 (degree exponent 2.7), ranks in random vertex order."""
    rng = np.random.default_rng(seed)
    ends = []
    for _ in range(2):
        rank = (num_vertices * rng.random(num_edges) ** 2.5).astype(np.int64)
        ends.append(rng.permutation(num_vertices).astype(np.int32)[rank])
    return Graph.from_coo(*ends, num_vertices)


def copy_bandwidth(megabytes: int) -> float:
    """GB/s, counting both directions, of all cores copying arrays that no cache holds."""
    workers = os.cpu_count() or 1
    pairs = [(np.ones(megabytes << 17), np.zeros(megabytes << 17)) for _ in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        seconds = timed(lambda: list(pool.map(lambda pair: np.copyto(*pair), pairs)), 5)
    return workers * 2 * pairs[0][0].nbytes / statistics.median(seconds) / 1e9


def jax_runs(forward: Callable[..., jax.Array], graph: object, x: np.ndarray, *, fresh: bool) -> tuple[Run, Run]:
    """Of `forward(x, graph)` and its derivative, compiled; `graph` holds arrays on the device."""
    values = jnp.asarray(x)

    def backward(x: jax.Array, graph: object, ct: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: forward(x, graph), x)[1](ct)[0]

    def run(compute: Callable[..., jax.Array], *arguments: object) -> Run:
        if fresh:
            compiled = jax.jit(compute)
            return lambda: compiled(*arguments).block_until_ready()
        # XLA writes the result where an array was that is given away and not read.
        into = jax.jit(lambda _, *arguments: compute(*arguments), donate_argnums=0, keep_unused=True)
        last = jnp.zeros_like(values)

        def again() -> jax.Array:
            nonlocal last
            place = last.unsafe_buffer_pointer()
            last = into(last, *arguments).block_until_ready()
            if last.unsafe_buffer_pointer() != place:
                raise SystemExit("JAX did not reuse the result's memory; measure with --fresh")
            return last

        return again

    return run(forward, values, graph), run(backward, values, graph, values)


def dorylax_runs(graph: Graph, x: np.ndarray, *, fresh: bool) -> tuple[Run, Run]:
    return jax_runs(lambda x, graph: ops.gather(graph, x), jax.device_put(graph), x, fresh=fresh)


def segment_sum_runs(graph: Graph, x: np.ndarray, *, fresh: bool) -> tuple[Run, Run]:
    targets = jnp.asarray(np.repeat(np.arange(graph.num_vertices, dtype=np.int32), np.diff(graph.incoming.offsets)))
    sources = jnp.asarray(graph.incoming.neighbours)

    def gather(x: jax.Array, ends: tuple[jax.Array, jax.Array]) -> jax.Array:
        sources, targets = ends
        return jax.ops.segment_sum(x[sources], targets, x.shape[0], indices_are_sorted=True)

    return jax_runs(gather, (sources, targets), x, fresh=fresh)


def torch_runs(graph: Graph, x: np.ndarray, *, fresh: bool) -> tuple[Run, Run]:
    import torch

    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    torch.set_num_threads(os.cpu_count() or 1)
    values = torch.from_numpy(x)

    def run(rows: object) -> Run:
        # int32 throughout: MKL's own index type, 5 to 50 % faster here than int64.
        offsets = torch.from_numpy(rows.offsets.astype(np.int32))
        columns = torch.from_numpy(rows.neighbours)
        shape = (graph.num_vertices, graph.num_vertices)
        matrix = torch.sparse_csr_tensor(offsets, columns, torch.ones(graph.num_edges), shape, check_invariants=False)
        if fresh:
            return lambda: matrix @ values
        last = torch.zeros_like(values)
        return lambda: torch.mm(matrix, values, out=last)

    return run(graph.incoming), run(graph.outgoing)


def limit_runs(graph: Graph, x: np.ndarray) -> dict[tuple[str, str], Run]:
    """Reading the rows alone, by (loop, pass); nothing where there is no compiler."""
    library = _row_read()
    if library is None:
        return {}
    aligned = empty(x.shape, x.dtype)
    aligned[:] = x
    runs: dict[tuple[str, str], Run] = {}
    for which, rows in (("forward", graph.incoming), ("backward", graph.outgoing)):
        index = np.asarray(rows.neighbours)
        for name, ahead in (("limit, plain", 0), ("limit, prefetching", AHEAD)):
            runs[name, which] = functools.partial(_read, library, aligned, index, ahead)
    return runs


def _read(library: ctypes.CDLL, x: np.ndarray, index: np.ndarray, ahead: int) -> np.ndarray:
    sums = np.zeros(os.cpu_count() or 1, np.float32)
    library.read_rows(x.ctypes.data, x.shape[1], index.ctypes.data, len(index), ahead, len(sums), sums.ctypes.data)
    return sums


@functools.cache
def _row_read() -> ctypes.CDLL | None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        print("left out: the row-read limit (no C++ compiler)")
        return None
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/row_read.so"
        flags = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread", "-Wno-psabi"]
        subprocess.run([compiler, *flags, "-x", "c++", "-o", target, "-"], check=True, input=ROW_READ.encode())
        library = ctypes.CDLL(target)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.read_rows.argtypes = [pointer, number, pointer, number, number, number, pointer]
    return library


PEERS = {"dorylax": dorylax_runs, "torch CSR": torch_runs, "segment_sum": segment_sum_runs}


def measure(
    graph: Graph,
    width: int,
    rounds: int,
    peers: dict[str, Callable[..., tuple[Run, Run]]],
    *,
    fresh: bool,
    settle: float,
) -> list[dict]:
    """One row per peer and pass."""
    x = np.random.default_rng(0).standard_normal((graph.num_vertices, width)).astype(np.float32)
    runs = {
        (name, which): run
        for name, make in peers.items()
        for which, run in zip(("forward", "backward"), make(graph, x, fresh=fresh), strict=True)
    }
    # Copies: of memory that is written again, and that JAX gives away only without other references.
    reference = {which: np.array(runs["dorylax", which]()) for which in ("forward", "backward")}
    for (name, which), run in runs.items():  # also the warm-up
        error = np.abs(np.asarray(run()) - reference[which]).max() / np.abs(reference[which]).max()
        if error > 1e-4:
            raise SystemExit(
                f"{name} {which} at width {width} differs from dorylax by {error:.1e}, relative to the maximum"
            )
    limits = limit_runs(graph, x)
    runs |= limits
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            # A forward run goes first that does not count: while the others ran, its arrays have become cold, down to the
            # system's page tables.
            seconds[key] += timed(run, 1, warm_up=int(key[1] == "forward"), settle=settle)
    medians = {key: statistics.median(times) for key, times in seconds.items()}
    for which in ("forward", "backward") if limits else ():
        medians["limit", which] = min(medians.pop((name, which)) for name in ("limit, plain", "limit, prefetching"))
    gigabytes = graph.num_edges * width * 4 / 1e9
    return [
        {
            "width": width,
            "edges": graph.num_edges,
            "pass": which,
            "peer": name,
            "seconds": median,
            "gb_per_s": gigabytes / median,
            "dorylax_is_faster_by": median / medians["dorylax", which],
        }
        for (name, which), median in medians.items()
    ]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--vertices", type=int, default=230_000)
    parser.add_argument("--edges", type=int, default=16_000_000)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 41, 47, 64, 100, 128, 256, 602])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--fresh", action="store_true", help="allocate each result anew, its pages cleared on first use"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--settle", type=float, default=_SETTLE, help="seconds before each timed run")
    parser.add_argument("--copied", type=int, default=256, help="MB that each core copies, to measure the bandwidth")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, vertices=200, edges=2000, widths=[16], rounds=1, settle=0.0, copied=1)

    peers = {"dorylax": dorylax_runs}
    for name in arguments.peers:
        try:
            __import__({"torch CSR": "torch"}.get(name, "jax"))
            peers[name] = PEERS[name]
        except ImportError as error:
            print(f"left out: {name} ({error})")
    bandwidth = copy_bandwidth(arguments.copied)
    print(native.status())
    print(
        f"copy bandwidth of this machine, both directions: {bandwidth:.1f} GB/s; medians of {arguments.rounds} rounds"
    )
    columns = [*peers, *(["limit"] if _row_read() else [])]
    print(
        f"{'width':>5}  {'pass':<8}  " + "  ".join(f"{name:>20}" for name in columns) + "   GB/s (dorylax is × faster)"
    )
    rows = []
    graphs: dict[int, Graph] = {}
    for width in arguments.widths:
        edges = min(arguments.edges, int(_MOST_BYTES / (4 * width)))
        if edges not in graphs:
            graphs = {edges: power_law_graph(arguments.vertices, edges, arguments.seed)}
        options = {"fresh": arguments.fresh, "settle": arguments.settle}
        measured = measure(graphs[edges], width, arguments.rounds, peers, **options)
        rows += measured
        for which in ("forward", "backward"):
            cells = [
                f"{r['gb_per_s']:>11.2f} ({r['dorylax_is_faster_by']:>5.1f}×)" for r in measured if r["pass"] == which
            ]
            print(
                f"{width:>5}  {edges / 1e6:>7.1f}  {which:<8}  " + "  ".join(f"{cell:>20}" for cell in cells),
                flush=True,
            )
    facts = {"copy_gb_per_s": bandwidth, "rounds": arguments.rounds, "fresh": arguments.fresh, "cpus": os.cpu_count()}
    write_json(arguments.json, facts | {"rows": rows})


if __name__ == "__main__":
    main()
