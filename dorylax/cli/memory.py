"""Shows the memory of a run as a table, for `dorylax info --data`."""

from __future__ import annotations

import dataclasses

from dorylax.calibration.streamed import StreamedSpeed, disk_bandwidth, gather_seconds
from dorylax.cli.notices import compiling, functions_remark
from dorylax.config import RunConfig
from dorylax.experiments.names import title
from dorylax.graph.datasets.registry import stored_path
from dorylax.jax_internals import type_of
from dorylax.memory.estimate import Estimate, gibibytes
from dorylax.memory.phases import WORK
from dorylax.program.jaxpr.errors import SplitError
from dorylax.settings.errors import ConfigError
from dorylax.terminal.output import print_json, print_rows
from dorylax.trainer import prepare_data
from dorylax.trainer.footprint.of_config import StreamedEstimate, estimate, remedies, streamed


def show_memory(config: RunConfig, *, as_json: bool) -> None:
    """Print the estimate of a run.

    Raises:
        ConfigError: The run has a pipeline in one process.
        DatasetError: There is no such data set.
        ValueError, OSError: The data set's file or the model is not usable.
    """
    remark = functions_remark(config)
    if config.pipeline is not None and config.pipeline.hosts == "inline":
        if remark is not None and not as_json:
            print(remark)
            return
        raise ConfigError(
            "the memory of a run is estimated for one machine's step, and for hosts: leave out pipeline.* and tensor.*, or "
            "set pipeline.hosts"
        )
    with compiling(config.model.name):
        found = estimate(config)
    if found is None:
        prepare_data(config.data)  # raises the error for a missing data set
        raise ConfigError(f"the sizes of {config.data.name} are not known before it is loaded")
    if not found.fits:
        found = dataclasses.replace(found, remedies=remedies(config, found))
    streams, why_not = None, ""
    if config.pipeline is None and (not found.fits or config.single.memory == "stream"):
        try:
            streams = streamed(config, found)
        except SplitError as error:
            why_not = str(error)
    width = 1 if streams is None else _width(streams)
    speed = {} if streams is None else _speed(config, streams, width)
    if as_json:
        content = {"schema": 1, **found.to_dict()}
        content["streamed"] = None if streams is None else streams.to_dict() | speed
        print_json({**content, "config": config.to_dict()})
        return
    _show(config, found)
    if remark is not None:
        print(remark)
    if found.shape.num_labelled == 0:
        print("the data have no labels: they can be predicted on, and not trained on")
    if streams is not None:
        print(streams)
    if speed:
        seconds, digits = speed["seconds"], 1 if speed["seconds"] < 100 else 0
        print(
            f"about {seconds:.{digits}f} s an epoch, as measured now: {1e9 * speed['edge_seconds']:.1f} ns an edge at width "
            f"{width}, {speed['disk_bytes_per_second'] / 1e9:.2f} GB a second of the disk"
        )
    elif streams is not None:
        print("how long an epoch takes is known where the data are in a file")
    elif why_not:
        print(f"cannot be streamed from disk: {why_not}")


def _speed(config: RunConfig, streams: StreamedEstimate, width: int) -> dict[str, float]:
    """Measure this machine's speed for a streamed run; empty if the data are not in a file."""
    file = stored_path(config.data.name)
    if file is not None and file.is_dir():  # a data set's folder is represented by its largest array
        file = max((one for one in file.iterdir() if one.is_file()), key=lambda one: one.stat().st_size, default=None)
    if file is None or not file.is_file():
        return {}
    found = StreamedSpeed(gather_seconds(width, streams.layouts.training.num_vertices), disk_bandwidth(file))
    epoch = streams.to_dict()["epoch"]
    return {**found._asdict(), "seconds": found.seconds(epoch["edges"], epoch["read"] + epoch["written"])}


def _width(streams: StreamedEstimate) -> int:
    """Width of most gathers in an epoch: columns of the widest whole value or block."""
    training = streams.layouts.training
    row_bytes = training.program.analysis.row_bytes
    columns: list[int] = [row_bytes[var] // type_of(var).dtype.itemsize for var in training.epoch.whole]
    return max([*columns, *training.blocked.values(), 1])


def _show(config: RunConfig, found: Estimate) -> None:
    shape = found.shape
    phases = (*found.phases, *(() if found.elsewhere is None else found.elsewhere.phases))
    parts = sorted(dict.fromkeys(part for phase in phases for part in phase.parts), key=lambda part: part == WORK)
    sizes = [[phase.parts.get(part, 0) for phase in phases] for part in parts]
    print_rows(
        ["held at the peak of", *(phase.name for phase in phases)],
        [[part, *(gibibytes(size) if size else "–" for size in row)] for part, row in zip(parts, sizes, strict=True)],
        f"{title(config)}: {shape.num_vertices:,} vertices, {shape.num_edges:,} edges, {shape.num_features:,} features",
        total=["total", *(gibibytes(phase.total) for phase in phases)],
    )
    print(found.verdict())
    if found.compiled is None and config.pipeline is None:
        print("without the working memory of training: JAX computes on an accelerator, which has its own memory")
