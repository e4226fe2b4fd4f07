"""Scenarios by name that compare a way of training with another, beside the ratio that the Dorylus paper published."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, final

from dorylax.simulation.paper import TABLES_3_4, dollars_of_paper
from dorylax.simulation.result import Simulated
from dorylax.simulation.run import simulate
from dorylax.simulation.sampled import simulate_sampled
from dorylax.simulation.scenario import Scenario
from dorylax.simulation.stand_ins import simulate_burst, simulate_naive

_ROWS = ("gcn-reddit-small", "gcn-amazon")
"""Of tables 3 and 4. The paper does not say on which graph its ratios were measured."""

OnEpoch = Callable[[int], None] | None


Simulate = Callable[..., Simulated]
"""Simulates a scenario; takes the arguments `epochs` and `on_epoch` of `simulate`."""


class Side(NamedTuple):
    """What is compared.

    Attributes:
        name: in the output.
        simulate: what comes of a scenario on servers and functions.
    """

    name: str
    simulate: Simulate


@final
@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two ways of training.

    Attributes:
        title: in the output.
        one, other: what is compared with what.
        measure: of the ratio: seconds of an epoch, or dollars of the run, which are the paper's: without parameter servers.
        published: the ratio.
        note: what the published ratio is of, where that is not the measure.
        rows: of tables 3 and 4, on which both are simulated.
    """

    title: str
    one: Side
    other: Side
    measure: Literal["epoch_seconds", "dollars"]
    published: float
    note: str = ""
    rows: tuple[str, ...] = _ROWS

    def scenarios(self) -> list[Scenario]:
        """On what both are simulated: servers and functions."""
        return [row.scenario() for row in TABLES_3_4 if row.name in self.rows]

    def ratio(self, one: Simulated, other: Simulated) -> float:
        """Of what both came to."""
        if self.measure == "epoch_seconds":
            return one.epoch / other.epoch
        return dollars_of_paper(one) / dollars_of_paper(other)


def _on_functions(scenario: Scenario, *, epochs: int, on_epoch: OnEpoch) -> Simulated:
    return simulate(scenario, epochs=epochs, on_epoch=on_epoch)


def _on_cpu(scenario: Scenario, *, epochs: int, on_epoch: OnEpoch) -> Simulated:
    return simulate(scenario.on("cpu"), epochs=epochs, on_epoch=on_epoch)


COMPARISONS: Mapping[str, Comparison] = {
    "paper/naive-serverless": Comparison(
        "naive serverless training: functions do everything",
        Side("naive", simulate_naive),
        Side("CPU servers", _on_cpu),
        "epoch_seconds",
        21.0,
    ),
    "paper/burst-instances": Comparison(
        "burst parallelism by instances: more servers in place of functions",
        Side("instances", simulate_burst),
        Side("functions", _on_functions),
        "dollars",
        2.2,
    ),
    "paper/sampled": Comparison(
        "mini-batches of sampled neighbours on CPU servers, as AliGraph trains",
        Side("sampled", simulate_sampled),
        Side("functions", _on_functions),
        "epoch_seconds",
        3.76,
        "The published ratio is of the whole time to 63.00 % (table 5: 1560.66 s and 415.23 s), not of an epoch's: sampled "
        "training takes many steps in an epoch, and needs fewer epochs. How many either needed is not published.",
        ("gcn-amazon",),
    ),
}
"""By the name that `dorylax simulate --scenario` takes."""


def content(comparison: Comparison, rows: Sequence[tuple[str, Simulated, Simulated]]) -> dict[str, Any]:
    """As JSON values.

    Args:
        comparison: it.
        rows: of each scenario its name, and what both ways came to.
    """
    return {
        "title": comparison.title,
        "measure": comparison.measure,
        "published": comparison.published,
        "note": comparison.note,
        "rows": [
            {
                "row": name,
                "ratio": comparison.ratio(one, other),
                comparison.one.name: one.to_dict(),
                comparison.other.name: other.to_dict(),
            }
            for name, one, other in rows
        ],
    }
