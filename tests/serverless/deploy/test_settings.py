"""`Deployment`: what is accepted. The texts of errors are in tests/golden/snapshots/deployment.txt."""

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


@pytest.mark.parametrize("days", RETENTION_DAYS)
def test_each_retention_of_cloudwatch(days: int) -> None:
    assert Deployment(log_retention_days=days).log_retention_days == days


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"memory_mb": 127}, "memory_mb"),
        ({"subnets": ["subnet-0a"]}, "security_groups"),
        ({"security_groups": ["sg-0a"]}, "subnets"),
        ({**VPC, "subnets": "subnet-0a"}, "subnets"),
        ({"memory": 128}, "memory"),
    ],
)
def test_an_error_has_its_key(values: dict, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Deployment(**values)
    assert caught.value.key == key
