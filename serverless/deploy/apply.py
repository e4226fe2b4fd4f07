"""Executes the steps of a plan. Every step is idempotent."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.clients import Clients, in_time, unless
from dorylax.serverless.deploy.eventual_consistency import (
    CHANGING,
    NEW_BOUNDARY,
    NEW_ROLE,
    PROPAGATING,
    NotYet,
    until_consistent,
)
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.plan import CODE, Action, Wanted
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.state import (
    IMMUTABLE,
    artefact_keys,
    count_network_interfaces,
    inline_policies,
    read_digest,
    read_function,
    read_repository_policy,
)
from dorylax.store.base import Location

_WAITER = {"Delay": 2, "MaxAttempts": 150}
_INTERFACE_SECONDS = 25 * 60.0


@final
class Applier:
    """Executes the steps of a plan against AWS.

    Args:
        clients: AWS clients of the region.
        names: Names of the deployment's resources.
        wanted: Desired state, or None for a teardown.
        push: Function that builds the image and pushes it to an address.
        artefacts: Location of the stages to delete, or None.
        now: Clock in seconds.
        sleep: Function that waits for a number of seconds.
    """

    def __init__(
        self,
        clients: Clients,
        names: Names,
        wanted: Wanted | None = None,
        push: Callable[[str], None] | None = None,
        *,
        artefacts: Location | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clients, self._names, self._wanted, self._push = clients, names, wanted, push
        self._artefacts, self._now, self._sleep = artefacts, now, sleep

    def apply(self, actions: Sequence[Action], report: Callable[[Action], None] = lambda _: None) -> None:
        """Execute the steps in order.

        Args:
            actions: Steps of a plan.
            report: Callback that receives each step before its execution.

        Raises:
            InputError: If an administrator must act first.
            RunError: If a step fails. Running the same command again continues from there.
        """
        steps: dict[tuple[str, str], Callable[[Action], None]] = {
            ("ask", "permissions boundary"): self._ask,
            ("create", "repository"): self._put_repository,
            ("update", "repository"): self._put_repository,
            ("delete", "repository"): self._delete_repository,
            ("create", "image"): self._create_image,
            ("create", "log group"): self._put_log_group,
            ("update", "log group"): self._put_log_group,
            ("delete", "log group"): self._delete_log_group,
            ("create", "role"): self._put_role,
            ("update", "role"): self._put_role,
            ("delete", "role"): self._delete_role,
            ("create", "function"): self._create_function,
            ("update", "function"): self._update_function,
            ("wait", "function"): self._wait_for_function,
            ("delete", "function"): self._delete_function,
            ("create", "concurrency"): self._put_concurrency,
            ("update", "concurrency"): self._put_concurrency,
            ("delete", "concurrency"): self._delete_concurrency,
            ("delete", "old images"): self._delete_old_images,
            ("delete", "artefacts"): self._delete_artefacts,
            ("wait", "network interfaces"): self._wait_for_interfaces,
        }
        for action in actions:
            report(action)
            if action.verb != "keep":
                steps[action.verb, action.kind](action)

    def _ask(self, action: Action) -> None:
        raise InputError(f"{action.kind} {action.name}: {action.reason}")

    def _put_repository(self, _: Action) -> None:
        ecr, names = self._clients("ecr"), self._names
        scanning = {"scanOnPush": True}
        created = unless(
            {"RepositoryAlreadyExistsException"},
            lambda: ecr.create_repository(
                repositoryName=names.name,
                tags=_listed(names),
                imageScanningConfiguration=scanning,
                imageTagMutability=IMMUTABLE,
            ),
        )
        if created is None:
            ecr.put_image_scanning_configuration(repositoryName=names.name, imageScanningConfiguration=scanning)
            ecr.put_image_tag_mutability(repositoryName=names.name, imageTagMutability=IMMUTABLE)
        found = read_repository_policy(names, self._clients)
        policy = policies.repository_policy(names, () if found is None else found["Statement"])
        ecr.set_repository_policy(repositoryName=names.name, policyText=json.dumps(policy))

    def _delete_repository(self, _: Action) -> None:
        ecr = self._clients("ecr")
        unless(
            {"RepositoryNotFoundException"}, lambda: ecr.delete_repository(repositoryName=self._names.name, force=True)
        )

    def _create_image(self, _: Action) -> None:
        assert self._push is not None
        self._push(self._target.image)

    def _delete_old_images(self, _: Action) -> None:
        ecr, name = self._clients("ecr"), self._names.name
        pages = ecr.get_paginator("describe_images").paginate(repositoryName=name)
        old = [
            {"imageDigest": image["imageDigest"]}
            for page in pages
            for image in page["imageDetails"]
            if self._target.tag not in image.get("imageTags", ())
        ]
        for first in range(0, len(old), 100):  # 100 images is the limit per request
            ecr.batch_delete_image(repositoryName=name, imageIds=old[first : first + 100])

    def _put_log_group(self, _: Action) -> None:
        logs, names = self._clients("logs"), self._names
        unless(
            {"ResourceAlreadyExistsException"},
            lambda: logs.create_log_group(logGroupName=names.log_group, tags=names.tags),
        )
        days = self._target.deployment.log_retention_days
        logs.put_retention_policy(logGroupName=names.log_group, retentionInDays=days)

    def _delete_log_group(self, _: Action) -> None:
        logs = self._clients("logs")
        unless({"ResourceNotFoundException"}, lambda: logs.delete_log_group(logGroupName=self._names.log_group))

    def _put_role(self, action: Action) -> None:
        iam, names = self._clients("iam"), self._names
        trust = json.dumps(policies.trust_policy())
        created = unless(
            {"EntityAlreadyExists"},
            lambda: iam.create_role(
                RoleName=names.role,
                AssumeRolePolicyDocument=trust,
                PermissionsBoundary=names.boundary_arn,
                Tags=_listed(names),
            ),
        )
        if created is None:
            # The boundary must precede any policy: the deployer may add policies only to a role with this boundary.
            iam.put_role_permissions_boundary(RoleName=names.role, PermissionsBoundary=names.boundary_arn)
        wanted = policies.role_policies(names, vpc="vpc" in action.changes)
        for name, document in wanted.items():
            put = functools.partial(
                iam.put_role_policy, RoleName=names.role, PolicyName=name, PolicyDocument=json.dumps(document)
            )
            self._until_consistent(put, NEW_ROLE, NEW_BOUNDARY)
        for name in inline_policies(self._names, self._clients):
            if name not in wanted:
                iam.delete_role_policy(RoleName=names.role, PolicyName=name)

    def _delete_role(self, _: Action) -> None:
        iam, role = self._clients("iam"), self._names.role
        if unless({"NoSuchEntity"}, lambda: iam.get_role(RoleName=role)) is None:
            return
        for name in inline_policies(self._names, self._clients):
            iam.delete_role_policy(RoleName=role, PolicyName=name)
        # IAM refuses to delete a role with attached policies. The policies are not ours, so only detach them.
        for page in iam.get_paginator("list_attached_role_policies").paginate(RoleName=role):
            for policy in page["AttachedPolicies"]:
                iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
        iam.delete_role(RoleName=role)

    def _create_function(self, _: Action) -> None:
        deployment, names, image = self._target.deployment, self._names, self._image()
        function = self._clients("lambda")
        self._until_consistent(
            lambda: function.create_function(
                FunctionName=names.name,
                PackageType="Image",
                Code={"ImageUri": image},
                Architectures=[deployment.architecture],
                Tags=names.tags,
                **_configuration(deployment, names),
            ),
            PROPAGATING,
            CHANGING,
        )
        self._wait("function_active_v2")

    def _update_function(self, action: Action) -> None:
        deployment, names = self._target.deployment, self._names
        function = self._clients("lambda")
        # Do not wait for an earlier update: a failed update never succeeds, and this one may repair it.
        if action.changes & CODE:
            image = self._image()
            self._until_consistent(
                lambda: function.update_function_code(
                    FunctionName=names.name, ImageUri=image, Architectures=[deployment.architecture]
                ),
                PROPAGATING,
                CHANGING,
            )
            self._wait("function_updated_v2")
        if action.changes - CODE:
            self._until_consistent(
                lambda: function.update_function_configuration(
                    FunctionName=names.name, **_configuration(deployment, names)
                ),
                PROPAGATING,
                CHANGING,
            )
            self._wait("function_updated_v2")

    def _wait_for_function(self, _: Action) -> None:
        found = read_function(self._names, self._clients)
        if found is None or found.state == "Pending":  # a function idle for weeks stays "Inactive"
            self._wait("function_active_v2")
        self._wait("function_updated_v2")

    def _delete_function(self, _: Action) -> None:
        function = self._clients("lambda")
        self._until_consistent(
            lambda: unless(
                {"ResourceNotFoundException"}, lambda: function.delete_function(FunctionName=self._names.name)
            ),
            CHANGING,
        )

    def _put_concurrency(self, _: Action) -> None:
        reserved = self._target.deployment.reserved_concurrency
        self._until_consistent(
            lambda: self._clients("lambda").put_function_concurrency(
                FunctionName=self._names.name, ReservedConcurrentExecutions=reserved
            ),
            CHANGING,
        )

    def _delete_concurrency(self, _: Action) -> None:
        self._until_consistent(
            lambda: self._clients("lambda").delete_function_concurrency(FunctionName=self._names.name), CHANGING
        )

    def _delete_artefacts(self, _: Action) -> None:
        s3, location = self._clients("s3"), self._artefacts
        assert location is not None
        for keys in artefact_keys(location, self._clients):
            wanted: Mapping[str, Any] = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            for left in s3.delete_objects(Bucket=location.bucket, Delete=wanted).get("Errors", ()):
                raise RunError(f"s3://{location.bucket}/{left['Key']} cannot be deleted: {left['Code']}")

    def _wait_for_interfaces(self, _: Action) -> None:
        end = self._now() + _INTERFACE_SECONDS
        while left := count_network_interfaces(self._names, self._clients):
            if self._now() > end:
                raise RunError(
                    f"AWS still has {left} network interfaces of the function in the VPC, and needs its role to delete "
                    "them: run the same command again later, or with --no-wait if other functions share them"
                )
            self._sleep(10.0)

    def _image(self) -> str:
        """Return the image's address by digest, so that moving the tag cannot change the deployed image."""
        wanted = self._target
        if wanted.tag is None:
            return wanted.image
        return self._names.pinned_image(read_digest(self._names, self._clients, wanted.tag))

    @property
    def _target(self) -> Wanted:
        assert self._wanted is not None
        return self._wanted

    def _until_consistent(self, call: Callable[[], object], *reasons: NotYet) -> None:
        until_consistent(call, *reasons, now=self._now, sleep=self._sleep)

    def _wait(self, name: str) -> None:
        waiter = self._clients("lambda").get_waiter(name)
        if not in_time(lambda: waiter.wait(FunctionName=self._names.name, WaiterConfig=_WAITER)):
            found = read_function(self._names, self._clients)
            problem = "it is gone" if found is None else found.problem or f"{found.state}, last update {found.update}"
            raise RunError(f"the function did not become ready: {problem}; run the same command again")


def _configuration(deployment: Deployment, names: Names) -> dict[str, Any]:
    return {
        "Role": names.role_arn,
        "MemorySize": deployment.memory_mb,
        "Timeout": deployment.timeout_seconds,
        # Empty lists detach the function from its VPC. Omitting the key would keep it attached.
        "VpcConfig": {"SubnetIds": list(deployment.subnets), "SecurityGroupIds": list(deployment.security_groups)},
    }


def _listed(names: Names) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in names.tags.items()]
