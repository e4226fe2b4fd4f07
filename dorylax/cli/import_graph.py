"""`dorylax import`: edges from files of any size to a folder, within a budget of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dorylax.cli.data_sets import out_option
from dorylax.cli.options import parse_memory
from dorylax.machine import memory_limit
from dorylax.observers.progress import bar, data_size
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.files import INPUT, will_read
from dorylax.terminal.options import COUNT, Command, json_option, option
from dorylax.terminal.output import print_error, print_json

if TYPE_CHECKING:
    from dorylax.graph.from_files.import_graph import Estimate, Progress

_MASKS = ("train_mask", "val_mask", "test_mask")
_STAGES = {
    "edges": "reading edges",
    "vertices": "numbering vertices",
    "sort": "sorting edges",
    "arrays": "writing the arrays",
}


def _separator(text: str) -> str:
    if text and (len(text) != 1 or not text.isascii() or text in '"\n\r'):
        raise ConfigError(f"--separator takes one ASCII character, got {text!r}")
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text.strip() else ()


def _values(text: str) -> dict[str, Any]:
    """Parse columns of values and their types."""
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


def _named_files(words: str, text: str, name: str) -> Callable[[Command], Command]:
    """Make an option that may be repeated and whose values are `NAME=FILE`."""

    def parse(pairs: Sequence[str]) -> dict[str, Path]:
        found = {}
        for pair in pairs:
            key, equals, file = pair.partition("=")
            if not (key and equals and file):
                raise ConfigError(f"{words.split(maxsplit=1)[0]} takes NAME=FILE, got {pair!r}")
            found[key] = Path(file)
        will_read(*found.values())
        return found

    return option(words, text, name=name, multiple=True, parse=parse)


@click.command("import")
@click.argument("sources", nargs=-1, type=INPUT, metavar="FILE…")
@out_option
@option("--overwrite", "Replace the data set in --out, if there is one.")
@option(
    "--memory SIZE", "Memory that the import may use, as 4GiB [default: half of this machine's].", parse=parse_memory
)
@option("--columns NAME,…", "Columns of text files, as source,target,weight; - skips one.", parse=_words)
@option("--header/--no-header", "Whether a line of text names its columns [default: detected].", default=None)
@option("--separator C", "What parts fields of text, '' for blanks [default: detected].", parse=_separator)
@option("--comments CHARS", "Skip lines that start with one of these [default: #%].")
@option("--source NAME", "The column of sources [default: source, or the first].")
@option("--target NAME", "The column of targets [default: target, or the second].")
@option(
    "--values NAME[:TYPE],…", "The columns that edges keep [default: all others, of text as float32].", parse=_values
)
@option("--allow-nonfinite", "Take infinite values of edges, and NaN.", name="nonfinite")
@_named_files("--edge-data NAME=FILE.npy", "Values of edges, a row for each in order.", "edge_data")
@option(
    "--ids",
    "What vertices are called by: 0 … V-1, any integers, or any text.",
    type=click.Choice(["numbers", "integers", "names"]),
    default="numbers",
)
@option("--num-vertices V", "[default: one more than the largest]", type=click.IntRange(min=0))
@option("--symmetrise", "Add the reverse of each edge that has none.")
@option("--coalesce", "Keep one of equal edges: its values, or all added.", type=click.Choice(["first", "sum"]))
@option("--edge-ids/--no-edge-ids", "Whether edges have ids.", default=True)
@option("--key COLUMN", "The column by which the tables of vertices that follow are joined.")
@option("--features FILE", "Features of vertices [V, F]; a table also FILE:COLUMN,….", type=INPUT)
@option("--labels FILE", "Labels of vertices.", type=INPUT)
@option("--num-classes C", "Classes [default: by the labels].", type=COUNT)
@option("--multilabel", "Labels [V, C] are any number of classes.")
@option("--train-mask FILE", "Vertices that train: truth values or numbers.", type=INPUT)
@option("--val-mask FILE", "Vertices that validate.", type=INPUT)
@option("--test-mask FILE", "Vertices that test.", type=INPUT)
@_named_files("--vertex-data NAME=FILE", "A further input of the model.", "inputs")
@option("--name NAME", "What reports call the data set.")
@json_option
def import_graph(*, sources: tuple[Path, ...], out: Path, overwrite: bool, as_json: bool, **given: Any) -> None:
    """Import edges from files of any size.

    FILE… are text or JSON lines (also .gz and .zst), Parquet, .npy, .npz (also of SciPy), MatrixMarket, or a folder of the
    Open Graph Benchmark; patterns and s3://bucket/key, too. Before it starts, the command prints the detected layout. An
    interrupted import starts again.
    """
    if given["memory"] is None:
        limit = memory_limit()
        given["memory"] = 2**30 if limit is None else limit.bytes // 2

    from dorylax.graph.array_folder import check_target, size_on_disk
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
    check_target(out)
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"--out {out} holds a data set: choose another folder, or add --overwrite to replace it")
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
