"""Who may do what: the function's role, who may pull its image, and the policies for those who train and who deploy.

No effects. Each document has the least that its holder needs, on this deployment's resources only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.serverless.backends.aws.artefacts import Location
from dorylax.serverless.deploy.names import Names

Policy = dict[str, Any]

LOGS = "logs"
NETWORK = "network"
"""Names of the role's inline policies."""

_PULLS = "LambdaPulls"

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
    """Who may assume the function's role: Lambda."""
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


def repository_policy(names: Names, others: Sequence[Policy] = ()) -> Policy:
    """Who may pull the image besides the account: Lambda, for this function.

    Args:
        names: of the deployment.
        others: statements that the repository's policy has. They stay: Lambda adds its own where it thinks that they are
            missing.
    """
    return _document(
        *(statement for statement in others if statement.get("Sid") != _PULLS),
        {
            "Sid": _PULLS,
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            "Condition": {"StringLike": {"aws:sourceArn": names.function_arn}},
        },
    )


def trainer_policy(names: Names, *, vpc: bool, artefacts: Location | None = None) -> Policy:
    """For who trains with the function: to invoke it, to look at the deployment, to read its log.

    Args:
        names: of the deployment.
        vpc: whether the function runs in a VPC.
        artefacts: where stages are put; None: nowhere.
    """
    statements = [
        _allow(
            ("lambda:GetFunction", "lambda:GetFunctionConcurrency", "lambda:InvokeFunction", "lambda:ListTags"),
            names.function_arn,
        ),
        _allow(
            ("iam:GetRole", "iam:GetRolePolicy", "iam:ListAttachedRolePolicies", "iam:ListRolePolicies"), names.role_arn
        ),
        _allow(
            ("ecr:DescribeImages", "ecr:DescribeRepositories", "ecr:GetRepositoryPolicy", "ecr:ListTagsForResource"),
            names.repository_arn,
        ),
        _allow(("logs:FilterLogEvents", "logs:ListTagsForResource"), _log_group(names)),
        # These name no resource.
        _allow(("lambda:GetAccountSettings", "logs:DescribeLogGroups"), "*"),
    ]
    if vpc:
        statements.append(_allow(("ec2:DescribeNetworkInterfaces",), "*"))
    if artefacts is not None:
        # To get them too: by URLs that who trains has signed, sandboxes have the rights of who trains.
        statements += _artefacts(names, artefacts, ("s3:PutObject", "s3:GetObject", "s3:DeleteObject"))
    return _document(*statements)


def deployer_policy(names: Names, *, vpc: bool, artefacts: Location | None = None) -> Policy:
    """For who deploys, looks at it and takes it away.

    Args:
        names: of the deployment.
        vpc: whether the function runs in a VPC.
        artefacts: where stages lie that are deleted with it; None: nowhere.
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
            _log_group(names),
        ),
        _allow(("logs:DescribeLogGroups",), "*"),
    ]
    if vpc:
        actions = ("DescribeNetworkInterfaces", "DescribeSecurityGroups", "DescribeSubnets", "DescribeVpcs")
        statements.append(_allow([f"ec2:{action}" for action in actions], "*"))
    if artefacts is not None:
        statements += _artefacts(names, artefacts, ("s3:DeleteObject",))
    return _document(*statements)


def _artefacts(names: Names, location: Location, actions: Sequence[str]) -> list[Policy]:
    """To do something with the objects under a prefix, and to list them."""
    bucket, objects = names.bucket_arn(location.bucket), location.key("*")
    listing = _allow(("s3:ListBucket",), bucket)
    if location.prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": objects}}
    return [_allow(actions, f"{bucket}/{objects}"), listing]


def _log_group(names: Names) -> list[str]:
    """Actions on a log group are checked against its ARN with `:*`, or without."""
    return [names.log_group_arn, f"{names.log_group_arn}:*"]


def _document(*statements: Policy) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(actions: Sequence[str], resource: str | list[str]) -> Policy:
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}
