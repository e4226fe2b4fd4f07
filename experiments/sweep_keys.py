"""The keys of a sweep file, and the runs that they make: of configurations, and of simulations if the file simulates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, final

from dorylax.config import ConfigError, RunConfig
from dorylax.config.check import check_value, unknown_key
from dorylax.config.files import overrides_from_mapping
from dorylax.config.schema import is_key
from dorylax.experiments.sweep import SEED, Run, Setting
from dorylax.settings.strict_yaml import Document
from dorylax.simulation import settings as of_simulations
from dorylax.simulation.settings import Simulation, is_of_simulation
from dorylax.user_code.trust import FolderCode


@final
class Keys(NamedTuple):
    """The keys of a sweep.

    Attributes:
        simulate: Whether its runs are simulated.
        code: As of `RunConfig.resolve`.
    """

    simulate: bool
    code: FolderCode | None

    def check_key(self, place: str, key: Any) -> None:
        """Refuse a key that does not exist, or not in this sweep; `place` is the file and line."""
        if isinstance(key, str) and is_of_simulation(key):
            if not self.simulate:
                raise ConfigError(f"{place}: {key} is of simulations: add `simulate: true`, or leave it out")
        elif not is_key(key):
            raise ConfigError(f"{place}: {unknown_key(key)}")

    def check_value(self, key: str, value: Any) -> None:
        """Check a value by itself.

        Raises:
            ConfigError: The value is wrong.
        """
        (of_simulations.check_value if is_of_simulation(key) else check_value)(key, value)

    def read(self, document: Document, mapping: dict[str, Any], inside: tuple[str | int, ...]) -> dict[str, Any]:
        """The dotted keys of the mapping at the path `inside` of a document.

        Raises:
            ConfigError: A key is unknown or a value is wrong by itself; names file and line.
        """
        own = {key: value for key, value in mapping.items() if is_of_simulation(key)}
        for key in own:
            self.check_key(document.where(*inside, key), key)
        others = {key: value for key, value in mapping.items() if key not in own}
        return overrides_from_mapping(document, others, inside) | of_simulations.read(document, own, inside)

    def run(self, base: Mapping[str, Any], setting: Setting, seed: int) -> Run:
        """The run of a setting and a seed.

        Raises:
            ConfigError: Its settings contradict each other; names the key if there is one.
        """
        if not self.simulate:
            return Run(RunConfig.resolve(base, setting, {SEED: seed}, code=self.code), setting)
        given = {**base, **setting}
        of_run = {key: value for key, value in given.items() if not is_of_simulation(key)}
        simulation = Simulation.of({key: value for key, value in given.items() if key not in of_run})
        run = Run(simulation.config(of_run, {SEED: seed}, code=self.code), setting, simulation)
        simulation.scenario(run.name, run.config)  # impossible settings are refused before anything runs
        return run
