"""Container engines: which is chosen, which commands it gets, and that no command holds a password."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.image.builder import build_and_push, find_engine, run_command
from dorylax.serverless.deploy.image.context import Context

ADDRESS = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/gnn:1"
LOGIN = ("AWS", "not-to-be-seen")
BASE = f"registry.example/python@sha256:{5:064x}"
CONTEXT = Context("arm64", {"Dockerfile": b"", "dorylax/__init__.py": b""}, BASE)


class Commands:
    """Records commands; `failing` is the word of the one that fails."""

    def __init__(self, failing: str | None = None) -> None:
        self.failing = failing
        self.words: list[list[str]] = []
        self.inputs: list[bytes | None] = []
        self.folders: list[Path] = []

    def __call__(self, command, content, environment) -> None:
        self.words.append(list(command))
        self.inputs.append(content)
        if command[1] == "build":
            folder = Path(command[-1])
            assert (folder / "Dockerfile").read_text().startswith(f"ARG BASE={BASE}\n")
            self.folders.append(folder)
            assert environment == {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
        if command[1] == self.failing:
            raise RunError(f"{command[1]} failed")


def test_the_first_engine_that_is_there() -> None:
    assert find_engine(lambda name: f"/bin/{name}") == "docker"
    assert find_engine(lambda name: "/bin/buildah" if name == "buildah" else None) == "buildah"
    with pytest.raises(InputError, match=r"no container engine is installed \(docker, podman, buildah\)"):
        find_engine(lambda _: None)


@pytest.mark.parametrize("engine", ["docker", "podman", "buildah"])
def test_the_password_goes_to_standard_input_and_nowhere_else(engine: str) -> None:
    commands = Commands()
    assert build_and_push(engine, CONTEXT, ADDRESS, LOGIN, commands) == BASE
    names = [words[1] for words in commands.words]
    assert names == ["build", "login", "push", *(["logout"] if engine == "docker" else [])]
    assert all(words[0] == engine for words in commands.words)
    assert commands.inputs == [None, b"not-to-be-seen", None, *([None] if engine == "docker" else [])]
    assert not [word for words in commands.words for word in words if "not-to-be-seen" in word]
    build, login, push = commands.words[:3]
    assert build[build.index("--platform") + 1] == "linux/arm64"
    assert build[build.index("-t") + 1] == ADDRESS
    assert (login[-2:], push[-1]) == (["--password-stdin", ADDRESS.partition("/")[0]], ADDRESS)
    if engine != "docker":  # logins of theirs go with the folder
        assert login[login.index("--authfile") + 1] == push[push.index("--authfile") + 1]
        assert "docker" in build  # Lambda does not take every form of an image
    assert not commands.folders[0].exists()


@pytest.mark.parametrize("failing", ["build", "login", "push"])
def test_a_failure_leaves_no_login_and_no_folder(failing: str) -> None:
    commands = Commands(failing)
    with pytest.raises(RunError, match=f"{failing} failed"):
        build_and_push("docker", CONTEXT, ADDRESS, LOGIN, commands)
    assert (commands.words[-1][1] == "logout") == (failing != "build")
    assert not commands.folders[0].exists()


def test_what_an_engine_said_last(tmp_path: Path) -> None:
    script = tmp_path / "engine"
    script.write_text(
        '#!/bin/sh\ncat >/dev/null\nfor n in 1 2 3 4 5 6 7; do echo line $n; done\n[ "$GOOD" = yes ] || exit 3\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    run_command([str(script), "build"], b"secret", {"GOOD": "yes"})
    with pytest.raises(RunError, match=r"engine build failed \(3\): line 3 \| line 4 \| line 5 \| line 6 \| line 7$"):
        run_command([str(script), "build"], b"secret", {})
