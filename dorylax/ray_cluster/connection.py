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
                logger = logging.getLogger("ray")
                stack.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.ERROR)
                # Ray prints messages about nodes between the results of a command.
                stack.enter_context(_replaced("worker", "print_to_stdstream", lambda _: lambda *_, **__: None))
                _connect(ray, config)
                stack.callback(_disconnect, ray)
        yield ray


@contextlib.contextmanager
def _replaced(module: str, name: str, replace: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute of one of Ray's private modules by a function of its value."""
    found = importlib.import_module(f"ray._private.{module}")
    before = getattr(found, name)
    setattr(found, name, replace(before))
    try:
        yield
    finally:
        setattr(found, name, before)


def _connect(ray: Any, config: RayConfig) -> None:
    options = {"log_to_driver": False, "configure_logging": False}
    if config.address == LOCAL:  # in this thread: Ray sets handlers of signals, which only the main thread can
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

    # On Linux Ray replaces 127.0.0.1 by another interface's address.
    is_loopback = address.rpartition(":")[0] in _LOOPBACK
    with _replaced("ray_constants", "ENABLE_RAY_CLUSTER", lambda before: before and not is_loopback):
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
    named = os.environ.get("RAY_ADDRESS")
    if config.address is not None:
        address, said = config.address, "ray.address"
    elif named == LOCAL:
        raise ConfigError(f"RAY_ADDRESS = {LOCAL} starts no cluster: give ray.address={LOCAL}", "ray.address")
    elif named and named != "auto":
        address, said = named, "RAY_ADDRESS"
    else:
        services = importlib.import_module("ray._private.services")
        try:
            address, said = services.get_ray_address_from_environment("auto", None), "the cluster on this machine"
        except ConnectionError:
            problem = f"is null, RAY_ADDRESS is not set, and no Ray cluster runs on this machine: name one, {_HOW}"
            raise ConfigError.of("ray.address", problem) from None
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
def _process_kept() -> Iterator[None]:
    """Restore the signal handlers, the exception hook and the variables that Ray sets."""
    hook, faults = sys.excepthook, faulthandler.is_enabled()
    environment = {name: os.environ[name] for name in _SET_BY_RAY if name in os.environ}
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
        for name in _SET_BY_RAY:
            os.environ.pop(name, None)
        os.environ.update(environment)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
