"""`dorylax import`: edges from files of any size to a folder, within a budget of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dorylax.observers.progress import bar, data_size
from dorylax.settings.byte_sizes import parse_bytes
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.files import INPUT, OUTPUT_FOLDER, will_read
from dorylax.terminal.options import json_option
from dorylax.terminal.output import print_error, print_json

if TYPE_CHECKING:
    from dorylax.graph.from_files.import_graph import Estimate, Progress

_MASKS = ("train_mask", "val_mask", "test_mask")
_STAGES = {
    **{"edges": "reading edges", "vertices": "numbering vertices"},
    **{"sort": "sorting edges", "arrays": "writing the arrays"},
}


def _memory(_context: click.Context, _option: click.Parameter, text: str | None) -> int:
    if text is None:
        raise ConfigError("--memory is missing: say how much the import may take, as --memory 4GiB")
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"--memory: {error}") from None


def _separator(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text and (len(text) != 1 or not text.isascii() or text in '"\n\r'):
        raise ConfigError(f"--separator takes one ASCII character, got {text!r}")
    return text


def _columns(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(_words(text))


def _values(_context: click.Context, _option: click.Parameter, text: str | None) -> dict[str, Any] | None:
    """Parse columns of values and their types."""
    if text is None:
        return None
    import numpy as np

    found: dict[str, Any] = {}
    for word in _words(text):
        name, _, kind = word.partition(":")
        try:
            found[name] = np.dtype(kind) if kind else None
        except TypeError:
            found[name] = np.dtype(object)
        if kind and found[name].kind not in "fiu":
            raise ConfigError(f"--values {word}: {kind!r} is no type of numbers: float32, float64, int32, int64, …")
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text.strip() else []


def _named_files(_context: click.Context, option: click.Parameter, pairs: Sequence[str]) -> dict[str, Path]:
    found = {}
    for pair in pairs:
        name, equals, file = pair.partition("=")
        if not (name and equals and file):
            raise ConfigError(f"{option.opts[0]} takes NAME=FILE, got {pair!r}")
        found[name] = Path(file)
    will_read(*found.values())
    return found


@click.command("import")
@click.argument("sources", nargs=-1, type=INPUT, metavar="FILE…")
@click.option("--out", type=OUTPUT_FOLDER, metavar="FOLDER", required=True, help="Write the data set here.")
@click.option("--memory", metavar="SIZE", callback=_memory, help="Memory that the import may use, as 4GiB. Needed.")
@click.option(
    "--columns",
    metavar="NAME,…",
    callback=_columns,
    help="Columns of text files, as source,target,weight; - skips one.",
)
@click.option(
    "--header/--no-header", default=None, help="Whether a line of text names its columns [default: detected]."
)
@click.option(
    "--separator",
    metavar="C",
    callback=_separator,
    help="What parts fields of text, '' for blanks [default: detected].",
)
@click.option("--comments", metavar="CHARS", help="Skip lines that start with one of these [default: #%].")
@click.option("--source", metavar="NAME", help="The column of sources [default: source, or the first].")
@click.option("--target", metavar="NAME", help="The column of targets [default: target, or the second].")
@click.option(
    "--values",
    metavar="NAME[:TYPE],…",
    callback=_values,
    help="The columns that edges keep [default: all others, of text as float32].",
)
@click.option("--allow-nonfinite", "nonfinite", is_flag=True, help="Take infinite values of edges, and NaN.")
@click.option(
    "--edge-data",
    metavar="NAME=FILE.npy",
    multiple=True,
    callback=_named_files,
    help="Values of edges, a row for each in order.",
)
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
@click.option(
    "--vertex-data",
    "inputs",
    metavar="NAME=FILE",
    multiple=True,
    callback=_named_files,
    help="A further input of the model.",
)
@click.option("--name", metavar="NAME", help="What reports call the data set.")
@json_option
def import_graph(*, sources: tuple[Path, ...], out: Path, as_json: bool, **given: Any) -> None:
    """Import edges from files of any size.

    FILE… are text or JSON lines (also .gz and .zst), Parquet, .npy, .npz (also of SciPy), MatrixMarket, or a folder of the
    Open Graph Benchmark; patterns and s3://bucket/key, too. Before it starts, the command prints the detected layout. An
    interrupted import starts again.
    """
    from dorylax.graph.array_folder import size_on_disk
    from dorylax.graph.from_files.import_graph import import_graph as run
    from dorylax.graph.from_files.sources import expand
    from dorylax.graph.from_files.text import Wanted
    from dorylax.graph.from_files.vertices import VertexFiles, file_of

    masks = {name: given.pop(name) for name in _MASKS}
    given["masks"] = {name: file for name, file in masks.items() if file is not None}
    given["multilabel"] = given["multilabel"] or None
    given["coalesce"] = given["coalesce"] or False
    # The other options have the names of the fields and arguments whose values they are.
    wanted = Wanted(**{name: given.pop(name) for name in Wanted._fields})
    vertices = VertexFiles(**{name: given.pop(name) for name in VertexFiles._fields if name in given})
    will_read(*expand(sources), *map(file_of, vertices.paths.values()))
    with told_if_interrupted("the same command starts again"), _shown(quiet=as_json) as (expected, progress):
        of_vertices = vertices if vertices.paths else None
        made = run(sources, out, wanted=wanted, vertices=of_vertices, expected=expected, progress=progress, **given)
    if as_json:
        print_json({"schema": 1, "out": str(out), **made._asdict(), "estimate": made.estimate._asdict()})
        return
    kind = "undirected" if made.symmetric else "directed"
    click.echo(
        f"{out}: {made.num_vertices:,} vertices, {made.num_edges:,} edges ({kind}), of {made.edges_read:,} that were read; "
        f"{data_size(size_on_disk(out))}"
    )


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
