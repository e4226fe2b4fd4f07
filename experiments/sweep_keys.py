"""Which keys a sweep file may hold, and what runs they make: those of configurations, and of simulations if it simulates."""

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
        simulate: whether its runs are simulated, without numbers.
        code: as of `RunConfig.resolve`.
    """

    simulate: bool
    code: FolderCode | None

    def check_key(self, place: str, key: Any) -> None:
        """Refuses a key that there is none, or none here; `place` is the file and line."""
        if isinstance(key, str) and is_of_simulation(key):
            if not self.simulate:
                raise ConfigError(f"{place}: {key} is of simulations: add `simulate: true`, or leave it out")
        elif not is_key(key):
            raise ConfigError(f"{place}: {unknown_key(key)}")

    def check_value(self, key: str, value: Any) -> None:
        """Checks a value by itself.

        Raises:
            ConfigError: The value is wrong.
        """
        (of_simulations.check_value if is_of_simulation(key) else check_value)(key, value)

    def read(self, document: Document, mapping: dict[str, Any], inside: tuple[str | int, ...]) -> dict[str, Any]:
        """The dotted keys of a part of a document; `inside` is where in it the mapping stands.

        Raises:
            ConfigError: an unknown key, or a value that is wrong by itself; with file and line.
        """
        own = {key: value for key, value in mapping.items() if is_of_simulation(key)}
        for key in own:
            self.check_key(document.where(*inside, key), key)
        others = {key: value for key, value in mapping.items() if key not in own}
        return overrides_from_mapping(document, others, inside) | of_simulations.read(document, own, inside)

    def run(self, base: Mapping[str, Any], setting: Setting, seed: int) -> Run:
        """A run of the sweep.

        Args:
            base: what all have in common.
            setting: what varies.
            seed: of the run.

        Raises:
            ConfigError: its settings do not go together; names the key where there is one.
        """
        if not self.simulate:
            return Run(RunConfig.resolve(base, setting, {SEED: seed}, code=self.code), setting)
        given = {**base, **setting}
        of_run = {key: value for key, value in given.items() if not is_of_simulation(key)}
        simulation = Simulation.of({key: value for key, value in given.items() if key not in of_run})
        config = simulation.config(of_run, {SEED: seed}, code=self.code)
        run = Run(config, setting, simulation)
        simulation.scenario(run.name, config)  # so that what cannot be is known before anything runs
        return run
