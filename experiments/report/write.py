"""Builds a sweep's report from the files of its runs: report.html, report.md and figures/."""

from __future__ import annotations

import contextlib
import shlex
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dorylax.experiments.analysis import Group, RunHistory, Variant, analyse
from dorylax.experiments.answer import answer, answer_of_simulated
from dorylax.experiments.confounding import confounders
from dorylax.experiments.folder import Study
from dorylax.experiments.outcome import RunOutcome, of_part
from dorylax.experiments.pooling import pool_of, pools
from dorylax.experiments.report import figures
from dorylax.experiments.report.curves import accuracy_figures
from dorylax.experiments.report.figures import NamedFigure
from dorylax.experiments.report.inside import breakdown_figure, staleness_figure, timeline_figure
from dorylax.experiments.report.losses import losses_table
from dorylax.experiments.report.overview import overview_figure
from dorylax.experiments.report.page import WIDE, Report, Section, render
from dorylax.experiments.report.ratios import ratio_figure, value_figure
from dorylax.experiments.report.servers import Loads, server_figure, server_tables
from dorylax.experiments.report.simulated import simulated_section
from dorylax.experiments.report.tables import (
    accuracy_table,
    comparison_table,
    markdown,
    pooled_accuracy_table,
    pooled_table,
    results_table,
    settings_table,
)
from dorylax.experiments.report.timeline import TimelineTask, one_epoch, read_trace, task_seconds, traced_epochs
from dorylax.experiments.runner import directory
from dorylax.experiments.sentences import capitalised, sentences
from dorylax.experiments.simulated_analysis import analyse_simulated
from dorylax.experiments.sweep import CONFIGS, SEED, Comparison, Run, Sweep
from dorylax.settings.strict_yaml import dump
from dorylax.store import metrics, servers
from dorylax.store.durable import make_folder, write_file, write_folder
from dorylax.store.run_directory import RunDirectory, RunDirectoryError, RunDirectoryWarning

_HOST = ("dorylax", "python", "machine", "cpu_count", "platform")
_TIMELINES = 4  # of variants in one figure; more are hard to compare


def write_report(studies: Sequence[Study], folder: Path) -> Path:
    """Write the report of one sweep, or of several together.

    Args:
        studies: The sweeps.
        folder: Folder for report.html, report.md and figures/.

    Returns:
        The path of report.html.
    """
    answers: list[str] = []
    overviews: list[Section] = []
    sections: list[Section] = []
    given, studies = studies, [part for study in studies for part in _parts(study)]
    for study in studies:
        asked = study.sweep.description if study not in given else ""
        several, comparison = len(studies) > 1, study.sweep.comparison
        whose = f"{study.sweep.name}: " * several
        if study.sweep.simulated:
            groups_of_simulations = analyse_simulated(study.sweep, study.outcomes)
            if comparison is not None:
                answers.append(whose + answer_of_simulated(groups_of_simulations, comparison))
            for simulated in groups_of_simulations:
                title = " ".join([study.sweep.name] * several + [simulated.name]).strip()
                alone = len(groups_of_simulations) * len(studies) == 1
                sections.append(simulated_section(title, simulated, "" if alone else f"{len(sections)}-", asked))
            continue
        done = [_history(study, one) for one in study.outcomes if one.status == "done"]
        groups = analyse(study.sweep, done)
        if comparison is not None:
            answers.append(whose + answer(groups, comparison))
            overviews += _overview(groups, comparison, study.sweep.name * several, f"all-{len(overviews)}-" * several)
        for group in groups:
            title = " ".join([study.sweep.name] * several + [group.name]).strip()
            number = len(sections) if len(groups) * len(studies) > 1 else None
            sections.append(_section(title, group, study, number, asked))
    studies = given
    outcomes = [one for study in studies for one in study.outcomes]
    sections = overviews + sections
    report = Report(
        title=" + ".join(study.sweep.name for study in studies),
        answers=answers,
        description=" ".join(study.sweep.description for study in studies),
        state=_state(outcomes),
        failures=[(one.run.label, one.error or "") for one in outcomes if one.status == "failed"],
        warnings=list(dict.fromkeys(line for study in studies for line in confounders(study.sweep))),
        sections=sections,
        commands=[f"dorylax sweep {_argument(study.sweep)}" for study in studies],
        files=[file for study in studies for file in _files(study.sweep)],
        environment=_environment(outcomes),
    )
    make_folder(folder)
    write_folder(folder / "figures", lambda images: _draw(sections, images))
    write_file(folder / "report.md", _markdown(report))
    path = folder / "report.html"
    write_file(path, render(report))
    return path


