"""Pure planner: computes the steps from the existing to the wanted AWS resources."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal, final

from dorylax.errors import InputError
from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.found import Found, FoundFunction, FoundRepository, FoundRole
from dorylax.serverless.deploy.names import TAG, Names
from dorylax.serverless.deploy.policies import Policy
from dorylax.serverless.deploy.settings import Deployment

Verb = Literal["create", "update", "keep", "delete", "wait", "ask"]
"""Operation of a step. `ask` means that an administrator must act first."""

Kind = Literal[
    "permissions boundary",
    "repository",
    "image",
    "log group",
    "role",
    "function",
    "concurrency",
    "old images",
    "network interfaces",
    "artefacts",
]

_DIGEST = re.compile(r"(@sha256:[0-9a-f]{12})[0-9a-f]+")

CODE = frozenset({"image", "architecture"})
"""Properties of a function that change through a code update rather than a configuration update."""


@final
@dataclasses.dataclass(frozen=True)
class Wanted:
    """Desired state of a deployment.

    Attributes:
        deployment: Settings of the deployment.
        names: Names of its resources.
        image: Address of the function's image: by tag in the deployment's repository, or by digest if external.
        tag: Tag of the image in the deployment's repository, or None for an external image.
    """

    deployment: Deployment
    names: Names
    image: str
    tag: str | None

    def pinned(self, repository: FoundRepository | None) -> str | None:
        """Return the image's address by digest, as the function uses it, or None if the image is not built yet."""
        if self.tag is None:
            return self.image
        digest = None if repository is None else repository.digest_of(self.tag)
        return None if digest is None else self.names.pinned_image(digest)


@final
@dataclasses.dataclass(frozen=True)
class Action:
    """One step of a plan.

    Attributes:
        verb: Operation.
        kind: Kind of the resource.
        name: Name of the resource.
        reason: Reason shown to the user.
        changes: Properties to update, for a function; {"vpc"} for a role with rights on a VPC.
    """

    verb: Verb
    kind: Kind
    name: str
    reason: str
    changes: frozenset[str] = frozenset()


def plan_deploy(wanted: Wanted, found: Found) -> tuple[Action, ...]:
    """Plan a deployment. Each step depends only on earlier steps.

    Raises:
        InputError: If a resource with one of the deployment's names lacks its tag.
    """
    names = wanted.names
    _check_ours(found, names)
    function = found.function
    # Lambda needs the role's rights to leave a VPC, too. The first deployment after that removes them.
    vpc = bool(wanted.deployment.subnets or found.network_interfaces or (function is not None and function.subnets))
    actions = [_boundary(names, found.boundary, vpc=vpc)]
    if wanted.tag is not None:
        actions += [_repository(names, found.repository), _image(wanted, wanted.tag, found.repository)]
    days = wanted.deployment.log_retention_days
    if found.log_group is None:
        actions.append(Action("create", "log group", names.log_group, f"lines are kept for {days} days"))
    elif found.log_group.retention_days != days:
        kept = found.log_group.retention_days
        actions.append(
            Action("update", "log group", names.log_group, f"kept {'for ever' if kept is None else kept} → {days} days")
        )
    else:
        actions.append(Action("keep", "log group", names.log_group, "as wanted"))
    role = found.role
    if role is not None and role.trust != policies.trust_policy():
        # The deployer may not change the trust policy of an existing role, so recreate the role.
        actions.append(Action("delete", "role", names.role, "others than Lambda may take it, or Lambda may not"))
        role = None
    actions.append(_role(names, role, vpc=vpc))
    if function is not None and function.state == "Failed":
        actions.append(Action("delete", "function", names.name, f"it could not be made: {function.problem}"))
        function = None
    actions.append(_function(wanted, function, wanted.pinned(found.repository), role_is_new=role is None))
    actions += _concurrency(wanted, function)
    if wanted.tag is not None and found.repository is not None:
        old = [tags for tags in found.repository.images.values() if wanted.tag not in tags]
        if old:
            actions.append(Action("delete", "old images", names.name, f"{len(old)} that no function uses any more"))
    return tuple(actions)


def plan_teardown(names: Names, found: Found, *, wait: bool = True, artefacts: str | None = None) -> tuple[Action, ...]:
    """Plan the deletion of a deployment.

    Args:
        names: Names of the deployment's resources.
        found: Existing resources.
        wait: Whether to keep the role until AWS has deleted the function's network interfaces in a VPC.
        artefacts: Location of the stages counted in `found`.

    Raises:
        InputError: If a resource with one of the deployment's names lacks its tag.
    """
    _check_ours(found, names)
    actions: list[Action] = []
    if found.function is not None:
        actions.append(
            Action("delete", "function", names.name, f"{found.function.memory_mb} MB, {found.function.state}")
        )
    if wait and (found.network_interfaces or (found.function is not None and found.function.subnets)):
        # Lambda deletes the interfaces with the function's role, so the role must outlast them.
        actions.append(Action("wait", "network interfaces", names.name, "AWS takes up to 20 minutes to delete them"))
    if found.role is not None:
        actions.append(Action("delete", "role", names.role, "with its inline policies"))
    if found.log_group is not None:
        actions.append(Action("delete", "log group", names.log_group, "with all lines"))
    if found.repository is not None:
        count = len(found.repository.images)
        actions.append(Action("delete", "repository", names.name, f"with {count} image{'' if count == 1 else 's'}"))
    if found.artefacts:
        assert artefacts is not None
        actions.append(Action("delete", "artefacts", artefacts, f"{found.artefacts} stages, of whatever run"))
    return tuple(actions)


