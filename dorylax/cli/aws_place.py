"""Selects the deployment of a `dorylax aws` command, and reads its state from AWS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import click

if TYPE_CHECKING:
    from dorylax.serverless.deploy.clients import Clients
    from dorylax.serverless.deploy.found import Found
    from dorylax.serverless.deploy.names import Names
    from dorylax.serverless.deploy.settings import Deployment
    from dorylax.store.base import Location

_NO_ACCOUNT = "0" * 12


@final
class Reached(NamedTuple):
    """Clients of AWS, and the names of a deployment's resources."""

    names: Names
    clients: Clients


@final
class Place(NamedTuple):
    """A deployment's names and existing resources; `clients` is None without access to AWS."""

    names: Names
    found: Found
    clients: Clients | None


def settings(file: Path | None, given: dict[str, Any]) -> Deployment:
    """Read the settings of a file; options override them.

    Raises:
        ConfigError: The file (the error names the line) or an option is wrong.
        OSError: The machine fails to read the file.
    """
    from dorylax.serverless.deploy.settings import Deployment

    return Deployment.load(file, {key: value for key, value in given.items() if value not in (None, ())})


@contextlib.contextmanager
def reached(deployment: Deployment) -> Iterator[Reached]:
    """Context with access to AWS, in which errors of AWS are raised in plain words.

    Raises:
        RunError, InputError: AWS is not accessible, or refuses a request.
    """
    from dorylax.serverless.deploy.clients import Clients, in_plain_words
    from dorylax.serverless.deploy.names import Names

    with contextlib.closing(Clients(deployment.region)) as clients, in_plain_words():
        yield Reached(Names(deployment.name, clients.account(), clients.region), clients)


@contextlib.contextmanager
def looked_at(
    deployment: Deployment,
    *,
    artefacts: Location | None = None,
    boundary: bool = False,
    without_credentials: bool = False,
) -> Iterator[Place]:
    """Context with the state of a deployment in AWS.

    Args:
        deployment: The deployment.
        artefacts: Place in which to count stages; None: stages are not counted.
        boundary: Whether to read the role's permissions boundary too.
        without_credentials: Whether to assume, with a warning, that no resources exist if AWS is not accessible.

    Raises:
        RunError, InputError: AWS is not accessible, or refuses a request.
    """
    from dorylax.errors import InputError
    from dorylax.serverless.deploy.found import Found
    from dorylax.serverless.deploy.names import Names
    from dorylax.serverless.deploy.state import read

    with contextlib.ExitStack() as stack:
        try:
            names, clients = stack.enter_context(reached(deployment))
        except InputError as error:
            if not without_credentials:
                raise
            place = Place(Names(deployment.name, _NO_ACCOUNT, deployment.region or _region()), Found(), None)
            click.echo(f"warning: {error}; shown as if nothing were deployed", err=True)
        else:
            place = Place(names, read(names, clients, artefacts, boundary=boundary), clients)
        yield place


def _region() -> str:
    """Return the region of the environment or of the profile."""
    from dorylax.serverless.deploy.clients import Clients

    with contextlib.closing(Clients(None)) as clients:
        return clients.region
