from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.cost import INSTANCES, find_cluster
from dorylax.settings.errors import ConfigError
from dorylax.simulation.grid import Grid
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError

MANY = 1000


def scenario(**settings) -> Scenario:
    settings = {key.replace("__", "."): value for key, value in settings.items()}
    return Scenario.of("any", {"pipeline.cluster": "gcn-amazon", **settings}, graph=GraphSizes(10_000, 200_000, 64, 10))


def points(text: str, **settings) -> list[dict]:
    return [point._asdict() for point in Grid.parse(text).points(scenario(**settings), MANY)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", (8,)),
        ("8|2|8", (8, 2)),
        ("4..9", (4, 5, 6, 7, 8, 9)),
        ("4..10", (4, 8, 10)),
        ("4..64", (4, 8, 16, 32, 64)),
        ("10..200", (10, 20, 40, 80, 160, 200)),
        ("7..7", (7,)),
        ("4..64/9", (4, 6, 8, 11, 16, 23, 32, 45, 64)),
        ("1..5/5", (1, 2, 3, 4, 5)),
        ("2 | 16..64", (2, 16, 32, 64)),
    ],
)
def test_numbers(text, values):
    assert Grid.parse(f"servers={text}").axes == {"servers": values}


def test_staleness_may_be_none_at_all():
    assert Grid.parse("staleness=0..2").axes["staleness"] == (0, 1, 2)
    assert Grid.parse("staleness=0..9").axes["staleness"] == (0, 1, 2, 4, 8, 9)
    assert Grid.parse("staleness=0..9/4").axes["staleness"] == (0, 1, 3, 9)


@given(st.integers(1, 400), st.integers(0, 4000), st.data())
def test_steps_are_as_many_as_asked_and_rise(low, more, data):
    number = data.draw(st.integers(2, min(1000, more + 1))) if more else None
    text = f"servers={low}..{low + more}" + (f"/{number}" if number else "")
    values = Grid.parse(text).axes["servers"]
    assert (values[0], values[-1]) == (low, low + more)
    assert list(values) == sorted(set(values))
    if number:
        assert len(values) == number


def test_grids_are_told_as_they_are_read():
    grid = Grid.parse("servers=4..64, functions = 10|20 ,backend=functions|cpu")
    assert str(grid) == "servers=4|8|16|32|64,functions=10|20,backend=functions|cpu"
    assert Grid.parse(str(grid)) == grid


@pytest.mark.parametrize(
    "axes", [{}, {"servers": ()}, {"servers": ("4",)}, {"servers": (True,)}, {"backend": (4,)}, {"colour": (1,)}]
)
def test_grids_made_in_python_are_checked_too(axes):
    with pytest.raises(ScenarioError):
        Grid(axes)


def test_all_are_tried_with_all_and_the_last_changes_fastest():
    found = points("servers=2|4,functions=10|20", pipeline__intervals=7)
    assert [(one["servers"], one["functions"], one["intervals"]) for one in found] == [
        (2, 10, 10),
        (2, 20, 20),
        (4, 10, 10),
        (4, 20, 20),
    ]
    assert {one["mode"] for one in found} == {"pipe"}
    assert {one["staleness"] for one in found} == {None}


def test_intervals_follow_functions_only_where_these_are_tried():
    assert {one["intervals"] for one in points("servers=2|4", pipeline__intervals=7)} == {7}
    assert {one["intervals"] for one in points("functions=5|6,intervals=9", pipeline__intervals=7)} == {9}
    assert [one["intervals"] for one in points("functions=5,backend=functions|cpu", pipeline__intervals=7)] == [5, 7]


