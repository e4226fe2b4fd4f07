"""IAM's decision on a request, as far as the policies here use it, and the requests that a call of boto3 comes to.

AWS, "Policy evaluation logic": denied unless some statement allows it, and whatever any statement denies.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from dorylax.serverless.deploy.names import Names

Values = tuple[str, ...]


@final
@dataclasses.dataclass(frozen=True)
class Request:
    """Something that somebody asks of AWS.

    Attributes:
        action: `service:Action`.
        resource: its ARN, or "*".
        context: values of condition keys; a key that is not there has none.
    """

    action: str
    resource: str
    context: Mapping[str, Values] = dataclasses.field(default_factory=dict)


def allowed(request: Request, *documents: Mapping[str, Any]) -> bool:
    """Whether all documents allow a request: a policy, and the permissions boundary of who has it."""
    return all(_allows(document, request) for document in documents)


def _allows(document: Mapping[str, Any], request: Request) -> bool:
    effects = {found["Effect"] for found in document["Statement"] if _applies(found, request)}
    assert effects <= {"Allow", "Deny"}
    return effects == {"Allow"}


def _applies(statement: Mapping[str, Any], request: Request) -> bool:
    assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}, statement
    if not any(_like(pattern.lower(), request.action.lower()) for pattern in _listed(statement["Action"])):
        return False
    if not any(_like(pattern, request.resource) for pattern in _listed(statement["Resource"])):
        return False
    return all(
        _OPERATORS[operator](request.context.get(key, ()), _listed(values))
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    )


def _equals(given: Values, wanted: Sequence[str]) -> bool:
    return any(one in wanted for one in given)


def _likes(given: Values, wanted: Sequence[str]) -> bool:
    return any(_like(pattern, one) for one in given for pattern in wanted)


_OPERATORS: dict[str, Callable[[Values, Sequence[str]], bool]] = {
    "StringEquals": _equals,
    "StringLike": _likes,
    "ArnEquals": _likes,
    "ForAllValues:StringEquals": lambda given, wanted: all(one in wanted for one in given),
    "ForAllValues:StringLike": lambda given, wanted: all(_likes((one,), wanted) for one in given),
    "Null": lambda given, wanted: (not given) == (list(wanted) == ["true"]),
}


def _like(pattern: str, text: str) -> bool:
    assert "[" not in pattern
    return fnmatch.fnmatchcase(text, pattern)


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


# What IAM calls an operation where it does not call it like the API.
_ACTIONS = {
    "lambda:Invoke": "lambda:InvokeFunction",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:DeleteObjects": "s3:DeleteObject",
}
_TAGS = {
    "cloudformation": "TagResource",
    "lambda": "TagResource",
    "iam": "TagRole",
    "ecr": "TagResource",
    "logs": "TagResource",
}
_BOUNDED = {
    "PutRolePolicy",
    "DeleteRolePolicy",
    "DetachRolePolicy",
    "AttachRolePolicy",
    "DeleteRolePermissionsBoundary",
}
"""Of the actions on existing roles, those that IAM asks the role's boundary for."""


def requests(
    names: Names,
    call: str,
    parameters: Mapping[str, Any],
    boundary_of: Callable[[str], str | None],
    network_of: Callable[[str], str] = lambda _: "vpc-0",
) -> list[Request]:
    """What a call has to be allowed.

    Args:
        names: whose account and region it is.
        call: `service:Operation`, as boto3 calls it.
        parameters: its own.
        boundary_of: ARN of a role's permissions boundary.
        network_of: the VPC of a subnet.
    """
    service, _, operation = call.partition(":")
    if service == "sts":  # who one is, anybody may ask
        return []
    context: dict[str, Values] = {}
    if operation in ("CreateRole", "PutRolePermissionsBoundary"):
        context |= _some("iam:PermissionsBoundary", [parameters.get("PermissionsBoundary")])
    elif operation in _BOUNDED:
        context |= _some("iam:PermissionsBoundary", [boundary_of(parameters["RoleName"])])
    vpc = parameters.get("VpcConfig", {})
    context |= _some("lambda:SubnetIds", vpc.get("SubnetIds", ()))
    context |= _some("lambda:SecurityGroupIds", vpc.get("SecurityGroupIds", ()))
    context |= _some("lambda:VpcIds", map(network_of, vpc.get("SubnetIds", ())))
    if service == "s3":
        context |= _some("s3:prefix", [parameters.get("Prefix")])
    tags = _tags(parameters)
    tagged = _some("aws:TagKeys", tags) | {f"aws:RequestTag/{key}": (value,) for key, value in tags.items()}
    found = [
        Request(_ACTIONS.get(call, call), resource, context | tagged)
        for resource in _resources(names, service, operation, parameters)
    ]
    if tags:
        found += [Request(f"{service}:{_TAGS[service]}", request.resource, tagged) for request in found]
    if "Role" in parameters:
        found.append(Request("iam:PassRole", parameters["Role"], {"iam:PassedToService": ("lambda.amazonaws.com",)}))
    return found


def _resources(names: Names, service: str, operation: str, parameters: Mapping[str, Any]) -> list[str]:
    partition, _, _ = names.role_arn.partition(":iam:")
    if service == "lambda" and "FunctionName" in parameters:
        return [re.sub("function:.*", f"function:{parameters['FunctionName']}", names.function_arn)]
    if service == "cloudformation" and "StackName" in parameters:
        stack = parameters["StackName"].rpartition(":stack/")[2].partition("/")[0]
        return [f"{partition}:cloudformation:{names.region}:{names.account}:stack/{stack}/0-1-2"]
    if service == "iam" and "RoleName" in parameters:
        return [f"{partition}:iam::{names.account}:role/{parameters['RoleName']}"]
    if service == "iam" and "PolicyArn" in parameters:
        return [parameters["PolicyArn"]]
    if service == "ecr" and operation != "GetAuthorizationToken":
        repositories = parameters.get("repositoryNames") or [parameters.get("repositoryName")]
        if "resourceArn" in parameters:
            return [parameters["resourceArn"]]
        return [re.sub("repository/.*", f"repository/{one}", names.repository_arn) for one in repositories]
    if service == "logs" and "logGroupName" in parameters:
        return [re.sub("log-group:.*", f"log-group:{parameters['logGroupName']}:*", names.log_group_arn)]
    if service == "logs" and "resourceArn" in parameters:
        return [parameters["resourceArn"]]
    if service == "s3" and "Key" in parameters:
        return [f"{names.bucket_arn(parameters['Bucket'])}/{parameters['Key']}"]
    if operation == "DeleteObjects":
        return [f"{names.bucket_arn(parameters['Bucket'])}/{one['Key']}" for one in parameters["Delete"]["Objects"]]
    if service == "s3" and "Bucket" in parameters:
        return [names.bucket_arn(parameters["Bucket"])]
    return ["*"]


def _tags(parameters: Mapping[str, Any]) -> dict[str, str]:
    tags = parameters.get("Tags") or parameters.get("tags") or {}
    return dict(tags) if isinstance(tags, Mapping) else {tag["Key"]: tag["Value"] for tag in tags}


def _some(key: str, values: Iterable[str | None]) -> dict[str, Values]:
    found = tuple(value for value in values if value)
    return {key: found} if found else {}
