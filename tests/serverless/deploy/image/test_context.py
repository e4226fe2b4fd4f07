"""The build context and the Dockerfile in it."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from dorylax import __version__
from dorylax.errors import InputError
from dorylax.serverless.deploy.image.context import Context, Releases, dockerfile

pytest.importorskip("awslambdaric", reason="needs awslambdaric")

TEXT = dockerfile("x86_64", "base:3", (3, 11))


def instructions(text: str) -> list[str]:
    """One line each, without comments."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def test_the_image_has_the_base_and_what_was_compiled_for_it() -> None:
    lines = instructions(TEXT)
    assert lines[0] == "ARG BASE=base:3"
    last = lines[lines.index("FROM ${BASE}") :]
    assert [line.split()[0] for line in last] == [
        "FROM",
        "LABEL",
        "COPY",
        "COPY",
        "ENV",
        "WORKDIR",
        "USER",
        "ENTRYPOINT",
        "CMD",
    ]
    assert all(line.startswith("COPY --from=build ") for line in last[2:4])  # nothing is run for foreign processors
    assert last[-3:] == [
        "USER 65534:65534",
        'ENTRYPOINT ["python", "-m", "awslambdaric"]',
        'CMD ["dorylax.serverless.function.entry.handler"]',
    ]


def test_it_runs_where_nothing_can_be_written() -> None:
    [line] = [line for line in instructions(TEXT) if line.startswith("ENV ")]
    assert {"PYTHONDONTWRITEBYTECODE=1", "HOME=/tmp", "PYTHONPATH=/function"} <= set(line.split())
    assert TEXT.count("--invalidation-mode unchecked-hash") == 2  # its own files, and Python's


def test_only_what_is_pinned_is_installed() -> None:
    [line] = [line for line in instructions(TEXT) if "pip install" in line]
    assert "--require-hashes" in line
    assert "--no-deps" in line
    assert "--only-binary=:all:" in line
    assert "-r /requirements.txt" in line
    assert [line for line in instructions(TEXT) if line.startswith("COPY dorylax")] == [
        "COPY dorylax /function/dorylax"
    ]


@pytest.mark.parametrize(("architecture", "wheels"), [("x86_64", "x86_64"), ("arm64", "aarch64")])
def test_wheels_are_those_of_the_function_s_processors(architecture: str, wheels: str) -> None:
    found = set(re.findall(r"--platform=manylinux\w*?_(x86_64|aarch64)", dockerfile(architecture, "base:3", (3, 11))))
    assert found == {wheels}


def test_context(tmp_path: Path) -> None:
    context = Context.make("x86_64")
    assert f"python:{sys.version_info[0]}.{sys.version_info[1]}-slim" in context.files["Dockerfile"].decode()
    context.write(tmp_path / "context")
    written = {
        path.relative_to(tmp_path / "context").as_posix(): path.read_bytes()
        for path in (tmp_path / "context").rglob("*")
        if path.is_file()
    }
    assert written == context.files
    assert {place.partition("/")[0] for place in written} == {"Dockerfile", "requirements.txt", "dorylax"}
    with pytest.raises(InputError, match="must be empty, and is not: choose a new folder"):
        context.write(tmp_path / "context")


def test_the_tag_says_what_is_in_it() -> None:
    context = Context.make("x86_64")
    assert context.tag == Context.make("x86_64").tag
    others = [Context.make("arm64"), Context.make("x86_64", lapack=True), Context.make("x86_64", base="host.me/mine:1")]
    for place, content in (
        ("dorylax/serverless/function/entry.py", context.files["dorylax/serverless/function/entry.py"] + b"\n"),
        ("requirements.txt", context.files["requirements.txt"].replace(b"sha256:0", b"sha256:1")),
    ):
        assert content != context.files[place]
        others.append(dataclasses.replace(context, files={**context.files, place: content}))
    assert len({context.tag, *(other.tag for other in others)}) == 6
    assert re.fullmatch(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}", context.tag)  # what registries allow
    assert Releases.of_tag(context.tag) == Releases.here()
    assert Releases.here().dorylax == __version__
    assert Releases.of_tag("latest") is None


def test_each_wheel_has_its_hashes() -> None:
    lines = Context.make("arm64").files["requirements.txt"].decode().splitlines()
    assert [line.partition("==")[0] for line in lines] == list(Context.make("arm64").distributions)
    assert all(re.fullmatch(r"[\w.-]+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)


def test_what_is_built_begins_from_a_digest() -> None:
    context, digest = Context.make("x86_64"), f"sha256:{5:064x}"
    asked: list[str] = []

    def pin(base: str) -> str:
        asked.append(base)
        return f"{base.rpartition(':')[0]}@{digest}"

    made = context.pinned(pin)
    assert asked == [context.base]
    assert made.base == f"{context.base.rpartition(':')[0]}@{digest}"
    lines = instructions(made.files["Dockerfile"].decode())
    assert lines[0] == f"ARG BASE={made.base}"
    assert [line for line in lines if line.startswith("FROM")] == [
        "FROM --platform=${BUILD_PLATFORM} ${BASE} AS build",
        "FROM ${BASE}",
    ]
    assert f'LABEL org.opencontainers.image.base.name="{made.base}"' in lines
    assert {place for place in made.files if made.files[place] != context.files[place]} == {"Dockerfile"}