def test_axes_are_left_out_where_they_mean_nothing():
    found = points("backend=functions|cpu|gpu,functions=10|20,graph_server=c5.2xlarge|c5n.2xlarge")
    assert [(one["backend"], one["functions"], one["graph_server"]) for one in found] == [
        ("functions", 10, "c5.2xlarge"),
        ("functions", 10, "c5n.2xlarge"),
        ("functions", 20, "c5.2xlarge"),
        ("functions", 20, "c5n.2xlarge"),
        ("cpu", 0, "c5.2xlarge"),
        ("cpu", 0, "c5n.2xlarge"),
        ("gpu", 0, "p3.2xlarge"),
    ]
    found = points("mode=pipe|async,staleness=0..1")
    assert [(one["mode"], one["staleness"]) for one in found] == [("pipe", None), ("async", 0), ("async", 1)]


def test_what_follows_from_a_mode_is_part_of_the_point():
    base = scenario()
    _, stale = Grid.parse("mode=pipe|async").points(base, 2)
    assert (stale.staleness, stale.of(base).pipeline.staleness) == (1, 1)
    base = scenario(pipeline__mode="async", pipeline__staleness=3)
    synchronous, stale = Grid.parse("mode=pipe|async").points(base, 2)
    assert (stale.staleness, stale.of(base)) == (3, base)
    assert (synchronous.staleness, synchronous.of(base).pipeline.staleness) == (None, None)


def test_functions_are_refused_where_slots_are_given():
    with pytest.raises(ScenarioError, match=r"what-if functions says nothing where tensor\.slots is 4"):
        points("functions=1|2", tensor__slots=4)


def test_more_points_than_allowed_are_refused():
    grid = Grid.parse("servers=1..4,functions=1..5")
    assert len(grid.points(scenario(), 20)) == 20
    with pytest.raises(
        ScenarioError, match="what-if 4 servers × 5 functions are more than 19 points: give fewer values"
    ):
        grid.points(scenario(), 19)
    assert len(Grid.parse("servers=1..4,functions=1..5,backend=cpu|functions").points(scenario(), 24)) == 24


def test_a_point_is_a_scenario_that_differs_in_what_it_says():
    base = scenario(pipeline__mode="async", model__hidden_features=5, pipeline__freshness=0.5)
    text = "servers=3,functions=12,staleness=2,parameter_servers=2,graph_server=c5.2xlarge"
    (point,) = Grid.parse(text).points(base, 1)
    made = point.of(base)
    pipeline = made.pipeline
    assert (pipeline.servers, pipeline.intervals, pipeline.parameter_servers) == (3, 12, 2)
    assert (pipeline.mode, pipeline.staleness, pipeline.freshness) == ("async", 2, 0.5)
    assert (made.cluster.functions, made.cluster.graph_server) == (12, INSTANCES["c5.2xlarge"])
    assert made.cluster.function == find_cluster("gcn-amazon").function
    assert made.config.model == base.config.model
    assert (made.name, made.backend, made.graph) == (base.name, "functions", base.graph)


def test_other_backends_are_those_of_scenarios():
    base = scenario()
    for backend in ("cpu", "gpu"):
        (point,) = Grid.parse(f"backend={backend}").points(base, 1)
        assert point.of(base) == base.on(backend)


def test_a_point_without_changes_is_its_scenario():
    base = scenario(pipeline__mode="async", pipeline__servers=3)
    (point,) = Grid.parse("servers=3").points(base, 1)
    assert point.of(base) == base


def test_settings_that_do_not_go_together_are_the_points_error():
    base = scenario(pipeline__mode="async", pipeline__freshness=0.5)
    (point,) = Grid.parse("mode=pipe").points(base, 1)
    with pytest.raises(ConfigError, match=r"pipeline\.freshness"):
        point.of(base)


def test_labels():
    base = scenario(pipeline__mode="async")
    first, second = Grid.parse("servers=1,functions=40,staleness=1,backend=functions|cpu").points(base, 2)
    axes = ("servers", "functions", "staleness", "backend")
    assert first.label(axes) == "1 server, 40 functions, S = 1, on functions"
    assert second.label(axes) == "1 server, S = 1, on cpu"
    assert first._replace(staleness=None, mode="pipe").label(("mode", "staleness")) == "pipe, no staleness"
