"""One worker on a Ray cluster: its actor, and the waiting for its answers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, final

from dorylax.machine import CORES
from dorylax.ray_cluster.actor import Place, make_actor
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.errors import cause_of
from dorylax.ray_cluster.nodes import described, nodes_of
from dorylax.serverless.backends.base import InvokeError, InvokeReason
from dorylax.serverless.backends.environment import computing_environment

_WORKER = "dorylax.serverless.backends.ray.worker:Worker"


@final
class WorkerActor:
    """A worker that is starting or waits for events; see `Sandboxed`.

    Nothing here waits for Ray without a limit: what Ray does not say in time, or at all, is a failure.

    Args:
        ray: the module, connected.
        config: what to ask the cluster for.
        settings: `SandboxSettings.to_line`.

    Raises:
        InvokeError: the connection to the cluster has ended.
    """

    def __init__(self, ray: Any, config: RayConfig, settings: bytes) -> None:
        self._ray, self._config, self._settings = ray, config, settings
        self._place: Place | None = None
        self._given_up: Future[None] = Future()
        threads = max(1, int(config.worker_cpus))
        environment = computing_environment(threads) | {CORES: str(threads)}
        self._refuse_if_disconnected()
        try:
            # Spread: a node that is lost takes few of them with it.
            self._actor = make_actor(
                ray,
                _WORKER,
                "worker",
                environment=environment,
                num_cpus=config.worker_cpus,
                scheduling_strategy="SPREAD",
            )
            self._life: Future[None] = self._actor.live.remote().future()
        except Exception as error:
            raise InvokeError("refused", f"a worker cannot be started: {cause_of(error)}") from error

    @property
    def pid(self) -> int:
        """Its process id, on its node; 0 while it has none."""
        return 0 if self._place is None else self._place.pid

    def is_alive(self) -> bool:
        """Whether it runs, as far as Ray has heard."""
        return self._place is not None and not self._life.done() and not self._given_up.done()

    def wait_ready(self, timeout: float) -> None:
        """Waits until the cluster has started it, for `ray.timeout`, and then until events may come; see `Sandboxed`.

        Raises:
            InvokeError: "throttled", where it has not started, for want of room or of time: there may be some later.
        """
        place = self._result(self._actor.place.remote, self._config.timeout, "starting", late=self._not_started)
        self._place = Place(*place)
        if self._place.problem is not None:
            raise self._failed("refused", f"{self._name} cannot work: {self._place.problem}")
        self._result(lambda: self._actor.ask.remote("initialise", self._settings), timeout, "starting")

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Hands it an event and waits for the answer; see `Sandboxed`."""
        answer: bytes = self._result(lambda: self._actor.ask.remote("answer", event), timeout, "computing")
        return answer

    def terminate(self) -> None:
        """Has Ray end it: at once, and after some seconds where it is stopped."""
        if not self._given_up.done():
            with contextlib.suppress(Exception):  # the connection has ended, and the actor with it
                self._ray.kill(self._actor)

    def kill(self) -> None:
        """Waits for it no longer."""
        self.terminate()
        with contextlib.suppress(Exception):  # it is given up already
            self._given_up.set_result(None)

    def wait(self, timeout: float) -> bool:
        """Waits until Ray says that it has ended; says whether it has."""
        return bool(wait([self._life], timeout).done)

    def end(self) -> None:
        """Has Ray end it, and does not wait for that: its node may be lost. A second call does nothing."""
        self.kill()

    @property
    def _name(self) -> str:
        return "a worker" if self._place is None else f"worker process {self._place.pid} on node {self._place.node}"

    def _result(
        self, call: Callable[[], Any], timeout: float, doing: str, *, late: Callable[[], InvokeError] | None = None
    ) -> Any:
        """The answer to a call of the actor; on whatever else happens that is ended, and an InvokeError raised."""
        end = time.monotonic() + min(timeout, threading.TIMEOUT_MAX)
        self._refuse_if_disconnected()
        try:
            answer: Future[Any] = call().future()
        except Exception as error:
            raise self._failed("died", f"{self._name} cannot be asked: {cause_of(error)}") from None
        wait([answer, self._life, self._given_up], end - time.monotonic(), FIRST_COMPLETED)
        for heard in (answer, self._life):
            if not heard.done():
                continue
            if (why := heard.exception()) is None:
                return heard.result()
            raise self._failed("died", f"{self._name} died while {doing}: {cause_of(why)}")
        if self._given_up.done():
            raise self._failed("died", f"{self._name} was ended while {doing}")
        if late is not None:
            raise late()
        raise self._failed("timeout", f"{self._name} was ended: {doing} took over {timeout:g} s")

    def _not_started(self) -> InvokeError:
        cpus = self._config.worker_cpus
        try:
            nodes = described(nodes_of(self._ray))
        except Exception as error:
            nodes = f"whose nodes cannot be listed ({cause_of(error)})"
        return self._failed(
            "throttled",
            f"the Ray cluster has started no worker within {self._config.timeout:g} s (ray.timeout): each needs "
            f"{cpus:g} CPU{'s' * (cpus != 1)} (ray.worker_cpus), {nodes}: use fewer (tensor.workers), add nodes, or "
            "raise ray.timeout",
        )

    def _refuse_if_disconnected(self) -> None:
        if not self._ray.is_initialized():  # else Ray would start a cluster of its own
            raise InvokeError("refused", "the connection to the Ray cluster has ended")

    def _failed(self, reason: InvokeReason, text: str) -> InvokeError:
        self.end()
        return InvokeError(reason, text)
