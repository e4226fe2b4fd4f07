"""boto3's clients: where their region comes from, and the error if they cannot be made."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dorylax.errors import RunError
from dorylax.store.aws import make_client, s3_client


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
    with contextlib.closing(s3_client(region)) as client:
        assert client.meta.region_name == expected


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
@pytest.mark.parametrize("bucket", ["stages", "our.stages"])
def test_urls_of_artefacts_name_the_region(monkeypatch: pytest.MonkeyPatch, region: str, bucket: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with contextlib.closing(s3_client(region)) as client:
        url = urlsplit(client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a/b"}))
    assert (url.scheme, url.netloc, url.path) == ("https", f"s3.{region}.amazonaws.com", f"/{bucket}/a/b")


def test_without_a_region_it_says_where_to_set_one() -> None:
    for setting in ("AWS_REGION", "some.region"):
        with pytest.raises(RunError, match=f"^AWS needs a region: set {setting}, or one in the profile"):
            make_client("lambda", None, region_setting=setting)
        with pytest.raises(RunError, match=f"^AWS has no region of this name: change {setting}$"):
            make_client("s3", "eu west 1", region_setting=setting)


def test_a_profile_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(RunError, match=r"needs credentials \(ProfileNotFound\)"):
        s3_client()


def test_settings_that_are_none() -> None:
    with pytest.raises(RunError, match=r"a client of AWS could not be made: \w+Error$"):
        make_client("s3", "eu-west-1", signature_version=3, retries={"mode": "none"})
