from __future__ import annotations

from typing import Any

import pytest

from dorylax.config import RunConfig
from dorylax.settings.errors import ConfigError
from dorylax.settings.retired import RETIRED, upgraded


@pytest.mark.parametrize("key", RETIRED)
def test_a_retired_setting_is_refused_with_what_to_do(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} is no longer a setting: {RETIRED[key].split()[0]} "):
        RunConfig.resolve({key: 1})


@pytest.mark.parametrize(("limit", "gate"), [(0.5, True), (1, False)])
def test_old_runs_are_read_with_their_replacements(limit: float, gate: bool) -> None:
    old: dict[str, Any] = {
        "train": {"epochs": 3},
        "pipeline": {"mode": "async", "oscillation_limit": limit, "delay_scaling": None},
    }
    assert upgraded(old) == {"train": {"epochs": 3}, "pipeline": {"mode": "async", "stability_gate": gate}}
    assert "oscillation_limit" in old["pipeline"]
    assert upgraded({"pipeline": None}) == {"pipeline": None}


def test_a_setting_without_a_replacement_that_a_run_used_stays_and_is_refused() -> None:
    found = upgraded({"pipeline": {"mode": "async", "oscillation_limit": 1, "delay_scaling": 20}})
    with pytest.raises(ConfigError, match=r"pipeline.delay_scaling is no longer a setting"):
        RunConfig.resolve(found)
