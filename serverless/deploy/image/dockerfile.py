"""The Dockerfile, as text. No effects.

A first stage installs and compiles everything on the building machine; the image is the base and copies from there. So
an image for other processors needs no emulation: bytecode is the same everywhere, and wheels are chosen by platform.
"""

from __future__ import annotations

import json

from dorylax.serverless.deploy.image.contents import HANDLER, LEFT_OUT_FOLDERS, LEFT_OUT_SUFFIXES
from dorylax.serverless.deploy.settings import Architecture

FOLDER = "function"
"""Where everything lies in the image, from its root."""

PLATFORMS: dict[Architecture, str] = {"x86_64": "linux/amd64", "arm64": "linux/arm64"}
"""What container engines call Lambda's architectures."""

_WHEELS = {"x86_64": "x86_64", "arm64": "aarch64"}
# From the glibc of the oldest wheels to Debian 11's; pip does not infer older ones.
_GLIBC = range(17, 32)

COMPILE = ("-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")
"""Bytecode that is used unchecked: the files never change, but their times may when an image is unpacked."""


def default_base(python: tuple[int, int]) -> str:
    """The base image: Python's own, from a registry that needs no account."""
    return f"public.ecr.aws/docker/library/python:{python[0]}.{python[1]}-slim"


def wheel_options(architecture: Architecture, python: tuple[int, int]) -> list[str]:
    """Options of pip that choose wheels for a function, wherever pip runs.

    Args:
        architecture: of the function.
        python: its version, major and minor.
    """
    platforms = [f"manylinux2014_{_WHEELS[architecture]}"]
    platforms += [f"manylinux_2_{glibc}_{_WHEELS[architecture]}" for glibc in _GLIBC]
    abis = (f"cp{python[0]}{python[1]}", "abi3", "none")
    return [
        "--no-deps",
        "--only-binary=:all:",
        f"--python-version={python[0]}.{python[1]}",
        "--implementation=cp",
        *(f"--abi={abi}" for abi in abis),
        *(f"--platform={platform}" for platform in reversed(platforms)),
    ]


def dockerfile(architecture: Architecture, base: str, python: tuple[int, int]) -> str:
    """The Dockerfile.

    Args:
        architecture: of the function.
        base: an image with Python, for that architecture and for the building machine; to build from, by digest.
        python: its version, major and minor.
    """
    chosen = " ".join(wheel_options(architecture, python))
    folders = " -o ".join(f"-name {name}" for name in LEFT_OUT_FOLDERS)
    suffixes = " -o ".join(f"-name '*{suffix}'" for suffix in LEFT_OUT_SUFFIXES)
    library = f"/usr/local/lib/python{python[0]}.{python[1]}"
    compile_all = " ".join(("python", *COMPILE))
    return f"""\
ARG BASE={base}
ARG BUILD_PLATFORM=linux/amd64

FROM --platform=${{BUILD_PLATFORM}} ${{BASE}} AS build
COPY requirements.txt /requirements.txt
RUN pip install --no-cache-dir --no-compile --require-hashes --target=/{FOLDER} \\
      {chosen} \\
      -r /requirements.txt \\
 && rm -rf /{FOLDER}/bin \\
 && find /{FOLDER} -depth -type d \\( {folders} \\) -exec rm -rf {{}} + \\
 && find /{FOLDER} -type f \\( {suffixes} \\) -delete
COPY dorylax /{FOLDER}/dorylax
RUN {compile_all} /{FOLDER} \\
 && chmod -R a+rX,go-w /{FOLDER}
# The base has no bytecode of Python's own library, and the image cannot write any.
RUN mkdir /bytecode && cd {library} \\
 && {compile_all} -x '/(site-packages|test|idlelib|lib2to3)/' . \\
 && find . -name '*.pyc' -not -path './site-packages/*' -exec cp --parents {{}} /bytecode \\;

FROM ${{BASE}}
LABEL org.opencontainers.image.base.name="{base}"
COPY --from=build /bytecode {library}
COPY --from=build /{FOLDER} /{FOLDER}
ENV PYTHONPATH=/{FOLDER} PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp JAX_PLATFORMS=cpu
WORKDIR /{FOLDER}
USER 65534:65534
ENTRYPOINT {json.dumps(["python", "-m", "awslambdaric"])}
CMD {json.dumps([HANDLER])}
"""
