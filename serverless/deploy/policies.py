"""IAM policy documents: the function's role, access to its image, and the rights of trainers and deployers.

Pure. Each document grants the minimal rights, on this deployment's resources only. An administrator creates the role's
permissions boundary once. It limits the role regardless of the policies that are added later.
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

# AWS Lambda, "Giving Lambda functions access to resources in an Amazon VPC": these actions support no resource limits.
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
    """Build the role's trust policy, which lets only Lambda assume it."""
    return _document(
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
    )


def role_policies(names: Names, *, vpc: bool) -> dict[str, Policy]:
    """Build the map from name to inline policy of the role.

    Args:
        names: Names of the deployment's resources.
        vpc: Whether the function runs in a VPC.
    """
    policies = {LOGS: _document(_logging(names))}
    if vpc:
        policies[NETWORK] = _document(*_network(names))
    return policies


def boundary_policy(names: Names, *, vpc: bool) -> Policy:
    """Build the permissions boundary, which caps the role's rights at those the function needs.

    An administrator creates it as `names.boundary`. A deployer can neither change it nor create the role without it.

    Args:
        names: Names of the deployment's resources.
        vpc: Whether the function may run in a VPC.
    """
    return _document(_logging(names), *(_network(names) if vpc else ()))


def repository_policy(names: Names, others: Sequence[Policy] = ()) -> Policy:
    """Build the repository policy, which lets Lambda pull the image for this function.

    Args:
        names: Names of the deployment's resources.
        others: Existing statements of the repository policy. They are kept, because Lambda may have added its own.
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
    """Build the trainer's policy: invoke the function, inspect the deployment, and read its log.

    Args:
        names: Names of the deployment's resources.
        vpc: Whether the function runs in a VPC.
        artefacts: Upload location of the stages, or None.
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
        # These actions support no resource limits.
        _allow(("lambda:GetAccountSettings", "logs:DescribeLogGroups"), "*"),
    ]
    if vpc:
        statements.append(_allow(("ec2:DescribeNetworkInterfaces",), "*"))
    if artefacts is not None:
        # GetObject too: sandboxes download stages through presigned URLs, which carry the trainer's rights.
        statements += _artefacts(names, artefacts, ("s3:PutObject", "s3:GetObject"))
    return _document(*statements)


def deployer_policy(
    names: Names, *, subnets: Sequence[str] = (), security_groups: Sequence[str] = (), artefacts: Location | None = None
) -> Policy:
    """Build the deployer's policy: create, inspect, and delete the deployment.

    Args:
        names: Names of the deployment's resources.
        subnets: Subnets to which the function may be attached; empty without a VPC.
        security_groups: Security groups that the function may have in those subnets.
        artefacts: Location of the stages deleted with the deployment, or None.
    """
    bounded = {"StringEquals": {"iam:PermissionsBoundary": names.boundary_arn}}
    attached: Policy = {"Null": {"lambda:VpcIds": "true"}}
    if subnets:
        # Limit the subnets, because the function can reach every host in them. An empty list detaches it from the VPC.
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
        # Policies may be added only to a role with the boundary.
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
        # Allow only the deployment's tag, since other policies may grant rights by tag.
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
        # These denials override all other policies of the deployer. They protect the boundary and the role.
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
    """Let Lambda attach the function to the VPC with the function's role, but deny these actions to the function's code."""
    own_code = {"ArnEquals": {"lambda:SourceFunctionArn": [names.function_arn]}}
    return _allow(_NETWORK_ACTIONS, "*"), _deny(_NETWORK_ACTIONS, "*") | {"Condition": own_code}


def _artefacts(names: Names, location: Location, actions: Sequence[str]) -> list[Policy]:
    """Allow listing the objects under a prefix, and some actions on them."""
    bucket, objects = names.bucket_arn(location.bucket), location.key("*")
    listing = _allow(("s3:ListBucket",), bucket)
    if location.prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": objects}}
    return [_allow(actions, f"{bucket}/{objects}"), listing]


def _log_group(names: Names) -> list[str]:
    """Return both ARNs of the log group, since AWS checks some actions against the ARN with `:*`."""
    return [names.log_group_arn, f"{names.log_group_arn}:*"]


def _document(*statements: Policy) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _of(service: str, *actions: str) -> list[str]:
    return [f"{service}:{action}" for action in actions]


def _allow(actions: Sequence[str], resource: str | list[str]) -> Policy:
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


def _deny(actions: Sequence[str], resource: str) -> Policy:
    return {"Effect": "Deny", "Action": list(actions), "Resource": resource}
