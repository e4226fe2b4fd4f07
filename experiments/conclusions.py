"""Verdicts on the variants of a sweep, and summary sentences for the sweep's question.

A verdict claims a difference only if the whole interval supports it. A variant fails if, in any group, it misses a target
that the baseline reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pandas  # type: ignore[import-untyped]

from dorylax.experiments.analysis import Finding, Group, pool
from dorylax.experiments.names import plain, test_set
from dorylax.experiments.seed_statistics import Interval
from dorylax.experiments.sweep import Study, Sweep

SAME_ACCURACY = 0.005
"""Equivalence margin of half a point. Variants are as accurate if the interval of the difference lies within it."""

SMALL_TEST_SET = 100
"""Size of a test set below which a verdict mentions it: the standard error of an accuracy of 80 % is then 4 points."""

WITHIN = 0.3
"""Tolerance for reproducing a published ratio: the maximum relative deviation."""

FAILS, OPEN, MIXED, NONE = "misses the target", "undecided", "depends on the group", "not compared"
_NAMED = 2  # maximum number of variants listed in a sentence

_FOUND = "{where}{best} {claim} {base}: {number}{more}{failures}.{others}"
_NOT_FOUND = "{where}no variant {claim} {base}{everywhere}: {best} comes closest with {number}{more}{failures}."
_UNDECIDED = "{where}it is undecided whether {best} {claim} {base}: {number}{more}{failures}."
_NO_NUMBER = "{where}no variant {claim} {base}: {reason}."
_NO_METRIC = "Nothing is compared: runs are judged by {}, and only metrics from 0 to 1 have targets."
_NO_PAIR = "Nothing is compared yet: no seed is done both for the baseline and for another variant."
_NO_TARGET = "No run reaches {}: nothing is compared."
_NO_BASELINE = "Nothing is compared: name a baseline in the sweep file, as in `compare: {{baseline: {{{}: {}}}}}`."
_AGREEMENT = "{} of {} published ratios are reproduced within {:.0%}; the median deviation is {:.0%}."

Analysed: TypeAlias = "Sequence[tuple[Study, Sequence[Group]]]"
"""Pairs of a sweep without parts and its groups."""


def verdict(found: Finding) -> str:
    """Return the question's word for the finding, or `FAILS`, `MIXED`, `OPEN` or `NONE`."""
    question = found.question
    if not found.compared or (found.answer is None and not found.failed):
        return NONE
    if question.measure == "accuracy":
        return accuracy_verdict(found) or NONE
    if found.failed:
        return FAILS
    said = (OPEN, question.more, question.less)[found.side]
    return MIXED if {question.less: found.more, question.more: found.less}.get(said) else said


def verdict_words(found: Finding) -> str:
    """Describe a verdict with its counts: `faster, as accurate`, `misses the target in 2 of 8 groups`."""
    said, question, total = verdict(found), found.question, len(found.groups)
    if said == NONE or question.measure == "accuracy":
        return said
    if said == FAILS:
        said = f"{FAILS} {_places(found)}"
    elif total > 1:
        counts = f"{question.less} in {found.less} of {total} groups, {question.more} in {found.more}"
        said = f"{said}: {counts}" if said == MIXED else f"{said} ({counts})"
    return "; ".join(filter(None, [said, accuracy_verdict(found)]))


def accuracy_verdict(found: Finding) -> str:
    """Return `as accurate`, `more accurate`, `less accurate` or `accuracy undecided`; empty without an interval."""
    difference = found.differences.get("accuracy")
    if difference is None or not difference.exists or not found.compared:
        return ""
    if difference.inside(SAME_ACCURACY):
        return "as accurate"
    if difference.low > 0:
        return "more accurate"
    return "less accurate" if difference.high < 0 else "accuracy undecided"


def ratio_text(ratio: Interval | None, sign: str = "") -> str:
    """Format a ratio as `0.84 (0.80 to 0.88)`, and None as a dash."""
    return "–" if ratio is None else sign + _text(ratio, _number)


