from __future__ import annotations

from dorylax.store.run_directory import differences


def test_a_section_that_is_missing_differs_key_by_key():
    old, new = {"train": {"epochs": 3}}, {"train": {"epochs": 3}, "pipeline": {"servers": 2, "staleness": None}}
    assert differences(old, new) == {"pipeline.servers": (None, 2)}
    assert differences(new, old) == {"pipeline.servers": (2, None)}
