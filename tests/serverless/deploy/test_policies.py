"""Least privilege: who may do what, on which resources."""

from __future__ import annotations

import pytest
from support.mocked_aws import READS

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.settings import Deployment
from dorylax.store.base import Location

NAMES = Names("gnn", "123456789012", "eu-west-1")
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:gnn"
LOG = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/gnn"


def statements(document: dict) -> list[dict]:
    assert document["Version"] == "2012-10-17"
    return document["Statement"]


def test_names() -> None:
    assert (NAMES.function_arn, NAMES.log_group_arn) == (FUNCTION, LOG)
    assert NAMES.role_arn == "arn:aws:iam::123456789012:role/gnn-eu-west-1"
    assert NAMES.repository_arn == "arn:aws:ecr:eu-west-1:123456789012:repository/gnn"
    assert NAMES.repository == "123456789012.dkr.ecr.eu-west-1.amazonaws.com/gnn"
    assert len(Names("a" * 40, "123456789012", "ap-southeast-12").role) <= 64


@pytest.mark.parametrize(
    ("region", "partition", "host"),
    [
        ("cn-north-1", "aws-cn", "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", "123456789012.dkr.ecr.us-gov-west-1.amazonaws.com"),
    ],
)
def test_other_partitions(region: str, partition: str, host: str) -> None:
    names = Names("gnn", "123456789012", region)
    assert names.function_arn == f"arn:{partition}:lambda:{region}:123456789012:function:gnn"
    assert names.repository == f"{host}/gnn"


def test_the_function_may_write_its_own_log_and_nothing_else() -> None:
    assert policies.boundary_policy(NAMES, vpc=False) == {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": f"{LOG}:*"}
        ],
    }
    assert NAMES.boundary_arn == "arn:aws:iam::123456789012:policy/gnn-eu-west-1-boundary"


def test_network_interfaces_only_with_a_vpc_and_not_for_the_function_s_code() -> None:
    _, allow, deny = statements(policies.boundary_policy(NAMES, vpc=True))
    assert all(action.startswith("ec2:") for action in allow["Action"])
    assert (allow["Effect"], deny["Effect"]) == ("Allow", "Deny")
    assert deny["Action"] == allow["Action"]
    assert deny["Condition"] == {"ArnEquals": {"lambda:SourceFunctionArn": [FUNCTION]}}


def test_only_lambda_takes_the_role_and_pulls_the_image_for_this_function() -> None:
    [trust] = statements(policies.trust_policy())
    assert (trust["Principal"], trust["Action"]) == ({"Service": "lambda.amazonaws.com"}, "sts:AssumeRole")
    [pull] = statements(policies.repository_policy(NAMES))
    assert pull["Condition"] == {"StringLike": {"aws:sourceArn": FUNCTION}}


def test_who_trains_may_invoke_this_function_and_change_nothing() -> None:
    invoke, *others = statements(policies.trainer_policy(NAMES))
    assert "lambda:InvokeFunction" in invoke["Action"]
    assert invoke["Resource"] == FUNCTION
    actions = [action for statement in (invoke, *others) for action in statement["Action"]]
    assert {action for action in actions if not action.partition(":")[2].startswith(READS)} == {"lambda:InvokeFunction"}
    everywhere = [action for statement in others if statement["Resource"] == "*" for action in statement["Action"]]
    assert everywhere == ["lambda:GetAccountSettings"]


@pytest.mark.parametrize(
    ("location", "objects", "condition"),
    [
        ("s3://mine/runs/stages", "arn:aws:s3:::mine/runs/stages/*", {"StringLike": {"s3:prefix": "runs/stages/*"}}),
        ("s3://mine", "arn:aws:s3:::mine/*", None),
    ],
)
def test_who_trains_may_put_stages_under_their_prefix_alone(
    location: str, objects: str, condition: dict | None
) -> None:
    without = statements(policies.trainer_policy(NAMES))
    *others, put, listing = statements(policies.trainer_policy(NAMES, Location.of(location)))
    assert others == without
    assert put == {"Effect": "Allow", "Action": ["s3:PutObject", "s3:GetObject"], "Resource": objects}
    assert (listing["Action"], listing["Resource"]) == (["s3:ListBucket"], "arn:aws:s3:::mine")
    assert listing.get("Condition") == condition


@pytest.mark.parametrize("vpc", [{}, {"subnets": ("subnet-0a",), "security_groups": ("sg-0b",)}])
def test_who_deploys_may_do_nothing_to_other_resources(vpc: dict) -> None:
    # These name no resource, and change nothing.
    everywhere = {"ecr:GetAuthorizationToken", "logs:DescribeLogGroups"}
    for statement in statements(policies.deployer_policy(NAMES, Deployment(**vpc))):
        actions, resources = statement["Action"], statement["Resource"]
        if resources == "*":
            assert all(action in everywhere or action.startswith("ec2:Describe") for action in actions)
        else:
            assert all("gnn" in one for one in ([resources] if isinstance(resources, str) else resources))
        assert not any("*" in action for action in actions)
        if "iam:PassRole" in actions:
            assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}
