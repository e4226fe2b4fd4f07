"""Report of one or more sweeps: the main finding first, followed by the details of each group."""

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

from dorylax.errors import RunWarning
from dorylax.experiments.analysis import Finding, Group, analyse, pool
from dorylax.experiments.confounding import confounders
from dorylax.experiments.measures import RATIO
from dorylax.experiments.names import short_name
from dorylax.experiments.report import tables
from dorylax.experiments.report.charts import Mark, accuracy_figure, forest
from dorylax.experiments.report.figures import NamedFigure, legend, logarithmic, one_axes
from dorylax.experiments.report.inside import read_trace, staleness_figure, trace_figures
from dorylax.experiments.report.page import Section, Table, write_pages
from dorylax.experiments.report.servers import Loads, server_tables
from dorylax.experiments.runner import directory
from dorylax.experiments.sweep import CONFIGS, SEED, RunOutcome, Study, Sweep
from dorylax.experiments.verdicts import WITHIN, Analysed, answer, answers, median_deviation, published_pairs
from dorylax.figure_style import MUTED, PANEL, series
from dorylax.settings.strict_yaml import dump
from dorylax.store import servers
from dorylax.store.run_directory import RunDirectory, RunDirectoryError

_HOST = ("dorylax", "python", "machine", "cpu_count", "platform")


def write_report(studies: Sequence[Study], folder: Path) -> Path:
    """Write a joint report of one or more sweeps.

    Args:
        studies: Sweeps with their outcomes.
        folder: Output folder for report.html, report.md and figures/.

    Returns:
        Path of report.html.
    """
    analysed = [(part, analyse(part)) for study in studies for part in study.parts]
    several, sections = len(analysed) > 1, list[Section]()
    for number, (part, groups) in enumerate(analysed):
        sections += _sections(part, groups, f"{number}-" * several, several=several)
    sweeps, outcomes = [study.sweep for study in studies], [one for study in studies for one in study.outcomes]
    return write_pages(
        folder,
        title=" + ".join(sweep.headline for sweep in sweeps),
        question=" ".join(sweep.question for sweep in sweeps).strip(),
        answers=answers(analysed),
        top=_top(analysed),
        description=" ".join(sweep.description for sweep in sweeps).strip(),
        state=_state(outcomes),
        sections=sections,
        commands=[command(study) for study in studies],
        files=[file for sweep in sweeps for file in _files(sweep)],
        environment=_environment(outcomes),
        failures=[(one.run.label, one.error or "") for one in outcomes if one.status == "failed"],
        warnings=list(dict.fromkeys(line for sweep in sweeps for line in confounders(sweep))),
    )


def _top(analysed: Analysed) -> Section:
    """Build the top section: the figure and the tables that support the main findings."""
    several = len(analysed) > 1
    published = [
        pairs.assign(part=study.sweep.headline) for study, groups in analysed if len(pairs := published_pairs(groups))
    ]
    if published and (several or analysed[0][0].sweep.simulated):
        pairs = pandas.concat(published)
        return Section(figures=[_agreement_figure(pairs)], tables=[_agreement_table(pairs)])
    figures, shown = list[NamedFigure | None](), list[Table]()
    for number, (study, groups) in enumerate(analysed):
        compared = [group for group in groups if group.findings]
        if not any(figures):
            figures.append(_answer_figure(groups, compared, f"{number}-" * several))
        findings = pool(compared) or (compared[0].findings if compared else [])
        if any(one.compared for one in findings):
            shown.append(tables.verdict_table(study.sweep.headline * several, compared, findings))
    return Section(figures=figures, tables=shown)


def _answer_figure(groups: Sequence[Group], compared: Sequence[Group], prefix: str) -> NamedFigure | None:
    """Plot accuracy against time for one group, or the compared ratios for several groups and simulations."""
    if len(compared) > 1:
        return _overview(compared, pool(compared), f"{prefix}overview")
    group = compared[0] if compared else groups[0]
    return _ratio_figure(group, f"{prefix}ratios") if group.simulated else accuracy_figure(group, "time", prefix, 0.42)


def _overview(groups: Sequence[Group], pooled: Sequence[Finding], name: str) -> NamedFigure | None:
    """Plot the compared measure in each group and its mean over groups, with one panel per variant."""
    measure = pooled[0].measure
    rows = list[Mark]()
    for place, variant in enumerate(dict.fromkeys(one.name for group in groups for one in group.findings)):
        for group in groups:
            found = next((one for one in group.findings if one.name == variant), None)
            theirs = group.published_ratio(variant, measure)
            rows.append(_mark(variant, group.name, found, measure, color=series(1 + place), theirs=theirs))
        rows += [_mark(variant, "mean over groups", one, measure) for one in pooled if one.name == variant]
    accuracy = measure == "accuracy"
    what = "points of test accuracy" if accuracy else tables.ratio_title(groups[0], measure)
    source = groups[0].source if any(group.published for group in groups) else None
    return forest(name, f"In each group: {what}, relative to the baseline", rows, 0.0 if accuracy else 1.0, source)