def points_text(difference: Interval | None) -> str:
    """Format a difference in points as `+0.2 (-0.1 to +0.5)`, and None as a dash."""
    return "–" if difference is None else _text(difference, points)


def points(value: float) -> str:
    """Format a difference of fractions in signed points, with one decimal, or two if one would show zero."""
    text = f"{100 * value:+.1f}"
    return text if float(text) else f"{100 * value:+.2f}"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.3g}"


def _text(interval: Interval, number: Callable[[float], str]) -> str:
    return number(interval.estimate) + (f" ({ends})" if (ends := _ends(interval, number)) else "")


def _ends(interval: Interval, number: Callable[[float], str]) -> str:
    middle, low, high = map(number, (interval.estimate, interval.low, interval.high))
    return "" if low == middle == high or not interval.exists else f"{low} to {high}"


def target_text(group: Group) -> str:
    """Format a group's target as `88.94 % validation accuracy`."""
    return f"{100 * (group.target or 0.0):.2f} % validation {group.metric.title}"


def answers(analysed: Analysed) -> list[str]:
    """Summarize several sweeps: one sentence on published numbers, or otherwise a summary of each sweep."""
    if len(analysed) > 1 and (whole := agreement([group for _, groups in analysed for group in groups])):
        return [whole]
    texts = [(study.sweep.headline, answer(study.sweep, groups)) for study, groups in analysed]
    return [f"{name}: {text}" if len(analysed) > 1 else text for name, text in texts if text]


def answer(sweep: Sweep, groups: Sequence[Group]) -> str:
    """Summarize a sweep without parts, and its groups (`analyse`), in a sentence or two; empty if only seeds vary."""
    if sweep.comparison is None:
        return _NO_BASELINE.format(sweep.axes[0], plain(sweep.runs[0].setting[sweep.axes[0]])) if sweep.axes else ""
    if any(variant.published for group in groups for variant in group.variants) and sweep.simulated:
        return agreement(groups)
    compared = [group for group in groups if group.findings]
    if not compared:
        unit = next((group.metric.title for group in groups if not group.metric.fraction), None)
        return _NO_PAIR if unit is None else _NO_METRIC.format(unit)
    findings = [one for one in pool(compared) or compared[0].findings if one.compared]
    if not findings:
        target = f"the target of {target_text(compared[0])}" if len(compared) == 1 else "its target in any group"
        return _NO_TARGET.format(target)
    text = _sentence(compared, findings)
    return text[:1].upper() + text[1:] + _small_test_set(compared)


def _small_test_set(groups: Sequence[Group]) -> str:
    """A sentence on the smallest test set, after a blank; empty if it is large enough or unknown."""
    runs = [run for group in groups for variant in group.variants for run in variant.runs]
    sizes = {count: run.run.config for run in runs if (count := run.summary.get("test_examples"))}
    if not sizes or (least := min(sizes)) >= SMALL_TEST_SET:
        return ""
    return f" The {'smallest ' * (len(sizes) > 1)}test set has only {test_set(sizes[least], least)}."


