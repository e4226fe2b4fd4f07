"""`dorylax aws image` and `dorylax aws lock`: the contents of the function's image, without AWS (docs/aws.md)."""

from __future__ import annotations

import contextlib
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from dorylax.cli.aws_tables import show_size
from dorylax.serverless.deploy.function import warm_invocation
from dorylax.serverless.deploy.image import root as roots
from dorylax.serverless.deploy.image.contents import lock_text, make_lock, requirements
from dorylax.serverless.deploy.image.context import Context
from dorylax.serverless.deploy.settings import Deployment
from dorylax.settings.errors import ConfigError
from dorylax.store.durable import write_file
from dorylax.terminal.files import INPUT, OUTPUT, OUTPUT_FOLDER
from dorylax.terminal.options import json_option, option
from dorylax.terminal.output import print_json

_STARTS = 3
_lapack_option = option("--lapack", "Include SciPy.")


@click.command()
@option("--architecture", "", type=click.Choice(("x86_64", "arm64")), default="x86_64")
@_lapack_option
@option("--base IMAGE", "As for `dorylax aws deploy`.")
@option("--lock FILE", "As for `dorylax aws deploy`.", type=INPUT)
@option("--context DIR", "Only write the build context for a container engine.", name="folder", type=OUTPUT_FOLDER)
@option("--root DIR", "Keep the image's files here.", type=OUTPUT_FOLDER)
@json_option
def image(*, base: str | None, folder: Path | None, root: Path | None, as_json: bool, **given: Any) -> None:
    """Show the contents of the function's image and its start time, without a container engine.

    Builds the image's files for this machine, without its Python and system, and starts the function from them.
    """
    if folder is not None and root is not None:
        raise ConfigError("--context and --root exclude each other")
    context = Context.make(base=Deployment(base=base).base, **given)
    if folder is not None:
        made = context.pinned()
        made.write(folder)
        click.echo(f"tag: {context.tag}\nbase: {made.base}")
        return
    with contextlib.ExitStack() as stack:
        kept = root or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-root-"))) / "root"
        target = roots.build(context, kept)
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
@option("--python 3.N", "Version of Python; repeatable [default: this].", name="pythons", multiple=True)
@_lapack_option
def lock(*, file: Path, pythons: tuple[str, ...], lapack: bool) -> None:
    """Write the hashes of the image's wheels, in the versions that are installed here, to a file for --lock.

    Asks the package index that pip uses. Keep the file: an image contains only the wheels that it lists.
    """
    for python in pythons:
        if not re.fullmatch(r"3\.\d+", python):
            raise ConfigError(f"--python must be a version such as 3.12, got {python!r}")
    versions = [(3, int(python.removeprefix("3."))) for python in pythons] or [sys.version_info[:2]]
    text = lock_text(make_lock(requirements(lapack=lapack), versions))
    write_file(file, text)
    click.echo(f"{file}: {text.count('--hash=')} wheels of {text.count('==')} distributions")
