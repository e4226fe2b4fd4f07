"""boto3's clients: where their region comes from, and the error if they cannot be made."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from dorylax.serverless.backends.aws.clients import lambda_client
from dorylax.serverless.backends.aws.make import make_functions
from dorylax.serverless.data.keys import RunKeys
from dorylax.storage.aws_errors import AwsError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """But a profile that has a region, which is not the usual one."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "config"
    file.write_text("[profile mine]\nregion = eu-west-3\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))


@pytest.mark.parametrize(
    ("region", "environment", "expected"),
    [
        ("eu-north-1", {"AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "us-east-2"}, "eu-north-1"),
        (None, {"AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "us-east-2", "AWS_PROFILE": "mine"}, "us-east-1"),
        (None, {"AWS_REGION": "us-east-2", "AWS_PROFILE": "mine"}, "us-east-2"),
        (None, {"AWS_PROFILE": "mine"}, "eu-west-3"),
    ],
)
def test_the_region(
    monkeypatch: pytest.MonkeyPatch, region: str | None, environment: dict[str, str], expected: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with contextlib.closing(lambda_client(region, calls=1, seconds=1.0)) as client:
        assert client.meta.region_name == expected


@pytest.mark.parametrize(("region", "expected"), [(None, "ap-south-1"), ("eu-north-1", "eu-north-1")])
def test_an_arn_has_a_region(monkeypatch: pytest.MonkeyPatch, region: str | None, expected: str) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    arn = "arn:aws:lambda:ap-south-1:123456789012:function:dorylax"
    with contextlib.closing(
        make_functions(RunKeys.make(), function=arn, region=region, calls=1, deadline=None)
    ) as found:
        assert found._client.meta.region_name == expected


def test_without_a_region_it_says_what_to_set() -> None:
    with pytest.raises(AwsError, match=r"set tensor\.region or AWS_REGION, or one in the profile"):
        lambda_client(None, calls=1, seconds=1.0)


def test_a_region_that_is_none() -> None:
    with pytest.raises(AwsError, match=r"no region of this name: change tensor\.region"):
        lambda_client("eu west 1", calls=1, seconds=1.0)


def test_a_profile_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(AwsError, match=r"needs credentials \(ProfileNotFound\)"):
        lambda_client(None, calls=1, seconds=1.0)


def test_without_boto3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("boto3", "boto3.session"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AwsError, match=r'pip install "dorylax\[aws\]"'):
        lambda_client(None, calls=1, seconds=1.0)
