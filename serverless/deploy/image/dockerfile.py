"""Generator of the Dockerfile's text. Pure.

The first stage installs and compiles all files on the building machine, and the final stage copies them onto the base
image. Images for other architectures therefore build without emulation, since bytecode is portable and wheels are chosen
by platform.
"""

from __future__ import annotations

import json

from dorylax.serverless.deploy.image.contents import HANDLER, LEFT_OUT_FOLDERS, LEFT_OUT_SUFFIXES
from dorylax.serverless.deploy.settings import Architecture

FOLDER = "function"
"""Folder of the function in the image, relative to the root."""

PLATFORMS: dict[Architecture, str] = {"x86_64": "linux/amd64", "arm64": "linux/arm64"}
"""Map from Lambda's architectures to the platforms of container engines."""

_WHEELS = {"x86_64": "x86_64", "arm64": "aarch64"}
# Versions from the glibc of the oldest wheels to Debian 11's. pip does not infer older ones.
_GLIBC = range(17, 32)

COMPILE = ("-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")
"""Compiles bytecode that Python uses unchecked: the files never change, but unpacking an image may change their times."""


def default_base(python: tuple[int, int]) -> str:
    """Return the default base image: the official Python image, from a registry that works without an account."""
    return f"public.ecr.aws/docker/library/python:{python[0]}.{python[1]}-slim"


def wheel_options(architecture: Architecture, python: tuple[int, int]) -> list[str]:
    """Return pip's options to choose wheels for a function, independent of the machine that runs pip.

    Args:
        architecture: Processor architecture of the function.
        python: Major and minor version of Python.
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
    """Generate the Dockerfile.

    Args:
        architecture: Processor architecture of the function.
        base: Address of an image with Python for that architecture and for the building machine; by digest for a build.
        python: Major and minor version of Python.
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
