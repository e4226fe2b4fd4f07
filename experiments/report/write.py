"""Builds a report from the files of one or more sweeps: the answer on top, then the details of each group."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Finding, Group, Variant, analyse, pool
from dorylax.experiments.confounding import confounders
from dorylax.experiments.folder import Study, parts_of
from dorylax.experiments.measures import MEASURES, QUESTIONS, RATIO
from dorylax.experiments.names import short_name
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.report.charts import Mark, Panel, accuracy_figure, forest
from dorylax.experiments.report.figures import NamedFigure, legend, logarithmic, one_axes
from dorylax.experiments.report.inside import breakdown_figure, staleness_figure, timeline_figure
from dorylax.experiments.report.page import Report, Section, write_pages
from dorylax.experiments.report.servers import Loads, server_tables
from dorylax.experiments.report.tables import (
    Table,
    group_verdicts,
    losses_table,
    results_table,
    settings_table,
    target_table,
    verdict_table,
)
from dorylax.experiments.report.timeline import TimelineTask, one_epoch, read_trace, task_seconds, traced_epochs
from dorylax.experiments.runner import directory
from dorylax.experiments.seed_statistics import Interval
from dorylax.experiments.sweep import CONFIGS, SEED, Sweep
from dorylax.experiments.verdicts import WITHIN, Analysed, answer, answers, published_pairs
from dorylax.figure_style import INK, MUTED, PANEL, series
from dorylax.runs import servers
from dorylax.runs.directory import RunDirectory, RunDirectoryError, RunDirectoryWarning
from dorylax.settings.strict_yaml import dump

_HOST = ("dorylax", "python", "machine", "cpu_count", "platform")
_TIMELINES = 4  # variants in one figure


def write_report(studies: Sequence[Study], folder: Path) -> Path:
    """Write the report of one sweep, or of several together.

    Args:
        studies: The sweeps.
        folder: Folder for report.html, report.md and figures/.

    Returns:
        The path of report.html.
    """
    parts = [part for study in studies for part in parts_of(study)]
    analysed = [(part, analyse(part)) for part in parts]
    found, top = _top(analysed)
    sections = [
        section
        for number, (part, groups) in enumerate(analysed)
        for section in _sections(part, groups, f"{number}-" * (len(analysed) > 1), several=len(analysed) > 1)
    ]
    outcomes = [one for study in studies for one in study.outcomes]
    report = Report(
        title=" + ".join(study.sweep.title or study.sweep.name for study in studies),
        question=" ".join(study.sweep.question for study in studies).strip(),
        answers=found,
        top=top,
        description=" ".join(study.sweep.description for study in studies).strip(),
        state=_state(outcomes),
        sections=sections,
        commands=[command(study) for study in studies],
        files=[file for study in studies for file in _files(study.sweep)],
        environment=_environment(outcomes),
        failures=[(one.run.label, one.error or "") for one in outcomes if one.status == "failed"],
        warnings=list(dict.fromkeys(line for study in studies for line in confounders(study.sweep))),
    )
    return write_pages(report, folder)


def _top(analysed: Analysed) -> tuple[list[str], Section]:
    """The answers, with the figure and the table that support them."""
    found = answers(analysed)
    pairs = {
        study.sweep.title or study.sweep.name: pairs for study, groups in analysed if (pairs := published_pairs(groups))
    }
    if pairs and (len(analysed) > 1 or analysed[0][0].sweep.simulated):
        return found, Section(figures=[_agreement_figure(pairs)], tables=[_agreement_table(analysed)])
    figures: list[NamedFigure] = []
    tables: list[Table] = []
    for number, (study, groups) in enumerate(analysed):
        several, comparison = len(analysed) > 1, study.sweep.comparison
        compared = [group for group in groups if group.findings]
        figure = _answer_figure(study, groups, compared, f"{number}-" * several)
        figures += [figure] if figure is not None and not figures else []
        findings = pool(compared) or (compared[0].findings if compared else [])
        if comparison is not None and any(one.compared for one in findings):
            title = (study.sweep.title or study.sweep.name) if several else ""
            virtual = all(run.virtual for run in study.sweep.runs)
            tables.append(verdict_table(title, compared, findings, comparison.asks, virtual=virtual))
    return found, Section(figures=figures, tables=tables)


def _answer_figure(study: Study, groups: Sequence[Group], compared: Sequence[Group], prefix: str) -> NamedFigure | None:
    """Accuracy against time with the target; of several groups and of simulations the ratios that are asked about."""
    comparison = study.sweep.comparison
    if len(compared) > 1 and comparison is not None:
        return _overview(compared, pool(compared), comparison.asks, f"{prefix}overview")
    group = compared[0] if compared else groups[0]
    if group.simulated:
        return _ratio_figure(group, f"{prefix}ratios")
    return accuracy_figure(group, "time", prefix, 0.42)


def _overview(groups: Sequence[Group], pooled: Sequence[Finding], asks: str, name: str) -> NamedFigure | None:
    """The answer in each group and on the mean, a panel per variant."""
    rows = [*(group.name for group in groups), *["mean over groups"] * bool(pooled)]
    measure = QUESTIONS[asks].of(simulated=groups[0].simulated)
    panels = []
    for place, variant in enumerate(dict.fromkeys(one.name for group in groups for one in group.findings)):
        marks = []
        for group in groups:
            found = next((one for one in group.findings if one.name == variant), None)
            each = next((one for one in group.variants if one.name == variant), None)
            theirs = None if each is None else group.published_ratio(each, measure)
            marks.append(_mark(found, asks, measure, series(1 + place), theirs))
        marks += [_mark(one, asks, measure, INK.light)._replace(bold=True) for one in pooled if one.name == variant]
        panels.append(Panel(variant, marks, 0.0 if asks == "accuracy" else 1.0))
    unit = "points of test accuracy" if asks == "accuracy" else f"{QUESTIONS[asks].noun}, ×"
    source = groups[0].source if any(group.published for group in groups) else None
    return forest(name, f"In each group: {unit}, relative to the baseline", panels, rows, source=source)


def _mark(found: Finding | None, asks: str, measure: str, color: str, theirs: float | None = None) -> Mark:
    if found is None or not found.compared:
        return Mark(color, None, published=theirs)
    if asks == "accuracy":
        one = found.differences.get("accuracy")
        points = None if one is None else Interval(100 * one.estimate, 100 * one.low, 100 * one.high, one.seeds)
        return Mark(color, points)
    return Mark(color, found.ratios.get(measure), found.sign or "", theirs)


def _ratio_figure(group: Group, name: str) -> NamedFigure | None:
    """Ratios to the baseline in one group, a panel per measure."""
    if group.baseline is None or not group.findings:
        return None
    measures: Sequence[str] = group.measures
    if group.simulated:
        measures = ("seconds" if f"seconds{RATIO}" in group.published else "epoch_seconds", "dollars", "value")
    titles = {"epochs": "epochs to target, ×", "seconds": "time to target, ×", "dollars": "cost to target, ×"}
    if group.simulated:
        titles = {measure: f"{MEASURES[measure].title}, ×" for measure in measures}
    shown = [
        (place, one) for place, one in enumerate(group.variants) if one.finding is not None and not one.is_baseline
    ]
    panels = [
        Panel(
            titles[measure],
            [
                _mark(one.finding, "time", measure, series(place), group.published_ratio(one, measure))
                for place, one in shown
            ],
        )
        for measure in measures
    ]
    title = f"Relative to {group.baseline.name}"
    source = group.source if group.published else None
    return forest(name, title, panels, [one.name for _, one in shown], source=source)


def _agreement_figure(pairs: dict[str, list[tuple[str, float, float]]]) -> NamedFigure:
    """Our ratios over the published ones, a color for each part."""
    data = pandas.DataFrame(
        [
            {"part": part, "number": number, "published": theirs, "ours": ours}
            for part, found in pairs.items()
            for number, ours, theirs in found
        ]
    )
    ends = data[["published", "ours"]].to_numpy()
    line = np.asarray([ends.min() / 1.2, ends.max() * 1.2])

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, 0.46)
        band = f"within {100 * WITHIN:.0f} %"
        axes.fill_between(line, (1 - WITHIN) * line, (1 + WITHIN) * line, color=PANEL.light, linewidth=0, label=band)
        axes.plot(line, line, color=MUTED.light, linewidth=1)
        for place, part in enumerate(pairs):
            mine = data[data["part"] == part]
            axes.plot(mine["published"], mine["ours"], "o", color=series(1 + place), markersize=5, label=part)
        for which in ("x", "y"):
            logarithmic(axes, which)
        axes.set(xlabel="published ratio", ylabel="our ratio", xlim=line, ylim=line)
        legend(figure, axes, width)
        return figure

    told = [f"{row.number}: ours {row.ours:.2f}, published {row.published:.2f}" for row in data.itertuples()]
    title = "Our ratios beside the published ones"
    return NamedFigure("published", title, f"{title}. " + "; ".join(told), draw, data)


def _agreement_table(analysed: Analysed) -> Table:
    rows = []
    for study, groups in analysed:
        factors = [ours / theirs for _, ours, theirs in published_pairs(groups)]
        if not factors:
            continue
        worst = max(factors, key=lambda one: abs(np.log(one)))
        near = sum(abs(one - 1) <= WITHIN for one in factors)
        rows.append(
            {
                "part": study.sweep.title or study.sweep.name,
                "published": str(len(factors)),
                f"within {100 * WITHIN:.0f} %": str(near),
                "median deviation": f"{100 * (np.exp(np.median(np.abs(np.log(factors)))) - 1):.0f} %",
                "largest, ours / published": f"{worst:.2f}",
                "verdict": "reproduced" if near == len(factors) else "partly" if near else "not reproduced",
            }
        )
    return Table.of("", rows, "Ratios to the baseline of each part. Details follow by part.")


def _sections(study: Study, groups: Sequence[Group], prefix: str, *, several: bool) -> list[Section]:
    """A section with pooled details if there are several groups, and one for each group."""
    comparison, sections = study.sweep.comparison, list[Section]()
    virtual = all(run.virtual for run in study.sweep.runs)
    whose = f"{study.sweep.title or study.sweep.name}: " * several
    said = [text for text in (study.sweep.description, answer(study.sweep, groups)) if text and several]
    compared = [group for group in groups if group.findings]
    if comparison is not None and len(compared) > 1 and any(one.compared for one in pool(compared)):
        tables = [verdict_table("Mean over groups", compared, pool(compared), comparison.asks, virtual=virtual)]
        tables = tables if several else []
        for name, mine in _pools(compared, comparison.over):
            tables.append(
                verdict_table(f"Mean over groups ({name})", mine, pool(mine), comparison.asks, virtual=virtual)
            )
        tables.append(group_verdicts(compared, comparison.asks, virtual=virtual))
        differing = settings_table([(group.name, group.common) for group in groups], "group")
        tables += [differing._replace(title="Settings of the groups")] if differing is not None else []
        figure = _overview(compared, pool(compared), comparison.asks, f"{prefix}overview") if several else None
        sections.append(Section(f"{whose}all groups", said, [figure] if figure else [], tables))
        said = []
    for number, group in enumerate(groups):
        name = f"{prefix}{number}-" if len(groups) > 1 else prefix
        title = f"{whose}{group.name}".removesuffix(": ")
        sections.append(
            _section(title, said, group, study, name, virtual=virtual, alone=not several and len(groups) == 1)
        )
        said = []
    return sections


def _pools(groups: Sequence[Group], over: Sequence[str]) -> list[tuple[str, list[Group]]]:
    """Groups that differ only in the keys of `over`, by name."""
    found: dict[str, list[Group]] = {}
    for group in groups if over else ():
        name = short_name({key: value for key, value in group.common.items() if key not in over})
        found.setdefault(name, []).append(group)
    return [(name, mine) for name, mine in found.items() if 1 < len(mine) < len(groups)]


def _section(
    title: str, sentences: Sequence[str], group: Group, study: Study, name: str, *, virtual: bool, alone: bool
) -> Section:
    comparison, tables = study.sweep.comparison, list[Table | None]()
    if not alone and comparison is not None and any(one.compared for one in group.findings):
        tables.append(verdict_table("Verdicts", [group], group.findings, comparison.asks, virtual=virtual))
    tables += [target_table(group, virtual=virtual), results_table(group, virtual=virtual), losses_table(group)]
    tables.append(settings_table(_configurations(group, study.sweep), "variant"))
    loads = _loads(group, study.folder)
    if group.simulated:
        figures = [None if alone else _ratio_figure(group, f"{name}ratios")]
    else:
        time = None if alone else accuracy_figure(group, "time", name)
        figures = [time, accuracy_figure(group, "epochs", name), accuracy_figure(group, "cost", name)]
        figures += [_ratio_figure(group, f"{name}ratios"), staleness_figure(group, name)]
        figures += _trace_figures(group, study.folder, name)
    return Section(
        title,
        sentences,
        [figure for figure in figures if figure is not None],
        [table for table in tables if table is not None],
        server_tables(loads),
    )


def _configurations(group: Group, sweep: Sweep) -> list[tuple[str, dict[str, Any]]]:
    """The configuration of each variant with all defaults, without the seed."""
    first = {tuple(run.setting.items()): run for run in reversed(sweep.runs)}
    return [
        (one.name, {key: value for key, value in first[tuple(one.setting.items())].dotted().items() if key != SEED})
        for one in group.variants
    ]


def _loads(group: Group, folder: Path) -> dict[str, Loads]:
    """Server loads of each variant, from its first run."""
    found = {}
    for variant, left in _first_runs(group, folder):
        if left.servers_path.is_file():
            with _warned():
                if (loads := Loads.of(variant.runs[0], servers.read(left.servers_path))) is not None:
                    found[variant.name] = loads
    return found


def _trace_figures(group: Group, folder: Path, name: str) -> list[NamedFigure | None]:
    """Timelines and time of tasks, from the trace of each variant's first run."""
    timelines: dict[str, list[TimelineTask]] = {}
    seconds: dict[str, dict[str, float]] = {}
    samples: dict[str, tuple[int, int]] = {}
    for variant, left in _first_runs(group, folder):
        with _warned():
            if (trace := read_trace(left.trace_path)) is None:
                continue
            seconds[variant.name] = task_seconds(trace)
            if (traced := traced_epochs(trace)) < (trained := variant.runs[0].summary["epochs"]):
                samples[variant.name] = traced, trained
            if len(timelines) < _TIMELINES:
                timelines[variant.name] = one_epoch(trace)
    return [timeline_figure(timelines, name, samples), breakdown_figure(seconds, name, samples)]


