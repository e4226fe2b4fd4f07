"""`dorylax simulate`: time and dollars of a run on machines that are not rented."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dorylax.cli.preemptions import replay_policies
from dorylax.cli.what_if import search_grid
from dorylax.memory.process_limits import check_process
from dorylax.observers.progress import bar
from dorylax.settings.errors import ConfigError
from dorylax.store.durable import write_file
from dorylax.terminal.files import OUTPUT, will_read
from dorylax.terminal.options import COUNT, json_option, option
from dorylax.terminal.output import percent, print_json, print_rows

if TYPE_CHECKING:
    from dorylax.simulation.result import Simulated
    from dorylax.simulation.scenario import Backend, Scenario

_TABLES_3_4 = "paper/tables34"
_COMPARISONS = ("paper/naive-serverless", "paper/burst-instances", "paper/sampled")
_BACKENDS: tuple[Backend, ...] = ("functions", "cpu", "gpu")
_SHOWN_TASKS = 12
_COMPARED_EPOCHS = 3
_TOLD = 2000
"""Tasks between two updates of the progress line."""


@click.command()
@option(
    "--scenario FILE.yaml|NAME",
    f"What to simulate: a file (docs/simulation.md), or one of {', '.join((_TABLES_3_4, *_COMPARISONS))}.",
    name="name",
    required=True,
)
@option(
    "--backend",
    "Servers and functions, CPU servers alone, or GPU servers alone; repeatable. [default: all; functions for --trace]",
    name="backends",
    type=click.Choice(_BACKENDS),
    multiple=True,
)
@option(
    "--epochs N",
    "How many epochs to simulate at most.  [default: until the run has settled, and a few more]",
    type=COUNT,
)
@option(
    "--trace FILE.json",
    "Also write a timeline for Perfetto. A FILE.csv is read instead, as by --preemptions.",
    type=OUTPUT,
)
@option(
    "--preemptions FILE.csv|RATE%",
    "Replay preemptions of hosts: a trace with lines `milliseconds,add|remove,node`, or the share of the hosts that "
    "vanish in an hour, such as 10%; repeatable (docs/spot.md).",
    multiple=True,
)
@option(
    "--policy NAME",
    "Recovery policy of --preemptions.  [default: all]",
    type=click.Choice(("restart", "rerun", "reroute", "shadow", "all")),
)
@option("--hosts N", "Hosts of --preemptions, at most one per graph server.  [default: the graph servers]", type=COUNT)
@option("--starts N", "Starts within each trace of --preemptions.  [default: 20]", type=COUNT)
@option("--notice SECONDS", "Notice before a preemption.  [default: 120; 0: none]", type=click.FloatRange(0))
@option(
    "--what-if AXES",
    "Try all of these, such as servers=4..64,functions=10|40,backend=functions|cpu, and show the Pareto front of time "
    "and dollars (docs/simulation.md).",
    name="grid",
)
@option("--budget USD", "Of a what-if pick the fastest within it, such as 5usd.")
@option(
    "--deadline TIME", "Of a what-if pick the cheapest within it, such as 90min; with a budget too, the best by value."
)
@option("--points N", "Points of a what-if at most.  [default: 100]", type=COUNT)
@option(
    "--jobs N", "Processes that simulate points of a what-if at a time.  [default: the cores, 4 at most]", type=COUNT
)
@option("--csv FILE.csv", "Write a what-if's points as a table.", type=OUTPUT)
@option("--report FILE.html", "Write a what-if's page.", type=OUTPUT)
@json_option
def simulate(
    *,
    name: str,
    backends: tuple[Backend, ...],
    epochs: int | None,
    trace: Path | None,
    preemptions: tuple[str, ...],
    policy: str | None,
    hosts: int | None,
    starts: int | None,
    notice: float | None,
    grid: str | None,
    as_json: bool,
    **choice: Any,
) -> None:
    """Estimate the time and cost of a run on a cluster.

    The engine runs in virtual time on arrays without numbers, so it computes and trains nothing. Epochs that are not
    simulated take the time of those that are, without the first.
    """
    will_read(name)
    if trace is not None and trace.suffix == ".csv":
        preemptions, trace = (*preemptions, str(trace)), None
    of_replay = {"policy": policy, "hosts": hosts, "starts": starts, "notice": notice}
    if given := [key for key, value in of_replay.items() if value is not None and not preemptions]:
        raise ConfigError(f"--{given[0]} needs --preemptions, a trace or a rate such as 10%")
    if grid is None and (given := [key for key, value in choice.items() if value is not None]):
        raise ConfigError(f"--{given[0]} needs --what-if, which says what to choose from")
    if preemptions:
        if grid is not None or trace is not None or len(backends) > 1 or backends == ("functions",):
            raise ConfigError("--preemptions takes --backend cpu or gpu, without --what-if and a timeline")
        if name == _TABLES_3_4 or name in _COMPARISONS:
            raise ConfigError(f"{name} has its own clusters: give --preemptions a scenario of yours")
        replay_policies(
            name=name,
            preemptions=preemptions,
            policy=policy or "all",
            backend="gpu" if backends == ("gpu",) else "cpu",
            hosts=hosts,
            starts=starts,
            epochs=epochs,
            costs={} if notice is None else {"notice": notice},
            as_json=as_json,
        )
        return
    if (name == _TABLES_3_4 or name in _COMPARISONS) and (backends or trace is not None):
        raise ConfigError(f"{name} has its own backends and no timeline: leave out --backend and --trace")
    if trace is not None and len(backends) > 1:
        raise ConfigError("--trace is of one run: give one --backend")

    if grid is not None and name == _TABLES_3_4:
        raise ConfigError(f"{_TABLES_3_4} has its own clusters: give --what-if a scenario of yours")
    if grid is not None and (backends or trace is not None):
        raise ConfigError(
            "--backend is an axis of --what-if: give it backend=functions|cpu"
            if backends
            else "--trace is of one run: leave out --what-if"
        )

    check_process()

    if grid is not None:
        search_grid(name=name, grid=grid, epochs=epochs, as_json=as_json, **choice)
        return

    from dorylax.simulation.settings import load

    if name == _TABLES_3_4:
        from dorylax.simulation.paper import TABLES_3_4, content

        cells = [content(row, *_on_backends(row.scenario, _BACKENDS, epochs)) for row in TABLES_3_4]
        if as_json:
            print_json({"schema": 1, "rows": cells})
        else:
            _show_cells(cells)
        return
    if name in _COMPARISONS:
        _compare(name, epochs or _COMPARED_EPOCHS, as_json=as_json)
        return
    scenario = load(name)
    will_read(*scenario.config.dotted().values())
    chosen = backends or (_BACKENDS if trace is None else _BACKENDS[:1])
    found, refused = _on_backends(scenario.on, chosen, epochs, trace)
    if not found:
        raise ConfigError("; ".join(f"{scenario.name} on {backend}: {why}" for backend, why in refused.items()))
    from dorylax.simulation.result import finding

    said = finding(list(found.values()))
    if as_json:
        every = [one.to_dict() for one in found.values()]
        print_json({"schema": 1, "scenarios": every, "refused": refused, "finding": said})
        return
    _show(scenario.name, list(found.values()))
    for backend, why in refused.items():
        click.echo(f"{backend} cannot be: {why}")
    if any(one.cluster.functions and not one.bill.requests for one in found.values()):
        click.echo("functions: no stage runs on a function (tensor.placement)")
    if assumptions := scenario.assumptions():
        click.echo(f"assumptions: {assumptions}")
    click.echo(said)


def _on_backends(
    make: Callable[[Backend], Scenario], backends: Sequence[Backend], epochs: int | None, trace: Path | None = None
) -> tuple[dict[Backend, Simulated], dict[str, str]]:
    """Return the results of the possible backends, and the reasons against the others."""
    from dorylax.simulation.scenario import ScenarioError

    found: dict[Backend, Simulated] = {}
    refused: dict[str, str] = {}
    for backend in backends:
        try:
            found[backend] = _simulated(make(backend), epochs, trace)
        except ScenarioError as error:
            refused[backend] = str(error)
    return found, refused


def _simulated(scenario: Scenario, epochs: int | None, trace: Path | None) -> Simulated:
    from dorylax.pipeline.timeline import Lanes, Span
    from dorylax.simulation.run import settling
    from dorylax.simulation.run import simulate as run

    total = min(settling(scenario.pipeline) + 2 if epochs is None else epochs, scenario.config.train.epochs)
    lanes, events = Lanes(), list[dict[str, Any]]()
    done = tasks = before = each = 0  # epochs, tasks, tasks of finished epochs, tasks of the last epoch
    with bar(f"{scenario.name} on {scenario.backend}") as progress:
        progress(0, total, "preparing …")

        def seen(span: Span) -> None:
            nonlocal tasks
            tasks += 1
            if tasks % _TOLD == 0:
                share = min(0.99, (tasks - before) / each) if each else 0.0
                progress(done + share, total, f"epoch {min(done + 1, total)}/{total}  {tasks:,} tasks")
            if trace is not None:
                events.extend(lanes.events(span))

        def finished(epoch: int) -> None:
            nonlocal done, before, each
            done, before, each = epoch, tasks, tasks - before
            progress(done, total, f"epoch {done}/{total}  {tasks:,} tasks")

        found = run(scenario, epochs=total, trace=seen, on_epoch=finished)
    if trace is not None:
        write_file(trace, json.dumps({"traceEvents": events}).encode())
    return found


def _show(title: str, found: Sequence[Simulated]) -> None:
    columns = ("an epoch", "in all", "functions", "graph servers", "parameter servers", "dollars", "value", "busy")
    rows = []
    for one in found:
        bill, busy = one.bill, one.utilisation
        dollars = (bill.function_time + bill.function_requests, bill.graph_servers, bill.parameter_servers, bill.total)
        cells = [one.backend, one.cluster.graph_server.name, f"{one.epoch:.3g} s", f"{one.seconds:,.1f} s"]
        cells += [f"{amount:.4f}" for amount in dollars]
        cells.append("–" if one.value is None else f"{one.value:.3g}")
        shares = {"graph": busy.graph_servers, "functions": busy.functions}
        shares |= {"parameters": busy.parameter_servers, "network": busy.network}
        rows.append([*cells, ", ".join(f"{percent(share)} {name}" for name, share in shares.items())])
    first, left = found[0], ("backend", "graph server")
    title = f"{title}: {first.total_epochs} epochs on {first.servers} servers, prices of {first.cluster.prices_as_of}"
    print_rows((*left, *columns), rows, title, left=left)
    of_tasks = ("task", "by", "how many", "seconds each", "seconds together")
    for one in found:
        tasks = [
            (task.name, task.resource, f"{task.number:,}", f"{task.seconds / task.number:.3g}", f"{task.seconds:,.1f}")
            for task in one.tasks[:_SHOWN_TASKS]
        ]
        print_rows(of_tasks, tasks, f"tasks of {len(one.epochs)} epochs on {one.backend}", left=of_tasks[:2])


def _show_cells(contents: Sequence[Mapping[str, Any]]) -> None:
    """Show all cells of tables 3 and 4 next to the published ones."""
    ratios, epochs = list[list[str]](), list[list[str]]()
    right = dict.fromkeys(_BACKENDS[1:], 0)
    for content in contents:
        ratios.append([content["row"]])
        for other in right:
            published, found = content["relative"][other].values()
            for name in ("time", "value"):
                ratios[-1].append(f"{published[name]:.2f}, {'–' if found is None else f'{found[name]:.2f}'}")
            right[other] += found is not None and (found["value"] > 1) == (published["value"] > 1)
        epochs.append([content["row"]])
        for cell in content["cells"].values():
            simulated, equal = cell["simulated"], cell["epochs_if_equal"]
            epochs[-1].append("–" if simulated is None else f"{simulated['epoch_seconds']:.3g} s × {equal:.0f}")
    title = "Dorylus, tables 3 and 4: time T and value V on functions, relative to servers alone (published, simulated)"
    print_rows(("row", "T CPU", "V CPU", "T GPU", "V GPU"), ratios, title)
    title = "simulated epoch × epochs that would take the published time"
    print_rows(("row", "functions", "CPU", "GPU"), epochs, title)
    for content in contents:
        for backend, reason in content["missing"].items():
            click.echo(f"{content['row']} on {backend} was not simulated: {reason}")
    counts = " and ".join(f"against {other.upper()} servers in {count}" for other, count in right.items())
    click.echo(f"Functions win or lose by value as published: {counts} of {len(contents)} rows.")


def _compare(name: str, epochs: int, *, as_json: bool) -> None:
    """Show two ways of training, with the published ratio of the two."""
    from dorylax.simulation.comparisons import COMPARISONS, content
    from dorylax.simulation.paper import dollars_of_paper

    comparison = COMPARISONS[name]
    sides = (comparison.one, comparison.other)
    rows: list[tuple[str, Simulated, Simulated]] = []
    for scenario in comparison.scenarios():
        found = []
        for side in sides:
            with bar(f"{scenario.name}, {side.name}") as progress:

                def told(done: int, progress: Any = progress) -> None:
                    progress(done, epochs, f"epoch {done}/{epochs}")

                found.append(side.simulate(scenario, epochs=epochs, on_epoch=told))
        rows.append((scenario.name, found[0], found[1]))
    if as_json:
        print_json({"schema": 1, **content(comparison, rows)})
        return
    # Dollars are shown only if the comparison measures them: otherwise the sides may need different numbers of epochs.
    billed = comparison.measure == "dollars"
    shown = ("an epoch", "dollars") if billed else ("an epoch",)
    ratio = {"epoch_seconds": "time of an epoch, ×", "dollars": "dollars, ×"}[comparison.measure]
    columns = ["row", *(f"{quantity}, {side.name}" for quantity in shown for side in sides), ratio, "published"]
    cells = []
    for row, *both in rows:
        numbers = [f"{one.epoch:.3g} s" for one in both]
        numbers += [f"{dollars_of_paper(one):.4f}" for one in both] if billed else []
        cells.append([row, *numbers, f"{comparison.ratio(*both):.2f}", f"{comparison.published:g}"])
    print_rows(columns, cells, f"{name}: {comparison.title}")
    if comparison.note:
        click.echo(comparison.note)
