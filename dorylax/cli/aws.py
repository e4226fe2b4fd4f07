"""`dorylax aws`: deploys the handler to AWS Lambda, inspects it and its image, removes it (docs/aws.md)."""

from __future__ import annotations

import contextlib
import functools
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from dorylax.cli.app import Commands
from dorylax.cli.aws_tables import plan_content, show_changes, show_policies, show_size, show_status
from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy import function as functions
from dorylax.serverless.deploy.clients import Clients, in_plain_words
from dorylax.serverless.deploy.deployment import check_unmanaged, plan_first
from dorylax.serverless.deploy.deployment import deploy as deploy_function
from dorylax.serverless.deploy.function import (
    artefact_keys,
    delete_artefacts,
    find_image,
    log_events,
    read_function,
    warm_invocation,
)
from dorylax.serverless.deploy.image import root as roots
from dorylax.serverless.deploy.image.base import is_pinned
from dorylax.serverless.deploy.image.contents import lock_text, make_lock, requirements
from dorylax.serverless.deploy.image.context import Context, Releases
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.stacks import Change, Stack
from dorylax.settings.errors import ConfigError
from dorylax.store.durable import write_file
from dorylax.terminal.failures import FAILED, stop
from dorylax.terminal.files import INPUT, OUTPUT, OUTPUT_FOLDER
from dorylax.terminal.options import COUNT, json_option, option, section_options
from dorylax.terminal.output import print_json

_FOLLOW_SECONDS = 2.0
_LATE_MILLISECONDS = 30_000
"""How much later than others a line may reach the log."""
_NO_ACCOUNT = "0" * 12
_STARTS = 3
_lapack_option = option("--lapack", "Include SciPy.")


@click.group(cls=Commands)
def aws() -> None:
    """Run tensor tasks on AWS Lambda: deploy, inspect, tear down."""


