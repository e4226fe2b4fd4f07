"""What a sweep's question is answered with: one sentence over all that was compared, the first of its report.

The question is what a comparison asks (`Comparison.asks`): whether the others need less of something than the baseline, or
are as accurate. The answer claims only what whole intervals say, on one side of 1, and nothing of runs that never reach the
target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, final

from dorylax.experiments.analysis import Compared, Group, Variant, as_accurate
from dorylax.experiments.measures import RATIO
from dorylax.experiments.pooling import PooledVariant, pool_of
from dorylax.experiments.seed_statistics import Interval, mean_of_ratios
from dorylax.experiments.sentences import capitalised, listed, target_words
from dorylax.experiments.simulated_analysis import SimulatedGroup
from dorylax.experiments.sweep import Comparison

MEASURE = {"time": "seconds", "epochs": "epochs", "cost": "dollars"}
"""Of `measures.TO_TARGET`, by what is asked."""

MEASURE_OF_SIMULATED = {"time": "epoch_seconds", "cost": "dollars", "value": "value"}
"""Of `measures.COMPARED`, by what is asked."""

_NAMED = 3
"""Settings that a clause names."""


class _Words(NamedTuple):
    """How a verdict is said: of one setting and of several, in full and after another clause."""

    one: str
    several: str
    one_more: str
    several_more: str


_LESS = {
    "time": _Words("needs less time than", "need less time than", "needs less", "need less"),
    "epochs": _Words("needs fewer epochs than", "need fewer epochs than", "needs fewer", "need fewer"),
    "cost": _Words("costs less than", "cost less than", "costs less", "cost less"),
    "value": _Words("has less value than", "have less value than", "has less", "have less"),
}
_MORE = {
    "time": _Words("needs more time than", "need more time than", "needs more", "need more"),
    "epochs": _Words("needs more epochs than", "need more epochs than", "needs more", "need more"),
    "cost": _Words("costs more than", "cost more than", "costs more", "cost more"),
    "value": _Words("has more value than", "have more value than", "has more", "have more"),
}
_IT = "it "
_DOUBTS = {"depends": f"{_IT}depends on the group whether ", "undecided": f"{_IT}is undecided whether "}
_SAME = _Words("is as accurate as", "are as accurate as", "is as accurate", "are as accurate")
_HIGHER = _Words("is more accurate than", "are more accurate than", "is more accurate", "are more accurate")
_LOWER = _Words("is less accurate than", "are less accurate than", "is less accurate", "are less accurate")


@final
class _Finding(NamedTuple):
    """A setting's: which verdict, what follows in brackets, and what else is to be said, as sentences without a subject."""

    name: str
    verdict: str
    details: str
    more: Sequence[str] = ()


def answer(groups: Sequence[Group], comparison: Comparison) -> str:
    """The answer of runs that train.

    Args:
        groups: of the sweep, as `analyse` makes them.
        comparison: of the sweep.
    """
    compared = [group for group in groups if any(_others(group))]
    if not compared:
        unit = next((group.metric.title for group in groups if not group.metric.fraction), None)
        if unit is not None:
            return f"Nothing is compared: runs are judged by {unit}, and only metrics from 0 to 1 have targets."
        return "Nothing can be said yet: there is no seed on which the baseline and another setting are done."
    asks, base = comparison.asks, _baseline(compared)
    if not any(one.compared.judged for group in compared for one in _others(group) if one.compared is not None):
        if len(compared) == 1:
            return f"No run reaches {target_words(compared[0])}: nothing is claimed."
        return f"No run in any of {len(compared)} groups reaches its target: nothing is claimed."
    pool = pool_of(compared)
    if pool is None:
        (group,) = compared
        findings = [_of_one(one.name, one.compared, base, asks) for one in _others(group) if one.compared is not None]
        target = f" to {target_words(group)}"
    else:
        findings = [_of_pooled(one, base, asks, len(pool.groups)) for one in pool.variants]
        target = " to the target"
    if asks == "accuracy":
        words = {"yes": _SAME, "higher": _HIGHER, "lower": _LOWER}
        return _text(findings, words, base, "", 1 if pool is None else len(pool.groups))
    return _text(
        findings, {"yes": _LESS[asks], "no": _MORE[asks]}, base, target, 1 if pool is None else len(pool.groups)
    )


