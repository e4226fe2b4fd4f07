"""The verdict on each variant of a sweep, and the sentence that answers the sweep's question.

A verdict claims a difference only if the whole interval says so. A variant that misses the target where the baseline
reaches it, in any group, has failed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dorylax.experiments.analysis import Finding, Group, analyse, pool, side
from dorylax.experiments.folder import Study, parts_of
from dorylax.experiments.measures import QUESTIONS, Question
from dorylax.experiments.seed_statistics import Interval
from dorylax.experiments.sweep import Comparison, Sweep
from dorylax.settings.errors import shown

SAME_ACCURACY = 0.005
"""Variants are as accurate if the whole interval of their difference lies within half a point."""

WITHIN = 0.3
"""A published ratio is reproduced if ours deviates from it by at most this fraction."""

FAILS = "misses the target"
OPEN = "undecided"
_NAMED = 2
MIXED = "depends on the group"
NONE = "not compared"

_FOUND = "{where}{name} {claim} {base}: {number}{more}."
_NOT_FOUND = "{where}no variant {claim} {base}{sure}: {name} comes closest with {number}{more}."


def verdict(found: Finding, asks: str, *, simulated: bool) -> str:
    """One of the words of the question, or `FAILS`, `MIXED`, `OPEN` or `NONE`."""
    question = QUESTIONS[asks]
    if not found.compared:
        return NONE
    if asks == "accuracy":
        return accuracy_verdict(found) or NONE
    measure = question.of(simulated=simulated)
    ratio = found.ratios.get(measure)
    if found.failed:
        return FAILS
    if ratio is None:
        return NONE
    said = (OPEN, question.more, question.less)[side(ratio, simulated=simulated)]
    against = {question.less: found.more, question.more: found.less}.get(said)
    return MIXED if against is not None and against.get(measure) else said


def accuracy_verdict(found: Finding) -> str:
    """`as accurate`, `more accurate`, `less accurate`, or `accuracy undecided`; empty without an interval."""
    difference = found.differences.get("accuracy")
    if difference is None or not difference.exists or not found.compared:
        return ""
    if difference.inside(SAME_ACCURACY):
        return "as accurate"
    if difference.low > 0:
        return "more accurate"
    return "less accurate" if difference.high < 0 else "accuracy undecided"


def ratio_text(ratio: Interval | None, sign: str = "") -> str:
    """`0.84 (0.80 to 0.88)`; a dash for None."""
    return "–" if ratio is None else sign + _text(ratio, _number)


def points_text(difference: Interval | None) -> str:
    """`+0.2 (-0.1 to +0.5)` in points; a dash for None."""
    return "–" if difference is None else _text(difference, points)


def points(value: float) -> str:
    """A difference of fractions in points, with its sign: one digit, or two if one would show zero."""
    text = f"{100 * value:+.1f}"
    return text if float(text) else f"{100 * value:+.2f}"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.3g}"


def _text(interval: Interval, number: Callable[[float], str]) -> str:
    middle, low, high = (number(value) if not math.isnan(value) else "" for value in _values(interval))
    return middle if not interval.exists or low == middle == high else f"{middle} ({low} to {high})"


def _values(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.low, interval.high


def target_text(group: Group) -> str:
    """`88.94 % validation accuracy`."""
    return f"{100 * (group.target or 0.0):.2f} % validation {group.metric.title}"


Analysed: TypeAlias = "Sequence[tuple[Study, Sequence[Group]]]"
"""Sweeps without parts, with their groups."""


def answers_of(study: Study) -> list[str]:
    """The sentences that answer a sweep: one, or of a sweep with parts and without published numbers one each."""
    return answers([(part, analyse(part)) for part in parts_of(study)])


def answers(analysed: Analysed) -> list[str]:
    """The same of sweeps that are analysed."""
    if len(analysed) == 1:
        ((study, groups),) = analysed
        return [text for text in [answer(study.sweep, groups)] if text]
    if whole := agreement([group for _, groups in analysed for group in groups]):
        return [whole]
    texts = [(study.sweep.title or study.sweep.name, answer(study.sweep, groups)) for study, groups in analysed]
    return [f"{name}: {text}" for name, text in texts if text]


def answer(sweep: Sweep, groups: Sequence[Group]) -> str:
    """One sentence that answers the sweep's question; empty if only seeds vary.

    Args:
        sweep: A sweep without parts.
        groups: Of its runs, by `analyse`.
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
    pooled = pool(compared)
    findings = [one for one in pooled or compared[0].findings if one.compared]
    if not findings:
        target = f"the target of {target_text(compared[0])}" if len(compared) == 1 else "its target in any group"
        return f"No run reaches {target}: nothing is compared."
    return _sentence(sweep.comparison, compared, findings, virtual=all(run.virtual for run in sweep.runs))


def how_to_ask(sweep: Sweep) -> str:
    """The line that tells how to name a baseline; empty if only seeds vary."""
    if not sweep.axes:
        return ""
    key = sweep.axes[0]
    first = sweep.runs[0].setting[key]
    value = first if isinstance(first, str) else shown(first)
    return f"Nothing is compared: name a baseline in the sweep file, as in `compare: {{baseline: {{{key}: {value}}}}}`."


