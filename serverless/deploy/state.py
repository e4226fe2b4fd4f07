"""Read-only queries of a deployment's existing AWS resources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dorylax.serverless.deploy.clients import Clients, unless
from dorylax.serverless.deploy.found import Found, FoundFunction, FoundLogGroup, FoundRepository, FoundRole
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.policies import NETWORK, Policy
from dorylax.store.base import Location

IMMUTABLE = "IMMUTABLE"
"""ECR's setting for immutable image tags."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def read(names: Names, clients: Clients, artefacts: Location | None = None, *, boundary: bool = False) -> Found:
    """Read all resources with the deployment's names, including those of other owners.

    Args:
        names: Names of the deployment's resources.
        clients: AWS clients of the region.
        artefacts: Location of the stages to count, or None.
        boundary: Whether to read the permissions boundary, which only a deployment requires.
    """
    function, role = read_function(names, clients), _role(names, clients)
    # Count interfaces only with a VPC, since the policies grant the permission only then.
    vpc = (function is not None and function.subnets) or (role is not None and NETWORK in role.policies)
    return Found(
        function=function,
        role=role,
        log_group=_log_group(names, clients),
        repository=_repository(names, clients),
        network_interfaces=count_network_interfaces(names, clients) if vpc else 0,
        artefacts=0 if artefacts is None else _count_artefacts(artefacts, clients),
        boundary=_boundary(names, clients) if boundary else None,
    )


def read_function(names: Names, clients: Clients) -> FoundFunction | None:
    """Read the function, or return None if it does not exist."""
    content = unless({"ResourceNotFoundException"}, lambda: clients("lambda").get_function(FunctionName=names.name))
    if content is None:
        return None
    configuration: Mapping[str, Any] = content["Configuration"]
    code = content["Code"]
    vpc = configuration.get("VpcConfig") or {}
    reasons = (configuration.get("StateReason"), configuration.get("LastUpdateStatusReason"))
    return FoundFunction(
        image=code.get("ImageUri", ""),
        digest=_digest(code.get("ResolvedImageUri", "")),
        architecture=configuration.get("Architectures", ["x86_64"])[0],
        memory_mb=configuration["MemorySize"],
        timeout_seconds=configuration["Timeout"],
        role_arn=configuration["Role"],
        subnets=tuple(sorted(vpc.get("SubnetIds", ()))),
        security_groups=tuple(sorted(vpc.get("SecurityGroupIds", ()))),
        reserved_concurrency=content.get("Concurrency", {}).get("ReservedConcurrentExecutions"),
        state=configuration.get("State", "Active"),
        update=configuration.get("LastUpdateStatus", "Successful"),
        problem=next((reason for reason in reasons if reason), None),
        modified=configuration["LastModified"],
        tags=content.get("Tags", {}),
    )


def read_digest(names: Names, clients: Clients, tag: str) -> str:
    """Read the digest of a tagged image in the deployment's repository."""
    [image] = clients("ecr").describe_images(repositoryName=names.name, imageIds=[{"imageTag": tag}])["imageDetails"]
    return str(image["imageDigest"])


def read_image_tags(names: Names, clients: Clients, digest: str) -> tuple[str, ...]:
    """Read the tags of an image in the deployment's repository; empty for a missing image."""
    found = unless(
        {"ImageNotFoundException", "RepositoryNotFoundException"},
        lambda: clients("ecr").describe_images(repositoryName=names.name, imageIds=[{"imageDigest": digest}]),
    )
    return () if found is None else tuple(found["imageDetails"][0].get("imageTags", ()))


def inline_policies(names: Names, clients: Clients) -> list[str]:
    """List the names of the role's inline policies."""
    pages = clients("iam").get_paginator("list_role_policies").paginate(RoleName=names.role)
    return [name for page in pages for name in page["PolicyNames"]]


