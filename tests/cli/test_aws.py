"""`dorylax aws` on moto, from nothing to nothing."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import shlex
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.iam import allowed
from support.locks import locked_here
from support.mocked_aws import REGION, MockedAws, client, mocked_aws, without_credentials

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.image import builder, root
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.function.invocation import Invocation, response
from dorylax.settings import strict_yaml

pytest.importorskip("awslambdaric", reason="needs awslambdaric")

HERE = ("--region", REGION)
BASE = f"registry.example/python@sha256:{5:064x}"
ADDRESS = f"123456789012.dkr.ecr.{REGION}.amazonaws.com/dorylax"


@pytest.fixture(autouse=True, scope="module")
def lock_for_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with locked_here(tmp_path_factory.mktemp("lock")):
        yield


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockedAws]:
    with mocked_aws() as found:
        for name in ("dorylax", "gnn"):
            found.make_boundary(name)
        monkeypatch.setattr(builder, "find_engine", lambda: "engine")

        def build_and_push(engine: str, context: Any, address: str, login: Any) -> str:
            user, password = login
            assert (engine, user) == ("engine", "AWS")
            assert password
            assert address.endswith(f":{context.tag}")
            found.push(address)
            return BASE

        monkeypatch.setattr(builder, "build_and_push", build_and_push)
        yield found


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the function answers, one after the other; without any, as a warm handler does."""
    from moto.awslambda_simple.models import LambdaSimpleBackend

    queue: list[bytes] = []

    def invoke(_: Any, name: str, qualifier: Any, body: Any, headers: Any, response_headers: Any) -> bytes:
        assert Invocation.read(json.loads(body)).event is None
        if queue:
            response_headers["x-amz-function-error"] = "Unhandled"
            return queue.pop(0)
        tail = "REPORT RequestId: 1\tDuration: 2 ms\tMax Memory Used: 321 MB\tInit Duration: 1234.5 ms\t"
        response_headers["x-amz-log-result"] = base64.b64encode(tail.encode()).decode()
        return json.dumps(response(None)).encode()

    monkeypatch.setattr(LambdaSimpleBackend, "invoke", invoke)
    return queue


