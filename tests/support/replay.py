"""Asynchronous training once more, in NumPy and float64, of two-layer models that are differentiated by hand.

Given is a `Schedule`: which weights every interval pulled, and of which epochs the rows were that it read. All values are
computed here, by formulas of layers and of Adam; of the library nothing is used but the random bits of dropout.

Whatever belongs to one interval in one epoch is a function of both, computed when somebody asks for it: rows that an
interval reads are asked of whoever published them, in the epoch that the schedule names, with the weights of that visit.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from dorylax.ops.row_random import bernoulli_rows

NEVER = -2
"""The epoch of rows that were not read."""

Params = dict[str, np.ndarray]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What happened in a run, without values. Intervals are numbered 0 … K-1.

    Attributes:
        pulled: by interval and epoch, the version of the weights, and for how many updates later they were predicted.
        rows: by name of what is published, interval and epoch: of which epoch the rows of each interval were that it read;
            int64 `[K]`.
        sums: by name of what is pushed, interval and epoch: of which epoch each interval's part was in the sum of each of
            its n rows; int64 `[n, K]`.
    """

    pulled: Mapping[tuple[int, int], tuple[int, int]]
    rows: Mapping[tuple[str, int, int], np.ndarray]
    sums: Mapping[tuple[str, int, int], np.ndarray]

    def fresh(self) -> Schedule:
        """As if everything read were of the reader's own epoch."""
        return self._with(lambda name, epoch, epochs: np.full_like(epochs, epoch))

    def older(self, name: str) -> Schedule:
        """As if all of this had been read an epoch before."""
        return self._with(lambda mine, epoch, epochs: np.maximum(epochs - 1, 0) if mine == name else epochs)

    def unpredicted(self) -> Schedule:
        """As if intervals that run ahead computed with the newest weights."""
        return dataclasses.replace(self, pulled={pair: (version, 0) for pair, (version, _) in self.pulled.items()})

    def synchronous(self) -> Schedule:
        """As if every epoch began only once the one before was over, and read nothing else."""
        return dataclasses.replace(self.fresh(), pulled={pair: (pair[1], 0) for pair in self.pulled})

    def _with(self, change: Callable[[str, int, np.ndarray], np.ndarray]) -> Schedule:
        rows, sums = (
            {key: np.where(old == NEVER, NEVER, change(key[0], key[2], old)) for key, old in found.items()}
            for found in (self.rows, self.sums)
        )
        return dataclasses.replace(self, rows=rows, sums=sums)


class Problem(NamedTuple):
    """What is trained, in the user's order of vertices and edges.

    Attributes:
        features, labels, weights: `[V, F]`, `[V]`, and what each vertex counts in the loss `[V]`.
        sources, targets: of each edge, `[E]`.
        intervals: the vertices of each.
        params: as the run begins, by path.
        keys: of random streams as they are before any epoch, by path.
        seed: of the run.
        rates: probabilities of dropout of rows and of attention.
    """

    features: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    intervals: tuple[np.ndarray, ...]
    params: Params
    keys: Mapping[str, Any]
    seed: int
    rates: tuple[float, float]


class Edges(NamedTuple):
    """In-edges or out-edges of an interval: which of its rows has them, which vertex is at the other end, and their ids."""

    rows: np.ndarray
    neighbours: np.ndarray
    ids: np.ndarray


class Step(NamedTuple):
    """Adam: parameters, both moments, how many updates there were, the last gradient, and the parameters before it."""

    params: Params
    mean: Params
    square: Params
    count: int
    gradient: Params
    before: Params

    def next(self, gradient: Params, rate: float = 0.01) -> Step:
        """Kingma & Ba, ICLR 2015, algorithm 1."""
        count = self.count + 1
        mean = {name: 0.9 * self.mean[name] + 0.1 * gradient[name] for name in gradient}
        square = {name: 0.999 * self.square[name] + 0.001 * gradient[name] ** 2 for name in gradient}
        params = {
            name: old - rate * mean[name] / (1 - 0.9**count) / (np.sqrt(square[name] / (1 - 0.999**count)) + 1e-8)
            for name, old in self.params.items()
        }
        return Step(params, mean, square, count, gradient, self.params)


