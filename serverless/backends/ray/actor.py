"""Client of one worker on a Ray cluster: creates its actor and waits for its results."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, final

from dorylax.machine import CORES
from dorylax.net.errors import FailureReason, TaskFailedError
from dorylax.ray_cluster.cluster import Place, cause_of, described, make_actor, nodes_of
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.backends.environment import computing_environment

_WORKER = "dorylax.serverless.backends.ray.worker:Worker"


@final
class WorkerActor:
    """`Sandboxed` worker in a Ray actor.

    Every wait for Ray has a timeout, and a missing reply counts as a failure.

    Args:
        ray: Connected `ray` module.
        config: Resources per worker and timeouts.
        settings: Encoded settings (`SandboxSettings.to_line`).

    Raises:
        TaskFailedError: If the connection to the cluster has ended.
    """

    def __init__(self, ray: Any, config: RayConfig, settings: bytes) -> None:
        self._ray, self._config, self._settings = ray, config, settings
        self._place: Place | None = None
        self._given_up: Future[None] = Future()
        threads = max(1, int(config.worker_cpus))
        environment = computing_environment(threads) | {CORES: str(threads)}
        self._refuse_if_disconnected()
        try:
            # Spread the workers, so that the loss of a node ends few of them.
            self._actor = make_actor(
                ray,
                _WORKER,
                environment=environment,
                num_cpus=config.worker_cpus,
                scheduling_strategy="SPREAD",
            )
            self._life: Future[None] = self._actor.live.remote().future()
        except Exception as error:
            raise TaskFailedError(f"a worker cannot be started: {cause_of(error)}", "refused") from error

    @property
    def pid(self) -> int:
        """Process id on the worker's node; 0 before the worker starts."""
        return 0 if self._place is None else self._place.pid

    def is_alive(self) -> bool:
        """Return whether the worker runs, according to Ray."""
        return self._place is not None and not self._life.done() and not self._given_up.done()

    def wait_ready(self, timeout: float) -> None:
        """Wait up to `ray.timeout` for the actor to start, then up to `timeout` for its initialization; see `Sandboxed`.

        Raises:
            TaskFailedError: With "throttled" if the actor does not start in time, for example because the cluster is full.
        """
        place = self._result(self._actor.place.remote, self._config.timeout, "starting", late=self._not_started)
        self._place = Place(*place)
        if self._place.problem is not None:
            raise self._failed("refused", f"{self._name} cannot work: {self._place.problem}")
        self._result(lambda: self._actor.ask.remote("initialise", self._settings), timeout, "starting")

    def ask(self, event: bytes, timeout: float) -> bytes:
        """Send an event and wait for the reply; see `Sandboxed`."""
        answer: bytes = self._result(lambda: self._actor.ask.remote("answer", event), timeout, "computing")
        return answer

    def terminate(self) -> None:
        """Let Ray kill the actor: immediately, or after some seconds if its process is stopped."""
        if not self._given_up.done():
            with contextlib.suppress(Exception):  # the connection and its actors have ended
                self._ray.kill(self._actor)

    def kill(self) -> None:
        """Kill the actor, and stop waiting for it."""
        self.terminate()
        with contextlib.suppress(Exception):  # already set
            self._given_up.set_result(None)

    def wait(self, timeout: float) -> bool:
        """Wait until Ray reports the end of the actor, and return whether it has ended."""
        return bool(wait([self._life], timeout).done)

    def end(self) -> None:
        """Kill the actor without waiting for its end, since its node may be lost. Idempotent."""
        self.kill()

    @property
    def _name(self) -> str:
        return "a worker" if self._place is None else f"worker process {self._place.pid} on node {self._place.node}"

    def _result(
        self, call: Callable[[], Any], timeout: float, doing: str, *, late: Callable[[], TaskFailedError] | None = None
    ) -> Any:
        """Return the result of a call to the actor. On any failure, kill the actor and raise an TaskFailedError."""
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

    def _not_started(self) -> TaskFailedError:
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
        if not self._ray.is_initialized():  # otherwise Ray would start a new local cluster
            raise TaskFailedError("the connection to the Ray cluster has ended", "refused")

    def _failed(self, reason: FailureReason, text: str) -> TaskFailedError:
        self.end()
        return TaskFailedError(text, reason)