def _check_ours(found: Found, names: Names) -> None:
    if foreign := found.foreign(names):
        raise InputError(
            f"{', '.join(foreign)} must have the tag {TAG}={names.name}, and has not: somebody else made it; "
            "choose another --name"
        )


def _boundary(names: Names, found: Policy | None, *, vpc: bool) -> Action:
    # A boundary for a VPC also suits a deployment without one: the role's own policies omit those rights.
    enough = [policies.boundary_policy(names, vpc=True)] + ([] if vpc else [policies.boundary_policy(names, vpc=False)])
    if found in enough:
        return Action("keep", "permissions boundary", names.boundary, "as wanted")
    problem = "there is none" if found is None else "it is not the one that this deployment needs"
    return Action(
        "ask",
        "permissions boundary",
        names.boundary,
        f'{problem}: an administrator makes it, as docs/aws.md says under "The permissions boundary"',
    )


def _repository(names: Names, found: FoundRepository | None) -> Action:
    if found is None:
        return Action("create", "repository", names.name, "for the function's image")
    [statement] = policies.repository_policy(names)["Statement"]
    if found.policy is None or statement not in found.policy["Statement"]:
        return Action("update", "repository", names.name, "Lambda may not pull the function's image from it")
    if not found.scans:
        return Action("update", "repository", names.name, "it does not scan images that are pushed")
    if not found.immutable:
        return Action("update", "repository", names.name, "its tags may come to mean other images")
    return Action("keep", "repository", names.name, "as wanted")


def _image(wanted: Wanted, tag: str, found: FoundRepository | None) -> Action:
    if found is not None and found.digest_of(tag) is not None:
        return Action("keep", "image", tag, "it is there with the same content")
    return Action("create", "image", tag, f"to be built for {wanted.deployment.architecture} and pushed")


def _role(names: Names, found: FoundRole | None, *, vpc: bool) -> Action:
    rights = "its log" + (" and network interfaces" if vpc else "")
    changes = frozenset({"vpc"} if vpc else ())
    if found is None:
        return Action("create", "role", names.role, f"with rights on {rights}", changes)
    if found.boundary != names.boundary_arn:
        return Action("update", "role", names.role, "its permissions boundary is missing or another", changes)
    if found.policies != policies.role_policies(names, vpc=vpc):
        return Action("update", "role", names.role, f"its rights are not those on {rights} alone", changes)
    return Action("keep", "role", names.role, "as wanted")


def _function(wanted: Wanted, found: FoundFunction | None, image: str | None, *, role_is_new: bool) -> Action:
    deployment, names = wanted.deployment, wanted.names
    if found is None:
        vpc = ", in a VPC" if deployment.subnets else ""
        return Action(
            "create",
            "function",
            names.name,
            f"{deployment.architecture}, {deployment.memory_mb} MB, {deployment.timeout_seconds} s{vpc}",
        )
    pairs: dict[str, tuple[object, object]] = {
        "image": (found.image, image or f"{wanted.image}, by its digest"),
        "architecture": (found.architecture, deployment.architecture),
        "memory": (found.memory_mb, deployment.memory_mb),
        "timeout": (found.timeout_seconds, deployment.timeout_seconds),
        # A recreated role keeps its ARN, but Lambda treats it as a different role.
        "role": ("deleted" if role_is_new else found.role_arn, names.role_arn),
        "subnets": (found.subnets, tuple(sorted(deployment.subnets))),
        "security groups": (found.security_groups, tuple(sorted(deployment.security_groups))),
    }
    changed = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    if found.update == "Failed" and not changed:
        return Action("update", "function", names.name, f"its last update failed: {found.problem}", frozenset(pairs))
    if not changed and (found.state == "Pending" or found.update == "InProgress"):
        return Action("wait", "function", names.name, "as wanted, and AWS is still making it so")
    if not changed:
        return Action("keep", "function", names.name, "as wanted")
    reason = ", ".join(f"{key} {_shown(old)} → {_shown(new)}" for key, (old, new) in changed.items())
    return Action("update", "function", names.name, reason, frozenset(changed))


def _concurrency(wanted: Wanted, found: FoundFunction | None) -> list[Action]:
    new = wanted.deployment.reserved_concurrency
    old = None if found is None else found.reserved_concurrency
    if new is None and old is None:
        return []
    name = wanted.names.name
    if new == old:
        return [Action("keep", "concurrency", name, f"{old} reserved")]
    if new is None:
        return [Action("delete", "concurrency", name, f"{old} reserved → none")]
    return [Action("create" if old is None else "update", "concurrency", name, f"{old or 'none'} → {new} reserved")]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return _DIGEST.sub(r"\1…", str(value).rpartition("/")[2])
