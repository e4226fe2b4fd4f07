"""`dorylax aws image` and `dorylax aws lock`: the contents of the function's image, without AWS (docs/aws.md)."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from pathlib import Path

import click

from dorylax.cli.aws_tables import show_size
from dorylax.serverless.deploy.image import root as roots
from dorylax.serverless.deploy.image.contents import requirements
from dorylax.serverless.deploy.image.context import Context
from dorylax.serverless.deploy.image.lock import lock_text, make_lock
from dorylax.serverless.deploy.invoke import warm_invocation
from dorylax.serverless.deploy.settings import Architecture, Deployment
from dorylax.settings.errors import ConfigError
from dorylax.store.durable import write_file
from dorylax.terminal.files import INPUT, OUTPUT, OUTPUT_FOLDER
from dorylax.terminal.options import json_option
from dorylax.terminal.output import print_json

_STARTS = 3
_lapack_option = click.option("--lapack", is_flag=True, help="Include SciPy.")


@click.command()
@click.option("--architecture", type=click.Choice(("x86_64", "arm64")), default="x86_64", show_default=True)
@_lapack_option
@click.option("--base", metavar="IMAGE", help="As for `dorylax aws deploy`.")
@click.option("--lock", metavar="FILE", type=INPUT, help="As for `dorylax aws deploy`.")
@click.option(
    "--context",
    "context_folder",
    metavar="DIR",
    type=OUTPUT_FOLDER,
    help="Only write the build context for a container engine.",
)
@click.option("--root", metavar="DIR", type=OUTPUT_FOLDER, help="Keep the image's files here.")
@json_option
def image(
    *,
    architecture: Architecture,
    lapack: bool,
    base: str | None,
    lock: Path | None,
    context_folder: Path | None,
    root: Path | None,
    as_json: bool,
) -> None:
    """Show the contents of the function's image and its start time, without a container engine.

    Builds the image's files for this machine, without its Python and system, and starts the function from them.
    """
    if context_folder is not None and root is not None:
        raise ConfigError("--context and --root exclude each other")
    checked = Deployment(base=base)
    context = Context.make(architecture, lapack=lapack, base=checked.base, lock=lock)
    if context_folder is not None:
        made = context.pinned()
        made.write(context_folder)
        click.echo(f"tag: {context.tag}\nbase: {made.base}")
        return
    with contextlib.ExitStack() as stack:
        folder = root or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-root-"))) / "root"
        target = roots.build(context, folder)
        size = roots.size(target)
        started = [roots.start(target, warm_invocation()) for _ in range(_STARTS)]
    seconds = [start.seconds for start in started]
    if as_json:
        content = {"tag": context.tag, "files": size.files, "bytes": size.nbytes, "parts": size.parts}
        content |= {"import_seconds": seconds, "resident_bytes": started[0].resident_bytes}
        print_json({"schema": 1} | content)
        return
    show_size(size, context.tag)
    click.echo(
        f"import: {statistics.median(seconds):.2f} s, median of {len(seconds)} fresh interpreters, with bytecode"
    )
    click.echo(f"memory: {started[0].resident_bytes / 2**20:.0f} MB, once started")


@click.command()
@click.argument("file", metavar="FILE", type=OUTPUT)
@click.option(
    "--python", "pythons", metavar="3.N", multiple=True, help="Version of Python; repeatable [default: this]."
)
@_lapack_option
def lock(*, file: Path, pythons: tuple[str, ...], lapack: bool) -> None:
    """Write the hashes of the image's wheels, in the versions that are installed here, to a file for --lock.

    Asks the package index that pip uses. Keep the file: an image contains only the wheels that it lists.
    """
    versions = [(3, _minor(python)) for python in pythons] or [sys.version_info[:2]]
    text = lock_text(make_lock(requirements(lapack=lapack), versions))
    write_file(file, text)
    click.echo(f"{file}: {text.count('--hash=')} wheels of {text.count('==')} distributions")


def _minor(python: str) -> int:
    major, _, minor = python.partition(".")
    if major != "3" or not minor.isdecimal():
        raise ConfigError(f"--python must be a version such as 3.12, got {python!r}")
    return int(minor)