def count_network_interfaces(names: Names, clients: Clients) -> int:
    """Count Lambda's network interfaces in VPCs for the function."""
    # Only the description identifies the function. Lambda appends an id to it.
    wanted = [
        {"Name": "description", "Values": [f"AWS Lambda VPC ENI-{names.name}-????????-????-????-????-????????????"]}
    ]
    pages = clients("ec2").get_paginator("describe_network_interfaces").paginate(Filters=wanted)
    return sum(len(page["NetworkInterfaces"]) for page in pages)


def _role(names: Names, clients: Clients) -> FoundRole | None:
    iam = clients("iam")
    content = unless({"NoSuchEntity"}, lambda: iam.get_role(RoleName=names.role))
    if content is None:
        return None
    role = content["Role"]
    attached = [
        policy["PolicyArn"]
        for page in iam.get_paginator("list_attached_role_policies").paginate(RoleName=names.role)
        for policy in page["AttachedPolicies"]
    ]
    return FoundRole(
        trust=role["AssumeRolePolicyDocument"],
        policies={
            name: iam.get_role_policy(RoleName=names.role, PolicyName=name)["PolicyDocument"]
            for name in inline_policies(names, clients)
        },
        attached=tuple(attached),
        boundary=role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn"),
        tags=_by_key(role.get("Tags", ())),
    )


def _boundary(names: Names, clients: Clients) -> Policy | None:
    iam, arn = clients("iam"), names.boundary_arn
    found = unless({"NoSuchEntity"}, lambda: iam.get_policy(PolicyArn=arn))
    if found is None:
        return None
    version = iam.get_policy_version(PolicyArn=arn, VersionId=found["Policy"]["DefaultVersionId"])
    document: Policy = version["PolicyVersion"]["Document"]
    return document


def _log_group(names: Names, clients: Clients) -> FoundLogGroup | None:
    logs = clients("logs")
    pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=names.log_group)
    for page in pages:
        for group in page["logGroups"]:
            if group["logGroupName"] == names.log_group:
                tags = logs.list_tags_for_resource(resourceArn=names.log_group_arn)["tags"]
                return FoundLogGroup(group.get("retentionInDays"), tags)
    return None


def read_repository_policy(names: Names, clients: Clients) -> Policy | None:
    """Read the repository's policy, or return None without one."""
    ecr = clients("ecr")
    found = unless({"RepositoryPolicyNotFoundException"}, lambda: ecr.get_repository_policy(repositoryName=names.name))
    policy: Policy | None = None if found is None else json.loads(found["policyText"])
    return policy


def artefact_keys(location: Location, clients: Clients) -> Iterator[list[str]]:
    """Yield the keys of the stages in S3, up to 1,000 at a time. Skips all other objects."""
    start = location.key("")
    pages = clients("s3").get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=start, Delimiter="/")
    for page in pages:
        keys = [entry["Key"] for entry in page.get("Contents", ())]
        if found := [key for key in keys if _SHA256.fullmatch(key.removeprefix(start))]:
            yield found


def _count_artefacts(location: Location, clients: Clients) -> int:
    return unless({"NoSuchBucket"}, lambda: sum(map(len, artefact_keys(location, clients)))) or 0


def _repository(names: Names, clients: Clients) -> FoundRepository | None:
    ecr = clients("ecr")
    missing = {"RepositoryNotFoundException"}
    described = unless(missing, lambda: ecr.describe_repositories(repositoryNames=[names.name]))
    if described is None:
        return None
    [repository] = described["repositories"]
    images = {
        image["imageDigest"]: tuple(image.get("imageTags", ()))
        for page in ecr.get_paginator("describe_images").paginate(repositoryName=names.name)
        for image in page["imageDetails"]
    }
    tags = ecr.list_tags_for_resource(resourceArn=names.repository_arn)["tags"]
    return FoundRepository(
        policy=read_repository_policy(names, clients),
        images=images,
        scans=repository.get("imageScanningConfiguration", {}).get("scanOnPush", False),
        immutable=repository.get("imageTagMutability") == IMMUTABLE,
        tags=_by_key(tags),
    )


def _by_key(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags}


def _digest(address: str) -> str | None:
    return address.rpartition("@")[2] if "@" in address else None
