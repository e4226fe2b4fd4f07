"""Output of `dorylax aws`: plans, policies, states and sizes, as tables and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import click

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.found import Found
from dorylax.serverless.deploy.image.root import RootSize
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.plan import Action, Wanted
from dorylax.terminal.output import print_rows

_SHOWN_BYTES = 10**6


def _policies(wanted: Wanted) -> dict[str, Any]:
    names, deployment = wanted.names, wanted.deployment
    vpc, artefacts = bool(deployment.subnets), deployment.location
    of_vpc = {"subnets": deployment.subnets, "security_groups": deployment.security_groups}
    return {
        "boundary": policies.boundary_policy(names, vpc=vpc),
        "role": {"trust": policies.trust_policy()} | policies.role_policies(names, vpc=vpc),
        "repository": policies.repository_policy(names),
        "trainer": policies.trainer_policy(names, vpc=vpc, artefacts=artefacts),
        "deployer": policies.deployer_policy(names, **of_vpc, artefacts=artefacts),
    }


def plan_content(actions: Sequence[Action], wanted: Wanted) -> dict[str, Any]:
    """Return a plan and its policies as one object of plain values."""
    return {
        "schema": 1,
        "image": wanted.image,
        **dataclasses.asdict(wanted.names),
        "function": wanted.names.function_arn,
        "actions": [{key: getattr(action, key) for key in ("verb", "kind", "name", "reason")} for action in actions],
        "settings": wanted.deployment.to_dict(),
        "policies": _policies(wanted),
    }


def show_plan(actions: Sequence[Action], names: Names) -> None:
    """Print the steps of a plan."""
    columns = ("step", "what", "name", "why")
    rows = [(action.verb, action.kind, action.name, action.reason) for action in actions]
    print_rows(columns, rows, _where(names), left=columns)


def show_policies(wanted: Wanted) -> None:
    """Print the policies of a deployment, and those for its users."""
    found = _policies(wanted)
    role = found.pop("role")
    titles = (
        *(f"role {wanted.names.role}, {name}" for name in role),
        f"permissions boundary {wanted.names.boundary}, which an administrator makes",
        "who may pull from the repository",
        "for whoever trains",
        "for whoever deploys",
    )
    for title, document in zip(titles, (*role.values(), *found.values()), strict=True):
        click.echo(f"\n{title}:\n{json.dumps(document, indent=2)}")


def show_status(names: Names, found: Found) -> None:
    """Print the existing resources."""
    function, rows = found.function, list[tuple[str, str]]()
    if function is None:
        rows.append(("function", "not there"))
    else:
        problem = f": {function.problem}" if function.problem else ""
        reserved = function.reserved_concurrency
        rows += [
            ("function", f"{function.state}, last update {function.update}{problem}"),
            ("image", function.image),
            ("digest", function.digest or "–"),
            ("memory", f"{function.memory_mb} MB, {function.architecture}"),
            ("time-out", f"{function.timeout_seconds} s"),
            ("VPC", ", ".join((*function.subnets, *function.security_groups)) or "none"),
            ("concurrency", "none reserved" if reserved is None else f"{reserved} reserved"),
            ("changed", function.modified),
        ]
    for name, there in (("role", found.role), ("log group", found.log_group)):
        rows.append((name, "not there" if there is None else "there"))
    images = "not there" if found.repository is None else f"there, {len(found.repository.images)} images"
    rows.append(("repository", images))
    if found.artefacts:
        rows.append(("artefacts", f"{found.artefacts} stages"))
    if foreign := found.foreign(names):
        rows.append(("not of this deployment", ", ".join(foreign)))
    print_rows(("what", "state"), rows, _where(names), left=("what", "state"))


def show_size(size: RootSize, tag: str) -> None:
    """Print the contents of an image by size."""
    rows = [(part, f"{nbytes / 1e6:,.1f}") for part, nbytes in size.parts.items() if nbytes >= _SHOWN_BYTES]
    others = [nbytes for nbytes in size.parts.values() if nbytes < _SHOWN_BYTES]
    rows.append((f"{len(others)} others", f"{sum(others) / 1e6:,.1f}"))
    total = (f"{size.files:,} files", f"{size.nbytes / 1e6:,.1f}")
    print_rows(("what", "MB"), rows, f"image {tag}, without its base", total=total)


def _where(names: Names) -> str:
    return f"{names.name} in {names.region}, account {names.account}"
