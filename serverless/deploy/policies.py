"""IAM policy documents: the function's role and the rights of trainers and deployers. Pure.

Each document grants the minimal rights, on this deployment's resources only. An administrator creates the role's permissions
boundary once. It limits the role regardless of the policies that are added later.

CloudFormation acts with the deployer's own rights. The deployer therefore needs the rights on each resource, and a changed
template can do no more than its deployer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.serverless.deploy.names import TAG, Names
from dorylax.serverless.deploy.settings import Deployment
from dorylax.store.base import Location

Policy = dict[str, Any]

# AWS Lambda, "Giving Lambda functions access to resources in an Amazon VPC": these actions support no resource limits.
_NETWORK_ACTIONS = (
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
)
_LAMBDA = {"Service": "lambda.amazonaws.com"}


def trust_policy() -> Policy:
    """Build the role's trust policy, which lets only Lambda assume it."""
    return _document({"Effect": "Allow", "Principal": _LAMBDA, "Action": "sts:AssumeRole"})


def boundary_policy(names: Names, *, vpc: bool) -> Policy:
    """Build the rights of the function's role. The same document is its permissions boundary.

    An administrator creates the boundary as `names.boundary`. A deployer can neither change the boundary nor create the role
    without a boundary.

    Args:
        names: Names of the deployment's resources.
        vpc: Whether the function may run in a VPC. Lambda needs rights on the network then; the function's code gets none.
    """
    statements = [_allow(("logs:CreateLogStream", "logs:PutLogEvents"), f"{names.log_group_arn}:*")]
    if vpc:
        own_code = {"ArnEquals": {"lambda:SourceFunctionArn": [names.function_arn]}}
        statements += [
            _allow(_NETWORK_ACTIONS, "*"),
            {"Effect": "Deny", "Action": list(_NETWORK_ACTIONS), "Resource": "*", "Condition": own_code},
        ]
    return _document(*statements)


def repository_policy(names: Names) -> Policy:
    """Build the repository policy, which lets Lambda pull the image for this function."""
    pull = {
        "Sid": "LambdaPulls",
        "Effect": "Allow",
        "Principal": _LAMBDA,
        "Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
        "Condition": {"StringLike": {"aws:sourceArn": names.function_arn}},
    }
    return _document(pull)


def trainer_policy(names: Names, artefacts: Location | None = None) -> Policy:
    """Build the trainer's policy: invoke the function, inspect the deployment, and read its log.

    Args:
        names: Names of the deployment's resources.
        artefacts: Upload location of the stages, or None.
    """
    statements = [
        _allow(("lambda:GetFunction", "lambda:GetFunctionConcurrency", "lambda:InvokeFunction"), names.function_arn),
        _allow(("cloudformation:DescribeStacks",), names.stack_arns),
        _allow(("ecr:DescribeImages",), names.repository_arn),
        _allow(("logs:FilterLogEvents",), _log_group(names)),
        _allow(("lambda:GetAccountSettings",), "*"),  # supports no resource limits
    ]
    if artefacts is not None:
        # GetObject too: sandboxes download stages through presigned URLs, which carry the trainer's rights.
        statements += _artefacts(names, artefacts, ("s3:PutObject", "s3:GetObject"))
    return _document(*statements)


def deployer_policy(names: Names, deployment: Deployment) -> Policy:
    """Build the deployer's policy: create, inspect, and delete the deployment.

    Args:
        names: Names of the deployment's resources.
        deployment: Settings: the subnets and security groups that the function may have, and the stages' location.
    """
    return _document(
        *_deployer_stacks(names),
        *_deployer_function(names, deployment),
        *_deployer_role(names),
        *_deployer_image(names),
        *_deployer_log(names),
        *([] if deployment.location is None else _artefacts(names, deployment.location, ("s3:DeleteObject",))),
        # Allow only the deployment's tag, since other policies may grant rights by tag. Only AWS sets tags with "aws:".
        _allow(
            [f"{service}:TagResource" for service in ("cloudformation", "ecr", "lambda", "logs")] + ["iam:TagRole"],
            [*names.stack_arns, names.function_arn, names.role_arn, names.repository_arn, *_log_group(names)],
            StringEquals={f"aws:RequestTag/{TAG}": names.name},
            **{"ForAllValues:StringLike": {"aws:TagKeys": [TAG, "aws:cloudformation:*"]}},
        ),
    )


def _deployer_stacks(names: Names) -> list[Policy]:
    reads = _of("cloudformation", "DescribeChangeSet", "DescribeStackEvents", "DescribeStacks", "ListStackResources")
    changes = _of(
        "cloudformation", "CreateChangeSet", "CreateStack", "DeleteChangeSet", "DeleteStack", "ExecuteChangeSet"
    )
    return [_allow(reads + changes, names.stack_arns)]


