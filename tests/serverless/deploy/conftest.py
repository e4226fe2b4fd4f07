"""What tests of deployments share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.mocked_aws import MockedAws, mocked_aws

from dorylax.serverless.deploy.image import builder


@pytest.fixture
def aws() -> Iterator[MockedAws]:
    """AWS without AWS."""
    with mocked_aws() as found:
        yield found


@pytest.fixture
def engine(aws: MockedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container engine that pushes an image of nothing."""

    def build_and_push(_engine: str, _context: object, address: str, _login: object) -> str:
        aws.push(address)
        return "base"

    monkeypatch.setattr(builder, "find_engine", lambda: "engine")
    monkeypatch.setattr(builder, "build_and_push", build_and_push)