def _first_runs(group: Group, folder: Path) -> list[tuple[Variant, RunDirectory]]:
    """Variants with the directory of their first trained run."""
    return [
        (variant, RunDirectory.open(directory(folder, variant.runs[0].run)))
        for variant in group.variants
        if variant.runs and not group.simulated
    ]


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    """Warn about a damaged optional file instead of failing."""
    try:
        yield
    except RunDirectoryError as error:
        warnings.warn(f"{error}; the report goes without it", RunDirectoryWarning, stacklevel=3)


def command(study: Study) -> str:
    """The command that runs a sweep again from the current folder."""
    sweep, folder = study.sweep, os.path.relpath(study.folder)
    words = ["dorylax"] if shutil.which("dorylax") else [Path(sys.executable).name, "-m", "dorylax"]
    if not sweep.axes and not sweep.parts and sweep.file is None:  # made by `dorylax train`
        config = directory(study.folder, sweep.runs[0]) / "config.yaml"
        return shlex.join([*words, "train", "--config", os.path.relpath(config), "--seeds", str(len(sweep.runs))])
    shipped = CONFIGS / f"{sweep.name}.yaml"
    if shipped.is_file() and shipped.read_text(encoding="utf-8") == sweep.text:
        name = sweep.name
    else:
        name = f"{sweep.name}.yaml" if sweep.file is None else os.path.relpath(sweep.file)
    place = [] if folder == os.path.join("runs", sweep.name) else ["--out", folder]
    return shlex.join([*words, "sweep", name, *place])