def _deployer_function(names: Names, deployment: Deployment) -> list[Policy]:
    network: Policy = {"Null": {"lambda:VpcIds": "true"}}
    if deployment.subnets:
        # Limit the subnets, because the function can reach every host in them. An empty list detaches it from the VPC.
        ids = {"SubnetIds": deployment.subnets, "SecurityGroupIds": deployment.security_groups}
        network = {"ForAllValues:StringEquals": {f"lambda:{key}": list(value) for key, value in ids.items()}}
    reads = (
        *("GetFunction", "GetFunctionCodeSigningConfig", "GetFunctionConcurrency", "GetFunctionRecursionConfig"),
        *("GetRuntimeManagementConfig", "ListTags"),
    )
    changes = ("DeleteFunction", "DeleteFunctionConcurrency", "PutFunctionConcurrency", "UpdateFunctionCode")
    statements = [
        _allow(_of("lambda", "CreateFunction", "UpdateFunctionConfiguration"), names.function_arn, **network),
        _allow(_of("lambda", *changes, *reads, "InvokeFunction"), names.function_arn),
    ]
    if deployment.subnets:
        described = ("NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs")
        statements.append(_allow([f"ec2:Describe{kind}" for kind in described], "*"))
    return statements


def _deployer_role(names: Names) -> list[Policy]:
    reads = ("GetRole", "GetRolePolicy", "ListAttachedRolePolicies", "ListRolePolicies")
    versions = ("CreatePolicyVersion", "DeletePolicyVersion", "SetDefaultPolicyVersion")
    return [
        # Policies may be added only to a role with the boundary.
        _allow(
            _of("iam", "CreateRole", "PutRolePermissionsBoundary", "PutRolePolicy"),
            names.role_arn,
            StringEquals={"iam:PermissionsBoundary": names.boundary_arn},
        ),
        _allow(_of("iam", "DeleteRole", "DeleteRolePolicy", "DetachRolePolicy", *reads), names.role_arn),
        _allow(_of("iam", "PassRole"), names.role_arn, StringEquals={"iam:PassedToService": _LAMBDA["Service"]}),
        _allow(_of("iam", "GetPolicy", "GetPolicyVersion"), names.boundary_arn),
        # These denials override all other policies of the deployer. They protect the boundary and the role.
        _deny(_of("iam", "CreatePolicy", "DeletePolicy", *versions), names.boundary_arn),
        _deny(["iam:DeleteRolePermissionsBoundary", "iam:UpdateAssumeRolePolicy", "sts:AssumeRole"], names.role_arn),
    ]


def _deployer_image(names: Names) -> list[Policy]:
    reads = (
        *("DescribeImageScanFindings", "DescribeImages", "DescribeRepositories", "GetLifecyclePolicy"),
        *("GetRepositoryPolicy", "ListTagsForResource", "StartImageScan"),
    )
    changes = (
        *("CreateRepository", "DeleteRepository", "PutImageScanningConfiguration", "PutImageTagMutability"),
        *("PutLifecyclePolicy", "SetRepositoryPolicy"),
    )
    pushes = (
        *("BatchCheckLayerAvailability", "BatchGetImage", "CompleteLayerUpload", "GetDownloadUrlForLayer"),
        *("InitiateLayerUpload", "PutImage", "UploadLayerPart"),
    )
    return [
        _allow(_of("ecr", *reads, *changes, *pushes), names.repository_arn),
        _allow(_of("ecr", "GetAuthorizationToken"), "*"),
    ]


def _deployer_log(names: Names) -> list[Policy]:
    reads = ("DescribeIndexPolicies", "FilterLogEvents", "GetDataProtectionPolicy", "ListTagsForResource")
    changes = ("CreateLogGroup", "DeleteLogGroup", "PutRetentionPolicy")
    return [
        _allow(_of("logs", *reads, *changes), _log_group(names)),
        _allow(_of("logs", "DescribeLogGroups"), "*"),
    ]


def _artefacts(names: Names, location: Location, actions: Sequence[str]) -> list[Policy]:
    """Allow listing the objects under a prefix, and some actions on them."""
    bucket, objects = names.bucket_arn(location.bucket), location.key("*")
    below: Policy = {"StringLike": {"s3:prefix": objects}} if location.prefix else {}
    return [_allow(actions, f"{bucket}/{objects}"), _allow(("s3:ListBucket",), bucket, **below)]


def _log_group(names: Names) -> list[str]:
    """Return both ARNs of the log group, since AWS checks some actions against the ARN with `:*`."""
    return [names.log_group_arn, f"{names.log_group_arn}:*"]


def _document(*statements: Policy) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _of(service: str, *actions: str) -> list[str]:
    return [f"{service}:{action}" for action in actions]


def _allow(actions: Sequence[str], resource: str | list[str], **condition: Policy) -> Policy:
    statement: Policy = {"Effect": "Allow", "Action": list(actions), "Resource": resource}
    return statement | {"Condition": condition} if condition else statement


def _deny(actions: Sequence[str], resource: str) -> Policy:
    return {"Effect": "Deny", "Action": list(actions), "Resource": resource}
