"""Which tests a default run has: every cheap test, a core of the dear ones, and a slice of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.costs import Costs
from support.tiers import Case, Slice, chosen, core, shards

ROOT = Path(__file__).parents[1]
FILE = "tests/a.py"
CASES = [
    Case(f"{FILE}::unknown[{k}]", 0.0, None, False) for k in range(3)
] + [
    Case(f"{FILE}::dear[slow]", 2.0, None, False),
    Case(f"{FILE}::dear[fast]", 0.6, None, False),
    Case(f"{FILE}::dearest[a]", 9.0, None, False),
    Case(f"{FILE}::longest", 21.0, None, False),
    Case(f"{FILE}::boundary", 9.0, None, True),
    Case(f"{FILE}::shares[a]", 0.0, "tests::cluster", False),
    Case(f"{FILE}::shares[b]", 0.0, "tests::cluster", False),
]  # fmt: skip


def names(*ends: str) -> set[str]:
    return {f"{FILE}::{end}" for end in ends}


def test_the_core_has_cheap_tests_marked_tests_and_the_cheapest_case_of_each_function() -> None:
    assert core(CASES) == names("unknown[0]", "unknown[1]", "unknown[2]", "dear[fast]", "boundary")


def test_the_core_kills_every_planted_fault() -> None:
    already = [f"{FILE}::dear[fast]", f"{FILE}::boundary", f"{FILE}::unknown"]
    assert core(CASES, [[name, f"{FILE}::dearest[a]"] for name in already]) == core(CASES)
    for first in ("dear[slow]", "dearest", "shares[b]"):
        added = core(CASES, [[f"{FILE}::{first}", f"{FILE}::shares[a]"]]) - core(CASES)
        assert added == names("dearest[a]" if first == "dearest" else first)


def test_a_slice_adds_cases_and_takes_those_of_one_dear_fixture_together() -> None:
    found = [chosen(CASES, Slice(3, f"commit {k}")) - core(CASES) for k in range(64)]
    assert set().union(*found) == names("dear[slow]", "dearest[a]", "shares[a]", "shares[b]")
    assert all(("shares[a]" in str(one)) == ("shares[b]" in str(one)) for one in found)


def test_slices_repeat_by_key_and_hold_about_their_share() -> None:
    many = [f"{FILE}::test[{k}]" for k in range(4000)]
    held = [set(filter(Slice(20, key).has, many)) for key in ("a", "a", "b")]
    assert held[0] == held[1] != held[2]
    assert all(150 < len(one) < 250 for one in held)


def test_shards_are_disjoint_complete_and_of_about_equal_cost() -> None:
    costs = {f"tests/{k}.py": float(k % 17 + 1) for k in range(100)}
    parts = shards(costs, 4)
    assert sorted(name for part in parts for name in part) == sorted(costs)
    totals = [sum(costs[name] for name in part) for part in parts]
    assert max(totals) - min(totals) <= max(costs.values())


def test_costs_survive_the_file(tmp_path: Path) -> None:
    costs = Costs({FILE: 1.5}, {f"{FILE}::a[x::y]": 2.0}, {f"{FILE}::cluster": 6.0})
    costs.write(tmp_path / "costs.json")
    assert Costs.read(tmp_path / "costs.json") == costs


def test_recording_replaces_what_ran_and_forgets_what_is_gone() -> None:
    this, other, gone = "tests/test_tiers.py", "tests/test_docs.py", "tests/gone.py"
    dear = {
        f"{this}::ran": 2.0,
        f"{this}::skipped": 2.0,
        f"{this}::removed": 2.0,
        f"{other}::b": 3.0,
        f"{gone}::c": 1.0,
    }
    costs = Costs({this: 1.0, other: 1.0, gone: 1.0}, dear, {f"{gone}::fixture": 6.0})
    costs.update(Costs({this: 0.5}), {f"{this}::ran"}, {f"{this}::ran", f"{this}::skipped"})
    assert costs == Costs({this: 0.5, other: 1.0}, {f"{this}::skipped": 2.0, f"{other}::b": 3.0})


def test_no_file_keeps_a_process_busy_for_over_a_minute() -> None:
    costs = Costs.read()
    cases = [Case(name, cost, None, False) for name, cost in costs.tests.items()]
    totals = dict(costs.files)
    for name in core(cases):
        totals[name.split("::")[0]] += costs.tests[name]
    assert {file: seconds for file, seconds in totals.items() if seconds > 60} == {}


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite with a dear function of three cases and a cheap one, whose tests this repository's plugins choose."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\naddopts = -m 'not exhaustive'\nmarkers = exhaustive\n core\ntestpaths = .")
    pytester.makeconftest(
        f"""
        import sys
        sys.path.insert(0, {str(ROOT / "tests")!r})
        from support import costs, tiers
        recorded = costs.Costs(tests={{f"test_dear.py::test_dear[{{k}}]": 0.5 + k for k in range(3)}})
        costs.Costs.read = lambda: recorded
        pytest_addoption = tiers.add_options
        pytest_configure = tiers.configure
        """
    )
    pytester.makepyfile(
        test_dear="""
        import pytest
        @pytest.mark.parametrize("k", range(3))
        def test_dear(k): pass
        def test_cheap(): pass
        """
    )
    return pytester


def ran(suite: pytest.Pytester, *options: str) -> set[str]:
    result = suite.runpytest_subprocess("-v", *options)
    return {line.split()[0].removeprefix("test_dear.py::") for line in result.outlines if line.endswith("%]")}


def test_a_default_run_thins_out_and_an_exhaustive_one_does_not(suite: pytest.Pytester) -> None:
    few = ran(suite, "--slice", "1000000", "--slice-key", "x")
    every = few | {"test_dear[1]", "test_dear[2]"}
    assert few == {"test_dear[0]", "test_cheap"}
    assert ran(suite, "-m", "exhaustive") == every
    assert ran(suite, "test_dear.py") == every  # tests that are named by path all run
    assert ran(suite, "--slice", "1") == every


def test_shards_split_all_tests(suite: pytest.Pytester) -> None:
    assert ran(suite, "-m", "exhaustive", "--shard", "1/2") | ran(suite, "-m", "exhaustive", "--shard", "2/2") == ran(
        suite, "-m", "exhaustive"
    )
    assert suite.runpytest_subprocess("--shard", "3/2").ret == pytest.ExitCode.USAGE_ERROR
