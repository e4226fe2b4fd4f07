"""The deployed function: its state, its image, test invocations, its log, and its stages in S3."""

from __future__ import annotations

import base64
import re
import time
from typing import Any, NamedTuple, final

from dorylax.errors import InputError, RunError
from dorylax.net.errors import TaskFailedError
from dorylax.net.keys import RunKeys
from dorylax.serverless.backends.aws.replies import answer_of
from dorylax.serverless.deploy.clients import Clients, unless
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.function.invocation import Invocation
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.store.base import Location

_INIT = re.compile(r"Init Duration: ([0-9.]+) ms")
_MEMORY = re.compile(r"Max Memory Used: ([0-9]+) MB")
_SHA256 = re.compile(r"[0-9a-f]{64}")
MISSING = {"ImageNotFoundException", "RepositoryNotFoundException", "ResourceNotFoundException", "NoSuchEntity"}
"""Codes of AWS for a resource that does not exist."""


@final
class DeployedFunction(NamedTuple):
    """State of the function in AWS.

    Attributes:
        image: Address of the image, as configured.
        digest: Digest of the image, or None if AWS has not resolved it yet.
        architecture: Processor architecture.
        memory_mb: Memory in MB.
        timeout_seconds: Time limit of an invocation in seconds.
        subnets: Subnets in the VPC, sorted.
        security_groups: Security groups in the VPC, sorted.
        reserved_concurrency: Reserved concurrency, or None without one.
        state: Lambda's state: Pending, Active, Inactive, or Failed.
        update: State of the last update: InProgress, Successful, or Failed.
        problem: Reason given by AWS, or None.
        modified: Time of the last change (ISO 8601).
    """

    image: str
    digest: str | None
    architecture: str
    memory_mb: int
    timeout_seconds: int
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    reserved_concurrency: int | None
    state: str
    update: str
    problem: str | None
    modified: str


@final
class TimedInvocation(NamedTuple):
    """Measurement of one invocation.

    Attributes:
        milliseconds: Time until the response arrived.
        init_milliseconds: Time to start a new sandbox, or None if a sandbox was reused.
        memory_mb: Peak memory of the sandbox in MB, or None if AWS reports none.
    """

    milliseconds: float
    init_milliseconds: float | None
    memory_mb: int | None


def read_function(names: Names, clients: Clients) -> DeployedFunction | None:
    """Read the function, or return None if it does not exist."""
    found = unless(MISSING, lambda: clients("lambda").get_function(FunctionName=names.name))
    if found is None:
        return None
    code, configuration = found["Code"], found["Configuration"]
    vpc = configuration.get("VpcConfig") or {}
    reasons = (configuration.get("StateReason"), configuration.get("LastUpdateStatusReason"))
    return DeployedFunction(
        image=code.get("ImageUri", ""),
        digest=code.get("ResolvedImageUri", "").rpartition("@")[2] or None,
        architecture=configuration.get("Architectures", ["x86_64"])[0],
        memory_mb=configuration["MemorySize"],
        timeout_seconds=configuration["Timeout"],
        subnets=tuple(sorted(vpc.get("SubnetIds", ()))),
        security_groups=tuple(sorted(vpc.get("SecurityGroupIds", ()))),
        reserved_concurrency=found.get("Concurrency", {}).get("ReservedConcurrentExecutions"),
        state=configuration.get("State", "Active"),
        update=configuration.get("LastUpdateStatus", "Successful"),
        problem=next((reason for reason in reasons if reason), None),
        modified=configuration["LastModified"],
    )


def find_image(names: Names, clients: Clients, *, tag: str | None = None, digest: str | None = None) -> tuple[str, ...]:
    """Return the digest and the tags of an image in the deployment's repository, given one of them; () without one."""
    wanted = {"imageTag": tag} if digest is None else {"imageDigest": digest}
    found = unless(MISSING, lambda: clients("ecr").describe_images(repositoryName=names.name, imageIds=[wanted]))
    if found is None:
        return ()
    [image] = found["imageDetails"]
    return (image["imageDigest"], *image.get("imageTags", ()))


def warm_invocation() -> bytes:
    """Return an invocation that only warms up a sandbox, with fresh keys."""
    return Invocation(SandboxSettings(RunKeys.make()), None).encode()


def invoke_test(names: Names, clients: Clients, count: int) -> list[TimedInvocation]:
    """Invoke the function several times in a row.

    Args:
        names: Names of the deployment's resources.
        clients: AWS clients of the region.
        count: Number of invocations, ≥ 1. The first one may start a sandbox.

    Raises:
        RunError: If an invocation fails or the function has another version of dorylax.
    """
    payload = warm_invocation()
    return [_invoke(names, clients, payload) for _ in range(count)]


def _invoke(names: Names, clients: Clients, payload: bytes) -> TimedInvocation:
    client = clients("invoke")
    start = time.perf_counter()
    answer = client.invoke(FunctionName=names.name, Payload=payload, LogType="Tail")
    content = answer["Payload"].read()
    seconds = time.perf_counter() - start
    try:
        answer_of(content, answer.get("FunctionError"))
    except TaskFailedError as error:
        raise RunError(f"{error}; `dorylax aws logs` has more") from None
    tail = base64.b64decode(answer.get("LogResult", "")).decode(errors="replace")
    init, memory = _INIT.search(tail), _MEMORY.search(tail)
    return TimedInvocation(1000 * seconds, float(init[1]) if init else None, int(memory[1]) if memory else None)


def log_events(names: Names, clients: Clients, milliseconds: int) -> list[dict[str, Any]]:
    """Return CloudWatch's events of all sandboxes since a Unix time in milliseconds, oldest first.

    Raises:
        InputError: If there is no log group.
    """
    pages = clients("logs").get_paginator("filter_log_events")
    options = {"logGroupName": names.log_group, "startTime": max(0, milliseconds)}
    found = unless(MISSING, lambda: [event for page in pages.paginate(**options) for event in page["events"]])
    if found is None:
        raise InputError(f"there is no log group {names.log_group}: run `dorylax aws deploy` first")
    return found


def artefact_keys(location: Location, clients: Clients) -> list[str]:
    """Return the keys of the stages in S3. Skips all other objects, and a missing bucket."""
    start = location.key("")
    pages = clients("s3").get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=start, Delimiter="/")
    keys = unless({"NoSuchBucket"}, lambda: [entry["Key"] for page in pages for entry in page.get("Contents", ())])
    return [key for key in keys or () if _SHA256.fullmatch(key.removeprefix(start))]


def delete_artefacts(location: Location, clients: Clients) -> None:
    """Delete the stages in S3.

    Raises:
        RunError: If an object cannot be deleted.
    """
    keys = artefact_keys(location, clients)
    for first in range(0, len(keys), 1000):  # 1,000 keys is the limit per request
        wanted = {"Objects": [{"Key": key} for key in keys[first : first + 1000]], "Quiet": True}
        for left in clients("s3").delete_objects(Bucket=location.bucket, Delete=wanted).get("Errors", ()):
            raise RunError(f"s3://{location.bucket}/{left['Key']} cannot be deleted: {left['Code']}")