class Model(Protocol):
    """A model: what its intervals publish and push are methods of these names, of an interval and an epoch.

    Attributes:
        published: what is read through edges, in order of the plan's publications.
        pushed: what is summed per source by the intervals of destinations, in order of the plan's steps.
    """

    published: ClassVar[tuple[str, ...]]
    pushed: ClassVar[tuple[str, ...]]

    def __init__(self, run: Replay) -> None: ...

    def gradient(self, k: int, e: int) -> tuple[float, Params]:
        """What an interval adds to the loss and to the gradient of an epoch."""
        ...


def once(method: Callable[..., T]) -> Callable[..., T]:
    """Computes what belongs to an interval in an epoch when it is first asked for, and keeps it."""

    @functools.wraps(method)
    def kept(model: Any, *which: int) -> T:
        known = vars(model).setdefault("known", {})
        key = (method.__name__, *which)
        if key not in known:
            known[key] = method(model, *which)
        found: T = known[key]
        return found

    return kept


class Layers:
    """A model whose methods take a layer, an interval and an epoch: `product_1` is `product` of layer 1."""

    def __init__(self, run: Replay) -> None:
        self.run = run

    def __getattr__(self, name: str) -> Any:
        method, _, layer = name.rpartition("_")
        if not layer.isdigit():
            raise AttributeError(name)
        return functools.partial(getattr(self, method), int(layer))


class Replay:
    """A run.

    Args:
        problem: what is trained.
        schedule: what happened.
        prediction: "none", "linear" or "optimizer".
        make: the model.
    """

    def __init__(self, problem: Problem, schedule: Schedule, prediction: str, make: type[Model]) -> None:
        self.problem, self.schedule, self._prediction = problem, schedule, prediction
        self.incoming = [_edges(problem.targets, problem.sources, rows) for rows in problem.intervals]
        self.outgoing = [_edges(problem.sources, problem.targets, rows) for rows in problem.intervals]
        loops = np.unique(problem.sources[problem.sources == problem.targets])
        self.loops = np.ones(len(problem.features))  # weights of the loops that layers add
        self.loops[loops] = 0
        zeros = {name: np.zeros(value.shape) for name, value in problem.params.items()}
        params = {name: value.astype(np.float64) for name, value in problem.params.items()}
        self._versions = [Step(params, zeros, zeros, 0, zeros, params)]
        self._predicted: dict[tuple[int, int], Params] = {}
        self._losses: list[float] = []
        self._kept: dict[tuple[str, int], np.ndarray] = {}
        self.model = make(self)

    def losses(self, epochs: int) -> np.ndarray:
        """The loss of each epoch, `[epochs]`."""
        self._version(epochs)
        return np.array(self._losses[:epochs])

    def path(self, updates: int) -> tuple[list[np.ndarray], list[np.ndarray], list[int]]:
        """The weights before the first update and after each, each gradient, and the sizes of arrays: flat, in one order."""
        self._version(updates)
        steps = self._versions[: updates + 1]

        def flat(tree: Params) -> np.ndarray:
            return np.concatenate([tree[name].ravel() for name in sorted(tree)])

        sizes = [steps[0].params[name].size for name in sorted(steps[0].params)]
        return [flat(step.params) for step in steps], [flat(step.gradient) for step in steps[1:]], sizes

    def weights(self, k: int, e: int) -> Params:
        """Those that an interval computes an epoch with."""
        version, ahead = key = self.schedule.pulled[k, e]
        if key not in self._predicted:
            newest = self._version(version)
            if self._prediction == "linear":
                step = {name: now - newest.before[name] for name, now in newest.params.items()}
                self._predicted[key] = {name: now + ahead * step[name] for name, now in newest.params.items()}
            else:
                for _ in range(ahead):
                    newest = newest.next(newest.gradient)
                self._predicted[key] = newest.params
        return self._predicted[key]

    def _version(self, number: int) -> Step:
        while len(self._versions) <= number:
            epoch = len(self._versions) - 1
            found = [self.model.gradient(k, epoch) for k in range(len(self.problem.intervals))]
            self._losses.append(sum(loss for loss, _ in found))
            total = {name: sum(gradient[name] for _, gradient in found) for name in self.problem.params}
            self._versions.append(self._versions[-1].next(total))
        return self._versions[number]

    def read(self, name: str, k: int, e: int) -> np.ndarray:
        """What an interval reads of its neighbours, `[V, …]`; NaN where it reads nothing."""
        found = None
        for j, epoch in enumerate(self.schedule.rows[name, k, e].tolist()):
            if epoch != NEVER:
                rows = getattr(self.model, name)(j, epoch)
                if found is None:
                    found = np.full((len(self.loops), *rows.shape[1:]), np.nan)
                found[self.problem.intervals[j]] = rows
        return np.full((len(self.loops), 1), np.nan) if found is None else found

    def collect(self, name: str, k: int, e: int) -> np.ndarray:
        """What intervals have pushed to the rows of an interval, `[n, …]`; `name` gives `[V, …]` of an interval."""
        rows, stamps = self.problem.intervals[k], self.schedule.sums[name, k, e]
        total = np.zeros(getattr(self.model, name)(k, e)[rows].shape)
        for j, epochs in enumerate(stamps.T):
            for epoch in set(epochs.tolist()) - {NEVER}:
                mine = epochs == epoch
                total[mine] += getattr(self.model, name)(j, epoch)[rows[mine]]
        return total

    def kept(self, stream: str, epoch: int, ids: np.ndarray, width: int, rate: float) -> np.ndarray:
        """What dropout multiplies rows with, `[R, width]`: 0 or 1 / (1 - rate)."""
        key = (stream, epoch)
        if key not in self._kept:
            drawn = self.problem.keys[stream]
            for number in (self.problem.seed, epoch, 0):
                drawn = jax.random.fold_in(drawn, np.uint32(number))
            self._kept[key] = np.asarray(bernoulli_rows(drawn, 1 - rate, ids.astype(np.uint32), width)) / (1 - rate)
        return self._kept[key]

    def kept_rows(self, layer: int, k: int, e: int, width: int) -> np.ndarray:
        """The same for a layer's input."""
        stream = f"skeleton/dropouts/{layer}/rngs/key"
        found = self.kept(stream, e, np.arange(len(self.loops)), width, self.problem.rates[0])
        return found[self.problem.intervals[k]]

    def loss(self, k: int, y: np.ndarray) -> tuple[float, np.ndarray]:
        """Cross entropy of an interval's rows, and what it is differentiated by them."""
        rows = self.problem.intervals[k]
        labels, weights = self.problem.labels[rows], self.problem.weights[rows]
        y = y - y.max(axis=1, keepdims=True)
        logs = y - np.log(np.exp(y).sum(axis=1, keepdims=True))
        places = np.arange(len(rows))
        cotangent = np.exp(logs)
        cotangent[places, labels] -= 1
        return float(-(weights * logs[places, labels]).sum()), weights[:, None] * cotangent


