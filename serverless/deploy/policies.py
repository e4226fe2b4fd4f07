"""Who may do what: the function's role, who may pull its image, and the policies for those who train and who deploy.

No effects. Each document has the least that its holder needs, on this deployment's resources only. The role has a
permissions boundary, which an administrator makes once: whatever policies the role is given, it may do no more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.serverless.deploy.names import TAG, Names
from dorylax.store.base import Location

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

_BOUNDARY_CHANGES = (
    "CreatePolicy",
    "CreatePolicyVersion",
    "DeletePolicy",
    "DeletePolicyVersion",
    "SetDefaultPolicyVersion",
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
    policies = {LOGS: _document(_logging(names))}
    if vpc:
        policies[NETWORK] = _document(*_network(names))
    return policies


def boundary_policy(names: Names, *, vpc: bool) -> Policy:
    """The permissions boundary: the most that the function's role may ever do, which is what it is meant to do.

    An administrator makes it, as `names.boundary`; whoever deploys can neither change it nor make the role without it.

    Args:
        names: of the deployment.
        vpc: whether the function may run in a VPC.
    """
    return _document(_logging(names), *(_network(names) if vpc else ()))


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
        statements += _artefacts(names, artefacts, ("s3:PutObject", "s3:GetObject"))
    return _document(*statements)


def deployer_policy(
    names: Names, *, subnets: Sequence[str] = (), security_groups: Sequence[str] = (), artefacts: Location | None = None
) -> Policy:
    """For who deploys, looks at it and takes it away.

    Args:
        names: of the deployment.
        subnets: those that the function may be attached to; empty without a VPC.
        security_groups: those that it may have there.
        artefacts: where stages lie that are deleted with it; None: nowhere.
    """
    bounded = {"StringEquals": {"iam:PermissionsBoundary": names.boundary_arn}}
    attached: Policy = {"Null": {"lambda:VpcIds": "true"}}
    if subnets:
        # The function can reach whatever is in its subnets. No id at all is right too: so it leaves the VPC.
        ids = {"lambda:SubnetIds": list(subnets), "lambda:SecurityGroupIds": list(security_groups)}
        attached = {"ForAllValues:StringEquals": ids}
    statements = [
        _allow(_of("lambda", "CreateFunction", "UpdateFunctionConfiguration"), names.function_arn)
        | {"Condition": attached},
        _allow(
            _of(
                "lambda",
                "DeleteFunction",
                "DeleteFunctionConcurrency",
                "GetFunction",
                "GetFunctionConcurrency",
                "InvokeFunction",
                "ListTags",
                "PutFunctionConcurrency",
                "UpdateFunctionCode",
            ),
            names.function_arn,
        ),
        # To give the role rights, but none beyond the boundary.
        _allow(_of("iam", "CreateRole", "PutRolePermissionsBoundary", "PutRolePolicy"), names.role_arn)
        | {"Condition": bounded},
        _allow(
            _of(
                "iam",
                "DeleteRole",
                "DeleteRolePolicy",
                "DetachRolePolicy",
                "GetRole",
                "GetRolePolicy",
                "ListAttachedRolePolicies",
                "ListRolePolicies",
            ),
            names.role_arn,
        ),
        _allow(_of("iam", "GetPolicy", "GetPolicyVersion"), names.boundary_arn),
        _allow(_of("iam", "PassRole"), names.role_arn)
        | {"Condition": {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}},
        _allow(
            _of(
                "ecr",
                "BatchCheckLayerAvailability",
                "BatchDeleteImage",
                "BatchGetImage",
                "CompleteLayerUpload",
                "CreateRepository",
                "DeleteRepository",
                "DescribeImageScanFindings",
                "DescribeImages",
                "DescribeRepositories",
                "GetDownloadUrlForLayer",
                "GetRepositoryPolicy",
                "InitiateLayerUpload",
                "ListTagsForResource",
                "PutImage",
                "PutImageScanningConfiguration",
                "PutImageTagMutability",
                "SetRepositoryPolicy",
                "StartImageScan",
                "UploadLayerPart",
            ),
            names.repository_arn,
        ),
        _allow(_of("ecr", "GetAuthorizationToken"), "*"),
        _allow(
            _of(
                "logs",
                "CreateLogGroup",
                "DeleteLogGroup",
                "FilterLogEvents",
                "ListTagsForResource",
                "PutRetentionPolicy",
            ),
            _log_group(names),
        ),
        _allow(_of("logs", "DescribeLogGroups"), "*"),
        # The deployment's own tag and no other: tags can be what rights hang on.
        _allow(
            ["ecr:TagResource", "iam:TagRole", "lambda:TagResource", "logs:TagResource"],
            [names.function_arn, names.role_arn, names.repository_arn, *_log_group(names)],
        )
        | {
            "Condition": {
                "StringEquals": {f"aws:RequestTag/{TAG}": names.name},
                "ForAllValues:StringEquals": {"aws:TagKeys": [TAG]},
            }
        },
        # Denied whatever other policies they have: what the boundary stands on, and the role itself.
        _deny(_of("iam", *_BOUNDARY_CHANGES), names.boundary_arn),
        _deny(["iam:DeleteRolePermissionsBoundary", "iam:UpdateAssumeRolePolicy", "sts:AssumeRole"], names.role_arn),
    ]
    if subnets:
        statements.append(
            _allow(
                _of("ec2", "DescribeNetworkInterfaces", "DescribeSecurityGroups", "DescribeSubnets", "DescribeVpcs"),
                "*",
            )
        )
    if artefacts is not None:
        statements += _artefacts(names, artefacts, ("s3:DeleteObject",))
    return _document(*statements)


def _logging(names: Names) -> Policy:
    return _allow(("logs:CreateLogStream", "logs:PutLogEvents"), f"{names.log_group_arn}:*")


def _network(names: Names) -> tuple[Policy, Policy]:
    """Lambda acts with the function's role when it attaches the function to the VPC; the function's own code must not."""
    own_code = {"ArnEquals": {"lambda:SourceFunctionArn": [names.function_arn]}}
    return _allow(_NETWORK_ACTIONS, "*"), _deny(_NETWORK_ACTIONS, "*") | {"Condition": own_code}


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


def _of(service: str, *actions: str) -> list[str]:
    return [f"{service}:{action}" for action in actions]


def _allow(actions: Sequence[str], resource: str | list[str]) -> Policy:
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


def _deny(actions: Sequence[str], resource: str) -> Policy:
    return {"Effect": "Deny", "Action": list(actions), "Resource": resource}
