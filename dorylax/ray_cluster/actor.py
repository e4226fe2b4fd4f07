"""Actors that do what a class says which is found on their node, wherever the modules of the driver lie there."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from dorylax.version import __version__

_CONCURRENT = 2
"""Calls of an actor: one that lasts as long as it, and one that is answered meanwhile."""


class Place(NamedTuple):
    """Where an actor lives.

    Attributes:
        node: the address of its node.
        pid: of its process there.
        problem: why it cannot work there; None where it can.
    """

    node: str
    pid: int
    problem: str | None


def make_actor(ray: Any, reference: str, name: str, *, environment: Mapping[str, str], **options: Any) -> Any:
    """A new actor, which is never restarted; it is made once the cluster has room for it.

    Its methods are `place`, which gives a `Place` as a plain tuple, `ask(method, *arguments)`, which calls a method of what
    was made, and `live`, which never returns, so that whoever waits for it hears of the actor's end.

    Args:
        ray: the module, connected.
        reference: `module:class`, made without arguments on the node.
        name: what Ray shows.
        environment: variables of its process.
        options: what it takes of the cluster, and where, as of Ray.
    """
    made = ray.remote(_actor_class()).options(
        name=None,
        max_restarts=0,
        max_task_retries=0,
        max_concurrency=_CONCURRENT,
        runtime_env={"env_vars": dict(environment)},
        **options,
    )
    return made.remote(name, reference, sys.path, __version__)


def _actor_class() -> type:
    """It is sent to the nodes as it is, so that it can say where modules are found."""

    class Actor:
        def __init__(self, name: str, reference: str, places: list[str], version: str) -> None:  # noqa: ARG002
            sys.path.extend(place for place in places if place not in sys.path)
            self._made: Any = None
            self._problem: str | None = None
            module, _, made = reference.partition(":")
            try:
                found = importlib.import_module("dorylax.version").__version__
                if found == version:
                    self._made = getattr(importlib.import_module(module), made)()
                else:
                    self._problem = f"its node has dorylax {found}, the driver {version}: install the same"
            except ImportError as error:
                self._problem = f"its node cannot import dorylax: {error}"

        def place(self) -> tuple[str, int, str | None]:
            node = importlib.import_module("ray").util.get_node_ip_address()
            return node, os.getpid(), self._problem

        def ask(self, method: str, *arguments: Any) -> Any:
            return getattr(self._made, method)(*arguments)

        def live(self) -> None:
            threading.Event().wait()

    return Actor