class GCN(Layers):
    """`y = Ã dropout(x) W + b`, twice, with ReLU between; Ã scales rows, sums neighbours, and scales once more.

    Published are rows of the product with W, scaled: `product_0` and `product_1`, whose sums over in-edges are read; and
    backwards what the loss is differentiated by those sums, whose own sums over out-edges are read. So both directions
    mix weights of intervals.
    """

    published: ClassVar[tuple[str, ...]] = ("product_0", "product_1", "cotangent_1", "cotangent_0")
    pushed: ClassVar[tuple[str, ...]] = ()

    def __init__(self, run: Replay) -> None:
        super().__init__(run)
        degrees = run.loops + np.bincount(run.problem.targets, minlength=len(run.loops))
        self.scales = [(degrees[rows] ** -0.5)[:, None] for rows in run.problem.intervals]
        self.loops = [run.loops[rows][:, None] for rows in run.problem.intervals]

    @once
    def product(self, layer: int, k: int, e: int) -> np.ndarray:
        return self.scales[k] * (self.input(layer, k, e) @ self.run.weights(k, e)[f"convs/{layer}/kernel"])

    @once
    def cotangent(self, layer: int, k: int, e: int) -> np.ndarray:
        if layer == 1:
            return self.scales[k] * self.run.loss(k, self.output(1, k, e))[1]
        inner = self.summed("cotangent_1", k, e) @ self.run.weights(k, e)["convs/1/kernel"].T
        kept = self.run.kept_rows(1, k, e, inner.shape[1])
        return self.scales[k] * kept * inner * (self.output(0, k, e) > 0)

    def input(self, layer: int, k: int, e: int) -> np.ndarray:
        x = np.maximum(self.output(0, k, e), 0) if layer else self.run.problem.features[self.run.problem.intervals[k]]
        return self.run.kept_rows(layer, k, e, x.shape[1]) * x

    @once
    def output(self, layer: int, k: int, e: int) -> np.ndarray:
        return self.summed(f"product_{layer}", k, e) + self.run.weights(k, e)[f"convs/{layer}/bias"]

    @once
    def gradient(self, k: int, e: int) -> tuple[float, Params]:
        loss, cotangent = self.run.loss(k, self.output(1, k, e))
        return loss, {
            "convs/0/kernel": self.input(0, k, e).T @ self.summed("cotangent_0", k, e),
            "convs/0/bias": (self.cotangent(0, k, e) / self.scales[k]).sum(axis=0),
            "convs/1/kernel": self.input(1, k, e).T @ self.summed("cotangent_1", k, e),
            "convs/1/bias": cotangent.sum(axis=0),
        }

    def summed(self, name: str, k: int, e: int) -> np.ndarray:
        """The sum of neighbours and the added loop, scaled."""
        edges = (self.run.incoming if name.startswith("product") else self.run.outgoing)[k]
        own = getattr(self, name)(k, e)
        return self.scales[k] * (
            sums(edges.rows, self.run.read(name, k, e)[edges.neighbours], own) + self.loops[k] * own
        )


