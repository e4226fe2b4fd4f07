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

from dorylax.experiments.analysis import Finding, Group, pool, side
from dorylax.experiments.names import plain
from dorylax.experiments.seed_statistics import Interval
from dorylax.experiments.sweep import Study, Sweep

SAME_ACCURACY = 0.005
"""Equivalence margin of half a point. Variants are as accurate if the interval of the difference lies within it."""

WITHIN = 0.3
"""Tolerance for reproducing a published ratio: the maximum relative deviation."""

FAILS = "misses the target"
OPEN = "undecided"
MIXED = "depends on the group"
NONE = "not compared"
_NAMED = 2  # maximum number of variants listed in a sentence

_FOUND = "{where}{name} {claim} {base}: {number}{more}."
_NOT_FOUND = "{where}no variant {claim} {base}{sure}: {name} comes closest with {number}{more}."


def verdict(found: Finding) -> str:
    """Return the question's word for the finding, or `FAILS`, `MIXED`, `OPEN` or `NONE`."""
    question, ratio = found.question, found.answer
    if not found.compared:
        return NONE
    if question.measure == "accuracy":
        return accuracy_verdict(found) or NONE
    if found.failed:
        return FAILS
    if ratio is None:
        return NONE
    said = (OPEN, question.more, question.less)[side(ratio, simulated=found.simulated)]
    return MIXED if {question.less: found.more, question.more: found.less}.get(said) else said


def verdict_words(found: Finding) -> str:
    """Describe a verdict with its counts: `faster, as accurate`, `misses the target in 2 of 8 groups`."""
    said, question = verdict(found), found.question
    if said == NONE or question.measure == "accuracy":
        return said
    if said == FAILS:
        said = f"{FAILS} {places(found)}"
    elif (total := len(found.groups)) > 1:
        counts = f"{question.less} in {found.less} of {total} groups, {question.more} in {found.more}"
        said = f"{said}: {counts}" if said == MIXED else f"{said} ({counts})"
    accurate = accuracy_verdict(found)
    return f"{said}; {accurate}" if accurate else said


def accuracy_verdict(found: Finding) -> str:
    """Return `as accurate`, `more accurate`, `less accurate` or `accuracy undecided`; empty without an interval."""
    difference = found.accuracy
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
    middle = number(interval.estimate)
    if not interval.exists:
        return middle
    low, high = number(interval.low), number(interval.high)
    return middle if low == middle == high else f"{middle} ({low} to {high})"


def target_text(group: Group) -> str:
    """Format a group's target as `88.94 % validation accuracy`."""
    return f"{100 * (group.target or 0.0):.2f} % validation {group.metric.title}"


Analysed: TypeAlias = "Sequence[tuple[Study, Sequence[Group]]]"
"""Pairs of a sweep without parts and its groups."""


def answers(analysed: Analysed) -> list[str]:
    """Summarize several sweeps: one sentence on published numbers, or otherwise one sentence per sweep."""
    if len(analysed) == 1:
        ((study, groups),) = analysed
        return [text for text in [answer(study.sweep, groups)] if text]
    if whole := agreement([group for _, groups in analysed for group in groups]):
        return [whole]
    texts = [(study.sweep.headline, answer(study.sweep, groups)) for study, groups in analysed]
    return [f"{name}: {text}" for name, text in texts if text]


def answer(sweep: Sweep, groups: Sequence[Group]) -> str:
    """Summarize a sweep in one sentence; empty if only seeds vary.

    Args:
        sweep: Sweep without parts.
        groups: Groups of its runs, from `analyse`.
    """
    if sweep.comparison is None:
        return how_to_ask(sweep)
    if any(variant.published for group in groups for variant in group.variants) and sweep.simulated:
        return agreement(groups)
    compared = [group for group in groups if group.findings]
    if not compared:
        unit = next((group.metric.title for group in groups if not group.metric.fraction), None)
        if unit is not None:
            return f"Nothing is compared: runs are judged by {unit}, and only metrics from 0 to 1 have targets."
        return "Nothing is compared yet: no seed is done both for the baseline and for another variant."
    findings = [one for one in pool(compared) or compared[0].findings if one.compared]
    if not findings:
        target = f"the target of {target_text(compared[0])}" if len(compared) == 1 else "its target in any group"
        return f"No run reaches {target}: nothing is compared."
    text = _sentence(compared, findings)
    return text[:1].upper() + text[1:]


def how_to_ask(sweep: Sweep) -> str:
    """Explain how to choose a baseline; empty if only seeds vary."""
    if not sweep.axes:
        return ""
    key = sweep.axes[0]
    value = plain(sweep.runs[0].setting[key])
    return f"Nothing is compared: name a baseline in the sweep file, as in `compare: {{baseline: {{{key}: {value}}}}}`."


