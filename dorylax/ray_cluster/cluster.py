"""The nodes and actors of a Ray cluster, and Ray's errors in one line."""

from __future__ import annotations

import importlib
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dorylax.version import __version__

_SHOWN = 400
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_FRAME = re.compile(r"^(?:\[.*\] )?Traceback |^  File ", re.MULTILINE)
_CAUSES = {
    r"The actor (?:is dead|died) because (.*?)(?: Some common causes include|$)": r"\1",
    r"The actor is temporarily unavailable: (.*?)(?: The task may or may not|$)": (
        r"its node cannot be reached any more: \1"
    ),
}
"""Pattern of the sentence that names a cause among Ray's advice → the cause in our words."""


class Node(NamedTuple):
    """A node of a cluster.

    Attributes:
        address: Address for other nodes.
        resources: Amounts of its resources, by name.
    """

    address: str
    resources: Mapping[str, float]

    @property
    def cpus(self) -> int:
        """Number of its CPUs."""
        return int(self.resources.get("CPU", 0))

    def __str__(self) -> str:
        """Its address, CPUs and memory, and the user's own resources."""
        rays = ("CPU", "memory", "object_store_memory")
        own = [name for name in self.resources if name not in rays and ":" not in name]
        memory = self.resources.get("memory", 0) / 2**30
        return ", ".join([f"{self.address} with {self.cpus} CPUs", f"{memory:.1f} GiB", *own])


def nodes_of(ray: Any) -> list[Node]:
    """Return the living nodes of the cluster to which the module `ray` is connected."""
    return [Node(found["NodeManagerAddress"], found["Resources"]) for found in ray.nodes() if found["Alive"]]


def described(nodes: Sequence[Node]) -> str:
    """Describe the nodes of a cluster, as the end of a sentence."""
    return f"it has {'; '.join(map(str, nodes))}" if nodes else "it has no node"


class Place(NamedTuple):
    """The process of an actor.

    Attributes:
        node: Address of its node.
        pid: Process id on the node.
        problem: Why it cannot work there; None if it can.
    """

    node: str
    pid: int
    problem: str | None


def make_actor(ray: Any, reference: str, *, environment: Mapping[str, str], **options: Any) -> Any:
    """Create an actor, which starts once the cluster has room for it and is never restarted.

    Its methods are `place`, which returns a `Place` as a plain tuple, `ask(method, *arguments)`, which calls a method of the
    object, and `live`, which never returns, so that its caller learns of the actor's end.

    Args:
        ray: The connected module.
        reference: `module:class` of the object, which the actor creates on its node without arguments.
        environment: Environment variables of its process.
        options: Ray's options about resources and placement.
    """
    made = ray.remote(_actor_class()).options(
        max_restarts=0,
        max_task_retries=0,
        max_concurrency=2,  # `live`, which lasts as long as the actor, and one call that is answered meanwhile
        runtime_env={"env_vars": dict(environment)},
        **options,
    )
    return made.remote(reference, sys.path, __version__)


def _actor_class() -> type:
    """Make the class, which Ray pickles by value, so that it can report that its node lacks dorylax."""

    class Actor:
        def __init__(self, reference: str, path: list[str], version: str) -> None:
            sys.path.extend(folder for folder in path if folder not in sys.path)
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


def cause_of(error: BaseException) -> str:
    """Return the cause of a failed call of an actor, in one line of bounded length.

    Args:
        error: Ray's error. Its `cause` is the error of the actor's own code. If that was its constructor, the text ends with
            a traceback. The cause of a process's end is one sentence of the text.
    """
    raised = getattr(error, "cause", None)
    text = _COLOURS.sub("", str(error) if raised is None else f"{type(raised).__name__}: {raised}")
    if raised is None and _FRAME.search(text):
        lines = text.rstrip().splitlines()
        last = max((number for number, line in enumerate(lines) if line.startswith("  ")), default=-1)
        text = "\n".join(lines[last + 1 :]) or lines[-1]
    elif raised is None:
        for pattern, cause in _CAUSES.items():
            if (found := re.search(pattern, text, re.DOTALL)) is not None:
                text = found.expand(cause)
                break
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
