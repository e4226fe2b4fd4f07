"""Traces of preemptible hosts, and their replay under the recovery policies."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from dorylax.cost import DEFAULT_CLUSTER
from dorylax.cost.cluster_file import changed
from dorylax.pipeline.recovery.catalogue import POLICIES
from dorylax.settings.errors import ConfigError
from dorylax.simulation.preemption import Costs, EpochTimes, Replayed, on_demand, replay
from dorylax.simulation.preemption_traces import PreemptionTrace, read_trace, synthetic_trace
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError

HOSTS = 4


@pytest.fixture(scope="module")
def times() -> EpochTimes:
    """Of a small graph on four servers, for several hours."""
    settings = {"pipeline.servers": HOSTS, "pipeline.intervals": 2, "train.epochs": 2000}
    sizes, cluster = GraphSizes(20_000_000, 400_000_000, 64, 10), changed(DEFAULT_CLUSTER, {"graph_server.memory": 0.0})
    return EpochTimes(Scenario.of("any", settings, graph=sizes, cluster=cluster).on("cpu"), epochs=2)


def replayed(trace: PreemptionTrace, policy: str, times: EpochTimes, start: float = 0.0, **costs: float) -> Replayed:
    return replay(trace, start, policy, times, hosts=HOSTS, costs=Costs(**costs))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0,add,a\n5,join,b\n", r"t.csv, line 2: must be milliseconds,add\|remove,node, got '5,join,b'"),
        ("0,add,a\n-5,add,b\n", "line 2: must be milliseconds"),
        ("0,add\n", "line 1: must be milliseconds"),
        ("7,add,a\n5,add,b\n", "line 2: is earlier than the line before"),
        ("0,add,a\n5,add,a\n", "line 2: add of a, which is there already"),
        ("0,add,a\n5,remove,b\n", "line 2: remove of b, which is not there"),
        ("", "has no lines"),
    ],
)
def test_wrong_traces_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_trace(path)


def test_a_trace_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read as a trace"):
        read_trace(tmp_path / "none.csv")


def test_times_count_from_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("2000,add,a\n3500,remove,a\n")
    found = read_trace(tmp_path / "t.csv")
    assert [one[:2] for one in found.changes] == [(0.0, "add"), (1.5, "remove")]


@pytest.mark.parametrize("hosts", [2, 5, 16, 40])
def test_scaled_traces_have_as_many_nodes_and_the_same_rate(hosts: int) -> None:
    trace = synthetic_trace(16, 0.5, hours=200.0)
    scaled = trace.scaled(hosts)
    assert scaled.most == hosts
    assert len(scaled.changes) == pytest.approx(len(trace.changes) * hosts / 16, rel=0.1)


def test_synthetic_traces_have_their_rate_and_bursts_in_one_zone() -> None:
    trace = synthetic_trace(30, 0.2, burst=3, zones=3, hours=500.0)
    lost: dict[float, list[str]] = {}
    for one in trace.changes:
        if one.kind == "remove":
            lost.setdefault(one.seconds, []).append(one.node)
    assert sum(map(len, lost.values())) / 500 == pytest.approx(0.2 * 30, rel=0.1)
    assert max(map(len, lost.values())) == 3
    assert all(len({trace.zone(node) for node in nodes}) == 1 for nodes in lost.values())
    assert trace.changes != synthetic_trace(30, 0.2, burst=3, zones=3, hours=500.0, seed=1).changes


@pytest.mark.parametrize("start", [0.0, 4000.0])
def test_repeated_traces_add_and_remove_nodes_that_are_away_and_there(start: float) -> None:
    alive: set[str] = set()
    before = 0.0
    for seconds, kind, node in synthetic_trace(5, 1.0, hours=2.0).from_second(start, 40 * 3600.0):
        assert seconds >= before
        assert (kind == "remove") == (node in alive)
        (alive.remove if kind == "remove" else alive.add)(node)
        before = seconds
    assert before > 20 * 3600


@pytest.mark.parametrize("policy", POLICIES)
def test_without_removals_a_run_takes_the_time_of_on_demand(policy: str, times: EpochTimes) -> None:
    found, base = replayed(synthetic_trace(HOSTS, 0.0), policy, times, spot_price=1.0), on_demand(times, HOSTS)
    shadows = policy == "shadow"
    assert found.seconds == pytest.approx(base.epochs * times.epoch(1, shadows=shadows), rel=1e-9)
    assert (found.wasted, found.epochs) == (0, base.epochs)
    assert found.seconds == pytest.approx(base.seconds, rel=1e-9) or shadows
    assert found.dollars / found.seconds == pytest.approx(base.dollars / base.seconds)


@pytest.mark.parametrize("notice", [0.0, 120.0])
@pytest.mark.parametrize("policy", POLICIES)
def test_time_and_money_add_up(policy: str, notice: float, times: EpochTimes) -> None:
    trace = synthetic_trace(HOSTS, 0.8, burst=2)
    found = replayed(trace, policy, times, notice=notice)
    assert found.finished
    assert sum(found.by_phase.values()) == pytest.approx(found.seconds)
    assert found.by_phase["recover"] > 0
    assert found.by_phase.get("wasted", 0.0) > 0 or notice
    assert min(found.by_phase.values()) >= 0
    assert found.host_seconds <= HOSTS * found.seconds
    cluster = times.scenario.cluster
    hours = found.seconds * cluster.parameter_server.price, found.host_seconds * cluster.graph_server.price
    assert found.dollars == pytest.approx((hours[0] + hours[1] * Costs().spot_price) / 3600)
    assert found == replayed(synthetic_trace(HOSTS, 0.8, burst=2), policy, times, notice=notice)
    assert found != replayed(synthetic_trace(HOSTS, 0.8, burst=2, seed=1), policy, times, notice=notice)


@pytest.mark.parametrize("policy", POLICIES)
def test_more_preemptions_take_longer_on_average(policy: str, times: EpochTimes) -> None:
    means = []
    for rate in (0.0, 0.3, 2.0):
        trace = synthetic_trace(HOSTS, rate)
        length = trace.changes[-1].seconds
        means.append(
            fmean(replayed(trace, policy, times, start * length / 8, notice=0.0).seconds for start in range(8))
        )
    assert means == sorted(means)
    assert means[2] > 1.02 * means[0]


def test_reasons_name_the_policy_s_answer_to_a_loss(times: EpochTimes) -> None:
    trace = synthetic_trace(HOSTS, 1.0)
    actions = {
        policy: {action for action, _ in replayed(trace, policy, times, notice=0.0).decisions} for policy in POLICIES
    }
    assert "take over" in actions["shadow"]
    assert all("take over" not in actions[policy] for policy in ("restart", "rerun", "reroute"))


def test_a_longer_reload_slows_only_restarts(times: EpochTimes) -> None:
    trace = synthetic_trace(HOSTS, 1.0)
    for policy in POLICIES:
        fast, slow = (replayed(trace, policy, times, notice=0.0, reload=reload).seconds for reload in (1.0, 600.0))
        assert (slow > fast) == (policy == "restart")


def test_shadows_cost_the_bytes_and_seconds_that_do_not_fit(times: EpochTimes) -> None:
    assert times.epoch(1, shadows=True) >= times.epoch(1)
    assert times.epoch(2) > 1.2 * times.epoch(1)
    assert 0 < times.forward_share(1) < 1


def test_functions_are_refused() -> None:
    with pytest.raises(ScenarioError, match="simulate them on cpu or gpu"):
        EpochTimes(Scenario.of("any", {"pipeline.servers": 2}, graph=GraphSizes(1000, 9000, 4, 2)))