def _sentence(comparison: Comparison, groups: Sequence[Group], findings: Sequence[Finding], *, virtual: bool) -> str:
    asks, question, simulated = comparison.asks, QUESTIONS[comparison.asks], groups[0].simulated
    verdicts = {one.name: verdict(one, asks, simulated=simulated) for one in findings}
    wanted = ("as accurate", "more accurate") if asks == "accuracy" else (question.better,)
    names = {group.baseline.name for group in groups if group.baseline is not None}
    base = names.pop() if len(names) == 1 else "the baseline"
    where = f"On the mean over {len(groups)} groups, " if len(groups) > 1 else ""
    failures = _failures([one for one in findings if verdicts[one.name] == FAILS])
    ranked = sorted(
        (one for one in findings if _key(one, question, simulated) is not None),
        key=lambda one: (
            verdicts[one.name] not in wanted,
            accuracy_verdict(one) == "less accurate",
            _key(one, question, simulated),
        ),
    )
    if not ranked:
        reason = failures or "; no number is known on both sides"
        return _capitalized(f"{where}no variant {question.claim} {base}: {reason.removeprefix('; ')}.")
    best = ranked[0]
    more = f", {said}" if asks != "accuracy" and (said := accuracy_verdict(best)) else ""
    if len(won := [one for one in ranked if verdicts[one.name] in wanted]) > 1:
        more += f"; so {'is' if len(won) == 2 else 'are'} {_listed([one.name for one in won[1:]])}"
    number = _told(best, groups, question, simulated=simulated, virtual=virtual)
    said = verdicts[best.name]
    if said in wanted:
        claim = "is more accurate than" if said == "more accurate" else question.claim
        text = _FOUND.format(where=where, name=best.name, claim=claim, base=base, number=number, more=more + failures)
    else:
        sure = {MIXED: " in every group", OPEN: " for sure", "accuracy undecided": " for sure"}.get(said, "")
        text = _NOT_FOUND.format(
            where=where,
            claim=question.claim,
            base=base,
            sure=sure,
            name=best.name,
            number=number,
            more=more + failures.replace(f"; {best.name} {FAILS}", f", but {FAILS}"),
        )
    return _capitalized(text)


def _key(found: Finding, question: Question, simulated: bool) -> float | None:
    """The number by which variants are ranked, the smallest first."""
    if question is QUESTIONS["accuracy"]:
        difference = found.differences.get("accuracy")
        return None if difference is None else -difference.estimate
    ratio = found.ratios.get(question.of(simulated=simulated))
    return None if ratio is None else ratio.estimate if question.wants_less else -ratio.estimate


def _told(found: Finding, groups: Sequence[Group], question: Question, *, simulated: bool, virtual: bool) -> str:
    """`0.84 × the simulated time to 88.94 % validation accuracy (95 % interval 0.80 to 0.88, 3 seeds)`."""
    if question is QUESTIONS["accuracy"]:
        interval = found.differences["accuracy"]
        said, shown_as = f"{points(interval.estimate)} points of test {groups[0].metric.title}", points
    else:
        interval, shown_as = found.ratios[question.of(simulated=simulated)], _number
        noun = (
            question.noun if question.noun == "epochs" or not (virtual or simulated) else f"simulated {question.noun}"
        )
        what = "an epoch" if simulated and question.noun == "time" else ""
        to = "the target" if len(groups) > 1 else target_text(groups[0])
        tail = f" of {what}" * bool(what) if simulated else f" to {to}"
        said = f"{found.sign or ''}{_number(interval.estimate)} × the {noun}{tail}"
    if not interval.exists:
        return f"{said} (one seed)"
    middle, low, high = map(shown_as, _values(interval))
    ends = "" if low == middle == high else f"95 % interval {low} to {high}, "
    return f"{said} ({ends}{interval.seeds} seeds)"


def _failures(failed: Sequence[Finding]) -> str:
    parts = [f"; {one.name} {FAILS} {places(one)}" for one in failed[:_NAMED]]
    return "".join(parts) + (f"; so do {len(failed) - _NAMED} others" if len(failed) > _NAMED else "")


def places(found: Finding) -> str:
    """Where a variant misses the target: on how many seeds, or in how many groups."""
    if len(found.groups) > 1:
        return f"in {len(found.failed)} of {len(found.groups)} groups"
    return f"on {found.seeds - found.reached} of {found.seeds} seeds"


def agreement(groups: Sequence[Group]) -> str:
    """How well the published ratios of some groups are reproduced, as one sentence; empty without any."""
    factors = [ours / theirs for _, ours, theirs in published_pairs(groups)]
    if not factors:
        return ""
    near = sum(abs(factor - 1) <= WITHIN for factor in factors)
    middle = math.exp(statistics.median(abs(math.log(factor)) for factor in factors)) - 1
    return (
        f"{near} of {len(factors)} published ratios are reproduced within {100 * WITHIN:.0f} %; "
        f"the median deviation is {100 * middle:.0f} %."
    )


def published_pairs(groups: Sequence[Group]) -> list[tuple[str, float, float]]:
    """Name, our value and the published value of every published ratio to a baseline that is known here."""
    return [
        (f"{group.name}: {variant.name}, {measure}".removeprefix(": "), ratio.estimate, theirs)
        for group in groups
        for variant in group.variants
        if variant.finding is not None and not variant.is_baseline
        for measure in group.measures
        if (theirs := group.published_ratio(variant, measure))
        and (ratio := variant.finding.ratios.get(measure)) is not None
        and ratio.estimate > 0
    ]


def _listed(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} others"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