def answer_of_simulated(groups: Sequence[SimulatedGroup], comparison: Comparison) -> str:
    """The answer of runs that are simulated.

    Args:
        groups: of the sweep, as `analyse_simulated` makes them.
        comparison: of the sweep.
    """
    asks, measure = comparison.asks, MEASURE_OF_SIMULATED[comparison.asks]
    by_name: dict[str, list[tuple[SimulatedGroup, Mapping[str, Interval]]]] = {}
    for group in groups:
        for variant in group.variants:
            if measure in variant.ratios:
                by_name.setdefault(variant.name, []).append((group, variant.ratios))
    bases = dict.fromkeys(one.name for group in groups for one in group.variants if one.is_baseline)
    if not by_name:
        return "Nothing can be said yet: there is no seed on which the baseline and another setting are done."
    findings = []
    for name, where in by_name.items():
        ratios = [found[measure] for _, found in where]
        ratio = ratios[0] if len(ratios) == 1 else _mean_simulated(name, [group for group, _ in where], measure)
        less, more = (sum(_side(one) == side for one in ratios) for side in ("less", "more"))
        better, worse = (more, less) if asks == "value" else (less, more)
        verdict = {"less": "yes", "more": "no", "": "undecided"}[_side(ratio)]
        if asks == "value":
            verdict = {"yes": "no", "no": "yes"}.get(verdict, verdict)
        verdict, counts = _agreed(verdict, better=better, worse=worse), _counts(asks, less, more, len(ratios))
        findings.append(_Finding(name, verdict, _ratio_words(ratio), counts))
    yes, no = (_MORE, _LESS) if asks == "value" else (_LESS, _MORE)
    tail = " for an epoch" if asks == "time" else ""
    base = next(iter(bases)) if len(bases) == 1 else "the baseline"
    return _text(findings, {"yes": yes[asks], "no": no[asks]}, base, tail, len(groups))


def _side(ratio: Interval) -> str:
    """Of 1; of one seed as the estimate says: that simulations of one vary at all is an exception."""
    low, high = (ratio.low, ratio.high) if ratio.exists else (ratio.estimate, ratio.estimate)
    return "less" if high < 1 else "more" if low > 1 else ""


def _mean_simulated(name: str, groups: Sequence[SimulatedGroup], measure: str) -> Interval:
    pairs = []
    for group in groups:
        base = group.baseline
        assert base is not None
        runs = next(one.runs for one in group.variants if one.name == name)
        seeds = [seed for seed in runs if seed in base.runs]
        pairs.append(([runs[seed][measure] for seed in seeds], [base.runs[seed][measure] for seed in seeds]))
    return mean_of_ratios(pairs)


def _others(group: Group) -> list[Variant]:
    """What is compared with the baseline."""
    return [one for one in group.variants if one.compared is not None and not one.is_baseline]


def _baseline(groups: Sequence[Group]) -> str:
    names = {group.baseline.name for group in groups if group.baseline is not None}
    return names.pop() if len(names) == 1 else "the baseline"


def _of_one(name: str, found: Compared, base: str, asks: str) -> _Finding:
    where = f"on {found.reached} of {found.seeds} seeds, {base} on {found.baseline_reached}"
    reached = f"reaches the target {where}"
    if asks == "accuracy":
        if not found.judged:
            return _Finding(name, "uncompared", reached)
        return _of_accuracy(name, found.accuracy)
    ratio: Interval | None = getattr(found, MEASURE[asks] + RATIO)
    accuracy = _accuracy_words(found.accuracy, found.judged > 0)
    if ratio is None:
        return _without_ratio(name, found, where, accuracy, free=asks == "cost" and found.seconds_ratio is not None)
    more = [reached] if min(found.reached, found.baseline_reached) < found.seeds else []
    return _Finding(name, _verdict(ratio), found.sign.replace(" ", "") + _ratio_words(ratio), [*more, *accuracy])


def _of_pooled(found: PooledVariant, base: str, asks: str, groups: int) -> _Finding:
    where = f"in {found.reached} of {found.runs} runs, {base} in {found.baseline_reached}"
    reached = f"reaches the target {where}"
    if not (found.reached or found.baseline_reached):
        return _Finding(found.name, "uncompared", reached)
    if asks == "accuracy":
        return _of_accuracy(found.name, found.means.get("accuracy"))
    measure = MEASURE[asks]
    ratio = found.means.get(measure)
    accuracy = _accuracy_words(found.means.get("accuracy"), True)
    if ratio is None:
        return _without_ratio(found.name, found, where, accuracy, free=asks == "cost" and "seconds" in found.means)
    more = _counts(asks, found.less[measure], found.more[measure], found.groups)
    more += [reached] if min(found.reached, found.baseline_reached) < found.runs else []
    details = _ratio_words(ratio)
    if found.compared == found.groups < groups:
        details += f", in the {found.groups} of {groups} groups that have it"
    if found.compared < found.groups:
        details += (
            f", over the {found.compared} of {found.groups} groups in which both reach the target on the same seeds"
        )
    verdict = _agreed(_verdict(ratio), better=found.less[measure], worse=found.fewer + found.more[measure])
    return _Finding(found.name, verdict, details, [*more, *accuracy])


