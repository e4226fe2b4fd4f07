"""Factory of the invoker and the artefact store for a run on AWS."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dorylax.net.keys import RunKeys
from dorylax.serverless.backends.aws.artefacts import S3Artefacts
from dorylax.serverless.backends.aws.checks import FunctionName
from dorylax.serverless.backends.aws.clients import lambda_client
from dorylax.serverless.backends.aws.invoker import LambdaFunctions
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.config import LONGEST_CALL, TensorConfig
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.store.aws import s3_client


def make_functions(
    keys: RunKeys, *, function: str, region: str | None, calls: int, deadline: float | None
) -> LambdaFunctions:
    """Create the invoker of a deployed function.

    Args:
        keys: Keys of the run.
        function: Name, name:alias, or ARN of the function.
        region: AWS region, or None for the ARN's or boto3's region (`dorylax.store.aws.region_of`).
        calls: Maximum number of concurrent calls over all graph servers, ≥ 1.
        deadline: Time limit per call in seconds, or None for the function's own limit.

    Raises:
        RunError: If boto3 is not installed or no region is configured.
        ConfigError: If `function` is not a valid name or ARN.
    """
    named = FunctionName.of(function)  # validate before creating a client
    client = lambda_client(region or named.region, calls=calls, seconds=min(deadline or LONGEST_CALL, LONGEST_CALL))
    settings = SandboxSettings(keys, jax=jax_settings())
    return LambdaFunctions(client, function, settings=settings, calls=calls, deadline=deadline)


def of_settings(tensor: TensorConfig, keys: RunKeys, workers: int) -> Invoker:
    """Create the invoker of a run from its settings (`catalogue.BackendEntry.invoker`)."""
    return make_functions(keys, function=tensor.function, region=tensor.region, calls=workers, deadline=tensor.deadline)


def publish_artefacts(artefacts: Mapping[str, bytes], location: str, *, region: str | None) -> Callable[[str], str]:
    """Upload missing artefacts to S3.

    Args:
        artefacts: Contents by SHA-256.
        location: Location in the form `s3://bucket/prefix`.
        region: Region of the bucket, or None for boto3's region (`dorylax.store.aws.region_of`).

    Returns:
        Function that maps a SHA-256 to the artefact's URL, for `RemoteBackend`.

    Raises:
        RunError: If S3 refuses or cannot be reached.
        ConfigError: If `location` is invalid.
    """
    store = S3Artefacts(s3_client(region), location)
    try:
        store.upload(artefacts)
    finally:
        store.close()  # signing URLs works without a connection
    return store.url
