"""The region of clients of Lambda; those of all services are tested with the storage."""

from __future__ import annotations

import contextlib

import pytest

from dorylax.errors import RunError
from dorylax.net.keys import RunKeys
from dorylax.serverless.backends.aws.clients import lambda_client
from dorylax.serverless.backends.aws.make import make_functions


@pytest.mark.parametrize(("region", "expected"), [(None, "ap-south-1"), ("eu-north-1", "eu-north-1")])
def test_an_arn_has_a_region(monkeypatch: pytest.MonkeyPatch, region: str | None, expected: str) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    arn = "arn:aws:lambda:ap-south-1:123456789012:function:dorylax"
    with contextlib.closing(
        make_functions(RunKeys.make(), function=arn, region=region, calls=1, deadline=None)
    ) as found:
        assert found._client.meta.region_name == expected


def test_without_a_region_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(RunError, match=r"set tensor\.region or AWS_REGION, or one in the profile"):
        lambda_client(None, calls=1, seconds=1.0)
