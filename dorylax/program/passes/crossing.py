"""Choose the values that cross between stages by a minimum cut.

A stage can read a row value of an earlier stage, which costs the bytes of its rows, or recompute it from the inputs of
that stage. The pass sets the price of recomputing each equation. The choice is optimal: it is the minimum cut of a
network that has an arc for each equation, with the price of recomputing it, and an arc for each value, with the price
of reading it. Three passes are price lists for it:

- rematerialise: a backward stage recomputes forward values if that is cheaper than reading them. The graph server already
  has a stage's inputs, and the backward pass needs many of them (a weight gradient needs the rows to which the weight was
  applied). From these, the rest of the forward stage costs FLOPs instead of bytes.
- sink: equations move into the only stage that needs them, unless that ships more bytes. By default, the earliest possible
  stage computes a value. If only one later stage reads it, its operands may be narrower than the result (a broadcast, a
  one-hot row, a concatenation); the later stage then computes it.
- cut: cheap arithmetic is repeated if that ships fewer bytes. For example, a stage reads a row's norm as one number and
  broadcasts it again, or reads labels instead of their one-hot rows. Products and random bits are not repeated.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable
from typing import final

import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from dorylax.jax_internals import JaxprEqn, Var, variables
from dorylax.program.jaxpr.flops import equation_flops
from dorylax.program.jaxpr.rewrite import makers
from dorylax.program.jaxpr.symbols import SYMBOLS, value_bytes
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import AnySplit, SplitModel
from dorylax.program.tasks.task import Task, homes, phased, tidy

FORBIDDEN = float("inf")

MOVED = -1.0
"""The price of an equation that moves for free, but only together with all of its readers."""

Price = Callable[[JaxprEqn, "Crossing"], float]
"""The cost, in bytes per row, of recomputing an equation of an earlier stage, or FORBIDDEN."""

_COMPARISONS = frozenset({"eq", "ne", "ge", "gt", "le", "lt"})
_EXACT = frozenset(
    {"broadcast_in_dim", "concatenate", "max", "min", "reshape", "select_n", "slice", "squeeze", "transpose"}
)
"""Operations that round nothing."""
_INFINITE = 2**30
_SCALE = 16  # capacities are whole numbers: sixteenths of a byte


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Crossing:
    """One stage, and an earlier stage whose values it reads.

    Attributes:
        program: The program before the pass.
        target: The reading stage.
        source: The writing stage.
        exclusive: Ids of the equations of the source that only the target needs.
    """

    program: SplitModel
    target: Task
    source: Task
    exclusive: frozenset[int]

    @property
    def from_once(self) -> bool:
        """Whether the source runs before training, and the target in every epoch."""
        return self.source.when == "once" and self.target.when == "epoch"

    def flops(self, equation: JaxprEqn) -> float:
        """FLOPs of an equation, per row."""
        return equation_flops(equation, _sizes(self.target)) / _ROWS


def choose_crossings(program: AnySplit, price: Price) -> AnySplit:
    """Decide for every stage, in order, which values it reads from earlier stages and which it recomputes."""
    chooser = _Chooser(program, price)
    for index, task in enumerate(program.tasks):
        if task.kind == "stage":
            chooser.choose(index)
    outputs = program.traced.step.jaxpr.outvars
    tasks = phased(tidy(chooser.tasks, outputs), outputs, program.analysis.backward)
    return program.changed(tasks=tasks)


_ROWS = 1000  # sizes and costs are asked for so many rows, and divided


def _sizes(task: Task) -> dict[str, int]:
    assert task.space is not None
    return {SYMBOLS[task.space]: _ROWS}


@final
class _Chooser:
    """The tasks while they change."""

    def __init__(self, program: SplitModel, price: Price) -> None:
        self.tasks = list(program.tasks)
        self._program = program
        self._analysis = program.analysis
        self._price = price
        self._home = homes(self.tasks)
        self._readers: dict[Var, set[int]] = defaultdict(set)
        for k, task in enumerate(self.tasks):
            for var in task.read:
                self._readers[var].add(k)
        self._outputs = set(variables(program.traced.step.jaxpr.outvars))
        self._makers: dict[int, dict[Var, JaxprEqn]] = {}
        self._sizes: dict[Var, float] = {}
        self._found_sources: dict[Var, frozenset[Var]] = {}

    def choose(self, target: int) -> None:
        """Move into one stage the equations that are cheaper to recompute."""
        task = self.tasks[target]
        wanted = [var for var in task.read if self._has_rows(var) and self._from_stage(var)]
        if not wanted:
            return
        again = self._again(target, wanted)
        if not again:
            return
        order = self._analysis.order
        chosen = {id(equation): equation for equation in (*task.equations, *again)}
        changed = dataclasses.replace(task, equations=tuple(sorted(chosen.values(), key=lambda eqn: order[id(eqn)])))
        for var in task.read:
            self._readers[var].discard(target)
        for var in changed.read:
            self._readers[var].add(target)
        self.tasks[target] = changed
        self._makers.pop(target, None)

    def _has_rows(self, var: Var) -> bool:
        return isinstance(self._analysis.types[var], Rows)

    def _from_stage(self, var: Var) -> bool:
        return var in self._home and self.tasks[self._home[var]].kind == "stage"

    def _made(self, source: int) -> dict[Var, JaxprEqn]:
        if source not in self._makers:
            equations = self.tasks[source].equations
            self._makers[source] = makers(equations)
        return self._makers[source]

    def _again(self, target: int, wanted: list[Var]) -> list[JaxprEqn]:
        """Equations of earlier stages that the target should recompute."""
        task = self.tasks[target]
        network = _Network()
        crossings = {
            source: Crossing(self._program, task, self.tasks[source], self._exclusive(source, target))
            for source in {self._home[var] for var in wanted}
        }
        moved: dict[Var, JaxprEqn] = {}
        uses: list[tuple[Var, JaxprEqn]] = []
        seen: set[Var] = set()
        stack: list[tuple[Var, int]] = []
        chosen_reads = set(wanted)
        for var in task.read:
            if var in chosen_reads:
                network.need(var)
                stack.append((var, self._home[var]))
            elif self._has_rows(var):
                network.at_hand(var, 0.0)  # read in any case
                seen.add(var)
        while stack:
            var, source = stack.pop()
            if var in seen:
                continue
            seen.add(var)
            equation = self._made(source).get(var)
            floats = equation is not None and self._analysis.floats(equation)  # then no stage writes it
            if equation is None or not (floats or self._home[var] == source):
                network.at_hand(var, self._ship(var, task, target))
                continue
            cost = 0.0 if floats else self._price(equation, crossings[source])
            ships = {out: FORBIDDEN if floats else self._ship(out, task, target) for out in equation.outvars}
            network.compute(equation, max(cost, 0.0), ships)
            if cost == MOVED:
                moved.update(dict.fromkeys(equation.outvars, equation))
            for operand in variables(equation.invars):
                network.uses(operand, equation)
                uses.append((operand, equation))
                stack.append((operand, self._home[operand] if operand in chosen_reads else source))
        for operand, equation in uses:
            if operand in moved:
                network.together(equation, moved[operand])
        for equation in (*task.equations, *network.equations):
            if equation.primitive.name in _COMPARISONS:
                self._compare_alike(equation, task, network)
        return network.chosen()

    def _compare_alike(self, comparison: JaxprEqn, task: Task, network: _Network) -> None:
        """Prevent a comparison between a recomputed value and a saved one that derives from it.

        The recomputed value may be rounded otherwise. The gradient of a maximum flows where its operand equals its result,
        so a changed bit would lose it.
        """
        sides = [self._sources(var) for var in variables(comparison.invars)]
        if len(sides) < 2 or not (shared := sides[0] & sides[1]):
            return
        made = makers(network.equations)
        for var in shared & {var for var in made if made[var].primitive.name not in _EXACT}:
            for reader in sides[0] | sides[1]:
                if reader is not var and reader not in task.defined and var in self._sources(reader):
                    network.together(made.get(reader), made[var])

    def _sources(self, var: Var) -> frozenset[Var]:
        """The float values from which a value is computed, itself included. Integers have no rounding."""
        if var not in self._found_sources:
            found = {var} if jnp.issubdtype(getattr(var.aval, "dtype", bool), jnp.floating) else set()
            if var in self._home:
                for operand in variables(self._made(self._home[var])[var].invars):
                    found |= self._sources(operand)
            self._found_sources[var] = frozenset(found)
        return self._found_sources[var]

    def _ship(self, var: Var, task: Task, target: int) -> float:
        """Bytes per row of reading a value, and of writing it if no other stage reads it."""
        if not self._has_rows(var):
            return 0.0
        if var not in self._sizes:
            self._sizes[var] = value_bytes(var.aval, _sizes(task)) / _ROWS
        size = self._sizes[var]
        written = not self._from_stage(var) or self._read_elsewhere(var, target)
        kept = written or (task.when == "epoch" and self.tasks[self._home[var]].when == "once")
        return size if kept else 2 * size

    def _read_elsewhere(self, var: Var, target: int) -> bool:
        readers = self._readers.get(var, set())
        return var in self._outputs or len(readers) > (target in readers)

    def _exclusive(self, source: int, target: int) -> frozenset[int]:
        """Ids of the source's equations whose results reach only the target."""
        kept: set[Var] = set()
        alone: set[int] = set()
        for equation in reversed(self.tasks[source].equations):
            if any(var in kept or self._read_elsewhere(var, target) for var in equation.outvars):
                kept.update(variables(equation.invars))
            else:
                alone.add(id(equation))
        return frozenset(alone)