def _sentence(groups: Sequence[Group], findings: Sequence[Finding]) -> str:
    question, verdicts = findings[0].question, {one.name: verdict(one) for one in findings}
    accuracy = question.measure == "accuracy"
    wanted = ("as accurate", "more accurate") if accuracy else (question.better,)
    names = {group.baseline.name for group in groups if group.baseline is not None}
    base = names.pop() if len(names) == 1 else "the baseline"
    where = f"On the mean over {len(groups)} groups, " if len(groups) > 1 else ""
    failures = _failures([one for one in findings if verdicts[one.name] == FAILS])
    ranked = sorted(
        (one for one in findings if one.answer is not None),
        key=lambda one: (verdicts[one.name] not in wanted, accuracy_verdict(one) == "less accurate", one.badness),
    )
    if not ranked:
        reason = failures or "; no number is known on both sides"
        return f"{where}no variant {question.claim} {base}: {reason.removeprefix('; ')}."
    best = ranked[0]
    more = f", {said}" if not accuracy and (said := accuracy_verdict(best)) else ""
    if len(won := [one.name for one in ranked if verdicts[one.name] in wanted]) > 1:
        more += f"; so {'is' if len(won) == 2 else 'are'} {_listed(won[1:])}"
    number, said = _told(best, groups), verdicts[best.name]
    if said in wanted:
        claim = "is more accurate than" if said == "more accurate" else question.claim
        return _FOUND.format(where=where, name=best.name, claim=claim, base=base, number=number, more=more + failures)
    sure = {MIXED: " in every group", OPEN: " for sure", "accuracy undecided": " for sure"}.get(said, "")
    more += failures.replace(f"; {best.name} {FAILS}", f", but {FAILS}")
    return _NOT_FOUND.format(
        where=where, claim=question.claim, base=base, sure=sure, name=best.name, number=number, more=more
    )


def _told(found: Finding, groups: Sequence[Group]) -> str:
    """Format as `0.84 × the simulated time to 88.94 % validation accuracy (95 % interval 0.80 to 0.88, 3 seeds)`."""
    interval, noun, group = found.answer, found.question.noun, groups[0]
    assert interval is not None
    if noun == "accuracy":
        said, shown_as = f"{points(interval.estimate)} points of test {group.metric.title}", points
    else:
        tail = f" to {'the target' if len(groups) > 1 else target_text(group)}"
        if found.simulated:
            tail = " of an epoch" if noun == "time" else ""
        noun = noun if noun == "epochs" else f"{group.times}{noun}"
        said, shown_as = f"{found.sign or ''}{_number(interval.estimate)} × the {noun}{tail}", _number
    if not interval.exists:
        return f"{said} (one seed)"
    middle, low, high = map(shown_as, (interval.estimate, interval.low, interval.high))
    ends = "" if low == middle == high else f"95 % interval {low} to {high}, "
    return f"{said} ({ends}{interval.seeds} seeds)"


def _failures(failed: Sequence[Finding]) -> str:
    parts = [f"; {one.name} {FAILS} {places(one)}" for one in failed[:_NAMED]]
    return "".join(parts) + (f"; so do {len(failed) - _NAMED} others" if len(failed) > _NAMED else "")


def places(found: Finding) -> str:
    """Count the seeds or groups in which a variant misses the target, as text."""
    if len(found.groups) > 1:
        return f"in {len(found.failed)} of {len(found.groups)} groups"
    return f"on {found.seeds - found.reached} of {found.seeds} seeds"


def agreement(groups: Sequence[Group]) -> str:
    """Summarize in one sentence how well the groups reproduce their published ratios; empty without any."""
    pairs = published_pairs(groups)
    if pairs.empty:
        return ""
    return (
        f"{pairs['near'].sum()} of {len(pairs)} published ratios are reproduced within {100 * WITHIN:.0f} %; "
        f"the median deviation is {100 * median_deviation(pairs):.0f} %."
    )


def published_pairs(groups: Sequence[Group]) -> pandas.DataFrame:
    """Return each published ratio to a measured baseline.

    Returns:
        `number` (its name), `published`, `ours`, and `near`: whether they differ by at most `WITHIN`.
    """
    rows = [
        (f"{group.name}: {variant.name}, {measure}".removeprefix(": "), theirs, ratio.estimate)
        for group in groups
        for variant in group.variants
        if variant.finding is not None and not variant.is_baseline
        for measure in group.measures
        if (theirs := group.published_ratio(variant.name, measure))
        and (ratio := variant.finding.ratios.get(measure)) is not None
        and ratio.estimate > 0
    ]
    pairs = pandas.DataFrame(rows, columns=["number", "published", "ours"])
    return pairs.assign(near=(pairs["ours"] / pairs["published"] - 1).abs() <= WITHIN)


def median_deviation(pairs: pandas.DataFrame) -> float:
    """Return the median factor between published ratios and ours, minus one."""
    return math.expm1(np.log(pairs["ours"] / pairs["published"]).abs().median())


def _listed(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} others"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
