"""The connection of this process to a Ray cluster: made with a deadline, and ended by whoever has made it."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import importlib.metadata
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from dorylax.ray_cluster.config import LOCAL, RayConfig
from dorylax.settings.errors import ConfigError

OLDEST = (2, 50)
"""The first version of Ray with which this works."""

_GONE_SECONDS = 30.0
_ADDRESS = "RAY_ADDRESS"
_SET_BY_RAY = ("PYTHONBREAKPOINT", "RAY_AUTH_MODE", "RAY_CLIENT_MODE", "RAY_USAGE_STATS_ENABLED")
_LOOPBACK = ("localhost", "127.0.0.1")
_HOW = "or start one here (`ray start --head`), or give ray.address=local"


@contextlib.contextmanager
def connected(config: RayConfig) -> Iterator[Any]:
    """Connects this process to the cluster, unless it is connected already, as in an actor; then that connection is used.

    What Ray warns of is not shown, and signals, and whatever else of this process Ray sets for itself, do as before.

    Args:
        config: which cluster, and how long to wait for it.

    Yields:
        The module `ray`.

    Raises:
        ConfigError: Ray is not installed, or too old; there is no such cluster, or it does not answer; names the key.
    """
    with contextlib.ExitStack() as stack:
        with _process_kept():
            ray = load_ray()
            if not ray.is_initialized():
                stack.enter_context(_quiet())
                _connect(ray, config)
                stack.callback(_disconnect, ray)
        yield ray


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Has Ray say nothing of its own: it would print what it notes about nodes between the results of a command."""
    logger = logging.getLogger("ray")
    worker: Any = importlib.import_module("ray._private.worker")
    level, printer = logger.level, worker.print_to_stdstream
    logger.setLevel(logging.ERROR)
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = printer
        logger.setLevel(level)


def _connect(ray: Any, config: RayConfig) -> None:
    options = {"log_to_driver": False, "configure_logging": False}
    if config.address == LOCAL:
        # Ray sets handlers of signals, which only the main thread can.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with warnings.catch_warnings():
            # JAX's, of what forks: Ray starts programs, which is all that is done in the child.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(address=LOCAL, include_dashboard=False, **options)
        return
    address = _find(config)
    with _loopback_kept(address):
        _within(config.timeout, lambda: ray.init(address=address, **options), address)


def _disconnect(ray: Any) -> None:
    """In a thread, since Ray waits without end for the head of a cluster that hangs."""
    thread = threading.Thread(target=ray.shutdown, name="ray disconnection", daemon=True)
    thread.start()
    thread.join(_GONE_SECONDS)
    if thread.is_alive():
        atexit.unregister(ray.shutdown)  # which would wait again


def node_address() -> str:
    """The address by which the other nodes of the cluster find this one. The process is connected."""
    address: str = load_ray().util.get_node_ip_address()
    return address


def load_ray() -> Any:
    """The module `ray`.

    Raises:
        ConfigError: it is not installed, or too old.
    """
    try:
        version = importlib.metadata.version("ray")
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(f'Ray is not installed: pip install "dorylax[ray]" ({error})') from None
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise ConfigError(f'Ray must be {needed} or newer, got {version}: pip install "dorylax[ray]"')
    return ray


def _find(config: RayConfig) -> str:
    """HOST:PORT of the cluster, where something listens."""
    named = os.environ.get(_ADDRESS)
    if config.address is not None:
        address, said = config.address, "ray.address"
    elif named and named != "auto":
        if named == LOCAL:
            raise ConfigError(f"{_ADDRESS} = {LOCAL} starts no cluster: give ray.address={LOCAL}", "ray.address")
        address, said = named, _ADDRESS
    else:
        services = importlib.import_module("ray._private.services")
        try:
            address, said = services.get_ray_address_from_environment("auto", None), "the cluster on this machine"
        except ConnectionError:
            raise ConfigError.of(
                "ray.address",
                f"is null, {_ADDRESS} is not set, and no Ray cluster runs on this machine: name one, {_HOW}",
            ) from None
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), config.timeout).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{said} = {address} cannot be reached ({_one_line(error)}): name the head of a cluster that runs, {_HOW}",
            "ray.address",
        ) from None
    return str(address)


def _within(seconds: float, connect: Callable[[], object], address: str) -> None:
    """Calls `connect` in a thread, since Ray waits for minutes for who listens and does not answer."""
    raised: list[BaseException] = []

    def attempt() -> None:
        try:
            connect()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=attempt, name="ray connection", daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.05)  # briefly, so that Ctrl-C is seen
    if thread.is_alive():
        raise ConfigError.of(
            "ray.address",
            f"= {address} listens, but did not answer as a Ray cluster within {seconds:g} s (ray.timeout)",
        )
    if raised:
        raise ConfigError.of(
            "ray.address",
            f"= {address} cannot be joined from here, which must be a node of the cluster with the same versions of Python "
            f"and Ray: {_one_line(raised[0])}",
        ) from None


@contextlib.contextmanager
def _loopback_kept(address: str) -> Iterator[None]:
    """Has Ray go to 127.0.0.1 where it is told to, which it takes for another interface's address on Linux."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = before and address.rpartition(":")[0] not in _LOOPBACK
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _process_kept() -> Iterator[None]:
    """Puts back what Ray sets when it is loaded and connects: handlers of signals and of uncaught exceptions, variables."""
    hook, faults = sys.excepthook, faulthandler.is_enabled()
    environment = {name: os.environ.get(name) for name in _SET_BY_RAY}
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in signals.items():
                signal.signal(number, handler)
        sys.excepthook = hook
        if not faults:
            faulthandler.disable()
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
