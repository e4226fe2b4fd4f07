"""The connection of this process to a Ray cluster: made with a deadline, and closed by the caller that made it."""

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
"""The oldest supported version of Ray."""

_GONE_SECONDS = 30.0
_ADDRESS = "RAY_ADDRESS"
_SET_BY_RAY = ("PYTHONBREAKPOINT", "RAY_AUTH_MODE", "RAY_CLIENT_MODE", "RAY_USAGE_STATS_ENABLED")
_LOOPBACK = ("localhost", "127.0.0.1")
_HOW = "or start one here (`ray start --head`), or give ray.address=local"


@contextlib.contextmanager
def connected(config: RayConfig) -> Iterator[Any]:
    """Connect this process to the cluster. A connected process, such as an actor, keeps its connection.

    Ray's warnings are hidden. Signal handlers and other process settings that Ray changes are restored.

    Args:
        config: The address of the cluster and the time-out.

    Yields:
        The module `ray`.

    Raises:
        ConfigError: Ray is missing or too old, or the cluster is unreachable. The message names the key.
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
    """Silence Ray, which prints messages about nodes between the results of a command."""
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
            # JAX warns of forks, but Ray's children only start programs.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(address=LOCAL, include_dashboard=False, **options)
        return
    address = _find(config)
    raised: list[BaseException] = []

    def attempt() -> None:
        try:
            ray.init(address=address, **options)
        except BaseException as error:
            raised.append(error)

    with _loopback_kept(address):
        ended = _ends_within(config.timeout, attempt)
    if not ended:
        raise ConfigError.of(
            "ray.address",
            f"= {address} listens, but did not answer as a Ray cluster within {config.timeout:g} s (ray.timeout)",
        )
    if raised:
        raise ConfigError.of(
            "ray.address",
            f"= {address} cannot be joined from here, which must be a node of the cluster with the same versions of Python "
            f"and Ray: {_one_line(raised[0])}",
        )


def _disconnect(ray: Any) -> None:
    if not _ends_within(_GONE_SECONDS, ray.shutdown):
        atexit.unregister(ray.shutdown)  # which would wait again


def _ends_within(seconds: float, call: Callable[[], object]) -> bool:
    """Call Ray in a thread, because it may wait for minutes for a host that hangs; return whether the call has ended."""
    thread = threading.Thread(target=call, name="ray", daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.05)  # briefly, so that Ctrl-C is seen
    return not thread.is_alive()


def node_address() -> str:
    """Return the address of this node for the other nodes. The process must be connected."""
    address: str = load_ray().util.get_node_ip_address()
    return address


def load_ray() -> Any:
    """Import Ray.

    Raises:
        ConfigError: Ray is not installed, or too old.
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
    """Return the HOST:PORT of the cluster, after a test connection."""
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


@contextlib.contextmanager
def _loopback_kept(address: str) -> Iterator[None]:
    """Let Ray connect to 127.0.0.1, which it replaces by another interface's address on Linux."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = before and address.rpartition(":")[0] not in _LOOPBACK
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _process_kept() -> Iterator[None]:
    """Restore the signal handlers, the exception hook and the variables that Ray sets."""
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
