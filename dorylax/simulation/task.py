"""One of many simulations, and what has become of it."""

from __future__ import annotations

from typing import NamedTuple

from dorylax.settings.errors import ConfigError
from dorylax.simulation.inputs import Inputs
from dorylax.simulation.result import Simulated
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError

Outcome = Simulated | str
"""What a simulation has found, or why the scenario cannot be."""


class Task(NamedTuple):
    """A simulation to run.

    Attributes:
        scenario: the run.
        epochs: how many of it.
    """

    scenario: Scenario
    epochs: int

    def outcome(self, inputs: Inputs) -> Outcome:
        """Simulates it.

        Args:
            inputs: of earlier ones.

        Raises:
            SplitError, ValueError, OSError: see `simulate`; what is wrong with others, too.
        """
        try:
            return simulate(self.scenario, epochs=self.epochs, inputs=inputs)
        except (ConfigError, ScenarioError) as error:
            return str(error)
