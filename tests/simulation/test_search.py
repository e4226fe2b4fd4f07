from __future__ import annotations

import dataclasses

import pytest

from dorylax.cost import INSTANCES
from dorylax.settings.errors import ConfigError
from dorylax.simulation import scenario as scenarios
from dorylax.simulation import search as searches
from dorylax.simulation.choice import Price
from dorylax.simulation.grid import Grid
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError
from dorylax.simulation.search import COLUMNS, Search, Tried, usual_epochs, what_if

SIZES = GraphSizes(2000, 40_000, 30, 4)


def scenario(**settings) -> Scenario:
    settings = {key.replace("__", "."): value for key, value in settings.items()}
    return Scenario.of("any", {"model.hidden_features": 8, "train.epochs": 20, **settings}, graph=SIZES)


@pytest.fixture(scope="module")
def search() -> Search:
    return what_if(scenario(), "servers=1..3,functions=2|4,backend=functions|cpu", epochs=2)


def test_each_point_is_what_its_scenario_alone_is(search):
    assert search.complete
    assert len(search.tried) == search.points == 9
    for point, found in search.known:
        assert found == simulate(point.of(scenario()), epochs=2)
        assert (found.servers, found.intervals) == (point.servers, point.intervals)
        assert search.at(point) is found


def test_the_order_is_the_grids_whoever_simulates(search):
    told = []
    again = what_if(
        scenario(), "servers=1..3,functions=2|4,backend=functions|cpu", epochs=2, jobs=2, on_tried=told.append
    )
    assert again == search
    assert sorted(told, key=search.tried.index) == list(search.tried)
    assert [one.point for one in search.tried] == Grid.parse(str(search.grid)).points(scenario(), 100)


@pytest.mark.parametrize("jobs", [1, 2])
def test_side_by_side_the_longest_points_begin_first(monkeypatch, jobs):
    """A short one is simulated alone, the others so that no process is left with a long one in the end."""
    asked = []

    def refused(tasks, jobs):
        asked.extend(tasks)
        return ((place, f"{task.scenario.pipeline.servers}") for place, task in enumerate(tasks))

    monkeypatch.setattr(searches, "outcomes", refused)
    found = what_if(scenario(), "servers=4|1|3|2", jobs=jobs)
    servers = [one.scenario.pipeline.servers for one in asked]
    assert servers == ([4, 1, 3, 2] if jobs == 1 else [1, 4, 3, 2])
    assert [(one.point.servers, one.reason) for one in found.tried] == [(4, "4"), (1, "1"), (3, "3"), (2, "2")]


def test_grids_are_text_or_values(search):
    axes = {"servers": [1, 2, 3], "functions": [2, 4], "backend": ["functions", "cpu"]}
    assert what_if(scenario(), axes, epochs=2) == search


def test_picks(search):
    fastest, cheapest = search.front[0], search.front[-1]
    assert search.pick(budget=1e9) == fastest
    assert search.pick(deadline=1e9) == cheapest
    price = Price(search.at(cheapest).seconds, search.at(cheapest).bill.total)
    assert search.pick(budget=price.dollars) == cheapest
    assert search.pick() == search.pick(1e9, 1e9)
    assert search.at(search.pick()).value == max(found.value for _, found in search.known)


def test_where_nothing_fits_the_nearest_is_named(search):
    cheapest, fastest = search.front[-1], search.front[0]
    with pytest.raises(ScenarioError) as caught:
        search.pick(budget=search.at(cheapest).bill.total / 2)
    label = search.priced(cheapest)
    assert str(caught.value).startswith("nothing is within $")
    assert str(caught.value).endswith(f": the nearest is {label}")
    with pytest.raises(ScenarioError) as caught:
        search.pick(deadline=search.at(fastest).seconds / 2)
    assert search.priced(fastest) in str(caught.value)