def _overview(groups: Sequence[Group], comparison: Comparison, whose: str, prefix: str) -> list[Section]:
    """Sections with the pooled results of several groups: over all, and over groups that differ in an averaged setting."""
    whole = pool_of(groups)
    if whole is None or not any(one.reached or one.baseline_reached for one in whole.variants):
        return []
    figure = overview_figure(groups, whole, comparison.asks, prefix)
    tables = []
    for pool in [whole, *(pool for pool in pools(groups, comparison.over) if pool.groups != whole.groups)]:
        of = f" ({pool.name})" * bool(pool.name)
        tables.append((f"To the target, mean over groups{of}", pooled_table(pool)))
        tables.append((f"{capitalised(pool.metric.title)}, mean over groups{of}", pooled_accuracy_table(pool)))
    if (differing := settings_table([(group.name, group.common) for group in groups], "group")) is not None:
        tables.append(("The groups", differing))
    return [Section(f"All groups{f' of {whose}' if whose else ''}", [], tables, [figure] if figure else [])]


def _parts(study: Study) -> list[Study]:
    """The parts of a combined sweep, each as a study; a plain sweep is its only part."""
    if not study.sweep.parts:
        return [study]
    by_key = {outcome.run.key: outcome for outcome in study.outcomes}
    return [Study(part, of_part(part, by_key), study.folder) for part in study.sweep.parts]


def _draw(sections: Sequence[Section], images: Path) -> None:
    for section in sections:
        for figure in section.figures:
            write_file(images / f"{figure.name}.svg", figures.svg(figure.draw, WIDE))
            write_file(images / f"{figure.name}.png", figures.png(figure.draw, WIDE))


def _files(sweep: Sweep) -> list[tuple[str, str]]:
    """The sweep's file, and its first run's configuration including values from recipes and defaults."""
    first = sweep.runs[0]
    return [
        (f"The sweep: {sweep.name}.yaml", sweep.text),
        (f"Its first run ({first.label}), with all defaults", dump(_nested(first))),
    ]


def _nested(run: Run) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for key, value in run.dotted().items():
        section, _, option = key.partition(".")
        found.setdefault(section, {})[option] = value
    return found


def _argument(sweep: Sweep) -> str:
    """Argument of `dorylax sweep`: the name of a shipped sweep, else the name of its file."""
    path = CONFIGS / f"{sweep.name}.yaml"
    ships = path.is_file() and path.read_text(encoding="utf-8") == sweep.text
    return sweep.name if ships else shlex.quote(f"{sweep.name}.yaml")


def _history(study: Study, outcome: RunOutcome) -> RunHistory:
    path = directory(study.folder, outcome.run)
    return RunHistory(outcome.run, metrics.of_run(RunDirectory.open(path)), outcome.summary)


def _section(title: str, group: Group, study: Study, number: int | None, asked: str) -> Section:
    prefix = "" if number is None else f"{number}-"
    compared = [("To the target", comparison_table(group)), (capitalised(group.metric.title), accuracy_table(group))]
    tables = [(name, table) for name, table in compared if table is not None]
    tables.append(("Results", results_table(group)))
    loads = _loads(group, study.folder)
    tables += server_tables(loads)
    if (lost := losses_table(group)) is not None:
        tables.append(("Losses", lost))
    if (differing := settings_table(_configurations(group, study.sweep), "variant")) is not None:
        tables.append(("In what they differ", differing))
    shown: list[NamedFigure | None] = []
    if any(variant.runs for variant in group.variants):
        shown += accuracy_figures(group, prefix)
        shown += [ratio_figure(group, prefix), value_figure(group, prefix)]
        shown.append(staleness_figure(group, prefix))
        shown.append(server_figure(loads, prefix))
        shown += _trace_figures(group, study.folder, prefix)
    found = [*[asked] * bool(asked), *sentences(group)]
    return Section(title, found, tables, [figure for figure in shown if figure is not None])


def _configurations(group: Group, sweep: Sweep) -> list[tuple[str, dict[str, Any]]]:
    """Full configuration of each variant, including recipes and defaults, without the seed."""
    first = {tuple(run.setting.items()): run for run in reversed(sweep.runs)}
    return [
        (one.name, {key: value for key, value in first[tuple(one.setting.items())].dotted().items() if key != SEED})
        for one in group.variants
    ]


