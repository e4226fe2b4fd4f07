"""`dorylax generate`: a generated data set, of any size, as a folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dorylax.cli.budget import Memory, memory_option
from dorylax.observers.progress import bar, data_size, duration
from dorylax.settings.errors import ConfigError
from dorylax.settings.strict_yaml import scalar
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.files import OUTPUT_FOLDER


@click.command()
@click.argument("name", type=click.Choice(["communities"]))
@click.option("--size", help="As data.size of `dorylax train`: `dorylax datasets` lists them.")
@click.option(
    "--set", "settings", metavar="OPTION=VALUE", multiple=True, help="Set an option of the generator; repeatable."
)
@click.option("--out", metavar="FOLDER", required=True, type=OUTPUT_FOLDER, help="Write the data here.")
@memory_option
def generate(*, name: str, size: str | None, settings: tuple[str, ...], out: Path, memory: Memory) -> None:
    """Write a generated data set to a folder, in little memory.

    NAME is communities. Its options are seed, split_seed, num_vertices, num_edges, average_degree, num_features,
    num_classes, num_communities, num_labelled, order, homophily, signal, label_noise and degree_exponent.
    """
    options = _options(settings)
    if size is not None:
        if "size" in options:
            raise ConfigError("size is given twice on the command line")
        options["size"] = size

    from dorylax.graph.array_folder import size_on_disk
    from dorylax.graph.datasets import generate as write

    begin = time.perf_counter()
    with (
        told_if_interrupted(f"{out} is what it was; the same command begins anew"),
        bar("generating") as progress,
    ):
        write(name, out, memory=memory.bytes, progress=progress, **options)
    seconds = time.perf_counter() - begin
    click.echo(f"{name}: {out}, {data_size(size_on_disk(out))}, {duration(seconds)}")


def _options(settings: Sequence[str]) -> dict[str, Any]:
    """Parse the values of `--set` by YAML's rules for scalars; the generator checks them."""
    options: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip().removeprefix("data.")
        if not equals:
            raise ConfigError(f"--set takes option=value, as in homophily=0.7, got {setting!r}")
        if key in options:
            raise ConfigError(f"{key} is given twice on the command line")
        options[key] = scalar(text.strip())
    return options