def test_frames(search):
    frame = search.frame()
    assert list(frame) == list(COLUMNS)
    assert len(frame) == 9
    assert frame["servers"].dtype == "int64"
    assert frame["staleness"].isna().all()
    assert frame["reason"].isna().all()
    parts = frame[["function_dollars", "graph_server_dollars", "parameter_server_dollars"]].sum(axis=1)
    assert frame["dollars"].tolist() == pytest.approx(parts.tolist())
    assert frame["front"].tolist() == [one.point in search.front for one in search.tried]
    assert frame.loc[frame["backend"] == "cpu", "functions"].tolist() == [0, 0, 0]


def test_what_does_not_fit_is_listed_with_the_reason(monkeypatch):
    gpu = dataclasses.replace(INSTANCES["p3.2xlarge"].gpu, memory=1e4)
    monkeypatch.setattr(scenarios, "GPU_SERVER", dataclasses.replace(INSTANCES["p3.2xlarge"], gpu=gpu))
    found = what_if(scenario(), "servers=2|1500,backend=cpu|gpu", epochs=1)
    reasons = {(one.point.servers, one.point.backend): one.reason for one in found.tried}
    assert reasons[2, "cpu"] is None
    assert "the GPU of p3.2xlarge has 0.0" in reasons[2, "gpu"]
    assert reasons[1500, "cpu"].startswith("pipeline.intervals = 8 on 1500 servers are 12000 intervals")
    assert [point.backend for point, _ in found.known] == ["cpu"]
    assert found.frame()["reason"].notna().tolist() == [False, True, True, True]
    assert found.frame()["seconds"].isna().tolist() == [False, True, True, True]


def test_settings_that_do_not_go_together_are_listed_or_refused_where_all_are_so():
    base = scenario(pipeline__mode="async", pipeline__freshness=0.5)
    found = what_if(base, "mode=pipe|async", epochs=1)
    assert found.tried[0].reason.startswith("pipeline.freshness")
    assert found.tried[1].found is not None
    with pytest.raises(ConfigError, match=r"pipeline\.freshness"):
        what_if(base, "mode=pipe,servers=1|2", epochs=1)


def test_where_nothing_can_be_that_is_said():
    found = what_if(scenario(), "servers=1500|1600", epochs=1)
    assert found.known == ()
    assert found.front == ()
    with pytest.raises(
        ScenarioError, match=r"^no point of the what-if can be simulated: pipeline\.intervals = 8 on 1500"
    ):
        found.pick()


def test_ctrl_c_leaves_what_there_is(monkeypatch):
    done = []

    def interrupted(one: Tried) -> None:
        done.append(one)
        if len(done) == 2:
            raise KeyboardInterrupt

    found = what_if(scenario(), "servers=1..4", epochs=1, on_tried=interrupted)
    assert not found.complete
    assert (len(found.tried), found.points) == (2, 4)
    assert found.pick() in {one.point for one in found.tried}


def test_nothing_runs_where_the_grid_cannot_be(monkeypatch):
    monkeypatch.setattr(searches, "simulate", None)
    with pytest.raises(ScenarioError, match="more than 3 points"):
        what_if(scenario(), "servers=1..4", points=3)
    with pytest.raises(ScenarioError, match="mode=async"):
        what_if(scenario(), "staleness=0..1")


def test_few_intervals_are_simulated_for_more_epochs():
    (point,) = Grid.parse("servers=4").points(scenario(pipeline__mode="async", pipeline__staleness=2), 1)
    few, many = (usual_epochs(point._replace(intervals=intervals)) for intervals in (2, 2000))
    assert few > many >= 4  # it settles in three
    assert usual_epochs(point._replace(intervals=2000, staleness=None)) == many - 2


def test_staleness_pays_from_the_beginning():
    base = scenario(
        pipeline__mode="async", pipeline__servers=2, pipeline__cluster="gcn-amazon", tensor__placement="functions"
    )
    found = what_if(base, "functions=8,staleness=0|1")
    fresh, stale = (one.found for one in found.tried)
    assert stale.epoch < 0.95 * fresh.epoch
