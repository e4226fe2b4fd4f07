"""What servers are given in files is what they would be given in one process, and its summary stands for the data set."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pipelines import make_model, messy_data

from dorylax.graph.array_folder import size_on_disk
from dorylax.graph.cutting import Cutting
from dorylax.graph.data_shape import describe_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.manifest import SUMMARY
from dorylax.graph.partition import Layout, lay_out, partition
from dorylax.graph.shard import Shard
from dorylax.graph.sharded_data import ShardedData, homes_of, mask_counts, shapes_of
from dorylax.graph.validate import GraphError
from dorylax.ops.scatter import to_slots
from dorylax.pipeline.hosts.pipeline import reads_edge_ids
from dorylax.pipeline.interval_data import interval_data, stored_values
from dorylax.pipeline.prepare import prepare
from dorylax.pipeline.shard_writing import write_shards
from dorylax.pipeline.stages import StageSizes
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.passes import PASSES
from dorylax.program.tracing.arguments import RunData, data_values, training_weights
from dorylax.program.tracing.spec import DataSpec
from dorylax.program.tracing.traced import Traced


def further(data: Dataset) -> Dataset:
    rng = np.random.default_rng(1)
    vertices, edges = data.graph.num_vertices, data.graph.num_edges
    return dataclasses.replace(
        data,
        vertex_inputs={"age": rng.integers(0, 9, vertices).astype(np.int32)},
        edge_inputs={"length": rng.random(edges).astype(np.float32)},
    )


def layout_of(data: Dataset, servers: int = 2, intervals: int = 3) -> Layout:
    return lay_out(data.graph, partition(data.graph, servers, method="random"), intervals)


def write(folder: Path, data: Dataset, **options: Any) -> ShardedData:
    return write_shards(folder, data, layout_of(data), **{"ids": True} | options)


def of_server(traced: Traced, values: dict[int, Any], shard: Shard) -> dict[int, Any]:
    """Of the values of the whole laid-out graph those of a server."""
    spans = {"vertex": slice(shard.first, shard.last), "edge": slice(shard.first_edge, shard.last_edge)}
    entries = {k: traced.inputs[k] for k in values if traced.inputs[k].role != "graph"}
    return {
        k: values[k] if entry.space is None or entry.role == "count" else np.asarray(values[k])[spans[entry.space]]
        for k, entry in entries.items()
    }


@pytest.mark.parametrize("model", ["gcn", "gat", "drifting"])
@pytest.mark.parametrize("reordered", [False, True])
def test_a_server_reads_its_part_of_what_the_whole_graph_has(tmp_path: Path, model: str, reordered: bool) -> None:
    data = messy_data(60, 240)
    if reordered:  # rows then have ids of their own, and edges another order
        data = data.reorder(np.random.default_rng(2).permutation(60))
    layout = layout_of(data)
    graph = data.graph.reorder(layout.order)
    whole = RunData(
        graph,
        (data.features[layout.order],),
        data.labels[layout.order],
        training_weights(data.train_mask)[layout.order],
    )
    spec, parts, sizes = DataSpec.of(data), take_apart(make_model(model, data)), StageSizes(12, 50)
    found = write(tmp_path, data)
    for prepared in (prepare(parts, spec, PASSES), prepare(parts, spec, PASSES, loss=None, workers=False)):
        wanted = data_values(prepared.plan.program.traced, whole)
        for piece in Cutting(data.graph, layout):
            read, rows = found.shard(piece.server)
            np.testing.assert_array_equal(rows["rows"], layout.order[piece.first : piece.last])
            mine = stored_values(prepared, rows, read, mask_counts(data)[0])
            program = prepared.plan.program
            read_by_it = {*program.read_inputs, *prepared.driver.constants}
            inputs = program.traced.step.jaxpr.invars
            own = {k: value for k, value in of_server(program.traced, wanted, piece).items() if inputs[k] in read_by_it}
            one, other = (interval_data(prepared, values, piece, sizes) for values in (mine, own))
            assert [interval.keys() for interval in one] == [interval.keys() for interval in other]
            for a, b in zip(one, other, strict=True):
                for var, value in a.items():
                    np.testing.assert_array_equal(value, b[var])
                    assert np.asarray(value).dtype == np.asarray(b[var]).dtype
            np.testing.assert_array_equal(
                rows["ids vertex ids"], np.asarray(graph.vertex_ids)[piece.first : piece.last]
            )


def test_inputs_per_vertex_and_per_edge_lie_beside_a_shard(tmp_path: Path) -> None:
    data = further(messy_data(60, 240))
    found = write(tmp_path, data, ids=False)
    layout = layout_of(data)
    lengths = np.asarray(to_slots(data.graph.reorder(layout.order), data.edge_inputs["length"]))
    for server in range(2):
        shard, rows = found.shard(server)
        np.testing.assert_array_equal(
            rows["rows age"], data.vertex_inputs["age"][layout.order][shard.first : shard.last]
        )
        np.testing.assert_array_equal(rows["rows length"], lengths[shard.first_edge : shard.last_edge])
        assert "ids edge ids" not in rows


def test_the_summary_stands_for_the_data_set(tmp_path: Path) -> None:
    data = further(messy_data(60, 240))
    layout = layout_of(data)
    written = write(tmp_path, data, description=describe_data(data), settings={"name": "messy"})
    found = ShardedData.find(tmp_path)
    assert found is not None
    assert found.summary == written.summary
    assert DataSpec.of(shapes_of(found)) == DataSpec.of(data)
    assert mask_counts(found) == mask_counts(data)
    assert found.summary.description == describe_data(data)
    assert found.homes == homes_of(tuple(Cutting(data.graph, layout))) == (0, 0, 0, 1, 1, 1)
    assert found.num_servers == 2
    assert [entry.num_bytes for entry in found.summary.shards] == [
        size_on_disk(tmp_path / f"server-{server}") for server in range(2)
    ]


def test_only_some_models_read_edge_ids() -> None:
    data = messy_data(60, 240)
    reads = {
        name: reads_edge_ids(prepare(take_apart(make_model(name, data)), DataSpec.of(data), PASSES))
        for name in ("gcn", "gat")
    }
    assert reads == {"gcn": False, "gat": True}  # dropout on attention draws by edge


def test_no_summary_is_no_shards_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    assert ShardedData.find(tmp_path) is None
    assert ShardedData.find(tmp_path / "nowhere") is None
    write(tmp_path, messy_data(60, 240))
    path = tmp_path / SUMMARY
    text = path.read_text()
    for broken, why in (
        (text.replace('"intervals": 3', '"intervals": 4'), "is not what was written: its SHA-256 is another"),
        (text[:-20], r"is damaged \(JSONDecodeError"),
        (json.dumps({"version": 3}), "has version 3, this dorylax reads version 2"),
        ("[]", r"is damaged \(TypeError"),
    ):
        assert broken != text
        path.write_text(broken)
        with pytest.raises(GraphError, match=rf"^{SUMMARY} in .* {why}.*make the partition again"):
            ShardedData.find(tmp_path)
    path.write_bytes(b"\xff")
    with pytest.raises(GraphError, match="is damaged"):
        ShardedData.find(tmp_path)


def test_files_of_two_partitions_are_told_apart(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, servers in ((one, 2), (other, 3)):
        folder.mkdir()
        data = messy_data(60, 240)
        write_shards(folder, data, layout_of(data, intervals=servers), ids=False)
    shutil.rmtree(one / "server-0")
    (other / "server-0").rename(one / "server-0")
    found = ShardedData.find(one)
    assert found is not None
    with pytest.raises(GraphError, match="belongs to another partition"):
        found.shard(0)
    found.shard(1)