@final
class _Network:
    """A flow network from "not in the stage" to "in the stage"."""

    def __init__(self) -> None:
        self._nodes: dict[object, int] = {"source": 0, "sink": 1}
        self._arcs: dict[tuple[int, int], float] = defaultdict(float)
        self._equations: dict[int, JaxprEqn] = {}

    def need(self, var: Var) -> None:
        """The stage needs a value."""
        self._arc(var, "sink", FORBIDDEN)

    def at_hand(self, var: Var, ship: float) -> None:
        """A value can only be read."""
        self._arc("source", var, ship)

    def compute(self, equation: JaxprEqn, cost: float, ship: dict[Var, float]) -> None:
        """Results can be computed again, at a cost, or read."""
        self._equations[id(equation)] = equation
        self._arc("source", id(equation), cost)
        for var, size in ship.items():
            self._arc(id(equation), var, size)

    def uses(self, var: Var, equation: JaxprEqn) -> None:
        """To compute an equation, a value is needed."""
        self._arc(var, id(equation), FORBIDDEN)

    def together(self, reader: JaxprEqn | None, moved: JaxprEqn) -> None:
        """Let an equation move only together with this reader; forbid it if the reader is None."""
        self._arc("source" if reader is None else id(reader), id(moved), FORBIDDEN)

    @property
    def equations(self) -> list[JaxprEqn]:
        """Equations that can be recomputed."""
        return list(self._equations.values())

    def chosen(self) -> list[JaxprEqn]:
        """Equations to recompute: the sink's side of the minimum cut nearest to the sink."""
        size = len(self._nodes)
        pairs = np.array(list(self._arcs), np.int64).reshape(-1, 2)
        capacity = np.array(
            [min(round(c * _SCALE) if c < FORBIDDEN else _INFINITE, _INFINITE) for c in self._arcs.values()]
        )
        matrix = csr_array((capacity.astype(np.int32), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
        rest = (matrix - maximum_flow(matrix, 0, 1).flow).tocoo()
        into: dict[int, list[int]] = defaultdict(list)
        for tail, head, left in zip(*rest.coords, rest.data, strict=True):
            if left > 0:
                into[int(head)].append(int(tail))
        side, queue = {1}, deque([1])
        while queue:
            for tail in into[queue.popleft()]:
                if tail not in side:
                    side.add(tail)
                    queue.append(tail)
        return [equation for key, equation in self._equations.items() if self._nodes[key] in side]

    def _arc(self, tail: object, head: object, capacity: float) -> None:
        ends = self._nodes.setdefault(tail, len(self._nodes)), self._nodes.setdefault(head, len(self._nodes))
        self._arcs[ends] += capacity


FLOPS_PER_BYTE = 100.0
"""FLOPs that a worker computes while it ships one byte: one core has about 10 GFLOP/s, its network 100 MB/s."""

_HEAVY = frozenset({"dot_general", "conv_general_dilated", "threefry2x32", "scan", "while", "cond", "sort"})


def rematerialise(equation: JaxprEqn, crossing: Crossing) -> float:
    """Price of the pass that chooses between saving and recomputing, for all forward values that backward stages read."""
    backward = crossing.program.analysis.backward
    if crossing.target.phase != "backward" or any(var in backward for var in equation.outvars):
        return FORBIDDEN
    return crossing.flops(equation) / FLOPS_PER_BYTE


def sink(equation: JaxprEqn, crossing: Crossing) -> float:
    """Price of the pass that moves equations into their only reader."""
    # A moved equation of a task that runs once would run in every epoch.
    return FORBIDDEN if crossing.from_once or id(equation) not in crossing.exclusive else MOVED


def cut(equation: JaxprEqn, crossing: Crossing) -> float:
    """Price of the pass that chooses the crossing values."""
    if id(equation) in crossing.exclusive and not crossing.from_once:
        return MOVED  # computed elsewhere, not twice
    if equation.primitive.name in _HEAVY:
        return FORBIDDEN
    return crossing.flops(equation) / FLOPS_PER_BYTE