def _mark(
    panel: str, row: str, found: Finding | None, measure: str, *, color: str = "", theirs: float | None = None
) -> Mark:
    """Build a row of `forest`: the ratio of a measure, or the difference of accuracies in points."""
    mark = Mark(panel, row, color, np.nan if theirs is None else theirs)
    if found is None or not found.compared:
        return mark
    if measure != "accuracy" and (one := found.ratios.get(measure)) is not None:
        return mark._replace(estimate=one.estimate, low=one.low, high=one.high, seeds=one.seeds, bound=found.sign or "")
    if measure == "accuracy" and (one := found.accuracy) is not None:
        return mark._replace(estimate=100 * one.estimate, low=100 * one.low, high=100 * one.high, seeds=one.seeds)
    return mark


def _ratio_figure(group: Group, name: str) -> NamedFigure | None:
    """Plot the ratios to the baseline in one group, with one panel per measure."""
    if group.baseline is None or not group.findings:
        return None
    time = "seconds" if f"seconds{RATIO}" in group.published else "epoch_seconds"
    measures = (time, "dollars", "value") if group.simulated else group.measures
    rows = [
        _mark(
            tables.ratio_title(group, measure),
            one.name,
            one.finding,
            measure,
            color=series(place),
            theirs=group.published_ratio(one.name, measure),
        )
        for measure in measures
        for place, one in enumerate(group.variants)
        if one.finding is not None and not one.is_baseline
    ]
    source = group.source if group.published else None
    title = f"Relative to {group.baseline.name}" + ("" if group.simulated else ", until the target is reached")
    return forest(name, title, rows, source=source)


def _agreement_figure(pairs: pandas.DataFrame) -> NamedFigure:
    """Plot our ratios against the published ones, with one color per part."""
    ends = pairs[["published", "ours"]].to_numpy()
    line = np.asarray([ends.min() / 1.2, ends.max() * 1.2])

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, 0.46)
        band = f"within {100 * WITHIN:.0f} %"
        axes.fill_between(line, (1 - WITHIN) * line, (1 + WITHIN) * line, color=PANEL.light, linewidth=0, label=band)
        axes.plot(line, line, color=MUTED.light, linewidth=1)
        for place, (part, mine) in enumerate(pairs.groupby("part", sort=False)):
            axes.plot(mine["published"], mine["ours"], "o", color=series(1 + place), markersize=5, label=part)
        for which in ("x", "y"):
            logarithmic(axes, which)
        axes.set(xlabel="published ratio", ylabel="our ratio", xlim=line, ylim=line)
        legend(figure, axes, width)
        return figure

    told = [f"{row.number}: ours {row.ours:.2f}, published {row.published:.2f}" for row in pairs.itertuples()]
    title = "Our ratios beside the published ones"
    data = pairs[["part", "number", "published", "ours"]]
    return NamedFigure("published", title, f"{title}. " + "; ".join(told), draw, data)


def _agreement_table(pairs: pandas.DataFrame) -> Table:
    rows = []
    for part, mine in pairs.groupby("part", sort=False):
        near, logarithms = mine["near"].sum(), np.log(mine["ours"] / mine["published"]).to_numpy()
        rows.append(
            {
                "part": part,
                "published": str(len(mine)),
                f"within {100 * WITHIN:.0f} %": str(near),
                "median deviation": f"{100 * median_deviation(mine):.0f} %",
                "largest, ours / published": f"{np.exp(logarithms[np.abs(logarithms).argmax()]):.2f}",
                "verdict": "reproduced" if mine["near"].all() else "partly" if near else "not reproduced",
            }
        )
    return Table.of("", rows, "Ratios to the baseline of each part. Details follow by part.")


def _sections(study: Study, groups: Sequence[Group], prefix: str, *, several: bool) -> list[Section]:
    """Build one section per group, after a section with pooled details if there are several groups."""
    sweep, sections = study.sweep, list[Section]()
    whose = f"{sweep.headline}: " * several
    said = [text for text in (sweep.description, answer(sweep, groups)) if text and several]
    compared = [group for group in groups if group.findings]
    pooled = pool(compared)
    if sweep.comparison is not None and any(one.compared for one in pooled):
        pools = [("Mean over groups", compared)] * several
        pools += [(f"Mean over groups ({name})", mine) for name, mine in _pools(compared, sweep.comparison.over)]
        shown: list[Table | None] = [tables.verdict_table(name, mine, pool(mine)) for name, mine in pools]
        settings = [(group.name, group.common) for group in groups]
        shown += [
            tables.group_verdicts(compared),
            tables.settings_table("Settings of the groups", settings, "group"),
        ]
        figure = _overview(compared, pooled, f"{prefix}overview") if several else None
        sections.append(Section(f"{whose}all groups", said, [figure], shown))
        said = []
    for number, group in enumerate(groups):
        name = f"{prefix}{number}-" if len(groups) > 1 else prefix
        title = f"{whose}{group.name}".removesuffix(": ")
        sections.append(_section(title, said, group, study, name, alone=not several and len(groups) == 1))
        said = []
    return sections


