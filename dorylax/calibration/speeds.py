"""Speeds of a machine: gathers of rows, copies beyond all caches (STREAM's "copy", McCalpin 1995), and XLA's arithmetic.

Matrix products and changes of rows number by number run on one core, in a separate process, and on all cores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from multiprocessing.connection import Connection

import jax
import jax.numpy as jnp
import numpy as np

from dorylax import aligned
from dorylax.calibration.steps import Sizes, Step, Values, other_process, rate, repeated
from dorylax.ops import row_operators
from dorylax.ops.row_loops.rows import RowRange
from dorylax.processes import Worker
from dorylax.program.jaxpr.flops import equation_flops

_NUMBER_BYTES = 4  # of a float32, and of an index


def gathers(sizes: Sizes, threads: int) -> Iterator[Step]:
    """List measurements of sums of neighbors' rows, by one thread and by `threads`, as graph tasks of a pipeline do them."""
    for width in sizes.widths:
        for rows_bytes in sizes.rows_bytes:
            for count in sorted({1, threads}):
                label = f"gather, width {width}, {rows_bytes / 2**20:g} MiB of rows, threads: {count}"
                yield Step(label, partial(_gather, sizes, width, rows_bytes, count))


def copies(sizes: Sizes, threads: int) -> Iterator[Step]:
    """List measurements of copies by 1, 2, 4, … and `threads` threads."""
    counts = {2**power for power in range(threads.bit_length())} | {threads}
    for count in sorted(counts):
        yield Step(f"memory, threads: {count}", partial(_copy, sizes, count))


def _gather(sizes: Sizes, width: int, rows_bytes: int, threads: int) -> Values:
    """Sum rows at random places: no prefetcher can predict a neighbor."""
    held = max(1, rows_bytes // (_NUMBER_BYTES * width))
    num_rows = max(threads, sizes.pass_bytes // (_NUMBER_BYTES * width * sizes.mean_degree))
    entries = num_rows * sizes.mean_degree
    rng = np.random.default_rng(0)
    neighbours = rng.integers(0, held, entries, dtype=np.int32)
    offsets = np.arange(0, entries + 1, sizes.mean_degree, dtype=np.int64)
    x = aligned.empty((held, 1, width), np.float32)
    x[:] = 1
    out = aligned.empty((num_rows, 1, width), np.float32)
    out[:] = 0  # or the first repeat would clear pages
    bounds = [num_rows * part // threads for part in range(threads + 1)]

    def work(first: int, last: int) -> None:
        rows = RowRange(offsets[first : last + 1], neighbours)
        row_operators.run("dorylax_gather_sum", {"direction": "in"}, [x], rows, out=[out[first:last]])

    with ThreadPoolExecutor(threads) as pool:
        once = rate(entries * _NUMBER_BYTES * (width + 1), lambda: list(pool.map(work, bounds[:-1], bounds[1:])))
        return repeated("gather", once, sizes.seconds, width=width, rows_bytes=rows_bytes, threads=threads)


def _copy(sizes: Sizes, threads: int) -> Values:
    pairs = [np.ones((2, sizes.copied_bytes // 8)) for _ in range(threads)]

    def copy(pair: np.ndarray) -> None:
        np.copyto(pair[1], pair[0])

    with ThreadPoolExecutor(threads) as pool:
        once = rate(sum(pair.nbytes for pair in pairs), lambda: list(pool.map(copy, pairs)))
        return repeated("memory", once, sizes.seconds, threads=threads)


# Products.

Shape = tuple[int, int, int]

_CHANGED = (8192, 128)
"""Rows of an interval, and their width."""


def products(sizes: Sizes, threads: int, stack: contextlib.ExitStack) -> Iterator[Step]:
    """List the measurements by this process's threads, and on one core if the system can pin a process, ended by `stack`."""

    @cache
    def process() -> Worker:
        return stack.enter_context(other_process(_on_one_core, sizes.seconds))

    def elsewhere(shape: Shape | str) -> Values:
        process().send(shape)
        found: Values = process().receive()
        return found

    shapes: tuple[Shape | str, ...] = (*sizes.products, *_OTHERS)
    for shape in shapes:
        what = shape if isinstance(shape, str) else f"product of {shape[0]} × {shape[1]} and {shape[1]} × {shape[2]}"
        label = f"{what}, threads: "
        if threads > 1 and hasattr(os, "sched_setaffinity"):
            yield Step(f"{label}1", partial(elsewhere, shape))
        yield Step(f"{label}{threads}", partial(_measure, sizes.seconds, shape, threads))


def _on_one_core(pipe: Connection, seconds: float) -> None:
    """In the process: XLA makes as many threads as there are cores for it when it first computes."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(_measure(seconds, pipe.recv(), 1))


def _measure(seconds: float, shape: Shape | str, threads: int) -> Values:
    return _OTHERS[shape](seconds, threads) if isinstance(shape, str) else _product(seconds, shape, threads)


def _elementwise(seconds: float, threads: int) -> Values:
    """Changes of rows besides products: random numbers take most of the time."""

    @jax.jit
    def change(key: jax.Array, x: jax.Array) -> jax.Array:
        return jax.nn.relu(jnp.where(jax.random.bernoulli(key, 0.5, x.shape), 2 * x, 0))

    arguments = jax.random.key(0), jnp.full(_CHANGED, 0.5, jnp.float32)
    flops = sum(equation_flops(equation, {}) for equation in jax.make_jaxpr(change)(*arguments).eqns)
    changed = change.lower(*arguments).compile()
    once = rate(flops, lambda: changed(*arguments).block_until_ready())
    return repeated("elementwise", once, seconds, threads=threads)


def _stage(seconds: float, threads: int) -> Values:
    """From arrays of NumPy to others, as stages are called: results go to new memory."""
    x, y = np.full(_CHANGED, 0.5, np.float32), np.full(_CHANGED, 0.5, np.float32)
    changed = jax.jit(lambda x, y: (x + y, x - y)).lower(x, y).compile()

    once = rate(4 * x.nbytes, lambda: [np.asarray(one) for one in changed(x, y)])
    return repeated("stage", once, seconds, threads=threads)


_OTHERS = {"elementwise": _elementwise, "stage": _stage}


def _product(seconds: float, shape: Shape, threads: int) -> Values:
    rows, inner, columns = shape
    x, w = jnp.full((rows, inner), 0.5, jnp.float32), jnp.full((inner, columns), 0.5, jnp.float32)
    product = jax.jit(jnp.matmul).lower(x, w).compile()
    flops = 2 * rows * inner * columns
    times = min(100, max(1, int(2e8) // flops))  # some milliseconds together

    def work() -> None:
        for _ in range(times):
            found = product(x, w)
        found.block_until_ready()

    return repeated(
        "product", rate(times * flops, work), seconds, rows=rows, inner=inner, columns=columns, threads=threads
    )
