"""`dorylax simulate` on small graphs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dorylax.simulation import paper
from dorylax.simulation.comparisons import COMPARISONS, Comparison
from dorylax.simulation.scenario import GraphSizes


def test_table(dorylax, scenario: str) -> None:
    code, out, err = dorylax("simulate", "--scenario", scenario, "--backend", "functions", "--backend", "cpu")
    assert (code, err) == (0, "")
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == "small: 20 epochs on 2 servers, prices of 2026-07"
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert [row[:2] for row in rows[:2]] == [["functions", "c5n.2xlarge"], ["cpu", "c5n.2xlarge"]]
    assert {"tasks of 3 epochs on functions", "tasks of 3 epochs on cpu"} <= set(lines)


def test_the_last_lines_are_assumptions_and_a_finding(dorylax, scenario: str) -> None:
    code, out, _ = dorylax("simulate", "--scenario", scenario, "--backend", "functions", "--backend", "cpu")
    assert code == 0
    *_, assumptions, found = out.splitlines()
    assert assumptions.startswith("assumptions: graph.cut_ratio = ")
    assert re.fullmatch(r"the cheapest of 2 backends is \w+: 20 epochs take .* and cost \$.*", found)
    assert " % network" in out


@pytest.mark.parametrize(("placement", "told"), [("servers", True), ("functions", False)])
def test_functions_that_run_no_stage_are_named(dorylax, scenario: str, placement: str, *, told: bool) -> None:
    Path(scenario).write_text(Path(scenario).read_text() + f"tensor.placement: {placement}\n")
    code, out, _ = dorylax("simulate", "--scenario", scenario, "--epochs", "1", "--backend", "functions")
    assert code == 0
    assert ("functions: no stage runs on a function" in out) == told
    code, out, _ = dorylax(
        "simulate", "--scenario", scenario, "--epochs", "1", "--backend", "functions", "--backend", "cpu"
    )
    assert out.splitlines()[-1].startswith("the cheapest of 2 backends is cpu") >= told


def test_a_model_that_needs_inputs_is_refused_on_sizes_alone(dorylax, scenario: str) -> None:
    file = Path(scenario).absolute().with_name("weighted.py")
    file.write_text(
        "from flax import nnx\n\n\n"
        "class Net(nnx.Module):\n"
        "    def __init__(self, features, classes, *, rngs):\n"
        "        self.out = nnx.Linear(features, classes, rngs=rngs)\n\n"
        "    def __call__(self, graph, x, *, weight):\n"
        "        return self.out(x)\n"
    )
    text = re.sub(r"^model.*$", f"model: {{name: '{file}:Net'}}", Path(scenario).read_text(), flags=re.MULTILINE)
    Path(scenario).write_text(text)
    code, _, err = dorylax("simulate", "--scenario", scenario)
    assert code == 2
    assert "holds sizes alone, but Net needs the input 'weight': give data.name instead" in err


def test_backends_that_do_not_fit_are_named_and_others_shown(dorylax, scenario: str) -> None:
    Path(scenario).write_text(Path(scenario).read_text() + "cluster: {graph_server: {memory: 1.0e+6}}\n")
    words = ("simulate", "--scenario", scenario, "--epochs", "1")
    code, out, err = dorylax(*words)
    assert (code, err) == (0, "")
    assert len(re.findall(r"^(functions|cpu) cannot be: a graph server would hold ", out, re.MULTILINE)) == 2
    assert out.splitlines()[-1].startswith("on gpu: 20 epochs take ")
    content = json.loads(dorylax(*words, "--json").out)
    assert ([one["backend"] for one in content["scenarios"]], list(content["refused"])) == (
        ["gpu"],
        ["functions", "cpu"],
    )
    code, out, err = dorylax(*words, "--backend", "functions")
    assert (code, out) == (2, "")
    assert err.startswith("error: small on functions: a graph server would hold ")


def test_a_terminal_shows_how_far_it_is(dorylax, scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, float, str]] = []

    @contextlib.contextmanager
    def bar(label: str) -> Iterator[Callable[[float, float, str], None]]:
        assert label == "small on functions"
        yield lambda *words: told.append(words)

    monkeypatch.setattr("dorylax.cli.simulate.bar", bar)
    monkeypatch.setattr("dorylax.cli.simulate._TOLD", 5)
    assert dorylax("simulate", "--scenario", scenario, "--epochs", "2", "--backend", "functions").code == 0
    done = [one for one, _, _ in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 2)
    assert any(1 < one < 2 for one in done)  # within an epoch, too
    assert told[-1][2].startswith("epoch 2/2  ")


def test_json_and_timeline(dorylax, scenario: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    code, out, _ = dorylax("simulate", "--scenario", scenario, "--epochs", "2", "--trace", str(trace), "--json")
    assert code == 0
    content = json.loads(out)
    (found,) = content["scenarios"]
    assert (content["schema"], found["name"], found["epochs"]) == (1, "small", 20)
    assert len(found["simulated_epochs"]) == 2
    assert found["dollars"]["total"] == pytest.approx(sum(found["dollars"].values()) / 2)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert max(event["args"]["epoch"] for event in events) == 1


def test_the_papers_tables(dorylax, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small graphs, with the epochs that each cell implies, and the verdict."""
    monkeypatch.setattr(paper, "GRAPHS", dict.fromkeys(paper.GRAPHS, GraphSizes(20_000, 100_000, 30, 5)))
    monkeypatch.setattr(paper, "TABLES_3_4", paper.TABLES_3_4[:2])
    code, out, err = dorylax("simulate", "--scenario", "paper/tables34", "--epochs", "2", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    assert [row["row"] for row in rows] == ["gcn-reddit-small", "gcn-reddit-large"]
    right = {"cpu": 0, "gpu": 0}
    for row in rows:
        for other in right:
            published, simulated = (row["relative"][other][name]["value"] for name in ("published", "simulated"))
            right[other] += (published > 1) == (simulated > 1)
        cell = row["cells"]["cpu"]
        simulated = cell["simulated"]
        seconds = simulated["prepare_seconds"] + cell["epochs_if_equal"] * simulated["epoch_seconds"]
        assert seconds == pytest.approx(cell["published"]["seconds"])
    code, out, err = dorylax("simulate", "--scenario", "paper/tables34", "--epochs", "2")
    assert (code, err) == (0, "")
    assert f"{rows[0]['cells']['cpu']['epochs_if_equal']:.0f}" in out
    assert f"against CPU servers in {right['cpu']} and against GPU servers in {right['gpu']} of 2 rows" in out


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(dorylax, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a small graph."""
    small = GraphSizes(20_000, 100_000, 30, 5)
    fewest_servers = next(iter(COMPARISONS.values())).scenarios()[:1]
    scenarios = [dataclasses.replace(one, graph=small) for one in fewest_servers]
    monkeypatch.setattr(Comparison, "scenarios", lambda _: scenarios)
    code, out, err = dorylax("simulate", "--scenario", name, "--epochs", "1", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    (row,) = content["rows"]
    assert (content["schema"], row["row"]) == (1, "gcn-reddit-small")
    one, other = (row[side.name] for side in (COMPARISONS[name].one, COMPARISONS[name].other))
    if content["measure"] == "epoch_seconds":
        assert row["ratio"] == pytest.approx(one["epoch_seconds"] / other["epoch_seconds"])
    code, out, err = dorylax("simulate", "--scenario", name, "--epochs", "1")
    assert (code, err) == (0, "")
    (line,) = (line for line in out.splitlines() if "gcn-reddit-small" in line)
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells[-2:] == [f"{row['ratio']:.2f}", f"{content['published']:g}"]
    # Dollars are shown where they are what is compared; what a published ratio is of, where it is something else.
    assert ("dollars" in out) == (content["measure"] == "dollars")
    assert content["note"] in out
    assert bool(content["note"]) == (name == "paper/sampled")


def test_preemptions(dorylax, scenario: str, tmp_path: Path) -> None:
    """A trace without removals costs the spot price; a policy is a row, a wrong option an error."""
    trace = tmp_path / "trace.csv"
    trace.write_text("0,add,a\n0,add,b\n")
    words = ("simulate", "--scenario", scenario, "--epochs", "1")
    code, out, err = dorylax(*words, "--preemptions", str(trace), "--preemptions", "900%", "--starts", "2", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert [row["policy"] for row in content["rows"]] == ["restart", "rerun", "reroute", "shadow"] * 2
    assert content["rows"][0]["seconds"][0] == pytest.approx(content["on_demand"]["seconds"])
    assert content["rows"][0]["dollars"][0] < content["on_demand"]["dollars"]
    code, out, err = dorylax(*words, "--trace", str(trace), "--policy", "rerun", "--starts", "1")
    assert (code, err) == (0, "")
    assert trace.read_text() == "0,add,a\n0,add,b\n"
    assert out.splitlines()[-1] == "trace: the cheapest policy is rerun"
    for given, problem in (
        (("--policy", "rerun"), "--policy needs --preemptions"),
        (("--preemptions", "often"), "must be a rate such as 10% or a trace FILE.csv, got 'often'"),
        (("--preemptions", "10%", "--hosts", "3"), "--hosts must be ≤ 2, the graph servers of the scenario, got 3"),
        (("--preemptions", "10%", "--backend", "functions"), "--preemptions takes --backend cpu or gpu"),
        (("--preemptions", "10%", "--report", "page.html"), "--report needs --what-if"),
    ):
        code, _, err = dorylax(*words, *given)
        assert (code, problem in err) == (2, True), err
