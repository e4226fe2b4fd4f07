"""Who may do what: the function's role, who may pull its image, and the policies for those who train and who deploy.

No effects. Each document has the least that its holder needs, on this deployment's resources only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.serverless.deploy.names import Names

Policy = dict[str, Any]

LOGS = "logs"
NETWORK = "network"
"""Names of the role's inline policies."""

# AWS Lambda, "Giving Lambda functions access to resources in an Amazon VPC": none can be limited to single resources.
_NETWORK_ACTIONS = (
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
)


def trust_policy() -> Policy:
    """Who may take the function's role: Lambda."""
    return _document(
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
    )


def role_policies(names: Names, *, vpc: bool) -> dict[str, Policy]:
    """What the function may do, by name of the inline policy.

    Args:
        names: of the deployment.
        vpc: whether it runs in a VPC.
    """
    policies = {
        LOGS: _document(_allow(("logs:CreateLogStream", "logs:PutLogEvents"), f"{names.log_group_arn}:*")),
    }
    if vpc:
        # Lambda acts with the function's role when it attaches the function to the VPC; the function's own code must not.
        policies[NETWORK] = _document(
            _allow(_NETWORK_ACTIONS, "*"),
            {
                "Effect": "Deny",
                "Action": list(_NETWORK_ACTIONS),
                "Resource": "*",
                "Condition": {"ArnEquals": {"lambda:SourceFunctionArn": [names.function_arn]}},
            },
        )
    return policies


def repository_policy(names: Names) -> Policy:
    """Who may pull the image besides the account: Lambda, for this function."""
    return _document(
        {
            "Sid": "LambdaPulls",
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            "Condition": {"StringLike": {"aws:sourceArn": names.function_arn}},
        }
    )


def trainer_policy(names: Names) -> Policy:
    """For who trains with the function: to invoke it, to see its limits, to read its log."""
    return _document(
        _allow(("lambda:InvokeFunction", "lambda:GetFunction", "lambda:GetFunctionConcurrency"), names.function_arn),
        _allow(("lambda:GetAccountSettings",), "*"),
        _allow(("logs:FilterLogEvents",), f"{names.log_group_arn}:*"),
    )


def deployer_policy(names: Names, *, vpc: bool) -> Policy:
    """For who deploys, looks at it and takes it away.

    Args:
        names: of the deployment.
        vpc: whether the function runs in a VPC.
    """
    statements = [
        _allow(
            [
                f"lambda:{action}"
                for action in (
                    "CreateFunction",
                    "DeleteFunction",
                    "DeleteFunctionConcurrency",
                    "GetFunction",
                    "GetFunctionConcurrency",
                    "GetFunctionConfiguration",
                    "InvokeFunction",
                    "ListTags",
                    "PutFunctionConcurrency",
                    "TagResource",
                    "UpdateFunctionCode",
                    "UpdateFunctionConfiguration",
                )
            ],
            names.function_arn,
        ),
        _allow(
            [
                f"iam:{action}"
                for action in (
                    "CreateRole",
                    "DeleteRole",
                    "DeleteRolePolicy",
                    "DetachRolePolicy",
                    "GetRole",
                    "GetRolePolicy",
                    "ListAttachedRolePolicies",
                    "ListRolePolicies",
                    "PutRolePolicy",
                    "TagRole",
                    "UpdateAssumeRolePolicy",
                )
            ],
            names.role_arn,
        ),
        {
            **_allow(("iam:PassRole",), names.role_arn),
            "Condition": {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}},
        },
        _allow(
            [
                f"ecr:{action}"
                for action in (
                    "BatchCheckLayerAvailability",
                    "BatchDeleteImage",
                    "BatchGetImage",
                    "CompleteLayerUpload",
                    "CreateRepository",
                    "DeleteRepository",
                    "DescribeImages",
                    "DescribeRepositories",
                    "GetDownloadUrlForLayer",
                    "GetRepositoryPolicy",
                    "InitiateLayerUpload",
                    "ListTagsForResource",
                    "PutImage",
                    "SetRepositoryPolicy",
                    "TagResource",
                    "UploadLayerPart",
                )
            ],
            names.repository_arn,
        ),
        _allow(("ecr:GetAuthorizationToken",), "*"),
        _allow(
            [
                f"logs:{action}"
                for action in (
                    "CreateLogGroup",
                    "DeleteLogGroup",
                    "FilterLogEvents",
                    "ListTagsForResource",
                    "PutRetentionPolicy",
                    "TagResource",
                )
            ],
            # Some of these are checked against the group with `:*`, some without.
            [names.log_group_arn, f"{names.log_group_arn}:*"],
        ),
        _allow(("logs:DescribeLogGroups",), "*"),
    ]
    if vpc:
        actions = ("DescribeNetworkInterfaces", "DescribeSecurityGroups", "DescribeSubnets", "DescribeVpcs")
        statements.append(_allow([f"ec2:{action}" for action in actions], "*"))
    return _document(*statements)


def _document(*statements: Policy) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(actions: Sequence[str], resource: str | list[str]) -> Policy:
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}