def _loads(group: Group, folder: Path) -> dict[str, Loads]:
    """Server loads of each variant, from its first run, if that run has a file of them."""
    found = {}
    for variant, left in _first_runs(group, folder):
        if not left.servers_path.is_file():
            continue
        with _warned():
            loads = Loads.of(variant.runs[0], servers.read(left.servers_path))
            if loads is not None:
                found[variant.name] = loads
    return found


def _trace_figures(group: Group, folder: Path, prefix: str) -> list[NamedFigure | None]:
    """Timelines and time breakdown of the variants, from each one's first run, if that run has a trace."""
    timelines: dict[str, list[TimelineTask]] = {}
    seconds: dict[str, dict[str, float]] = {}
    samples: dict[str, tuple[int, int]] = {}
    for variant, left in _first_runs(group, folder):
        trace = None
        with _warned():
            trace = read_trace(left.trace_path)
        if trace is None:
            continue
        seconds[variant.name] = task_seconds(trace)
        if (traced := traced_epochs(trace)) < (trained := variant.runs[0].summary["epochs"]):
            samples[variant.name] = traced, trained
        if len(timelines) < _TIMELINES:
            timelines[variant.name] = one_epoch(trace)
    return [timeline_figure(timelines, prefix, samples), breakdown_figure(seconds, prefix, samples)]


def _first_runs(group: Group, folder: Path) -> list[tuple[Variant, RunDirectory]]:
    """Run directory of each variant's first completed run."""
    return [
        (variant, RunDirectory.open(directory(folder, variant.runs[0].run)))
        for variant in group.variants
        if variant.runs
    ]


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    """Warn about a damaged or unreadable optional file, instead of failing the report."""
    try:
        yield
    except RunDirectoryError as error:
        warnings.warn(f"{error}; the report goes without it", RunDirectoryWarning, stacklevel=3)


def _environment(outcomes: Sequence[RunOutcome]) -> list[tuple[str, str]]:
    """Seeds, dates, and host details of the runs; differing values are all listed."""
    done = [one for one in outcomes if one.status == "done"]
    seeds = sorted({one.run.config.train.seed for one in outcomes})
    rows = [("seeds", ", ".join(map(str, seeds)))]
    dates = sorted({str(one.environment["started"])[:10] for one in done if one.environment.get("started")})
    if dates:
        rows.append(("date", dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"))
    for name in _HOST:
        rows.append((name, _all_of(one.environment.get(name) for one in done)))
    packages = [found for one in done if isinstance(found := one.environment.get("packages"), dict)]
    for name in dict.fromkeys(name for one in packages for name in one):
        rows.append((name, _all_of(one.get(name) for one in packages)))
    return [(name, value) for name, value in rows if value]


def _all_of(values: Iterable[Any]) -> str:
    return "; ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _state(outcomes: Sequence[RunOutcome]) -> str:
    counts = {status: sum(one.status == status for one in outcomes) for status in ("done", "failed", "open")}
    text = f"{counts['done']} of {len(outcomes)} runs done"
    if counts["failed"]:
        text += f", {counts['failed']} failed"
    if counts["open"]:
        text += f", {counts['open']} to do: what follows rests on those that are done"
    if all(one.run.simulation is not None for one in outcomes):
        return text + ". Nothing was trained: times and costs are simulated, and the same wherever it runs."
    virtual = all(one.run.virtual for one in outcomes)
    return text + (". Times are virtual: simulated, and the same wherever it runs." if virtual else ".")


def _markdown(report: Report) -> str:
    lines = [f"# {report.title}", ""]
    for answered in report.answers:
        lines += [answered, ""]
    if report.description:
        lines += [report.description, ""]
    lines += [report.state, ""]
    lines += [f"- **Warning:** {one}" for one in report.warnings] + ([""] if report.warnings else [])
    for section in report.sections:
        if section.title:
            lines += [f"## {section.title}", ""]
        lines += [f"- {one}" for one in section.sentences] + ([""] if section.sentences else [])
        for title, table in section.tables:
            lines += [f"### {title}", "", markdown(table), ""]
        lines += [f"![{figure.title}](figures/{figure.name}.png)\n" for figure in section.figures]
    lines += ["## Run it again", "", "```", *report.commands, "```", ""]
    lines += ["## What it ran on", "", *(f"- {name}: {value}" for name, value in report.environment), ""]
    return "\n".join(lines)
