"""`dorylax aws`: deploys the handler to AWS Lambda, inspects it, removes it (docs/aws.md)."""

from __future__ import annotations

import base64
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dorylax.cli.aws_image import image, lock
from dorylax.cli.aws_place import looked_at, reached, settings
from dorylax.cli.aws_tables import plan_content, show_plan, show_policies, show_status
from dorylax.cli.commands import Commands
from dorylax.serverless.deploy.settings import Deployment
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import FAILED, CommandError
from dorylax.terminal.files import INPUT
from dorylax.terminal.options import section_options
from dorylax.terminal.output import print_json

if TYPE_CHECKING:
    from dorylax.serverless.deploy.clients import Clients
    from dorylax.serverless.deploy.image.builder import Login
    from dorylax.serverless.deploy.plan import Action

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_FOLLOW_SECONDS = 2.0
_LATE_MILLISECONDS = 30_000
"""How much later than others a line may reach the log."""


@click.group(cls=Commands)
def aws() -> None:
    """Run tensor tasks on AWS Lambda: deploy, inspect, tear down."""


aws.add_command(image)
aws.add_command(lock)


def _which(command: Decorated) -> Decorated:
    """Add the options that select a deployment."""
    command = section_options(Deployment, {"name": "--name NAME", "region": "--region REGION"})(command)
    command = click.option("--config", "file", metavar="FILE.yaml", type=INPUT, help="Settings file.")(command)
    return command


