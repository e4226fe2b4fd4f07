"""Pools of emulated functions."""

from __future__ import annotations

import pytest
from support.rie import need_emulator


@pytest.fixture
def kind() -> str:
    need_emulator()
    return "emulator"
