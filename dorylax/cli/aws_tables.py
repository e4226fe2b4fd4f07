"""Output of `dorylax aws`: plans, policies, states and sizes, as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from dorylax.terminal.output import print_table

if TYPE_CHECKING:
    from dorylax.serverless.deploy.found import Found
    from dorylax.serverless.deploy.image.root import RootSize
    from dorylax.serverless.deploy.names import Names
    from dorylax.serverless.deploy.plan import Action, Wanted


_SHOWN_BYTES = 10**6


def _policies(wanted: Wanted) -> dict[str, Any]:
    from dorylax.serverless.deploy import policies

    names, deployment = wanted.names, wanted.deployment
    vpc, artefacts = bool(deployment.subnets), deployment.location
    return {
        "boundary": policies.boundary_policy(names, vpc=vpc),
        "role": {"trust": policies.trust_policy()} | policies.role_policies(names, vpc=vpc),
        "repository": policies.repository_policy(names),
        "trainer": policies.trainer_policy(names, vpc=vpc, artefacts=artefacts),
        "deployer": policies.deployer_policy(
            names, subnets=deployment.subnets, security_groups=deployment.security_groups, artefacts=artefacts
        ),
    }


def plan_content(actions: Sequence[Action], wanted: Wanted) -> dict[str, Any]:
    """Return a plan and its policies as one object of plain values."""
    return {
        "schema": 1,
        "image": wanted.image,
        "name": wanted.names.name,
        "region": wanted.names.region,
        "account": wanted.names.account,
        "function": wanted.names.function_arn,
        "actions": [{"verb": a.verb, "kind": a.kind, "name": a.name, "reason": a.reason} for a in actions],
        "settings": wanted.deployment.to_dict(),
        "policies": _policies(wanted),
    }


def show_plan(actions: Sequence[Action], names: Names) -> None:
    """Print the steps of a plan."""
    table = _table("step", "what", "name", "why", title=_where(names))
    for action in actions:
        table.add_row(action.verb, action.kind, action.name, action.reason)
    print_table(table)


def show_policies(wanted: Wanted) -> None:
    """Print the policies of a deployment, and those for its users."""
    found = _policies(wanted)
    role = found.pop("role")
    titles = {
        "boundary": f"permissions boundary {wanted.names.boundary}, which an administrator makes",
        "repository": "who may pull from the repository",
        "trainer": "for whoever trains",
        "deployer": "for whoever deploys",
    }
    shown = {f"role {wanted.names.role}, {name}": document for name, document in role.items()}
    for title, document in (shown | {titles[name]: document for name, document in found.items()}).items():
        click.echo(f"\n{title}:\n{json.dumps(document, indent=2)}")


def show_status(names: Names, found: Found) -> None:
    """Print the existing resources."""
    table = _table("what", "state", title=_where(names))
    function = found.function
    if function is None:
        table.add_row("function", "not there")
    else:
        problem = f": {function.problem}" if function.problem else ""
        reserved = function.reserved_concurrency
        table.add_row("function", f"{function.state}, last update {function.update}{problem}")
        table.add_row("image", function.image)
        table.add_row("digest", function.digest or "–")
        table.add_row("memory", f"{function.memory_mb} MB, {function.architecture}")
        table.add_row("time-out", f"{function.timeout_seconds} s")
        table.add_row("VPC", ", ".join((*function.subnets, *function.security_groups)) or "none")
        table.add_row("concurrency", "none reserved" if reserved is None else f"{reserved} reserved")
        table.add_row("changed", function.modified)
    for name, there in (("role", found.role), ("log group", found.log_group)):
        table.add_row(name, "not there" if there is None else "there")
    images = "not there" if found.repository is None else f"there, {len(found.repository.images)} images"
    table.add_row("repository", images)
    if found.artefacts:
        table.add_row("artefacts", f"{found.artefacts} stages")
    if foreign := found.foreign(names):
        table.add_row("not of this deployment", ", ".join(foreign))
    print_table(table)


def show_size(size: RootSize, tag: str) -> None:
    """Print the contents of an image by size."""
    table = _table("what", "MB", title=f"image {tag}, without its base")
    for part, nbytes in size.parts.items():
        if nbytes >= _SHOWN_BYTES:
            table.add_row(part, f"{nbytes / 1e6:,.1f}")
    others = [nbytes for nbytes in size.parts.values() if nbytes < _SHOWN_BYTES]
    table.add_row(f"{len(others)} others", f"{sum(others) / 1e6:,.1f}")
    table.add_section()
    table.add_row(f"{size.files:,} files", f"{size.nbytes / 1e6:,.1f}")
    print_table(table)


def _where(names: Names) -> str:
    return f"{names.name} in {names.region}, account {names.account}"


def _table(*columns: str, title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column == "MB" else "left")
    return table
