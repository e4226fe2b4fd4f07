"""What comparisons have shown, in plain words: a sentence for each setting, and what intervals rest on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dorylax.experiments.analysis import AT_LEAST, AT_MOST, Compared, Group, Variant, as_accurate
from dorylax.experiments.seed_statistics import FEW, Interval

_BOUNDS = {"": "", AT_LEAST: "at least ", AT_MOST: "at most "}


def sentences(group: Group) -> list[str]:
    """What was found in a group: a sentence for each setting but the baseline, and one on the intervals in them."""
    base = group.baseline
    found = [(one, one.compared) for one in group.variants if one.compared is not None and not one.is_baseline]
    if base is None or group.target is None or not found:
        return []
    if not any(compared.judged for _, compared in found):
        return [f"No run reaches {target_words(group)}: nothing is compared."]
    lines = [_sentence(variant, compared, base, group.metric.title) for variant, compared in found]
    shown = [
        one
        for _, compared in found
        for one in (compared.epochs_ratio, compared.seconds_ratio, compared.accuracy)
        if one
    ]
    return lines + [line for line in [intervals_words(shown)] if line]


def target_words(group: Group) -> str:
    """`the target of 88.94 % validation accuracy`."""
    return f"the target of {100 * (group.target or 0.0):.2f} % validation {group.metric.title}"


def _sentence(variant: Variant, found: Compared, baseline: Variant, metric: str) -> str:
    """Of one setting.

    `async S=1 needs 1.31× (1.22–1.40) the epochs of pipe and 0.84× (0.80–0.88) the time; it is as accurate, …`
    """
    parts: list[str] = []
    for ratio, what in (
        (found.epochs_ratio, "the epochs"),
        (found.seconds_ratio, "the time"),
        (found.dollars_ratio, "the cost"),
    ):
        if ratio is not None:
            of = f" of {baseline.name}" if not parts else ""
            parts.append(f"{_BOUNDS[found.sign]}{times(ratio)} {what}{of}")
    reached = (
        f"reaches the target on {found.reached} of {found.seeds} seeds, {baseline.name} on {found.baseline_reached}"
    )
    if not parts:
        text = f"{variant.name} {reached}: what it takes is not compared"
    else:
        text = f"{variant.name} needs {listed(parts)}"
        if min(found.reached, found.baseline_reached) < found.seeds:
            text += f"; it {reached}"
    if found.accuracy is not None and found.judged:
        if not found.accuracy.exists:
            text += f"; on this one seed its {metric} differs by {100 * found.accuracy.estimate:+.2f} points"
        else:
            text += f"; it {accuracy_words(found.accuracy)}: {points(found.accuracy, 2)}"
    return text + "."


def accuracy_words(difference: Interval) -> str:
    """`is as accurate`, `is more accurate`, `is less accurate`, or `may differ in accuracy`."""
    if as_accurate(difference):
        return "is as accurate"
    if difference.low > 0:
        return "is more accurate"
    return "is less accurate" if difference.high < 0 else "may differ in accuracy"


def intervals_words(intervals: Iterable[Interval]) -> str:
    """What is to be said of intervals of few seeds; nothing of others, and where there are none at all."""
    seeds = {one.seeds for one in intervals}
    said = ["What rests on one seed has no interval, and is not certain."] if 1 in seeds else []
    if few := sorted(number for number in seeds if 1 < number < FEW):
        freedom = f"{few[0] - 1} degree{'s' * (few[0] > 2)} of freedom"
        said.append(f"Intervals of {few[0]} seeds are rough: Student's t with {freedom} in place of the bootstrap.")
    return " ".join(said)


def times(ratio: Interval) -> str:
    """A ratio with its interval, of which there is none on one seed: `1.31× (1.22–1.40)`."""
    return f"{_number(ratio.estimate)}×" + (f" ({_number(ratio.low)}–{_number(ratio.high)})" if ratio.exists else "")


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.3g}"


def points(difference: Interval, digits: int = 1) -> str:
    """A difference of accuracies: `+0.2 points (-0.1 to +0.5)`."""
    low, middle, high = (
        f"{round(100 * x, digits) + 0.0:+.{digits}f}" for x in (difference.low, difference.estimate, difference.high)
    )
    return f"{middle} points" + (f" ({low} to {high})" if difference.exists else "")


def capitalised(text: str) -> str:
    """With a capital letter at the beginning, and all others as they are."""
    return text[:1].upper() + text[1:]


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`; at least one."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
