"""What a run on AWS needs, from a few settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dorylax.serverless.backends.aws.artefacts import S3Artefacts
from dorylax.serverless.backends.aws.checks import FunctionName
from dorylax.serverless.backends.aws.clients import lambda_client
from dorylax.serverless.backends.aws.invoker import LambdaFunctions
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.config import LONGEST_CALL, TensorConfig
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.store.aws import s3_client


def make_functions(
    keys: RunKeys, *, function: str, region: str | None, calls: int, deadline: float | None
) -> LambdaFunctions:
    """The invoker of a deployed function.

    Args:
        keys: of the run.
        function: a name, name:alias, or an ARN.
        region: where it is; None: the ARN's, or as boto3 finds it (`dorylax.store.aws.region_of`).
        calls: at a time, of all graph servers together, ≥ 1.
        deadline: seconds that a call may take; None: as long as the function allows.

    Raises:
        RunError: boto3 is not installed, or there is no region.
        ConfigError: `function` names none.
    """
    named = FunctionName.of(function)  # before anything is made
    client = lambda_client(region or named.region, calls=calls, seconds=min(deadline or LONGEST_CALL, LONGEST_CALL))
    settings = SandboxSettings(keys, jax=jax_settings())
    return LambdaFunctions(client, function, settings=settings, calls=calls, deadline=deadline)


def of_settings(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    """The invoker of a run (`catalogue.BackendEntry.invoker`)."""
    return make_functions(keys, function=tensor.function, region=tensor.region, calls=workers, deadline=tensor.deadline)


def publish_artefacts(artefacts: Mapping[str, bytes], location: str, *, region: str | None) -> Callable[[str], str]:
    """Puts those artefacts to S3 that are not there yet.

    Args:
        artefacts: contents, by SHA-256.
        location: `s3://bucket/prefix`.
        region: of the bucket; None: as boto3 finds it (`dorylax.store.aws.region_of`).

    Returns:
        The URL of each by its SHA-256, for `RemoteBackend`.

    Raises:
        RunError: S3 refuses, or cannot be reached.
        ConfigError: `location` is not one.
    """
    store = S3Artefacts(s3_client(region), location)
    try:
        store.upload(artefacts)
    finally:
        store.close()  # signing needs no connection
    return store.url