def _deployment(**flags: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a command with the `Deployment` of `--config`, `--name`, `--region` and further flags of settings."""
    flags = {"name": "--name NAME", "region": "--region REGION", **flags}

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(*, file: Path | None, **given: Any) -> None:
            options = {name: given.pop(name) for name in flags}
            for name in ("base", "lock") if given.get("image") is not None else ():
                if options[name] is not None:
                    raise ConfigError(
                        f"--image and --{name} exclude each other: one uses an image, the other builds one"
                    )
            command(Deployment.load(file, {k: v for k, v in options.items() if v not in (None, ())}), **given)

        config = option("--config FILE.yaml", "Settings file.", name="file", type=INPUT)
        return config(section_options(Deployment, flags)(call))

    return add


@contextlib.contextmanager
def _reached(deployment: Deployment) -> Iterator[tuple[Names, Clients]]:
    """Context with access to AWS. Raises RunError or InputError in plain words if AWS is not accessible or refuses."""
    with contextlib.closing(Clients(deployment.region)) as clients, in_plain_words():
        yield Names(deployment.name, clients.account(), clients.region), clients


@aws.command()
@_deployment(
    architecture="--architecture x86_64|arm64",
    memory_mb="--memory MB",
    timeout_seconds="--timeout SECONDS",
    subnets="--subnet ID",
    security_groups="--security-group ID",
    reserved_concurrency="--concurrency N",
    log_retention_days="--log-days N",
    lapack="--lapack",
    artefacts="--artefacts S3_URI",
    base="--base IMAGE",
    lock="--lock FILE",
)
@option("--image URI", "Use this image in ECR, by digest, instead of building one.")
@option("--dry-run", "Show the plan and the policies; change nothing.")
@json_option
def deploy(deployment: Deployment, *, image: str | None, dry_run: bool, as_json: bool) -> None:
    """Create the function, or update it to these settings.

    Covers image, repository, role, log group and function. Resources that match stay unchanged; an interrupted
    deployment continues. Options override the file.
    """
    if image is not None and not is_pinned(image):
        raise ConfigError(
            f"--image must be by digest, as in REPOSITORY@sha256:…, got {image!r}: a tag may come to mean another image; "
            "`aws ecr describe-images` has the digest"
        )
    lock = None if deployment.lock is None else Path(deployment.lock)
    source = image or Context.make(deployment.architecture, lapack=deployment.lapack, base=deployment.base, lock=lock)
    actions: list[Change] = []

    def show(changes: Sequence[Change]) -> None:
        actions.extend(changes)
        if not (as_json or dry_run):
            show_changes(changes, names)

    with contextlib.ExitStack() as stack:
        try:
            names, clients = stack.enter_context(_reached(deployment))
        except InputError as error:
            if not dry_run:
                raise
            with contextlib.closing(Clients(deployment.region)) as offline:
                names = Names(deployment.name, _NO_ACCOUNT, offline.region)
            _tell(f"warning: {error}; shown as if nothing were deployed")
            show(plan_first(deployment, source, names))
        else:
            deploy_function(deployment, source, clients, names, show=show, tell=_tell, dry_run=dry_run)
    if as_json:
        address = source if isinstance(source, str) else f"{names.repository}:{source.tag}"
        print_json(plan_content(actions, names, deployment, address))
    elif dry_run:
        show_changes(actions, names)
        show_policies(names, deployment)
    else:
        click.echo(f"function: {names.function_arn}")


def _tell(text: str) -> None:
    click.echo(text, err=True)


@aws.command()
@_deployment()
@json_option
def status(deployment: Deployment, *, as_json: bool) -> None:
    """Show what exists of a deployment."""
    with _reached(deployment) as (names, clients):
        function = read_function(names, clients)
        found = {
            name: Stack(names, name, clients).describe() for name in (names.repository_stack, names.function_stack)
        }
        stacks = {name: None if stack is None else str(stack["StackStatus"]) for name, stack in found.items()}
        artefacts = 0 if deployment.location is None else len(artefact_keys(deployment.location, clients))
    if as_json:
        content = {"name": names.name, "region": names.region, "account": names.account, "stacks": stacks}
        print_json({"schema": 1} | content | {"function": function and function._asdict(), "artefacts": artefacts})
    else:
        show_status(names, function, stacks, artefacts)


@aws.command("invoke-test")
@_deployment()
@option("--count", "Number of calls.", type=COUNT, default=5)
@json_option
def invoke_test(deployment: Deployment, *, count: int, as_json: bool) -> None:
    """Invoke the function without a task: whether it starts, how fast, and whether it is of this release."""
    with _reached(deployment) as (names, clients):
        function = read_function(names, clients)
        if function is None:
            raise RunError(f"{names.name} is not deployed in {names.region}: run `dorylax aws deploy`")
        calls = functions.invoke_test(names, clients, count)
        tags = find_image(names, clients, digest=function.digest)[1:] if function.digest else ()
    theirs = next((found for found in map(Releases.of_tag, tags) if found is not None), None)
    here = Releases.here()
    if theirs is not None and theirs != here:
        raise RunError(
            f"the function has dorylax {theirs.dorylax} and JAX {theirs.jax}, this machine {here.dorylax} and {here.jax}: "
            "run `dorylax aws deploy` again"
        )
    if as_json:
        content = {"calls": [call._asdict() for call in calls], "releases": theirs and theirs._asdict()}
        print_json({"schema": 1, "image": function.image} | content)
        return
    first, *others = calls
    init = "" if first.init_milliseconds is None else f" (cold: {first.init_milliseconds:.0f} ms to start the sandbox)"
    click.echo(f"first call: {first.milliseconds:.0f} ms{init}")
    if others:
        warm = statistics.median(call.milliseconds for call in others)
        click.echo(f"warm calls: {warm:.0f} ms, median of {len(others)}")
    if first.memory_mb is not None:
        click.echo(f"memory: {first.memory_mb} of {function.memory_mb} MB")
    click.echo(f"release: {'this one' if theirs else 'not named by the image, but its answers can be read'}")


@aws.command()
@_deployment()
@option("--lines", "Most lines to show.", type=COUNT, default=50)
@option("--minutes", "How far back.", type=COUNT, default=60)
@option("--follow", "Keep showing new lines until Ctrl-C.")
def logs(deployment: Deployment, *, lines: int, minutes: int, follow: bool) -> None:
    """Show the last lines of the function's log."""
    with _reached(deployment) as (names, clients):
        since = int(1000 * (time.time() - 60 * minutes))
        seen = log_events(names, clients, since)
        new = seen[-lines:]
        while True:
            for line in new:
                click.echo(line["message"].rstrip("\n"))
            if not follow:
                break
            time.sleep(_FOLLOW_SECONDS)
            since = max([since, *(line["timestamp"] - _LATE_MILLISECONDS for line in seen)])
            known = {line["eventId"] for line in seen}
            seen = log_events(names, clients, since)
            new = [line for line in seen if line["eventId"] not in known]


@aws.command()
@_deployment()
@option("--artefacts S3_URI", "tensor.artefacts of runs: delete the stages there too.")
@option("--yes", "Do not ask.")
@option("--no-wait", "Do not wait for AWS to delete the function and its network interfaces.")
def teardown(deployment: Deployment, *, artefacts: str | None, yes: bool, no_wait: bool) -> None:
    """Delete all of a deployment: function, role, log, repository and images."""
    if artefacts is not None:
        deployment = deployment.model_copy(update={"artefacts": artefacts})
    location = deployment.location
    with _reached(deployment) as (names, clients):
        stacks = [Stack(names, name, clients) for name in (names.function_stack, names.repository_stack)]
        actions = [change for stack in stacks for change in stack.deletion()]
        if location is not None and (count := len(artefact_keys(location, clients))):
            actions.append(Change("delete", "artefacts", str(location), f"{count} stages, of whatever run"))
        if not actions:
            check_unmanaged(clients, names)
            click.echo(f"nothing of {deployment.name} exists in {names.region}")
            return
        show_changes(actions, names)
        if not yes:
            if not sys.stdin.isatty():
                raise ConfigError("--yes is needed when there is no terminal to ask on")
            if not click.confirm("delete all of this?"):
                stop("nothing was deleted", FAILED)
        for stack in stacks:
            stack.delete(wait=not no_wait)
        if location is not None:
            delete_artefacts(location, clients)


@aws.command()
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


@aws.command()
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
