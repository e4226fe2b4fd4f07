"""Report of one or more sweeps: the main finding first, followed by the details of each group."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas  # type: ignore[import-untyped]

from dorylax.errors import RunWarning
from dorylax.experiments.analysis import Group, analyse, pool
from dorylax.experiments.conclusions import WITHIN, Analysed, answer, answers, median_deviation, published_pairs
from dorylax.experiments.confounding import confounders
from dorylax.experiments.names import short_name
from dorylax.experiments.report import tables
from dorylax.experiments.report.charts import accuracy_figure, agreement_figure, overview, ratio_figure
from dorylax.experiments.report.figures import NamedFigure
from dorylax.experiments.report.inside import Loads, read_trace, server_tables, staleness_figure, trace_figures
from dorylax.experiments.report.page import Section, Table, write_pages
from dorylax.experiments.runner import directory
from dorylax.experiments.sweep import CONFIGS, SEED, RunOutcome, Study, Sweep
from dorylax.settings.strict_yaml import dump
from dorylax.store import servers
from dorylax.store.run_directory import RunDirectory, RunDirectoryError

_HOST = ("dorylax", "python", "machine", "cpu_count", "platform")


def write_report(studies: Sequence[Study], folder: Path) -> Path:
    """Write a joint report of one or more sweeps: report.html, whose path it returns, report.md and figures/."""
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
        return Section(figures=[agreement_figure(pairs)], tables=[_agreement_table(pairs)])
    figures, shown = list[NamedFigure | None](), list[Table]()
    for number, (study, groups) in enumerate(analysed):
        compared = [group for group in groups if group.findings]
        prefix, group = f"{number}-" * several, compared[0] if compared else groups[0]
        if not any(figures) and len(compared) > 1:
            figures.append(overview(compared, pool(compared), f"{prefix}overview"))
        elif not any(figures):
            ratios = ratio_figure(group, f"{prefix}ratios") if group.simulated else None
            figures.append(ratios or accuracy_figure(group, "time", prefix, 0.42))
        findings = pool(compared) or group.findings
        if any(one.compared for one in findings):
            shown.append(tables.verdict_table(study.sweep.headline * several, compared, findings))
    return Section(figures=figures, tables=shown)


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
        shown += [tables.group_verdicts(compared), tables.settings_table("Settings of the groups", settings, "group")]
        figure = overview(compared, pooled, f"{prefix}overview") if several else None
        sections.append(Section(f"{whose}all groups", said, [figure], shown))
    for number, group in enumerate(groups):
        name = f"{prefix}{number}-" if len(groups) > 1 else prefix
        alone = not several and len(groups) == 1
        sentences = [] if sections else said
        sections.append(_section(f"{whose}{group.name}".removesuffix(": "), sentences, group, study, name, alone=alone))
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
    ratios, loads = ratio_figure(group, f"{name}ratios"), dict[str, Loads]()
    if group.simulated:
        return Section(title, sentences, [None if alone else ratios], shown)
    # Server loads, and traced tasks with the number of epochs, of each variant's first run.
    traces = dict[str, tuple[pandas.DataFrame, int]]()
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
    figures = [accuracy_figure(group, against, name) for against in ("time", "epochs", "cost")[alone:]]
    figures += [ratios, staleness_figure(group, name), *trace_figures(traces, name)]
    return Section(title, sentences, figures, shown, server_tables(loads))


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
    count = Counter(one.status for one in outcomes)
    text = f"{count['done']} of {len(outcomes)} runs done"
    text += f", {count['failed']} failed" if count["failed"] else ""
    text += f", {count['open']} to do: results are preliminary" if count["open"] else ""
    if all(one.run.simulation is not None for one in outcomes):
        return f"{text}. Nothing was trained: times and costs are simulated, and the same on every machine."
    if all(one.run.virtual for one in outcomes):
        return f"{text}. Times and costs are simulated, and the same on every machine of a kind."
    return f"{text}."