class SAGE(Layers):
    """`y = x W_self + (max of neighbours' x) W_neighbours + b` with x after dropout, twice, with ReLU between.

    Published are both layers' inputs after dropout, and ones, by which it is counted how many neighbours have the maximum.
    Backwards each of these gets an equal part of what the maximum gets: pushed by the maximum's interval, which compares
    the rows that its forward pass read.
    """

    published: ClassVar[tuple[str, ...]] = ("input_0", "input_1", "ones")
    pushed: ClassVar[tuple[str, ...]] = ("push_1",)

    @once
    def input(self, layer: int, k: int, e: int) -> np.ndarray:
        x = np.maximum(self.output(0, k, e), 0) if layer else self.run.problem.features[self.run.problem.intervals[k]]
        return self.run.kept_rows(layer, k, e, x.shape[1]) * x

    def ones(self, k: int, e: int) -> np.ndarray:
        return np.ones_like(self.input(1, k, e))

    @once
    def push_1(self, k: int, e: int) -> np.ndarray:
        edges, highest, read = self.run.incoming[k], self.maximum(1, k, e), self.run.read("input_1", k, e)
        _, cotangent = self.run.loss(k, self.output(1, k, e))
        chosen = read[edges.neighbours] == highest[edges.rows]
        parts = cotangent @ self.run.weights(k, e)["convs/1/kernel_neighbours"].T
        parts = parts / np.maximum(sums(edges.rows, chosen, highest), 1)
        return sums(edges.neighbours, chosen * parts[edges.rows], read)

    @once
    def gradient(self, k: int, e: int) -> tuple[float, Params]:
        weights, y = self.run.weights(k, e), self.output(0, k, e)
        loss, cotangent = self.run.loss(k, self.output(1, k, e))
        inner = self.run.collect("push_1", k, e) + cotangent @ weights["convs/1/kernel_self"].T
        inner = self.run.kept_rows(1, k, e, y.shape[1]) * inner * (y > 0)
        return loss, {
            "convs/0/kernel_self": self.input(0, k, e).T @ inner,
            "convs/0/kernel_neighbours": self.maximum(0, k, e).T @ inner,
            "convs/0/bias": inner.sum(axis=0),
            "convs/1/kernel_self": self.input(1, k, e).T @ cotangent,
            "convs/1/kernel_neighbours": self.maximum(1, k, e).T @ cotangent,
            "convs/1/bias": cotangent.sum(axis=0),
        }

    def output(self, layer: int, k: int, e: int) -> np.ndarray:
        """y, of a layer."""
        weights = self.run.weights(k, e)
        x, highest = self.input(layer, k, e), self.maximum(layer, k, e)
        found = x @ weights[f"convs/{layer}/kernel_self"] + highest @ weights[f"convs/{layer}/kernel_neighbours"]
        return found + weights[f"convs/{layer}/bias"]

    @once
    def maximum(self, layer: int, k: int, e: int) -> np.ndarray:
        """Over neighbours, and 0 where there are none."""
        edges, own = self.run.incoming[k], self.input(layer, k, e)
        highest = np.full(own.shape, -np.inf)
        np.maximum.at(highest, edges.rows, self.run.read(f"input_{layer}", k, e)[edges.neighbours])
        return np.where(highest == -np.inf, 0, highest)