def _without_ratio(
    name: str, found: Compared | PooledVariant, where: str, more: Sequence[str], *, free: bool
) -> _Finding:
    """Where one side does not reach the target, or costs nothing."""
    if free:
        return _Finding(name, "uncompared", "runs have no cost", more)
    if found.reached < found.baseline_reached:
        return _Finding(name, "fails", where, more)
    return _Finding(name, "uncompared", f"reaches the target {where}", more)


def _of_accuracy(name: str, difference: Interval | None) -> _Finding:
    if difference is None:
        return _Finding(name, "uncompared", "there is no test accuracy")
    return _Finding(name, _verdict_of_accuracy(difference), _points_words(difference))


def _counts(asks: str, less: int, more: int, groups: int) -> list[str]:
    if groups < 2:
        return []
    return [f"{_LESS[asks].one_more} in {less or 'none'} of the {groups} groups, more in {more or 'none'}"]


def _verdict(ratio: Interval) -> str:
    return "yes" if ratio.high < 1 else "no" if ratio.low > 1 else "undecided"


def _agreed(verdict: str, *, better: int, worse: int) -> str:
    """A verdict on the mean over groups, unless some groups say otherwise; they are counted."""
    return "depends" if (verdict == "yes" and worse) or (verdict == "no" and better) else verdict


def _verdict_of_accuracy(difference: Interval) -> str:
    if as_accurate(difference):
        return "yes"
    return "higher" if difference.low > 0 else "lower" if difference.high < 0 else "undecided"


def _accuracy_words(difference: Interval | None, judged: bool) -> list[str]:
    """What a setting gives away, or not."""
    if difference is None or not judged:
        return []
    words = {"yes": "is as accurate", "higher": "is more accurate", "lower": "is less accurate"}
    said = words.get(_verdict_of_accuracy(difference), "may differ in accuracy")
    return [f"{said} ({_points_words(difference)})"]


def _ratio_words(ratio: Interval) -> str:
    return _interval_words(ratio, "×", lambda value: f"{value:.2f}" if value < 100 else f"{value:.3g}")


def _points_words(difference: Interval) -> str:
    return _interval_words(difference, " points", lambda value: f"{round(100 * value, 1) + 0.0:+.1f}")


def _interval_words(interval: Interval, unit: str, shown: Callable[[float], str]) -> str:
    """`0.84×, 0.80 to 0.88`."""
    if not interval.exists:
        return f"{shown(interval.estimate)}{unit}, on one seed"
    roughly = f"on {interval.seeds} seeds roughly " if interval.rough else ""
    return f"{shown(interval.estimate)}{unit}, {roughly}{shown(interval.low)} to {shown(interval.high)}"


def _text(findings: Sequence[_Finding], words: Mapping[str, _Words], base: str, tail: str, groups: int) -> str:
    """The sentence that answers, and what else there is to say of a few settings."""
    text = _sentence(findings, words, base, tail)
    if groups > 1:
        text = f"On the mean over {groups} groups {text}"
    elif text.startswith(_IT):
        text = capitalised(text)
    more = [listed([f"{one.name} {one.more[0]}", *one.more[1:]]) + "." for one in findings if one.more]
    return " ".join([text, *(more if len(findings) <= _NAMED else [])])


def _sentence(findings: Sequence[_Finding], words: Mapping[str, _Words], base: str, tail: str) -> str:
    """Clauses by verdict: what the question asks for first, what cannot be said last."""
    clauses: list[str] = []
    for verdict in (*words, "fails", "depends", "undecided", "uncompared"):
        mine = [one for one in findings if one.verdict == verdict]
        if not mine:
            continue
        said = words.get(verdict, words["yes"])
        phrase = (said.one, said.several, said.one_more, said.several_more)[2 * bool(clauses) + (len(mine) > 1)]
        if verdict == "fails":
            phrase = ("reaches" if len(mine) == 1 else "reach") + f" the target less often than {base}"
        elif verdict == "uncompared":
            phrase = "cannot be compared" + ("" if clauses else f" with {base}")
        elif not clauses:
            phrase += f" {base}{tail}"
        before = _DOUBTS.get(verdict, "")
        if len(mine) == 1:
            clauses.append(f"{before}{mine[0].name} {phrase} ({mine[0].details})")
        else:
            clauses.append(f"{before}{_subjects(mine)} {phrase}")
    return "; ".join(clauses) + "."


def _subjects(findings: Sequence[_Finding]) -> str:
    named = [f"{one.name} ({one.details})" for one in findings[:_NAMED]]
    if more := len(findings) - len(named):
        named.append(f"{more} others" if more > 1 else "another one")
    return listed(named)