def _sentence(groups: Sequence[Group], findings: Sequence[Finding]) -> str:
    question, verdicts = findings[0].question, {one.name: verdict(one) for one in findings}
    accuracy = question.measure == "accuracy"
    wanted = ("as accurate", "more accurate") if accuracy else (question.better,)
    names = {group.baseline.name for group in groups if group.baseline is not None}
    words = {
        "where": f"On the mean over {len(groups)} groups, " if len(groups) > 1 else "",
        "claim": question.claim,
        "base": names.pop() if len(names) == 1 else "the baseline",
        "failures": _failures([one for one in findings if verdicts[one.name] == FAILS]),
    }
    ranked = sorted(
        (one for one in findings if one.answer is not None),
        key=lambda one: (verdicts[one.name] not in wanted, accuracy_verdict(one) == "less accurate", one.badness),
    )
    if not ranked:
        reason = words["failures"].removeprefix("; ") or "no number is known on both sides"
        return _NO_NUMBER.format(reason=reason, **words)
    best, said = ranked[0], verdicts[ranked[0].name]
    accurate = "" if accuracy else accuracy_verdict(best)
    words |= {"best": best.name, "number": _told(best, groups), "more": f", {accurate}" if accurate else ""}
    if said in wanted:
        if said == "more accurate":
            words["claim"] = "is more accurate than"
        others = [f'"{one.name}"' for one in ranked[1:] if verdicts[one.name] in wanted]
        listed = " and ".join(others) if len(others) <= _NAMED else f"{len(others)} other variants"
        adjective = "As accurate" if accuracy else said[:1].upper() + said[1:]
        return _FOUND.format(others=f" {adjective}, too: {listed}." if others else "", **words)
    words["failures"] = words["failures"].replace(f"; {best.name} {FAILS}", f", but {FAILS}")
    if said in (OPEN, "accuracy undecided"):
        return _UNDECIDED.format(**words)
    return _NOT_FOUND.format(everywhere=" in every group" if said == MIXED else "", **words)


def _told(found: Finding, groups: Sequence[Group]) -> str:
    """Format as `0.84 × the simulated time to 88.94 % validation accuracy (95 % interval 0.80 to 0.88, 3 seeds)`."""
    interval, noun, group = found.answer, found.question.noun, groups[0]
    assert interval is not None
    number = points if noun == "accuracy" else _number
    if noun == "accuracy":
        said = f"{points(interval.estimate)} points of test {group.metric.title}"
    else:
        tail = f" to {'the target' if len(groups) > 1 else target_text(group)}"
        if found.simulated:
            tail = " of an epoch" if noun == "time" else ""
        times = "" if noun == "epochs" else group.times
        said = f"{found.sign or ''}{_number(interval.estimate)} × the {times}{noun}{tail}"
    ends = f"95 % interval {ends}, " if (ends := _ends(interval, number)) else ""
    return f"{said} ({ends}{interval.seeds} seeds)" if interval.exists else f"{said} (one seed)"


def _failures(failed: Sequence[Finding]) -> str:
    parts = [f"; {one.name} {FAILS} {_places(one)}" for one in failed[:_NAMED]]
    return "".join(parts) + (f"; so do {len(failed) - _NAMED} others" if len(failed) > _NAMED else "")


def _places(found: Finding) -> str:
    if len(found.groups) > 1:
        return f"in {len(found.failed)} of {len(found.groups)} groups"
    return f"on {(~found.runs['reached']).sum()} of {len(found.runs)} seeds"


def agreement(groups: Sequence[Group]) -> str:
    """Summarize in one sentence how well the groups reproduce their published ratios; empty without any."""
    pairs = published_pairs(groups)
    if pairs.empty:
        return ""
    return _AGREEMENT.format(pairs["near"].sum(), len(pairs), WITHIN, median_deviation(pairs)).replace("%", " %")


def published_pairs(groups: Sequence[Group]) -> pandas.DataFrame:
    """Return each published ratio to a measured baseline, its `number`, ours, and whether they are `near` (`WITHIN`)."""
    rows = [
        (f"{group.name}: {found.name}, {measure}".removeprefix(": "), theirs, ratio.estimate)
        for group in groups
        for found in group.findings
        for measure in group.measures
        if (theirs := group.published_ratio(found.name, measure))
        and (ratio := found.ratios.get(measure)) is not None
        and ratio.estimate > 0
    ]
    pairs = pandas.DataFrame(rows, columns=["number", "published", "ours"])
    return pairs.assign(near=(pairs["ours"] / pairs["published"] - 1).abs() <= WITHIN)


def median_deviation(pairs: pandas.DataFrame) -> float:
    """Return the median factor between published ratios and ours, minus one."""
    return math.expm1(np.log(pairs["ours"] / pairs["published"]).abs().median())
