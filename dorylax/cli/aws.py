"""`dorylax aws`: deploys the handler to AWS Lambda, inspects it, removes it (docs/aws.md)."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from dorylax.cli.app import Commands
from dorylax.cli.aws_image import image, lock
from dorylax.cli.aws_tables import plan_content, show_plan, show_policies, show_status
from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy import invoke
from dorylax.serverless.deploy.apply import Applier
from dorylax.serverless.deploy.clients import Clients, in_plain_words
from dorylax.serverless.deploy.found import Found
from dorylax.serverless.deploy.image import builder
from dorylax.serverless.deploy.image.base import is_pinned
from dorylax.serverless.deploy.image.context import Context, Releases
from dorylax.serverless.deploy.logs import lines_since
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.plan import Action, Wanted, plan_deploy, plan_teardown
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.state import read, read_function, read_image_tags
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import FAILED, stop
from dorylax.terminal.files import INPUT
from dorylax.terminal.options import COUNT, json_option, option, section_options
from dorylax.terminal.output import print_json

_FOLLOW_SECONDS = 2.0
_LATE_MILLISECONDS = 30_000
"""How much later than others a line may reach the log."""
_NO_ACCOUNT = "0" * 12


@click.group(cls=Commands, commands=[image, lock])
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
    context = None
    if image is None:
        lock = None if deployment.lock is None else Path(deployment.lock)
        context = Context.make(deployment.architecture, lapack=deployment.lapack, base=deployment.base, lock=lock)
    with contextlib.ExitStack() as stack:
        clients = None
        try:
            names, clients = stack.enter_context(_reached(deployment))
        except InputError as error:
            if not dry_run:
                raise
            if (region := deployment.region) is None:
                with contextlib.closing(Clients(None)) as environment:
                    region = environment.region
            names, found = Names(deployment.name, _NO_ACCOUNT, region), Found()
            click.echo(f"warning: {error}; shown as if nothing were deployed", err=True)
        else:
            found = read(names, clients, boundary=True)
        tag = None if context is None else context.tag
        wanted = Wanted(deployment, names, image or names.image(str(tag)), tag)
        actions = plan_deploy(wanted, found)
        if not as_json:
            show_plan(actions, names)
        if clients is not None and not dry_run:
            _apply(clients, wanted, actions, context)
    if as_json:
        print_json(plan_content(actions, wanted))
    elif dry_run:
        show_policies(wanted)
    else:
        click.echo(f"function: {names.function_arn}")


def _apply(clients: Clients, wanted: Wanted, actions: Sequence[Action], context: Context | None) -> None:
    # The engine is found before anything is created.
    engine = builder.find_engine() if any((one.verb, one.kind) == ("create", "image") for one in actions) else None

    def push(address: str) -> None:
        assert engine is not None
        assert context is not None
        [found] = clients("ecr").get_authorization_token()["authorizationData"]
        user, _, password = base64.b64decode(found["authorizationToken"]).decode("ascii").partition(":")
        base = builder.build_and_push(engine, context, address, builder.Login(user, password))
        click.echo(f"base {base}", err=True)

    Applier(clients, wanted.names, wanted, push).apply(actions, _report)


@aws.command()
@_deployment()
@json_option
def status(deployment: Deployment, *, as_json: bool) -> None:
    """Show what exists of a deployment."""
    with _reached(deployment) as (names, clients):
        found = read(names, clients, deployment.location)
    if as_json:
        content = {"name": names.name, "region": names.region, "account": names.account}
        print_json({"schema": 1} | content | dataclasses.asdict(found))
    else:
        show_status(names, found)


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
        calls = invoke.invoke_test(names, clients, count)
        tags = read_image_tags(names, clients, function.digest) if function.digest else ()
    # Deployments of older releases have a tag; an image from another source has a digest.
    addresses = (function.image, *map(names.image, tags))
    theirs = next((found for found in map(Releases.of_image, addresses) if found is not None), None)
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
        seen = lines_since(names, clients, since)
        new = seen[-lines:]
        while True:
            for line in new:
                click.echo(line.text)
            if not follow:
                break
            time.sleep(_FOLLOW_SECONDS)
            since = max([since, *(line.milliseconds - _LATE_MILLISECONDS for line in seen)])
            known = {line.id for line in seen}
            seen = lines_since(names, clients, since)
            new = [line for line in seen if line.id not in known]


@aws.command()
@_deployment()
@option("--artefacts S3_URI", "tensor.artefacts of runs: delete the stages there too.")
@option("--yes", "Do not ask.")
@option("--no-wait", "Do not wait for AWS to delete network interfaces in a VPC.")
def teardown(deployment: Deployment, *, artefacts: str | None, yes: bool, no_wait: bool) -> None:
    """Delete all of a deployment: function, role, log, repository and images."""
    if artefacts is not None:
        deployment = deployment.model_copy(update={"artefacts": artefacts})
    with _reached(deployment) as (names, clients):
        found = read(names, clients, deployment.location)
        actions = plan_teardown(names, found, wait=not no_wait, artefacts=deployment.artefacts)
        if not actions:
            click.echo(f"nothing of {deployment.name} exists in {names.region}")
            return
        show_plan(actions, names)
        if not yes:
            if not sys.stdin.isatty():
                raise ConfigError("--yes is needed when there is no terminal to ask on")
            if not click.confirm("delete all of this?"):
                stop("nothing was deleted", FAILED)
        Applier(clients, names, artefacts=deployment.location).apply(actions, _report)


def _report(action: Action) -> None:
    if action.verb != "keep":
        click.echo(f"{action.verb} {action.kind} {action.name}", err=True)