def _files(sweep: Sweep) -> list[tuple[str, str]]:
    """The sweep's file, and its first run's configuration with all defaults."""
    first, nested = sweep.runs[0], dict[str, dict[str, Any]]()
    for key, value in first.dotted().items():
        section, _, option = key.partition(".")
        nested.setdefault(section, {})[option] = value
    return [(f"{sweep.name}.yaml", sweep.text), (f"Its first run ({first.label}) with all defaults", dump(nested))]


def _environment(outcomes: Sequence[RunOutcome]) -> list[tuple[str, str]]:
    """Seeds, dates, software and hardware of the runs; differing values are all listed."""
    done = [one.environment for one in outcomes if one.status == "done"]
    rows = [("seeds", ", ".join(map(str, sorted({one.run.config.train.seed for one in outcomes}))))]
    dates = sorted({str(one["started"])[:10] for one in done if one.get("started")})
    rows += [("date", " to ".join(dict.fromkeys([dates[0], dates[-1]])))] if dates else []
    rows += [(name, _all_of(one.get(name) for one in done)) for name in _HOST]
    packages = [found for one in done if isinstance(found := one.get("packages"), dict)]
    for name in dict.fromkeys(name for one in packages for name in one):
        rows.append((name, _all_of(one.get(name) for one in packages)))
    return [(name, value) for name, value in rows if value]


def _all_of(values: Iterable[Any]) -> str:
    return "; ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _state(outcomes: Sequence[RunOutcome]) -> str:
    counts = {status: sum(one.status == status for one in outcomes) for status in ("done", "failed", "open")}
    text = f"{counts['done']} of {len(outcomes)} runs done"
    text += f", {counts['failed']} failed" if counts["failed"] else ""
    text += f", {counts['open']} to do: results are preliminary" if counts["open"] else ""
    if all(one.run.simulation is not None for one in outcomes):
        return f"{text}. Nothing was trained: times and costs are simulated, and the same on every machine."
    if all(one.run.virtual for one in outcomes):
        return f"{text}. Times and costs are simulated, and the same on every machine of a kind."
    return f"{text}."
