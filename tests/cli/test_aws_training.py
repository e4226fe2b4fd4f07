"""`dorylax aws deploy`, `dorylax train` on what was deployed, `dorylax aws teardown`: as a user would, and all of it mocked.

AWS is moto's control plane behind HTTP; invocations go to AWS's emulator. What asks for another host fails the test.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("awslambdaric", reason="needs awslambdaric")
pytest.importorskip("moto", reason="needs moto")

from support.aws import REGION, Cloud, Sandboxes, cloud
from support.backends import need_emulator
from support.leftovers import nothing_left
from support.locks import locked_here
from support.mocked_aws import put_image
from support.rie import emulated

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.image import builder
from dorylax.serverless.deploy.names import Names

TRAIN = (
    "train",
    "--set",
    "data.size=tiny",
    "--model",
    "gcn",
    *("--epochs", "3", "--json", "--set", "pipeline.intervals=2", "--set", "tensor.placement=functions"),
)


@pytest.fixture(autouse=True, scope="module")
def lock_for_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with locked_here(tmp_path_factory.mktemp("lock")):
        yield


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    need_emulator()
    from botocore.httpsession import URLLib3Session

    send = URLLib3Session.send

    def only_here(session: Any, request: Any) -> Any:
        assert urlsplit(request.url).hostname == "127.0.0.1", f"nothing answers {request.url} here"
        return send(session, request)

    monkeypatch.setattr(URLLib3Session, "send", only_here)
    monkeypatch.setenv("MOTO_LAMBDA_STUB_ECR", "false")
    with emulated(2) as sandboxes, cloud() as found:
        found.answer = Sandboxes(sandboxes)
        monkeypatch.setattr(builder, "find_engine", lambda: "engine")
        monkeypatch.setattr(builder, "build_and_push", push)
        yield found


def push(engine: str, context: object, address: str, login: object) -> str:
    import boto3

    with contextlib.closing(boto3.client("ecr")) as ecr:
        put_image(ecr, address)
    return "base"


def make_boundary(name: str) -> None:
    """As an administrator would."""
    import boto3

    names = Names(name, "123456789012", REGION)
    document = json.dumps(policies.boundary_policy(names, vpc=False))
    with contextlib.closing(boto3.client("iam")) as iam:
        iam.create_policy(PolicyName=names.boundary, PolicyDocument=document)


def left(name: str) -> list[str]:
    """All that AWS has by a name."""
    import boto3

    services = ("lambda", "iam", "logs", "ecr", "cloudformation")
    functions, iam, logs, ecr, stacks = (boto3.client(service) for service in services)
    found = [entry["FunctionName"] for entry in functions.list_functions()["Functions"]]
    found += [entry["RoleName"] for entry in iam.list_roles()["Roles"]]
    found += [entry["logGroupName"] for entry in logs.describe_log_groups()["logGroups"]]
    found += [entry["repositoryName"] for entry in ecr.describe_repositories()["repositories"]]
    found += [entry["StackName"] for entry in stacks.describe_stacks()["Stacks"]]
    for one in (functions, iam, logs, ecr, stacks):
        one.close()
    return [entry for entry in found if name in entry]


def stages(bucket: str) -> list[str]:
    """Keys of all that lies in a bucket."""
    import boto3

    with contextlib.closing(boto3.client("s3")) as s3:
        return [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]


def test_deploy_train_teardown(dorylax, aws: Cloud, tmp_path: Path) -> None:
    name = aws.function
    make_boundary(name)
    code, out, err = dorylax("aws", "deploy", "--name", name)
    assert code == 0, err
    assert out.splitlines()[-1].endswith(f":function:{name}")
    assert len(left(name)) == 6  # four resources in two stacks
    aws.make_bucket()
    on_aws = {
        "backend": "aws",
        "function": name,
        "host": "127.0.0.1",
        "workers": "2",
        "artefacts": f"s3://{aws.bucket}/stages",
    }
    settings = [word for key, value in on_aws.items() for word in ("--set", f"tensor.{key}={value}")]
    with nothing_left():
        code, out, err = dorylax(*TRAIN, *settings, "--out", str(tmp_path / "aws"))
    assert code == 0, err
    assert aws.invoked > 2
    assert dorylax(*TRAIN, "--set", "tensor.backend=inline", "--out", str(tmp_path / "inline")).code == 0
    there, here = (
        [json.loads(line) for line in next((tmp_path / run).rglob("metrics.jsonl")).read_text().splitlines()]
        for run in ("aws", "inline")
    )
    losses = [[line["loss"] for line in lines if "loss" in line] for lines in (there, here)]
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)

    assert stages(aws.bucket)
    code, _, err = dorylax("aws", "teardown", "--name", name, "--artefacts", on_aws["artefacts"], "--yes")
    assert code == 0, err
    assert left(name) == []
    assert stages(aws.bucket) == []