def rows(text: str) -> list[list[str]]:
    """The cells of a table."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def nothing_of_it(aws: MockedAws) -> bool:
    """Whether nothing is left but what an administrator has made."""
    there = {kind: names for kind, names in aws.everything().items() if names}
    return there == {"policies": [f"dorylax-{REGION}-boundary", f"gnn-{REGION}-boundary"]}


def test_from_nothing_to_nothing(dorylax, aws: MockedAws, answers: list[bytes]) -> None:
    code, out, err = dorylax("aws", "deploy", *HERE, "--memory", "2048")
    assert (code, out.splitlines()[-1]) == (0, f"function: arn:aws:lambda:{REGION}:123456789012:function:dorylax")
    assert [row[:2] for row in rows(out) if row[0] != "step"] == [
        ["create", kind] for kind in ("repository", "image", "log group", "role", "policy", "function")
    ]
    assert err.splitlines() == [
        "change the stack dorylax-Repository",
        f"base {BASE}",
        "change the stack dorylax-Function",
    ]
    code, out, err = dorylax("aws", "deploy", *HERE, "--memory", "2048")
    assert (code, err) == (0, "")
    assert {row[0] for row in rows(out)} == {"keep"}

    code, out, _ = dorylax("aws", "status", *HERE)
    assert code == 0
    state = dict(rows(out))
    assert state["stack dorylax-Function"] == state["stack dorylax-Repository"] == "CREATE_COMPLETE"
    assert state["function"] == "Active, last update Successful"
    assert state["memory"] == "2048 MB, x86_64"
    assert state["concurrency"] == "none reserved"
    assert state["image"] == f"{ADDRESS}@{state['digest']}"
    facts = json.loads(dorylax("aws", "status", *HERE, "--json").out)
    assert (facts["schema"], facts["function"]["memory_mb"]) == (1, 2048)
    assert set(facts["stacks"].values()) == {"CREATE_COMPLETE"}

    code, out, _ = dorylax("aws", "invoke-test", *HERE, "--count", "3")
    assert code == 0
    assert "ms (cold: 1234 ms to start the sandbox)\nwarm calls: " in out
    assert out.endswith("memory: 321 of 2048 MB\nrelease: this one\n")

    code, out, _ = dorylax("aws", "teardown", *HERE, "--yes")
    assert code == 0
    assert [row[1] for row in rows(out)] == ["log group", "role", "policy", "function", "repository"]
    assert nothing_of_it(aws)
    assert dorylax("aws", "teardown", *HERE) == (0, f"nothing of dorylax exists in {REGION}\n", "")
    assert dict(rows(dorylax("aws", "status", *HERE).out))["function"] == "not there"


def test_a_dry_run_changes_nothing(dorylax, aws: MockedAws, tmp_path: Path) -> None:
    file = tmp_path / "aws.yaml"
    file.write_text(
        f"name: gnn\nregion: {REGION}\nsubnets: [subnet-0a]\nsecurity_groups: [sg-0b]\ntimeout_seconds: 60\n"
    )
    code, out, err = dorylax("aws", "deploy", "--config", str(file), "--dry-run", "--timeout", "30")
    assert (code, err) == (0, "")
    assert aws.changes == []
    assert ["create", "function", "gnn", "missing"] in rows(out)
    for title in ("trust policy of the role gnn-eu-west-1", "whoever trains", "whoever deploys"):
        assert title in out
    assert "permissions boundary gnn-eu-west-1-boundary, which an administrator makes:\n" in out
    content = json.loads(dorylax("aws", "deploy", "--config", str(file), "--dry-run", "--json").out)
    assert content["settings"]["timeout_seconds"] == 60
    assert content["image"].startswith(f"123456789012.dkr.ecr.{REGION}.amazonaws.com/gnn:")
    assert [action["verb"] for action in content["actions"]] == ["create"] * 6
    assert content["policies"]["role"] == {
        "trust": policies.trust_policy(),
        "function": content["policies"]["boundary"],
    }
    network = {"lambda:SubnetIds": ["subnet-0a"], "lambda:SecurityGroupIds": ["sg-0b"]}
    conditions = [statement.get("Condition") for statement in content["policies"]["deployer"]["Statement"]]
    assert {"ForAllValues:StringEquals": network} in conditions
    assert aws.changes == []


def test_who_trains_may_make_every_call_of_looking_and_trying(dorylax, aws: MockedAws, answers: list[bytes]) -> None:
    dorylax("aws", "deploy", *HERE)
    aws.requests.clear()
    for words in (("status",), ("invoke-test", "--count", "1"), ("logs",)):
        assert dorylax("aws", *words, *HERE).code == 0
    asked, actions = list(aws.requests), aws.actions
    policy = json.loads(dorylax("aws", "deploy", *HERE, "--dry-run", "--json").out)["policies"]["trainer"]
    assert {
        "lambda:InvokeFunction",
        "logs:FilterLogEvents",
        "cloudformation:DescribeStacks",
        "ecr:DescribeImages",
    } <= actions
    assert [request for request in asked if not allowed(request, policy)] == []


def test_stages_in_s3(dorylax, aws: MockedAws) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="mine", CreateBucketConfiguration={"LocationConstraint": REGION})
    stage, other = f"stages/{0:064x}", "stages/other"
    for key in (stage, other):
        s3.put_object(Bucket="mine", Key=key, Body=b"")
    there = ("--artefacts", "s3://mine/stages")
    assert dorylax("aws", "teardown", *HERE, "--yes") == (0, f"nothing of dorylax exists in {REGION}\n", "")
    content = json.loads(dorylax("aws", "deploy", *HERE, *there, "--json").out)
    assert content["settings"]["artefacts"] == "s3://mine/stages"
    for who in ("trainer", "deployer"):
        assert "arn:aws:s3:::mine/stages/*" in [s["Resource"] for s in content["policies"][who]["Statement"]]
    code, out, _ = dorylax("aws", "teardown", *HERE, *there, "--yes")
    assert code == 0
    assert rows(out)[-1] == ["delete", "artefacts", "s3://mine/stages", "1 stages, of whatever run"]
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="mine")["Contents"]] == [other]
    told = "error: artefacts must be s3://bucket/prefix, got 'mine'\n"
    assert dorylax("aws", "teardown", *HERE, "--artefacts", "mine") == (2, "", told)


def test_a_dry_run_needs_no_credentials(dorylax, aws: MockedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    without_credentials(monkeypatch)
    code, out, err = dorylax("aws", "deploy", *HERE, "--dry-run")
    assert code == 0
    assert err.startswith("warning: AWS needs credentials (NoCredentialsError): get valid credentials (aws configure,")
    assert err.endswith("; shown as if nothing were deployed\n")
    assert "arn:aws:iam::000000000000:role/dorylax-eu-west-1" in out
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert "trust policy of the role dorylax-eu-north-1:" in dorylax("aws", "deploy", "--dry-run").out
    for words in (("deploy",), ("status",), ("teardown", "--yes"), ("logs",), ("invoke-test",)):
        code, out, err = dorylax("aws", *words, *HERE)
        assert (code, out) == (2, "")
        assert err.startswith(
            "error: AWS needs credentials (NoCredentialsError): get valid credentials (aws configure,"
        )
        assert err.count("\n") == 1
    assert aws.changes == []


def test_an_image_from_elsewhere(dorylax, aws: MockedAws, answers: list[bytes]) -> None:
    client("ecr").create_repository(repositoryName="mine")
    tagged = ADDRESS.replace("/dorylax", "/mine:7")
    aws.push(tagged)
    [described] = client("ecr").describe_images(repositoryName="mine")["imageDetails"]
    told = (
        f"error: --image must be by digest, as in REPOSITORY@sha256:…, got '{tagged}': a tag may come to mean another"
    )
    code, out, err = dorylax("aws", "deploy", *HERE, "--image", tagged)
    assert (code, out, err.startswith(told)) == (2, "", True)
    image = f"{tagged.removesuffix(':7')}@{described['imageDigest']}"
    code, out, _ = dorylax("aws", "deploy", *HERE, "--image", image, "--json")
    assert code == 0
    content = json.loads(out)
    assert content["image"] == image
    assert [action["kind"] for action in content["actions"]] == ["log group", "role", "policy", "function"]
    out = dorylax("aws", "invoke-test", *HERE, "--count", "1").out
    assert out.endswith("release: not named by the image, but its answers can be read\n")
    assert dorylax("aws", "teardown", *HERE, "--yes").code == 0
    assert aws.everything()["repositories"] == ["mine"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            b'{"errorMessage": "No module named x", "errorType": "Runtime.ImportModuleError"}',
            "error: the function cannot start (Runtime.ImportModuleError: No module named x): its image is broken, "
            "dorylax aws deploy\n",
        ),
        (b"null", "error: the function's sandbox failed (unknown: None); `dorylax aws logs` has more\n"),
    ],
)
def test_a_function_that_fails(dorylax, aws: MockedAws, answers: list[bytes], answer: bytes, text: str) -> None:
    dorylax("aws", "deploy", *HERE)
    answers.append(answer)
    assert dorylax("aws", "invoke-test", *HERE) == (1, "", text)


def test_a_function_of_another_release(
    dorylax, aws: MockedAws, answers: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dorylax("aws", "invoke-test", *HERE).err == (
        f"error: dorylax is not deployed in {REGION}: run `dorylax aws deploy`\n"
    )
    dorylax("aws", "deploy", *HERE)
    monkeypatch.setattr("dorylax.serverless.deploy.image.context.__version__", "9.0.0")
    code, _, err = dorylax("aws", "invoke-test", *HERE)
    assert code == 1
    assert re.fullmatch(
        r"error: the function has dorylax 0\.\S+ and JAX (\S+), this machine 9\.0\.0 and \1: "
        r"run `dorylax aws deploy` again\n",
        err,
    )


def test_logs(dorylax, aws: MockedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = dorylax("aws", "logs", *HERE)
    assert (code, err) == (2, "error: there is no log group /aws/lambda/dorylax: run `dorylax aws deploy` first\n")
    dorylax("aws", "deploy", *HERE)
    log = client("logs")
    log.create_log_stream(logGroupName="/aws/lambda/dorylax", logStreamName="one")

    def put(*texts: str) -> None:
        now = int(1000 * time.time())
        events = [{"timestamp": now + k, "message": f"{text}\n"} for k, text in enumerate(texts)]
        log.put_log_events(logGroupName="/aws/lambda/dorylax", logStreamName="one", logEvents=events)

    put("a", "b", "c")
    assert dorylax("aws", "logs", *HERE, "--lines", "2") == (0, "b\nc\n", "")
    rounds = [("d", "e"), (), ("f",)]

    def sleep(_: float) -> None:
        if not rounds:
            raise KeyboardInterrupt
        put(*rounds.pop(0) or ("nothing",))

    monkeypatch.setattr("dorylax.cli.aws.time.sleep", sleep)
    code, out, err = dorylax("aws", "logs", *HERE, "--lines", "1", "--follow")
    assert (code, out.split(), err) == (130, ["c", "d", "e", "nothing", "f"], "\ninterrupted\n")


def test_teardown_asks(dorylax, aws: MockedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    dorylax("aws", "deploy", *HERE)
    there = aws.everything()
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    code, _, err = dorylax("aws", "teardown", *HERE)
    assert (code, err) == (2, "error: --yes is needed when there is no terminal to ask on\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda _: False)
    code, _, err = dorylax("aws", "teardown", *HERE)
    assert (code, err) == (1, "nothing was deleted\n")
    assert aws.everything() == there
    monkeypatch.setattr("click.confirm", lambda _: True)
    assert dorylax("aws", "teardown", *HERE).code == 0
    assert nothing_of_it(aws)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("deploy", "--memory", "64"), "memory_mb must be in 128 … 10240, got 64"),
        (("deploy", "--memory", "much"), "invalid value for '--memory': 'much' is not a valid integer"),
        (
            ("deploy", "--architecture", "x86"),
            "architecture must be one of x86_64, arm64, got 'x86' (did you mean x86_64?)",
        ),
        (
            ("deploy", "--subnet", "subnet-0a"),
            "security_groups must be given too, for a VPC needs both: got subnets alone",
        ),
        (("deploy", "--image", "a", "--base", "b"), "--image and --base exclude each other: one uses an image, "),
        (("deploy", "--image", "a", "--lock", "b"), "--image and --lock exclude each other: one uses an image, "),
        (("deploy", "--base", "python"), "base must be HOST/NAME@sha256:… or HOST/NAME:TAG, got 'python'"),
        (("lock", "a", "--python", "2.7"), "--python must be a version such as 3.12, got '2.7'"),
        (("status", "--region", "europe"), "region must be one of AWS, as in us-east-1, got 'europe'"),
        (("status", "--config", "none.yaml"), "cannot read none.yaml: No such file or directory"),
        (
            ("deploy", "--dry-run"),
            "AWS needs a region: set --region or AWS_REGION, or one in the profile (aws configure)",
        ),
        (("deplyo",), "no such command 'deplyo': did you mean deploy?"),
        (("image", "--root", "a", "--context", "b"), "--context and --root exclude each other"),
    ],
)
def test_wrong_words(dorylax, aws: MockedAws, words: tuple[str, ...], told: str) -> None:
    code, out, err = dorylax("aws", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {told}")
    assert aws.calls == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: gnn\nmemory_mb: 64\n", ":2: memory_mb must be in 128 … 10240, got 64"),
        ("name: gnn\nmemory: 64\n", ":2: unknown key 'memory': did you mean memory_mb?"),
        ("- gnn\n", ":1: must hold settings such as name, got ['gnn']"),
        ("name: [gnn\n", ":2: not valid YAML"),
    ],
)
def test_a_wrong_file(dorylax, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "aws.yaml"
    file.write_text(text)
    code, out, err = dorylax("aws", "deploy", "--config", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {file}{told}")


@pytest.mark.parametrize("page", ["aws.md", "serverless.md"])
def test_the_guide_s_commands_are_there(page: str) -> None:
    """With these options, and values that they take."""
    from dorylax.cli.aws import aws

    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    found = re.findall(r"dorylax aws ((?:\\\n|[^\n`#])+)", text)
    assert found
    for words in found:
        name, *rest = shlex.split(words.partition(">")[0].replace("\\\n", " "))
        rest = [{"DIR": "folder", "N": "1", "FILE": "file"}.get(word, word) for word in rest]
        with aws.commands[name].make_context(name, rest):
            pass


def test_the_guide_s_file_has_all_settings() -> None:
    text = (Path(__file__).parents[2] / "docs" / "aws.md").read_text()
    [block] = re.findall(r"^   ```yaml\n(.*?)^   ```$", text, re.MULTILINE | re.DOTALL)
    values = strict_yaml.parse(textwrap.dedent(block), "docs/aws.md").value
    assert Deployment(**values).to_dict() == values


def test_the_build_context(dorylax, tmp_path: Path) -> None:
    words = ("image", "--context", str(tmp_path / "context"), "--base", BASE)
    code, out, _ = dorylax("aws", *words, "--architecture", "arm64")
    assert code == 0
    assert "-arm64-" in out
    assert f"\nbase: {BASE}\n" in out
    assert (tmp_path / "context" / "Dockerfile").is_file()
    assert (tmp_path / "context" / "dorylax" / "serverless" / "function" / "entry.py").is_file()
    code, _, err = dorylax("aws", *words)
    assert (code, err) == (2, f"error: {tmp_path / 'context'} must be empty, and is not: choose a new folder\n")


def test_nothing_is_deployed_without_the_boundary(dorylax, aws: MockedAws) -> None:
    code, out, err = dorylax("aws", "deploy", *HERE, "--name", "other")
    assert code == 2
    assert out == ""
    assert err.splitlines() == [
        "error: permissions boundary other-eu-west-1-boundary: there is none: an administrator makes it, as docs/aws.md "
        'says under "The permissions boundary"',
    ]
    assert aws.changes == []


def test_a_dry_run_only_warns_of_the_missing_boundary(dorylax, aws: MockedAws) -> None:
    """The administrator takes it from there."""
    code, out, err = dorylax("aws", "deploy", *HERE, "--name", "other", "--dry-run", "--json")
    assert code == 0
    assert err.startswith("warning: permissions boundary other-eu-west-1-boundary: there is none: an administrator")
    made = json.loads(out)["policies"]["boundary"]
    assert made == policies.boundary_policy(Names("other", "123456789012", REGION), vpc=False)


def test_what_the_guide_has_an_administrator_make_is_the_boundary(dorylax, aws: MockedAws) -> None:
    made = json.loads(dorylax("aws", "deploy", *HERE, "--dry-run", "--json").out)["policies"]["boundary"]
    assert made == policies.boundary_policy(Names("dorylax", "123456789012", REGION), vpc=False)


def test_a_lock(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(options: Any) -> bytes:
        asked.append(options)
        pins = [word.partition("==") for word in options if "==" in word]
        archive = {"archive_info": {"hashes": {"sha256": f"{len(asked):064x}"}}}
        found = [{"metadata": {"name": n, "version": v}, "download_info": archive} for n, _, v in pins]
        return json.dumps({"install": found}).encode()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dorylax.serverless.deploy.image.contents._ask_pip", ask)
    file = tmp_path / "wheels.txt"
    code, out, err = dorylax("aws", "lock", str(file), "--python", "3.11", "--python", "3.12")
    assert (code, out, err) == (0, f"{file}: 40 wheels of 10 distributions\n", "")
    assert len(asked) == 4
    code, out, _ = dorylax("aws", "image", "--lock", str(file), "--context", str(tmp_path / "a"), "--base", BASE)
    assert code == 0
    assert f"--hash=sha256:{4:064x}" in (tmp_path / "a" / "requirements.txt").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        code, _, err = dorylax("aws", "lock", str(file), "--python", "3.11")
    assert (code, err) == (1, f"error: {file}: No space left on device\n")
    assert file.read_text().count("\n") > 1, "the old one stays"
    file.write_text("jax==1.0\n")
    code, _, err = dorylax("aws", "image", "--lock", str(file), "--context", str(tmp_path / "b"))
    assert (code, err) == (2, f"error: {file}:1: must be NAME==VERSION --hash=sha256:…, got 'jax==1.0'\n")
    file.write_text("")
    code, _, err = dorylax("aws", "deploy", *HERE, "--lock", str(file), "--dry-run")
    assert code == 2
    assert err.startswith("error: the lock has no hashes of awslambdaric==")
    assert err.endswith(": run `dorylax aws lock FILE` and give --lock FILE\n")


def test_the_image(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed; the files themselves are looked at in tests/serverless/deploy/image/test_root.py."""

    def build(context: Any, folder: Path) -> Path:
        (folder / "function").mkdir(parents=True)
        (folder / "function" / "large.so").write_bytes(bytes(2_000_000))
        (folder / "function" / "small.py").write_bytes(bytes(100))
        return folder / "function"

    def start(target: Path, invocation: bytes) -> root.StartMeasurement:
        assert Invocation.read(json.loads(invocation)).event is None
        return root.StartMeasurement(0.5, 2**27, response(None), ())

    monkeypatch.setattr(root, "build", build)
    monkeypatch.setattr(root, "start", start)
    code, out, err = dorylax("aws", "image", "--root", str(tmp_path / "kept"))
    assert (code, err) == (0, "")
    assert rows(out) == [["large.so", "2.0"], ["1 others", "0.0"], ["2 files", "2.0"]]
    assert "import: 0.50 s, median of 3 fresh interpreters, with bytecode\nmemory: 128 MB, once started\n" in out
    assert (tmp_path / "kept" / "function" / "large.so").is_file()
    content = json.loads(dorylax("aws", "image", "--json").out)
    assert (content["files"], content["bytes"], content["import_seconds"]) == (2, 2_000_100, [0.5] * 3)
