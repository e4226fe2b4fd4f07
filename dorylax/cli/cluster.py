"""`dorylax cluster up | status | down`: a Ray cluster of several nodes on this machine."""

from __future__ import annotations

import datetime
from typing import Any

import click
from rich.table import Table

from dorylax.cli.commands import Commands
from dorylax.machine import cores
from dorylax.ray_cluster.local import Status
from dorylax.ray_cluster.local import down as end
from dorylax.ray_cluster.local import status as look
from dorylax.ray_cluster.local import up as start
from dorylax.terminal.output import print_json, print_table

_ANSWER_SECONDS = 30.0


@click.group(cls=Commands)
def cluster() -> None:
    """Start, inspect and end a Ray cluster of several nodes on this machine."""


@cluster.command()
@click.option("--nodes", metavar="N", type=click.IntRange(1, 64), default=2, help="Nodes beside the head [default: 2].")
@click.option(
    "--cpus-per-node",
    metavar="C",
    type=click.IntRange(min=1),
    help="CPUs that Ray counts on each node [default: this machine's cores, on each].",
)
@click.option(
    "--port", metavar="PORT", type=click.IntRange(1, 65535), help="Port of the head [default: any that is free]."
)
def up(*, nodes: int, cpus_per_node: int | None, port: int | None) -> None:
    """Start the cluster.

    It is a head without CPUs, and nodes, on the loopback interface. It stays until `dorylax cluster down`. If one runs
    already, the command says so and starts nothing.
    """
    address, started = start(nodes, cpus_per_node or cores(), port)
    if not started:
        click.echo(
            f"a cluster runs already, at {address}, and stays as it is: `dorylax cluster status` shows it, "
            "`dorylax cluster down` ends it"
        )
        return
    click.echo(f"a cluster of {nodes} node{'s' if nodes > 1 else ''} runs at {address}. Runs on this machine find it:")
    click.echo("  dorylax sweep --hosts ray")
    click.echo("  dorylax train --data communities --set pipeline.servers=4 --set pipeline.hosts=ray")
    click.echo("  dorylax cluster status")
    click.echo("  dorylax cluster down")


@cluster.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(*, as_json: bool) -> None:
    """Show address, nodes and connected runs."""
    found = look(_ANSWER_SECONDS)
    if as_json:
        print_json(_plain(found))
    elif found is None:
        click.echo("no cluster runs: start one with `dorylax cluster up`")
    else:
        _show(found)


@cluster.command()
def down() -> None:
    """End the cluster, with all that runs on it.

    What it has written is removed. Runs that were on it end with an error, and can be resumed. Nothing else is touched:
    not other clusters of Ray, nor those of other users. Also clears up after a cluster that was killed.
    """
    click.echo("the cluster has ended" if end() else "no cluster runs")


def _plain(found: Status | None) -> dict[str, Any]:
    if found is None:
        return {"schema": 1, "running": False, "address": None, "nodes": [], "jobs": []}
    nodes = [node._asdict() for node in found.nodes]
    jobs = [{**job._asdict(), "since": _time(job.since)} for job in found.jobs]
    return {"schema": 1, "running": True, "address": found.address, "nodes": nodes, "jobs": jobs}


def _show(found: Status) -> None:
    click.echo(f"address: {found.address}")
    table = Table()
    for name in ("node", "state", "CPUs", "in use", "process"):
        table.add_column(name, justify="left" if name in ("node", "state") else "right")
    for number, node in enumerate(found.nodes):
        name = "head" if node.head else str(number)
        state = "alive" if node.alive else "dead"
        table.add_row(name, state, f"{node.cpus:g}", f"{node.cpus_used:g}", str(node.process))
    print_table(table)
    for job in found.jobs:
        click.echo(f"process {job.process}, since {_time(job.since)}: {job.command}")
    if not found.jobs:
        click.echo("nothing is connected")


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
