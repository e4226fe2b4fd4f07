from __future__ import annotations

from pathlib import Path

import pytest
from support.calibrations import measured

from dorylax.calibration.description import cluster_of, to_text
from dorylax.cost import find_cluster
from dorylax.settings.errors import ConfigError

GATHER = "    - {width: 16, rows_bytes: 1000, threads: 2, median: 8e+10, low: 7.6e+10, high: 8.4e+10, repeats: 3}\n"


def text() -> str:
    return to_text(cluster_of(measured(), "mine", 0.0))


def test_points() -> None:
    found = measured()
    assert found.at("gather", width=100, rows_bytes=9000, threads=1).median == 5e9
    with pytest.raises(LookupError, match="no measurement gather at"):
        found.at("gather", width=100)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            "  version: 3\n",
            "  version: 1\n",
            "measured.version must be 3, got 1: measure again with `dorylax calibrate`",
        ),
        ("  version: 3\n", "", "measured.version must be 3, got None"),
        ("  version: 3\n", "  version: true\n", "measured.version must be 3, got True"),
        ("  cores: 2\n", "  cores: 0\n", "measured.cores must be ≥ 1, got 0"),
        ("  cores: 2\n", "", "measured.cores is missing: expected a whole number"),
        ("  cores: 2\n", "  cors: 2\n", "measured.cors is not a key of what is measured: did you mean cores?"),
        ("  others: 0\n", "  others: 2\n", "measured.others must be ≥ 0 and ≤ 1, got 2"),
        ("  others: 0\n", "  others: much\n", "measured.others must be a number ≥ 0 and ≤ 1, got 'much'"),
        (
            GATHER,
            GATHER.replace("width: 16", "with: 16"),
            "measured.gather.0.with is not a key of a gather: did you mean",
        ),
        (GATHER, GATHER.replace("width: 16, ", ""), "measured.gather.0.width is missing: expected a whole number"),
        (GATHER, GATHER.replace("16", "1.5"), "measured.gather.0.width must be a whole number, got 1.5"),
        (GATHER, GATHER.replace("7.6e+10", "8.1e+10"), "measured.gather.0.median must be ≥ 8.1e+10, got 80000000000.0"),
        (GATHER, GATHER.replace("8.4e+10", ".inf"), "measured.gather.0.high must be finite, got inf"),
        (GATHER, GATHER.replace("repeats: 3", "repeats: 0"), "measured.gather.0.repeats must be ≥ 1, got 0"),
        (GATHER, "    - 3\n", "measured.gather.0 must hold keys such as width, got 3"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, before: str, after: str, problem: str) -> None:
    path = tmp_path / "mine.yaml"
    assert text().count(before) == 1
    path.write_text(text().replace(before, after))
    with pytest.raises(ConfigError) as caught:
        find_cluster(path)
    # A key that is missing has no line: it is its section's.
    line = path.read_text().partition(after or "measured:")[0].count("\n") + 1
    assert str(caught.value).startswith(f"mine.yaml:{line}: {problem}")


@pytest.mark.parametrize(("section", "problem"), [("3", "measured must hold keys"), ("{version: 3}", "")])
def test_a_section_of_the_wrong_kind(tmp_path: Path, section: str, problem: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\nmeasured: {section}\n")
    with pytest.raises(ConfigError, match=problem or "measured.date is missing: expected text"):
        find_cluster(path)


def test_lists_are_lists(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text().partition("  gather:")[0] + "  gather: 3\n")
    with pytest.raises(ConfigError, match=r"measured\.gather must be a list of measurements, got 3"):
        find_cluster(path)


def test_kinds_of_earlier_versions_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    entry = "median: 1.0, low: 1.0, high: 1.0, repeats: 3}\n"
    disk, reference = f"  disk:\n    - {{way: write, {entry}", f"  reference:\n    - {{tasks: graph, {entry}"
    path.write_text(text() + disk + reference)
    assert find_cluster(path).measured == measured()
