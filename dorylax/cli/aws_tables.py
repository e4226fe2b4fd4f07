"""Output of `dorylax aws`: plans, policies, states and sizes, as tables and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.function import DeployedFunction
from dorylax.serverless.deploy.image.root import RootSize
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.stacks import Change
from dorylax.terminal.output import print_rows

_SHOWN_BYTES = 10**6


def _policies(names: Names, deployment: Deployment) -> dict[str, Any]:
    boundary = policies.boundary_policy(names, vpc=bool(deployment.subnets))
    return {
        "boundary": boundary,
        "role": {"trust": policies.trust_policy(), "function": boundary},
        "repository": policies.repository_policy(names),
        "trainer": policies.trainer_policy(names, deployment.location),
        "deployer": policies.deployer_policy(names, deployment),
    }


def plan_content(actions: Sequence[Change], names: Names, deployment: Deployment, image: str) -> dict[str, Any]:
    """Return a plan and its policies as one object of plain values."""
    return {
        "schema": 1,
        "image": image,
        **dataclasses.asdict(names),
        "function": names.function_arn,
        "actions": [action._asdict() for action in actions],
        "settings": deployment.to_dict(),
        "policies": _policies(names, deployment),
    }


def show_changes(changes: Sequence[Change], names: Names) -> None:
    """Print the steps of a plan."""
    columns = ("step", "what", "name", "why")
    print_rows(columns, changes, _where(names), left=columns)


def show_policies(names: Names, deployment: Deployment) -> None:
    """Print the policies of a deployment, and those for its users."""
    found = _policies(names, deployment)
    titles = {
        f"trust policy of the role {names.role}": found["role"]["trust"],
        f"rights of the role, and permissions boundary {names.boundary}, which an administrator makes": found[
            "boundary"
        ],
        "who may pull from the repository": found["repository"],
        "for whoever trains": found["trainer"],
        "for whoever deploys": found["deployer"],
    }
    for title, document in titles.items():
        click.echo(f"\n{title}:\n{json.dumps(document, indent=2)}")


def show_status(
    names: Names, function: DeployedFunction | None, stacks: Mapping[str, str | None], artefacts: int
) -> None:
    """Print the stacks and the function."""
    rows = [(f"stack {name}", status or "not there") for name, status in stacks.items()]
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
    if artefacts:
        rows.append(("artefacts", f"{artefacts} stages"))
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
