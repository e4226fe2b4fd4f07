"""What tests of deployments share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.mocked_aws import MockedAws, mocked_aws


@pytest.fixture
def aws() -> Iterator[MockedAws]:
    """AWS without AWS."""
    with mocked_aws() as found:
        yield found