def _pools(groups: Sequence[Group], over: Sequence[str]) -> list[tuple[str, list[Group]]]:
    """Pool the groups that differ only in the keys of `over`. Returns pairs of pool name and groups."""
    found: dict[str, list[Group]] = {}
    for group in groups if over else ():
        name = short_name({key: value for key, value in group.common.items() if key not in over})
        found.setdefault(name, []).append(group)
    return [(name, mine) for name, mine in found.items() if 1 < len(mine) < len(groups)]


def _section(title: str, sentences: Sequence[str], group: Group, study: Study, name: str, *, alone: bool) -> Section:
    shown: list[Table | None] = [tables.target_table(group), tables.results_table(group), tables.losses_table(group)]
    if not alone and any(one.compared for one in group.findings):
        shown.insert(0, tables.verdict_table("Verdicts", [group], group.findings))
    first = {tuple(run.setting.items()): run.dotted() for run in reversed(study.sweep.runs)}
    settings = [(one.name, {**first[tuple(one.setting.items())], SEED: None}) for one in group.variants]
    shown.append(tables.settings_table("Different settings", settings, "variant"))
    ratios = _ratio_figure(group, f"{name}ratios")
    figures, loads = [None if alone else ratios], dict[str, Loads]()
    if not group.simulated:
        figures = [accuracy_figure(group, against, name) for against in ("time", "epochs", "cost")[alone:]]
        loads, traces = _inside(group, study)
        figures += [ratios, staleness_figure(group, name), *trace_figures(traces, name)]
    return Section(title, sentences, figures, shown, server_tables(loads))


def _inside(group: Group, study: Study) -> tuple[dict[str, Loads], dict[str, tuple[pandas.DataFrame, int]]]:
    """Read each variant's server loads, and its traced tasks with the number of epochs, from its first run."""
    loads, traces = dict[str, Loads](), dict[str, tuple[pandas.DataFrame, int]]()
    for variant in group.variants:
        if not variant.runs or study.folder is None:
            continue
        run = variant.runs[0]
        left = RunDirectory.open(directory(study.folder, run.run))
        if left.servers_path.is_file():
            with _warned():
                if (found := Loads.of(run, servers.read(left.servers_path))) is not None:
                    loads[variant.name] = found
        with _warned():
            if (tasks := read_trace(left.trace_path)) is not None:
                traces[variant.name] = tasks, run.summary["epochs"]
    return loads, traces


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    """Warn about a damaged optional file instead of failing."""
    try:
        yield
    except RunDirectoryError as error:
        warnings.warn(f"{error}; the report goes without it", RunWarning, stacklevel=3)


def command(study: Study) -> str:
    """Return the shell command that reruns a sweep from the current folder."""
    sweep, folder = study.sweep, os.path.relpath(study.folder or ".")
    words = ["dorylax"] if shutil.which("dorylax") else [Path(sys.executable).name, "-m", "dorylax"]
    if not sweep.axes and not sweep.parts and sweep.file is None:  # made by `dorylax train`
        config = directory(Path(folder), sweep.runs[0]) / "config.yaml"
        return shlex.join([*words, "train", "--config", os.path.relpath(config), "--seeds", str(len(sweep.runs))])
    shipped = CONFIGS / f"{sweep.name}.yaml"
    if shipped.is_file() and shipped.read_text(encoding="utf-8") == sweep.text:
        name = sweep.name
    else:
        name = f"{sweep.name}.yaml" if sweep.file is None else os.path.relpath(sweep.file)
    place = [] if folder == os.path.join("runs", sweep.name) else ["--out", folder]
    return shlex.join([*words, "sweep", name, *place])


def _files(sweep: Sweep) -> list[tuple[str, str]]:
    """Return the sweep's file and the first run's configuration with all defaults."""
    first, nested = sweep.runs[0], dict[str, dict[str, Any]]()
    for key, value in first.dotted().items():
        section, _, option = key.partition(".")
        nested.setdefault(section, {})[option] = value
    return [(f"{sweep.name}.yaml", sweep.text), (f"Its first run ({first.label}) with all defaults", dump(nested))]


def _environment(outcomes: Sequence[RunOutcome]) -> list[tuple[str, str]]:
    """Return the seeds, dates, software and hardware of the runs, listing all differing values."""
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
