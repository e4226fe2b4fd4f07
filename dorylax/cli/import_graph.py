"""`dorylax import`: edges from files of any size to a folder, within a budget of memory."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dorylax.observers.progress import bar, data_size
from dorylax.settings.byte_sizes import parse_bytes
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.files import INPUT, OUTPUT_FOLDER, will_read
from dorylax.terminal.output import print_error, print_json

if TYPE_CHECKING:
    from dorylax.graph.from_files.import_graph import Estimate, Progress

_STAGES = {
    **{"edges": "reading edges", "vertices": "numbering vertices"},
    **{"sort": "sorting edges", "arrays": "writing the arrays"},
}


@click.command("import")
@click.argument("sources", nargs=-1, type=INPUT, metavar="FILE…")
@click.option("--out", type=OUTPUT_FOLDER, metavar="FOLDER", required=True, help="Write the data set here.")
@click.option("--memory", metavar="SIZE", help="Memory that the import may use, as 4GiB. Needed.")
@click.option("--columns", metavar="NAME,…", help="Columns of text files, as source,target,weight; - skips one.")
@click.option(
    "--header/--no-header", default=None, help="Whether a line of text names its columns [default: detected]."
)
@click.option("--separator", metavar="C", help="What parts fields of text, '' for blanks [default: detected].")
@click.option("--comments", metavar="CHARS", help="Skip lines that start with one of these [default: #%].")
@click.option("--source", metavar="NAME", help="The column of sources [default: source, or the first].")
@click.option("--target", metavar="NAME", help="The column of targets [default: target, or the second].")
@click.option(
    "--values", metavar="NAME[:TYPE],…", help="The columns that edges keep [default: all others, of text as float32]."
)
@click.option("--allow-nonfinite", is_flag=True, help="Take infinite values of edges, and NaN.")
@click.option("--edge-data", metavar="NAME=FILE.npy", multiple=True, help="Values of edges, a row for each in order.")
@click.option(
    "--ids",
    type=click.Choice(["numbers", "integers", "names"]),
    default="numbers",
    show_default=True,
    help="What vertices are called by: 0 … V-1, any integers, or any text.",
)
@click.option("--num-vertices", type=click.IntRange(min=0), metavar="V", help="[default: one more than the largest]")
@click.option("--symmetrise", is_flag=True, help="Add the reverse of each edge that has none.")
@click.option(
    "--coalesce", type=click.Choice(["first", "sum"]), help="Keep one of equal edges: its values, or all added."
)
@click.option("--edge-ids/--no-edge-ids", default=True, show_default=True, help="Whether edges have ids.")
@click.option("--key", metavar="COLUMN", help="The column by which the tables of vertices that follow are joined.")
@click.option("--features", type=INPUT, metavar="FILE", help="Features of vertices [V, F]; a table also FILE:COLUMN,….")
@click.option("--labels", type=INPUT, metavar="FILE", help="Labels of vertices.")
@click.option("--num-classes", type=click.IntRange(min=1), metavar="C", help="Classes [default: by the labels].")
@click.option("--multilabel", is_flag=True, help="Labels [V, C] are any number of classes.")
@click.option("--train-mask", type=INPUT, metavar="FILE", help="Vertices that train: truth values or numbers.")
@click.option("--val-mask", type=INPUT, metavar="FILE", help="Vertices that validate.")
@click.option("--test-mask", type=INPUT, metavar="FILE", help="Vertices that test.")
@click.option("--vertex-data", metavar="NAME=FILE", multiple=True, help="A further input of the model.")
@click.option("--name", metavar="NAME", help="What reports call the data set.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_graph(
    *,
    sources: tuple[Path, ...],
    out: Path,
    memory: str | None,
    columns: str | None,
    header: bool | None,
    separator: str | None,
    comments: str | None,
    source: str | None,
    target: str | None,
    values: str | None,
    allow_nonfinite: bool,
    edge_data: tuple[str, ...],
    ids: Literal["numbers", "integers", "names"],
    num_vertices: int | None,
    symmetrise: bool,
    coalesce: Literal["first", "sum"] | None,
    edge_ids: bool,
    key: str | None,
    features: Path | None,
    labels: Path | None,
    num_classes: int | None,
    multilabel: bool,
    train_mask: Path | None,
    val_mask: Path | None,
    test_mask: Path | None,
    vertex_data: tuple[str, ...],
    name: str | None,
    as_json: bool,
) -> None:
    """Import edges from files of any size.

    FILE… are text or JSON lines (also .gz and .zst), Parquet, .npy, .npz (also of SciPy), MatrixMarket, or a folder of the
    Open Graph Benchmark; patterns and s3://bucket/key, too. Before it starts, the command prints the detected layout. An
    interrupted import starts again.
    """
    if memory is None:
        raise ConfigError("--memory is missing: say how much the import may take, as --memory 4GiB")
    try:
        limit = parse_bytes(memory)
    except ValueError as error:
        raise ConfigError(f"--memory: {error}") from None
    if separator and (len(separator) != 1 or not separator.isascii() or separator in '"\n\r'):
        raise ConfigError(f"--separator takes one ASCII character, got {separator!r}")

    from dorylax.graph.array_folder import size_on_disk
    from dorylax.graph.from_files.import_graph import import_graph as run
    from dorylax.graph.from_files.sources import expand
    from dorylax.graph.from_files.text import Wanted
    from dorylax.graph.from_files.vertices import VertexFiles, file_of

    wanted = Wanted(
        ids=ids,
        source=source,
        target=target,
        values=None if values is None else dict(_typed(one) for one in _words(values)),
        columns=None if columns is None else tuple(_words(columns)),
        header=header,
        separator=separator,
        comments=comments,
        nonfinite=allow_nonfinite,
    )
    masks = {"train_mask": train_mask, "val_mask": val_mask, "test_mask": test_mask}
    vertices = VertexFiles(
        features=features,
        labels=labels,
        masks={mask: file for mask, file in masks.items() if file is not None},
        inputs=_files("--vertex-data", vertex_data),
        num_classes=num_classes,
        multilabel=multilabel or None,
        key=key,
    )
    will_read(*expand(sources), *map(file_of, vertices.paths.values()))
    with told_if_interrupted("the same command starts again"), _shown(quiet=as_json) as (expected, progress):
        made = run(
            sources,
            out,
            memory=limit,
            wanted=wanted,
            num_vertices=num_vertices,
            symmetrise=symmetrise,
            coalesce=coalesce or False,
            edge_ids=edge_ids,
            edge_data=_files("--edge-data", edge_data),
            vertices=vertices if vertices.paths else None,
            name=name,
            expected=expected,
            progress=progress,
        )
    if as_json:
        print_json({"schema": 1, "out": str(out), **made._asdict(), "estimate": made.estimate._asdict()})
        return
    kind = "undirected" if made.symmetric else "directed"
    click.echo(
        f"{out}: {made.num_vertices:,} vertices, {made.num_edges:,} edges ({kind}), of {made.edges_read:,} that were read; "
        f"{data_size(size_on_disk(out))}"
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text.strip() else []


def _typed(word: str) -> tuple[str, typing.Any]:
    """Parse a column of values and its type from `--values`."""
    import numpy as np

    name, _, kind = word.partition(":")
    if not kind:
        return name, None
    try:
        dtype = np.dtype(kind)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "fiu":
        raise ConfigError(f"--values {word}: {kind!r} is no type of numbers: float32, float64, int32, int64, …")
    return name, dtype


def _files(option: str, pairs: Sequence[str]) -> dict[str, Path]:
    found = {}
    for pair in pairs:
        name, equals, file = pair.partition("=")
        if not (name and equals and file):
            raise ConfigError(f"{option} takes NAME=FILE, got {pair!r}")
        found[name] = Path(file)
    will_read(*found.values())
    return found


@contextlib.contextmanager
def _shown(*, quiet: bool) -> Iterator[tuple[Callable[[Estimate], None], Callable[[Progress], None]]]:
    """Provide callbacks that print the estimate and show a progress bar."""

    def expected(estimate: Estimate) -> None:
        if not quiet:
            for line in estimate.detected:
                print_error(line)
            print_error(
                f"about {estimate.edges:,} edges; disk: about {data_size(estimate.temporary_bytes)} for a while and "
                f"{data_size(estimate.folder_bytes)} to stay, of {data_size(estimate.free_bytes)} free"
            )

    with bar("import") as show:
        yield expected, lambda now: show(now.done, 1, f"{_STAGES[now.stage]}, {now.edges:,} edges")
