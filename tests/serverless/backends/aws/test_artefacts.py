"""Artefacts in S3: put once, found by anybody who has a URL, and never anything else under a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import boto3
import pytest
from support.aws import Cloud, cloud
from support.manual_clock import ManualClock

from dorylax.errors import RunError
from dorylax.net.errors import TaskFailedError
from dorylax.serverless.backends.aws.artefacts import S3Artefacts
from dorylax.serverless.handler.download import download
from dorylax.settings.errors import ConfigError
from dorylax.store.aws import s3_client

ONE, TWO = b"one stage", b"\x00another\xff" * 100


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def aws() -> Iterator[Cloud]:
    with cloud() as found:
        found.make_bucket()
        yield found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def artefacts(aws: Cloud, clock: ManualClock) -> Iterator[S3Artefacts]:
    made = S3Artefacts(s3_client(), f"s3://{aws.bucket}/runs/stages", now=clock.now)
    yield made
    made.close()
    bucket = boto3.resource("s3").Bucket(aws.bucket)
    bucket.objects.all().delete()
    bucket.meta.client.close()


def keys(aws: Cloud) -> list[str]:
    client = boto3.client("s3")
    found = [one["Key"] for one in client.list_objects_v2(Bucket=aws.bucket).get("Contents", ())]
    client.close()
    return found


def test_what_is_there_is_not_put_again(aws: Cloud, artefacts: S3Artefacts) -> None:
    assert artefacts.upload({sha256(ONE): ONE}) == 1
    assert artefacts.upload({sha256(ONE): ONE, sha256(TWO): TWO}) == 1
    assert artefacts.upload({sha256(ONE): ONE, sha256(TWO): TWO}) == 0
    assert sorted(keys(aws)) == sorted(f"runs/stages/{sha256(one)}" for one in (ONE, TWO))


def test_a_sandbox_fetches_them_without_credentials(artefacts: S3Artefacts, monkeypatch: pytest.MonkeyPatch) -> None:
    artefacts.upload({sha256(ONE): ONE, sha256(TWO): TWO})
    urls = [artefacts.url(sha256(one)) for one in (ONE, TWO)]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert [download(url) for url in urls] == [ONE, TWO]


def test_one_that_was_cut_off_is_put_again(aws: Cloud, artefacts: S3Artefacts) -> None:
    client = boto3.client("s3")
    client.put_object(Bucket=aws.bucket, Key=f"runs/stages/{sha256(TWO)}", Body=TWO[:10])
    client.close()
    assert artefacts.upload({sha256(TWO): TWO}) == 1
    assert download(artefacts.url(sha256(TWO))) == TWO


def test_what_nobody_has_put_cannot_be_had(artefacts: S3Artefacts) -> None:
    with pytest.raises(TaskFailedError, match="404"):
        download(artefacts.url(sha256(b"else")))


def test_urls_are_signed_anew_after_some_minutes(artefacts: S3Artefacts, clock: ManualClock) -> None:
    signed = []
    original = artefacts._client.generate_presigned_url

    def sign(*args: object, **options: object) -> str:
        signed.append(options)
        return str(original(*args, **options))

    artefacts._client.generate_presigned_url = sign
    for now in (0.0, 1.0, 299.0, 301.0, 302.0, 602.0):
        clock.time = now
        artefacts.url(sha256(ONE))
    assert len(signed) == 3
    assert {options["ExpiresIn"] for options in signed} == {3600}


def test_a_bucket_that_is_not_there(aws: Cloud) -> None:
    found = S3Artefacts(s3_client(), "s3://nobodys-bucket/stages")
    with pytest.raises(RunError, match=r"there is no bucket nobodys-bucket: make one, or change tensor\.artefacts"):
        found.upload({sha256(ONE): ONE})
    found.close()


def test_without_credentials_nothing_is_signed(aws: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    found = S3Artefacts(s3_client(), f"s3://{aws.bucket}")
    with pytest.raises(RunError, match="AWS needs credentials"):
        found.url(sha256(ONE))
    with pytest.raises(RunError, match=f"put to s3://{aws.bucket}: AWS needs credentials"):
        found.upload({sha256(ONE): ONE})
    found.close()


def test_what_is_no_location() -> None:
    with pytest.raises(ConfigError, match=r"^tensor\.artefacts must be s3://bucket/prefix, got 'bucket/x'"):
        S3Artefacts(None, "bucket/x")