@aws.command()
@_which
@section_options(
    Deployment,
    {
        "architecture": "--architecture x86_64|arm64",
        "memory_mb": "--memory MB",
        "timeout_seconds": "--timeout SECONDS",
        "subnets": "--subnet ID",
        "security_groups": "--security-group ID",
        "reserved_concurrency": "--concurrency N",
        "log_retention_days": "--log-days N",
        "lapack": "--lapack",
        "artefacts": "--artefacts S3_URI",
        "base": "--base IMAGE",
        "lock": "--lock FILE",
    },
)
@click.option("--image", metavar="URI", help="Use this image in ECR, by digest, instead of building one.")
@click.option("--dry-run", is_flag=True, help="Show the plan and the policies; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def deploy(*, file: Path | None, image: str | None, dry_run: bool, as_json: bool, **given: Any) -> None:
    """Create the function, or update it to these settings.

    Covers image, repository, role, log group and function. Resources that match stay unchanged; an interrupted
    deployment continues. Options override the file.
    """
    from dorylax.serverless.deploy.image.base import is_pinned

    for name in ("base", "lock"):
        if image is not None and given[name] is not None:
            raise ConfigError(f"--image and --{name} exclude each other: one uses an image, the other builds one")
    if image is not None and not is_pinned(image):
        raise ConfigError(
            f"--image must be by digest, as in REPOSITORY@sha256:…, got {image!r}: a tag may come to mean another image; "
            "`aws ecr describe-images` has the digest"
        )
    deployment = settings(file, given)
    from dorylax.serverless.deploy.apply import Applier
    from dorylax.serverless.deploy.image.builder import build_and_push, find_engine
    from dorylax.serverless.deploy.image.context import Context
    from dorylax.serverless.deploy.plan import Wanted, plan_deploy

    context = None
    if image is None:
        context = Context.make(
            deployment.architecture,
            lapack=deployment.lapack,
            base=deployment.base,
            lock=None if deployment.lock is None else Path(deployment.lock),
        )
    with looked_at(deployment, boundary=True, without_credentials=dry_run) as place:
        tag = None if context is None else context.tag
        address = place.names.image(tag) if tag is not None else image
        assert address is not None
        wanted = Wanted(deployment, place.names, address, tag)
        actions = plan_deploy(wanted, place.found)
        content = plan_content(actions, wanted)
        if not as_json:
            show_plan(actions, place.names)
        if dry_run:
            if as_json:
                print_json(content)
            else:
                show_policies(wanted)
            return
        clients = place.clients
        assert clients is not None
        # Checked before anything is created.
        engine = find_engine() if any((a.verb, a.kind) == ("create", "image") for a in actions) else None

        def push(address: str) -> None:
            assert engine is not None
            assert context is not None
            click.echo(f"base {build_and_push(engine, context, address, _login(clients))}", err=True)

        Applier(clients, place.names, wanted, push).apply(actions, _report)
    if as_json:
        print_json(content)
    else:
        click.echo(f"function: {place.names.function_arn}")


@aws.command()
@_which
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(*, file: Path | None, name: str | None, region: str | None, as_json: bool) -> None:
    """Show what exists of a deployment."""
    deployment = settings(file, {"name": name, "region": region})
    with looked_at(deployment, artefacts=deployment.location) as place:
        found, names = place.found, place.names
    if as_json:
        content = {"name": names.name, "region": names.region, "account": names.account}
        print_json({"schema": 1} | content | dataclasses.asdict(found))
    else:
        show_status(names, found)


@aws.command("invoke-test")
@_which
@click.option("--count", type=click.IntRange(min=1), default=5, show_default=True, help="Number of calls.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def invoke_test(*, file: Path | None, name: str | None, region: str | None, count: int, as_json: bool) -> None:
    """Invoke the function without a task: whether it starts, how fast, and whether it is of this release."""
    deployment = settings(file, {"name": name, "region": region})
    from dorylax.errors import RunError
    from dorylax.serverless.deploy import invoke
    from dorylax.serverless.deploy.image.context import Releases
    from dorylax.serverless.deploy.state import read_function, read_image_tags

    with reached(deployment) as (names, clients):
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
    first, *others = calls
    warm = [call.milliseconds for call in others]
    if as_json:
        content = {"calls": [call._asdict() for call in calls], "releases": theirs and theirs._asdict()}
        print_json({"schema": 1, "image": function.image} | content)
        return
    init = "" if first.init_milliseconds is None else f" (cold: {first.init_milliseconds:.0f} ms to start the sandbox)"
    click.echo(f"first call: {first.milliseconds:.0f} ms{init}")
    if warm:
        click.echo(f"warm calls: {statistics.median(warm):.0f} ms, median of {len(warm)}")
    if first.memory_mb is not None:
        click.echo(f"memory: {first.memory_mb} of {function.memory_mb} MB")
    same = "this one" if theirs else "not named by the image, but its answers can be read"
    click.echo(f"release: {same}")


@aws.command()
@_which
@click.option("--lines", type=click.IntRange(min=1), default=50, show_default=True, help="Most lines to show.")
@click.option("--minutes", type=click.IntRange(min=1), default=60, show_default=True, help="How far back.")
@click.option("--follow", is_flag=True, help="Keep showing new lines until Ctrl-C.")
def logs(*, file: Path | None, name: str | None, region: str | None, lines: int, minutes: int, follow: bool) -> None:
    """Show the last lines of the function's log."""
    deployment = settings(file, {"name": name, "region": region})
    from dorylax.serverless.deploy.logs import lines_since

    with reached(deployment) as (names, clients):
        since = int(1000 * (time.time() - 60 * minutes))
        seen = lines_since(names, clients, since)
        for line in seen[-lines:]:
            click.echo(line.text)
        while follow:
            time.sleep(_FOLLOW_SECONDS)
            since = max([since, *(line.milliseconds - _LATE_MILLISECONDS for line in seen)])
            known = {line.id for line in seen}
            seen = lines_since(names, clients, since)
            for line in seen:
                if line.id not in known:
                    click.echo(line.text)


@aws.command()
@_which
@click.option("--artefacts", metavar="S3_URI", help="tensor.artefacts of runs: delete the stages there too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-wait", is_flag=True, help="Do not wait for AWS to delete network interfaces in a VPC.")
def teardown(
    *, file: Path | None, name: str | None, region: str | None, artefacts: str | None, yes: bool, no_wait: bool
) -> None:
    """Delete all of a deployment: function, role, log, repository and images."""
    deployment = settings(file, {"name": name, "region": region, "artefacts": artefacts})
    from dorylax.serverless.deploy.apply import Applier
    from dorylax.serverless.deploy.plan import plan_teardown

    with looked_at(deployment, artefacts=deployment.location) as place:
        actions = plan_teardown(place.names, place.found, wait=not no_wait, artefacts=deployment.artefacts)
        if not actions:
            click.echo(f"nothing of {deployment.name} exists in {place.names.region}")
            return
        show_plan(actions, place.names)
        if not yes:
            if not sys.stdin.isatty():
                raise ConfigError("--yes is needed when there is no terminal to ask on")
            if not click.confirm("delete all of this?"):
                raise CommandError("nothing was deleted", FAILED)
        assert place.clients is not None
        Applier(place.clients, place.names, artefacts=deployment.location).apply(actions, _report)


def _login(clients: Clients) -> Login:
    from dorylax.serverless.deploy.image.builder import Login

    [found] = clients("ecr").get_authorization_token()["authorizationData"]
    user, _, password = base64.b64decode(found["authorizationToken"]).decode("ascii").partition(":")
    return Login(user, password)


def _report(action: Action) -> None:
    if action.verb != "keep":
        click.echo(f"{action.verb} {action.kind} {action.name}", err=True)
