"""What exists of a deployment in AWS. No effects; `state` reads it."""

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
    """A function.

    Attributes:
        image: its address, as given.
        digest: of the image, `sha256:…`; None if AWS does not say.
        architecture: of its processors.
        memory_mb, timeout_seconds: its limits.
        role_arn: of its role.
        subnets, security_groups: of its VPC, sorted; empty without one.
        reserved_concurrency: None if none is reserved.
        state: "Pending", "Active", "Inactive" or "Failed".
        update: "Successful", "InProgress" or "Failed", of the last update.
        problem: why either failed.
        modified: when it was last changed, as AWS writes it.
        tags: all of them.
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
    """A role.

    Attributes:
        trust: who may assume it.
        policies: its inline policies.
        attached: ARNs of managed policies; a deployment attaches none.
        boundary: ARN of its permissions boundary; None without one.
        tags: all of them.
    """

    trust: Policy
    policies: Mapping[str, Policy]
    attached: tuple[str, ...]
    boundary: str | None
    tags: Tags


@final
@dataclasses.dataclass(frozen=True)
class FoundLogGroup:
    """A log group.

    Attributes:
        retention_days: None: for ever.
        tags: all of them.
    """

    retention_days: int | None
    tags: Tags


@final
@dataclasses.dataclass(frozen=True)
class FoundRepository:
    """A repository of images.

    Attributes:
        policy: who may pull; None if it has none.
        images: tags of each image, by digest.
        scans: whether images are scanned when they are pushed.
        immutable: whether a tag stays with its image.
        tags: of the repository.
    """

    policy: Policy | None
    images: Mapping[str, tuple[str, ...]]
    scans: bool
    immutable: bool
    tags: Tags

    def digest_of(self, tag: str) -> str | None:
        """The digest of the image with a tag."""
        return next((digest for digest, tags in self.images.items() if tag in tags), None)


@final
@dataclasses.dataclass(frozen=True)
class Found:
    """Everything with the names of one deployment, whoever owns it.

    Attributes:
        network_interfaces: how many Lambda still has in the VPC for the function.
        artefacts: how many stages lie in S3, if the deployment says where.
        boundary: what the policy says that is to be the role's permissions boundary; None if there is none, or nobody
            asked. It is an administrator's, not the deployment's.
    """

    function: FoundFunction | None = None
    role: FoundRole | None = None
    log_group: FoundLogGroup | None = None
    repository: FoundRepository | None = None
    network_interfaces: int = 0
    artefacts: int = 0
    boundary: Policy | None = None

    def foreign(self, names: Names) -> list[str]:
        """What exists without the deployment's tag, in words."""
        resources: list[tuple[str, str, Any]] = [
            ("function", names.name, self.function),
            ("role", names.role, self.role),
            ("log group", names.log_group, self.log_group),
            ("repository", names.name, self.repository),
        ]
        wanted = names.tags.items()
        return [f"{kind} {name}" for kind, name, found in resources if found and not wanted <= dict(found.tags).items()]
