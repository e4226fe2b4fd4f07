"""`Deployment`: what is accepted, and the text of each error."""

from __future__ import annotations

import pytest

from dorylax.serverless.deploy.settings import RETENTION_DAYS, Deployment
from dorylax.settings.errors import ConfigError

VPC = {"subnets": ["subnet-0a", "subnet-0b"], "security_groups": ["sg-0c"]}


def test_to_dict_and_back() -> None:
    deployment = Deployment(
        **{"name": "gnn-2", "region": "eu-west-1", "architecture": "arm64", "reserved_concurrency": 50, **VPC}
    )
    assert deployment.subnets == ("subnet-0a", "subnet-0b")
    assert Deployment(**deployment.to_dict()) == deployment
    assert Deployment(**Deployment().to_dict()) == Deployment()


def test_ids_that_come_twice_count_once() -> None:
    assert Deployment(**{**VPC, "subnets": ["subnet-0a", "subnet-0a"]}).subnets == ("subnet-0a",)


@pytest.mark.parametrize(
    "values",
    [
        {"memory_mb": 128},
        {"memory_mb": 10240},
        {"timeout_seconds": 1},
        {"timeout_seconds": 900},
        {"reserved_concurrency": 1},
        *({"log_retention_days": days} for days in RETENTION_DAYS),
        {"name": "ab"},
        {"name": "a" * 40},
        {"region": "us-gov-west-1"},
        {"artefacts": "s3://mine/runs/stages"},
    ],
)
def test_the_ends_of_ranges(values: dict) -> None:
    assert Deployment(**Deployment(**values).to_dict()) == Deployment(**values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"memory_mb": 127}, "memory_mb must be in 128 … 10240, got 127"),
        ({"memory_mb": 10241}, "memory_mb must be in 128 … 10240, got 10241"),
        ({"memory_mb": "1024"}, "memory_mb must be a whole number in 128 … 10240, got '1024'"),
        ({"memory_mb": True}, "memory_mb must be a whole number in 128 … 10240, got true"),
        ({"timeout_seconds": 0}, "timeout_seconds must be in 1 … 900, got 0"),
        ({"timeout_seconds": 901}, "timeout_seconds must be in 1 … 900, got 901"),
        ({"reserved_concurrency": 0}, "reserved_concurrency must be ≥ 1, got 0"),
        ({"log_retention_days": 8}, "log_retention_days must be one that CloudWatch has, such as 7, got 8"),
        ({"architecture": "arm46"}, "architecture must be one of x86_64, arm64, got 'arm46' (did you mean arm64?)"),
        ({"region": "europe"}, "region must be one of AWS, as in us-east-1, got 'europe'"),
        ({"name": "x"}, "name must be 2 to 40 of a-z, 0-9 and single hyphens between, as in my-run, got 'x'"),
        (
            {"name": "a" * 41},
            f"name must be 2 to 40 of a-z, 0-9 and single hyphens between, as in my-run, got '{'a' * 41}'",
        ),
        ({"name": "My_run"}, "name must be 2 to 40 of a-z, 0-9 and single hyphens between, as in my-run, got 'My_run'"),
        ({"name": 7}, "name must be text, got 7"),
        ({"subnets": ["subnet-0a"]}, "security_groups must be given too, for a VPC needs both: got subnets alone"),
        ({"security_groups": ["sg-0a"]}, "subnets must be given too, for a VPC needs both: got security_groups alone"),
        ({**VPC, "subnets": ["10.0.0.0/24"]}, "subnets must be ids such as subnet-0a1b2c3d, got '10.0.0.0/24'"),
        ({**VPC, "subnets": "subnet-0a"}, "subnets must be a list of ids, as in [subnet-0a1b2c3d], got 'subnet-0a'"),
        ({"artefacts": "mine/stages"}, "artefacts must be s3://bucket/prefix, got 'mine/stages'"),
        ({"artefacts": 7}, "artefacts must be text, got 7"),
        ({"lapack": 1}, "lapack must be true or false, got 1"),
        ({"memory": 128}, "unknown key 'memory': did you mean memory_mb?"),
        ({"zz": 1}, "unknown key 'zz': choose from name, region, architecture, "),
    ],
)
def test_what_cannot_be(values: dict, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Deployment(**values)
    assert str(caught.value).startswith(text)
    assert caught.value.key == text.removeprefix("unknown key ").partition(" ")[0].strip("':")
