"""AWS on this machine: moto's control plane behind HTTP, and functions whose invocations somebody here answers.

boto3 finds it by its environment variables alone: what is tested is the code that talks to AWS, unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import boto3
import pytest
from botocore.loaders import JSONFileLoader
from moto.awslambda import urls
from moto.awslambda.exceptions import LambdaClientError
from moto.awslambda.models import LambdaBackend
from moto.awslambda.responses import LambdaResponse
from moto.server import ThreadedMotoServer

from support.mocked_aws import mend_moto
from support.rie import Emulated, Reply

REGION = "eu-central-1"
SECRET = "wJalrXUtnFEMI0K7MDENG0bPxRfiCYEXAMPLEKEY"
"""Of AWS's documentation: opens nothing, and must be in no log either."""

_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",
}

_numbers = itertools.count()
_load_file = JSONFileLoader.load_file

Answer = Callable[[bytes], Reply]


class ThrottledError(LambdaClientError):
    """As Lambda says that as many calls run as may."""

    code = 429

    def __init__(self) -> None:
        super().__init__("TooManyRequestsException", "Rate Exceeded.")


class Sandboxes:
    """Answers with the first that is free, and throttles where none is."""

    def __init__(self, sandboxes: Sequence[Emulated]) -> None:
        self._sandboxes = sandboxes

    def __call__(self, payload: bytes) -> Reply:
        for one in self._sandboxes:
            if one.free.acquire(blocking=False):
                try:
                    return one.invoke(payload)
                finally:
                    one.free.release()
        raise ThrottledError


class Cloud:
    """What runs.

    Attributes:
        answer: what invocations of any function come to; may be changed.
        invoked: how many there were.
        unreserved: what the account says that it has.
        function, bucket: names that no other cloud of this process has: moto keeps what is made as long as the process
            lives.
    """

    def __init__(self) -> None:
        self.answer: Answer = _nothing
        self.invoked = 0
        self.unreserved = 1000
        number = next(_numbers)
        self.function, self.bucket = f"dorylax-{number}", f"dorylax-artefacts-{number}"
        self._lock = threading.Lock()

    def invoke(self, payload: bytes) -> Reply:
        with self._lock:
            self.invoked += 1
        return self.answer(payload)

    def make_function(self) -> None:
        """A function of an image that nobody has built."""
        name = self.function
        with contextlib.closing(boto3.client("iam")) as iam, contextlib.closing(boto3.client("lambda")) as functions:
            role = iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
            functions.create_function(
                FunctionName=name,
                Role=role,
                Code={"ImageUri": f"123456789012.dkr.ecr.{REGION}.amazonaws.com/{name}:1"},
                PackageType="Image",
                Timeout=300,
                MemorySize=1769,
            )

    def make_bucket(self) -> None:
        """An empty one."""
        with contextlib.closing(boto3.client("s3")) as s3:
            s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})


def _nothing(_: bytes) -> Reply:
    raise AssertionError("a function was invoked that nobody answers for")


@functools.cache
def _description(path: str) -> Any:
    """What boto3 knows of a service, read once: megabytes of JSON, which every client would parse anew."""
    return _load_file(JSONFileLoader(), path)


@contextlib.contextmanager
def cloud() -> Iterator[Cloud]:
    """AWS, empty."""
    made = Cloud()

    def invoke(backend: LambdaBackend, name: str, qualifier: str | None, body: Any, *headers: Any) -> bytes:
        backend.get_function(name, qualifier)  # or it is not there
        reply = made.invoke(body if isinstance(body, bytes) else str(body).encode())
        _, response_headers = headers
        if reply.error is not None:
            response_headers["X-Amz-Function-Error"] = reply.error
        return reply.body

    def get_account_settings(_: LambdaResponse) -> str:
        return json.dumps({"AccountLimit": {"UnreservedConcurrentExecutions": made.unreserved}})

    with pytest.MonkeyPatch.context() as patch:
        for name, value in _SETTINGS.items():
            patch.setenv(name, value)
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: _description(path))
        patch.setattr(LambdaBackend, "invoke", invoke)
        mend_moto(patch)
        # moto has no account settings.
        patch.setattr(LambdaResponse, "get_account_settings", get_account_settings, raising=False)
        patch.setitem(urls.url_paths, r"{0}/(?P<api_version>[^/]+)/account-settings/?$", LambdaResponse.dispatch)
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        try:
            yield made
        finally:
            server.stop()
