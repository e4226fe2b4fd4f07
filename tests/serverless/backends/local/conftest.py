"""Pools of local workers."""

from __future__ import annotations

import pytest


@pytest.fixture
def kind() -> str:
    return "local"
