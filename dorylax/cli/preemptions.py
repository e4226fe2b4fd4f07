"""`dorylax simulate --preemptions`: the time and dollars of recovery policies on preemptible hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dorylax.observers.progress import bar, dollars, duration
from dorylax.settings.errors import ConfigError
from dorylax.terminal.files import will_read
from dorylax.terminal.output import print_json, print_rows

if TYPE_CHECKING:
    from dorylax.simulation.preemption_traces import PreemptionTrace

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)
_STARTS = 20
"""Starts within a trace, by default."""


def replay_policies(
    *,
    name: str,
    preemptions: Sequence[str],
    policy: str,
    backend: Literal["cpu", "gpu"],
    hosts: int | None,
    starts: int | None,
    epochs: int | None,
    costs: Mapping[str, float],
    as_json: bool,
) -> None:
    """Replay traces under policies, and print a table; arguments are those of `dorylax simulate`.

    Raises:
        ConfigError: A trace or an option is wrong.
        ScenarioError: The scenario does not fit its servers even without preemptions.
    """
    from dorylax.pipeline.recovery.catalogue import POLICIES
    from dorylax.simulation.preemption import Costs, EpochTimes, on_demand, replay, table_row
    from dorylax.simulation.scenario import ScenarioError
    from dorylax.simulation.settings import load

    scenario = load(name).on(backend)
    will_read(*scenario.config.dotted().values())
    servers = scenario.pipeline.servers
    hosts = servers if hosts is None else hosts
    if hosts > servers:
        raise ConfigError(f"--hosts must be ≤ {servers}, the graph servers of the scenario, got {hosts}")
    traces = [_trace(one, hosts, scenario.config.train.seed) for one in preemptions]
    times = EpochTimes(scenario, epochs)
    base = on_demand(times, hosts)
    policies = list(POLICIES) if policy == "all" else [policy]
    starts = starts or _STARTS
    rows = list[dict[str, Any]]()
    with bar(scenario.name) as progress:
        for trace in traces:
            for one in policies:
                progress(len(rows), len(traces) * len(policies), f"{trace.name}, {one}")
                row: dict[str, Any] = {"preemptions": trace.name, "policy": one}
                length = trace.changes[-1].seconds
                try:
                    runs = [
                        replay(trace, start * length / starts, one, times, hosts=hosts, costs=Costs(**costs))
                        for start in range(starts)
                    ]
                    row |= table_row(runs)
                except ScenarioError as error:
                    row["reason"] = str(error)
                rows.append(row)
    if as_json:
        basis = {"seconds": base.seconds, "dollars": base.dollars, "throughput": base.rate}
        print_json({"schema": 1, "scenario": scenario.name, "hosts": hosts, "on_demand": basis, "rows": rows})
        return
    columns = ("preemptions", "policy", "time", "cost", "of on demand", "liveput", "wasted epochs")
    throughput = f"{base.rate:,.0f} epochs/h"
    cells = [["–", "on demand", duration(base.seconds), dollars(base.dollars), "1.00", throughput, "0"]]
    for row in rows:
        if "reason" in row:
            cells.append([row["preemptions"], row["policy"], *["–"] * 5])
            continue
        unfinished = row["replays"] - row["finished"]
        (seconds, wide), (cost, more) = row["seconds"], row["dollars"]
        cells.append(
            [
                row["preemptions"],
                row["policy"] + (f" ({unfinished} never ended)" if unfinished else ""),
                f"{duration(seconds)} ± {duration(wide)}" if starts > 1 else duration(seconds),
                f"{dollars(cost)} ± {dollars(more)}" if starts > 1 else dollars(cost),
                f"{cost / base.dollars:.2f}",
                f"{row['liveput'][0]:,.0f} epochs/h",
                f"{row['wasted'][0]:,.1f}",
            ]
        )
    title = f"{scenario.name}: {base.epochs} epochs on {hosts} hosts, {starts} starts per trace, 95 % intervals"
    print_rows(columns, cells, title, left=columns[:2])
    for row in rows:
        if "reason" in row:
            click.echo(f"{row['preemptions']}, {row['policy']}: {row['reason']}")
    for trace in traces:
        known = [row for row in rows if row["preemptions"] == trace.name and row.get("finished") == starts]
        if known:
            best = min(known, key=lambda row: row["dollars"][0])
            click.echo(f"{trace.name}: the cheapest policy is {best['policy']}")


def _trace(given: str, hosts: int, seed: int) -> PreemptionTrace:
    from dorylax.simulation.preemption_traces import read_trace, synthetic_trace

    if (match := _RATE.fullmatch(given)) is not None:
        return synthetic_trace(hosts, float(match[1]) / 100, seed=seed)
    if not given.endswith(".csv"):
        raise ConfigError(f"--preemptions must be a rate such as 10% or a trace FILE.csv, got {given!r}")
    return read_trace(Path(given)).scaled(hosts)
