"""Records of a deployment's existing AWS resources. Pure data; `state` reads them from AWS."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.policies import Policy

Tags = Mapping[str, str]


@final
@dataclasses.dataclass(frozen=True)
class FoundFunction:
    """An existing Lambda function.

    Attributes:
        image: Address of the image, as configured.
        digest: Digest of the image, `sha256:…`, or None if AWS reports none.
        architecture: Processor architecture.
        memory_mb: Memory limit in MB.
        timeout_seconds: Time limit in seconds.
        role_arn: ARN of the role.
        subnets: Subnet ids in the VPC, sorted; empty without a VPC.
        security_groups: Security group ids in the VPC, sorted; empty without a VPC.
        reserved_concurrency: Number of reserved concurrent executions, or None if none are reserved.
        state: Lifecycle state: "Pending", "Active", "Inactive" or "Failed".
        update: Status of the last update: "Successful", "InProgress" or "Failed".
        problem: Reason for a failed state or update.
        modified: Time of the last change, in AWS's format.
        tags: Tags of the function.
    """

    image: str
    digest: str | None
    architecture: str
    memory_mb: int
    timeout_seconds: int
    role_arn: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    reserved_concurrency: int | None
    state: str
    update: str
    problem: str | None
    modified: str
    tags: Tags


@final
@dataclasses.dataclass(frozen=True)
class FoundRole:
    """An existing IAM role.

    Attributes:
        trust: Trust policy.
        policies: Map from name to inline policy.
        attached: ARNs of attached managed policies. A deployment attaches none.
        boundary: ARN of the permissions boundary, or None.
        tags: Tags of the role.
    """

    trust: Policy
    policies: Mapping[str, Policy]
    attached: tuple[str, ...]
    boundary: str | None
    tags: Tags


@final
@dataclasses.dataclass(frozen=True)
class FoundLogGroup:
    """An existing log group.

    Attributes:
        retention_days: Retention time in days, or None for unlimited.
        tags: Tags of the log group.
    """

    retention_days: int | None
    tags: Tags


@final
@dataclasses.dataclass(frozen=True)
class FoundRepository:
    """An existing image repository.

    Attributes:
        policy: Repository policy, or None.
        images: Tags of each image, by digest.
        scans: Whether pushed images are scanned.
        immutable: Whether image tags are immutable.
        tags: AWS tags of the repository.
    """

    policy: Policy | None
    images: Mapping[str, tuple[str, ...]]
    scans: bool
    immutable: bool
    tags: Tags

    def digest_of(self, tag: str) -> str | None:
        """Return the digest of the image with a tag, or None if there is no such image."""
        return next((digest for digest, tags in self.images.items() if tag in tags), None)


@final
@dataclasses.dataclass(frozen=True)
class Found:
    """Existing resources with the names of one deployment, including those of other owners.

    Attributes:
        function: Lambda function, or None.
        role: IAM role, or None.
        log_group: Log group, or None.
        repository: Image repository, or None.
        network_interfaces: Number of network interfaces that Lambda still has in the VPC for the function.
        artefacts: Number of stages in S3; 0 without an artefact location.
        boundary: Policy document of the permissions boundary, or None if it is missing or was not requested. An
            administrator owns it, not the deployment.
    """

    function: FoundFunction | None = None
    role: FoundRole | None = None
    log_group: FoundLogGroup | None = None
    repository: FoundRepository | None = None
    network_interfaces: int = 0
    artefacts: int = 0
    boundary: Policy | None = None

    def foreign(self, names: Names) -> list[str]:
        """Describe the resources that lack the deployment's tag."""
        resources: list[tuple[str, str, Any]] = [
            ("function", names.name, self.function),
            ("role", names.role, self.role),
            ("log group", names.log_group, self.log_group),
            ("repository", names.name, self.repository),
        ]
        wanted = names.tags.items()
        return [f"{kind} {name}" for kind, name, found in resources if found and not wanted <= dict(found.tags).items()]