class Attention(NamedTuple):
    """An attention layer's forward pass, of n rows and the in-edges of these, for H heads.

    Attributes:
        x: input after dropout, `[n, F]`.
        z: x W, `[n, H, C]`.
        read: rows of neighbours, `[V, H, C]`.
        slopes, loop_slopes: of the LeakyReLU, `[E, H]` and `[n, H]`.
        shares, loop_shares: the softmax, `[E, H]` and `[n, H]`.
        kept, loop_kept: what dropout multiplies these with.
        y: the output with its bias, `[n, H, C]`.
    """

    x: np.ndarray
    z: np.ndarray
    read: np.ndarray
    slopes: np.ndarray
    loop_slopes: np.ndarray
    shares: np.ndarray
    loop_shares: np.ndarray
    kept: np.ndarray
    loop_kept: np.ndarray
    y: np.ndarray


class Cotangents(NamedTuple):
    """What the loss is differentiated by: the layer's y, scores before the LeakyReLU of edges and loops."""

    y: np.ndarray
    scores: np.ndarray
    loop_scores: np.ndarray


class GAT(Layers):
    """Attention over neighbours and the added loop, twice, with ELU between; dropout of rows and of coefficients.

    Published are the products with W, and of each row its part of the score as a source; an interval may read them of
    different epochs. Pushed is what the loss is differentiated by either, as seen by the interval that read it.
    """

    published: ClassVar[tuple[str, ...]] = ("source_0", "product_0", "source_1", "product_1")
    pushed: ClassVar[tuple[str, ...]] = ("push_product_1", "push_source_1", "push_product_0", "push_source_0")

    @once
    def source(self, layer: int, k: int, e: int) -> np.ndarray:
        return (self.product(layer, k, e) * self.run.weights(k, e)[f"convs/{layer}/attention_source"]).sum(axis=2)

    @once
    def push_product(self, layer: int, k: int, e: int) -> np.ndarray:
        """What neighbours' products get."""
        passed, got, edges = self.attend(layer, k, e), self.cotangents(layer, k, e), self.run.incoming[k]
        parts = (passed.shares * passed.kept)[:, :, None] * got.y[edges.rows]
        return sums(edges.neighbours, parts, self.run.loops)

    @once
    def push_source(self, layer: int, k: int, e: int) -> np.ndarray:
        """What neighbours' parts of scores get."""
        return sums(self.run.incoming[k].neighbours, self.cotangents(layer, k, e).scores, self.run.loops)

    @once
    def gradient(self, k: int, e: int) -> tuple[float, Params]:
        loss, _ = self.run.loss(k, self.attend(1, k, e).y[:, 0])
        return loss, self.backward(0, k, e)[1] | self.backward(1, k, e)[1]

    def input(self, layer: int, k: int, e: int) -> np.ndarray:
        """x, of a layer, after dropout."""
        if layer == 0:
            x = self.run.problem.features[self.run.problem.intervals[k]]
        else:
            y = self.attend(0, k, e).y
            y = y.reshape(len(y), -1)
            x = np.where(y > 0, y, np.expm1(np.minimum(y, 0)))
        return self.run.kept_rows(layer, k, e, x.shape[1]) * x

    @once
    def product(self, layer: int, k: int, e: int) -> np.ndarray:
        """x W, by heads."""
        weights = self.run.weights(k, e)
        flat = self.input(layer, k, e) @ weights[f"convs/{layer}/kernel"]
        return flat.reshape(len(flat), *weights[f"convs/{layer}/attention_source"].shape)

    @once
    def attend(self, layer: int, k: int, e: int) -> Attention:
        """The forward pass of a layer."""
        run, edges, rows, weights = (
            self.run,
            self.run.incoming[k],
            self.run.problem.intervals[k],
            self.run.weights(k, e),
        )
        z, read = self.product(layer, k, e), run.read(f"product_{layer}", k, e)
        targets = (z * weights[f"convs/{layer}/attention_target"]).sum(axis=2)
        scores = run.read(f"source_{layer}", k, e)[edges.neighbours] + targets[edges.rows]
        loop_scores = self.source(layer, k, e) + targets
        slopes, loop_slopes = np.where(scores >= 0, 1, 0.2), np.where(loop_scores >= 0, 1, 0.2)
        powers = np.exp(scores * slopes)
        loop_powers = np.exp(loop_scores * loop_slopes) * run.loops[rows][:, None]
        total = sums(edges.rows, powers, loop_powers) + loop_powers
        total = np.where(total > 0, total, 1)
        shares, loop_shares = powers / total[edges.rows], loop_powers / total
        stream, rate = f"convs/{layer}/dropout/rngs/key", run.problem.rates[1]
        num_edges, num_rows, heads = len(run.problem.sources), len(run.loops), z.shape[1]
        ids = np.concatenate([np.arange(num_edges), 2**31 + np.arange(num_rows)])
        of_edges, of_loops = np.split(run.kept(stream, e, ids, heads, rate), [num_edges])
        kept, loop_kept = of_edges[edges.ids], of_loops[rows]
        y = sums(edges.rows, (shares * kept)[:, :, None] * read[edges.neighbours], z)
        y = y + (loop_shares * loop_kept)[:, :, None] * z + weights[f"convs/{layer}/bias"].reshape(1, heads, -1)
        return Attention(self.input(layer, k, e), z, read, slopes, loop_slopes, shares, loop_shares, kept, loop_kept, y)

    @once
    def cotangents(self, layer: int, k: int, e: int) -> Cotangents:
        """Back to the scores, from what y gets."""
        passed, edges = self.attend(layer, k, e), self.run.incoming[k]
        if layer == 1:
            y = self.run.loss(k, passed.y[:, 0])[1][:, None]
        else:
            flat = passed.y.reshape(len(passed.y), -1)
            inner = self.backward(1, k, e)[0] * self.run.kept_rows(1, k, e, flat.shape[1])
            y = (inner * np.where(flat > 0, 1, np.exp(np.minimum(flat, 0)))).reshape(passed.y.shape)
        shares = passed.kept * (y[edges.rows] * passed.read[edges.neighbours]).sum(axis=2)
        loop_shares = passed.loop_kept * (y * passed.z).sum(axis=2)
        mean = sums(edges.rows, passed.shares * shares, loop_shares) + passed.loop_shares * loop_shares
        return Cotangents(
            y,
            passed.slopes * passed.shares * (shares - mean[edges.rows]),
            passed.loop_slopes * passed.loop_shares * (loop_shares - mean),
        )

    @once
    def backward(self, layer: int, k: int, e: int) -> tuple[np.ndarray, Params]:
        """What the layer's input gets, before its dropout, and the layer's parameters."""
        weights, edges = self.run.weights(k, e), self.run.incoming[k]
        passed, got = self.attend(layer, k, e), self.cotangents(layer, k, e)
        source, target = (weights[f"convs/{layer}/attention_{end}"] for end in ("source", "target"))
        of_source = self.run.collect(f"push_source_{layer}", k, e) + got.loop_scores
        of_target = sums(edges.rows, got.scores, got.loop_scores) + got.loop_scores
        z = (
            self.run.collect(f"push_product_{layer}", k, e)
            + (passed.loop_shares * passed.loop_kept)[:, :, None] * got.y
        )
        z = z + of_source[:, :, None] * source + of_target[:, :, None] * target
        flat = z.reshape(len(z), -1)
        return flat @ weights[f"convs/{layer}/kernel"].T, {
            f"convs/{layer}/kernel": passed.x.T @ flat,
            f"convs/{layer}/attention_source": (of_source[:, :, None] * passed.z).sum(axis=0),
            f"convs/{layer}/attention_target": (of_target[:, :, None] * passed.z).sum(axis=0),
            f"convs/{layer}/bias": got.y.sum(axis=0).reshape(-1),
        }


def sums(places: np.ndarray, values: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Adds up values by place, in as many rows as `like` has."""
    total = np.zeros((len(like), *values.shape[1:]))
    np.add.at(total, places, values)
    return total


def _edges(mine: np.ndarray, others: np.ndarray, rows: np.ndarray) -> Edges:
    places = np.full(max(mine.max(), rows.max()) + 1, -1)
    places[rows] = np.arange(len(rows))
    ids = np.flatnonzero(places[mine] >= 0)
    return Edges(places[mine[ids]], others[ids], ids)
