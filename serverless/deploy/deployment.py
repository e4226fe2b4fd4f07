"""The steps of a deployment and of its teardown: the repository's stack, the image, the function's stack."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import partial

from dorylax.errors import InputError
from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.clients import Clients, unless
from dorylax.serverless.deploy.function import MISSING, find_image, read_function
from dorylax.serverless.deploy.image import builder
from dorylax.serverless.deploy.image.context import Context
from dorylax.serverless.deploy.names import TAG, Names
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.stacks import Change, Stack, creation
from dorylax.serverless.deploy.template import Template, function_template, repository_template

Source = Context | str
"""The function's image: a context to build, or the address of an existing image by digest."""


def deploy(
    deployment: Deployment,
    source: Source,
    clients: Clients,
    names: Names,
    *,
    show: Callable[[Sequence[Change]], None],
    tell: Callable[[str], None],
    dry_run: bool = False,
) -> None:
    """Create the deployment or bring it to its settings. An interrupted deployment continues.

    Args:
        deployment: Settings.
        source: The function's image.
        clients: AWS clients of the region.
        names: Names of the deployment's resources.
        show: Function that shows the plan of each part before its execution.
        tell: Function that shows one line of progress.
        dry_run: Whether to show all plans and change nothing. Problems that would stop a deployment become warnings, and an
            image that is not built yet has its tag instead of its digest.

    Raises:
        InputError: If an administrator or the user must act first.
        RunError: If the image cannot be built, AWS refuses a request, or CloudFormation rolls a change back.
    """
    function = read_function(names, clients)
    # Lambda needs the role's rights on a VPC to leave it, too. The next deployment removes them.
    vpc = bool(deployment.subnets or (function is not None and function.subnets))
    checks = (partial(_check_boundary, clients, names, vpc=vpc), partial(check_unmanaged, clients, names, source))
    for check in checks:
        try:
            check()
        except InputError as error:
            if not dry_run:
                raise
            tell(f"warning: {error}")

    def run(name: str, template: Template, *image: Change) -> None:
        plan = Stack(names, name, clients).plan(template)
        show([*plan.changes, *image])
        if dry_run:
            plan.discard()
        elif any(change.verb != "keep" for change in plan.changes):
            tell(f"change the stack {name}")
            plan.apply()

    if isinstance(source, str):
        image = source
    else:
        digest = _digest(source, clients, names)
        engine = builder.find_engine() if digest is None and not dry_run else None  # before anything is created
        run(names.repository_stack, repository_template(names), _image_step(source, digest))
        if engine is not None:
            tell(f"base {_push(engine, source, clients, names)}")
            digest = _digest(source, clients, names)
        image = f"{names.repository}:{source.tag}" if digest is None else f"{names.repository}@{digest}"
    run(names.function_stack, function_template(names, deployment, image, vpc=vpc))


def plan_first(deployment: Deployment, source: Source, names: Names) -> tuple[Change, ...]:
    """Plan a deployment of which nothing exists, without AWS."""
    function = creation(function_template(names, deployment, "", vpc=bool(deployment.subnets)))
    if isinstance(source, str):
        return function
    return (*creation(repository_template(names)), _image_step(source, None), *function)


def check_unmanaged(clients: Clients, names: Names, source: Source | None = None) -> None:
    """Check that no resource outside CloudFormation has a name which a missing stack needs.

    Args:
        clients: AWS clients of the region.
        names: Names of the deployment's resources.
        source: The function's image. The repository counts only for an image to build.

    Raises:
        InputError: If there is such a resource.
    """
    lookups: dict[str, Callable[[], object]] = {}
    if not isinstance(source, str) and Stack(names, names.repository_stack, clients).settled() is None:
        repositories = clients("ecr").describe_repositories
        lookups[f"repository {names.name}"] = lambda: repositories(repositoryNames=[names.name])
    if Stack(names, names.function_stack, clients).settled() is None:
        lines = clients("logs").filter_log_events
        lookups |= {
            f"function {names.name}": lambda: clients("lambda").get_function(FunctionName=names.name),
            f"role {names.role}": lambda: clients("iam").get_role(RoleName=names.role),
            f"log group {names.log_group}": lambda: lines(logGroupName=names.log_group, limit=1),
        }
    if found := [what for what, look in lookups.items() if unless(MISSING, look) is not None]:
        raise InputError(
            f"{', '.join(found)}: there already, but outside CloudFormation. If dorylax 0.1 deployed it (tag "
            f"{TAG}={names.name}), remove it with that release's `dorylax aws teardown --name {names.name}` and deploy "
            "again; otherwise choose another --name"
        )


def _check_boundary(clients: Clients, names: Names, *, vpc: bool) -> None:
    iam, arn = clients("iam"), names.boundary_arn
    found = unless(MISSING, lambda: iam.get_policy(PolicyArn=arn))
    problem = "there is none"
    if found is not None:
        version = iam.get_policy_version(PolicyArn=arn, VersionId=found["Policy"]["DefaultVersionId"])
        # A boundary for a VPC also suits a deployment without one: the role's own policy omits those rights.
        enough = [policies.boundary_policy(names, vpc=allowed) for allowed in {True, vpc}]
        if version["PolicyVersion"]["Document"] in enough:
            return
        problem = "it is not the one that this deployment needs"
    raise InputError(
        f"permissions boundary {names.boundary}: {problem}: an administrator makes it, as docs/aws.md says under "
        '"The permissions boundary"'
    )


def _digest(context: Context, clients: Clients, names: Names) -> str | None:
    return next(iter(find_image(names, clients, tag=context.tag)), None)


def _image_step(context: Context, digest: str | None) -> Change:
    if digest is not None:
        return Change("keep", "image", context.tag, "it is there with the same content")
    return Change("create", "image", context.tag, f"to be built for {context.architecture} and pushed")


def _push(engine: str, context: Context, clients: Clients, names: Names) -> str:
    [found] = clients("ecr").get_authorization_token()["authorizationData"]
    user, _, password = base64.b64decode(found["authorizationToken"]).decode("ascii").partition(":")
    return builder.build_and_push(engine, context, f"{names.repository}:{context.tag}", (user, password))
