"""Hosts with a network each, whose links can be cut and heal: network namespaces and a bridge, on Linux, as root.

What is cut drops packets and says nothing, as a cable does that is pulled. All of it goes with the processes that are in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from typing import Any, final

from dorylax.pipeline.hosts.pipeline import HostsPipeline
from support.in_hosts import first_in_hosts

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, <linux/sched.h>
_DRIVER = "10.255.255.254"


class NoNetworksError(Exception):
    """This machine lets this user make none."""


@final
class Network:
    """Of the hosts in it; a process is known by its id."""

    def cut_off(self, pid: int) -> None:
        """A host reaches nobody, and nobody it."""
        _ip("link", "set", _port(pid), "down")

    def reconnect(self, pid: int) -> None:
        """It does again."""
        _ip("link", "set", _port(pid), "up")

    def cut(self, *pids: int) -> None:
        """These hosts do not reach each other; all else reach them."""
        for pid in pids:
            _ip("link", "set", _port(pid), "type", "bridge_slave", "isolated", "on")

    def join(self, *pids: int) -> None:
        """They do again."""
        for pid in pids:
            _ip("link", "set", _port(pid), "type", "bridge_slave", "isolated", "off")


@contextlib.contextmanager
def own_networks() -> Iterator[Network]:
    """Hosts that are started in it talk by TCP, each from a network of its own; in the main thread alone.

    Raises:
        NoNetworksError: this machine lets nobody make networks, or this user.
    """
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    place = HostsPipeline.__dict__["_place"]
    try:
        _leave()
        try:
            _ip("link", "set", "lo", "up")
            _ip("link", "add", "dorylax", "type", "bridge")
            _ip("address", "add", f"{_DRIVER}/8", "dev", "dorylax")
            _ip("link", "set", "dorylax", "up")
            HostsPipeline._place = staticmethod(  # type: ignore[method-assign]
                lambda config: (place.__func__(config)[0], "tcp", _DRIVER)
            )
            with first_in_hosts(_enter):
                yield Network()
        finally:
            _call("setns", here, _NEW_NETWORK)
    finally:
        HostsPipeline._place = place  # type: ignore[method-assign]
        os.close(here)


def _enter() -> None:
    """Takes this process into a network of its own, with a link to the driver's bridge."""
    from dorylax.pipeline.transport.zeromq import ZeroMqTransport

    pid = os.getpid()
    address = f"10.{pid >> 16}.{pid >> 8 & 255}.{pid & 255}"
    _leave()
    there = ["nsenter", f"--net=/proc/{os.getppid()}/ns/net", "ip", "link"]
    for words in (
        [*there, "add", _port(pid), "type", "veth", "peer", "name", "eth0", "netns", str(pid)],
        [*there, "set", _port(pid), "master", "dorylax", "up"],
        ["ip", "address", "add", f"{address}/8", "dev", "eth0"],
        ["ip", "link", "set", "eth0", "up"],
        ["ip", "link", "set", "lo", "up"],
    ):
        _run(words)
    make = ZeroMqTransport.__init__

    def makes(transport: Any, *given: Any, **named: Any) -> None:
        make(transport, *given, **named | {"host": address})

    ZeroMqTransport.__init__ = makes  # type: ignore[method-assign]


def _port(pid: int) -> str:
    """The driver's end of a host's link."""
    return f"h{pid}"


def _leave() -> None:
    """Takes this thread into a new network."""
    try:
        _call("unshare", _NEW_NETWORK)
    except OSError as error:
        raise NoNetworksError(f"network namespaces cannot be made: {error}") from error


def _call(name: str, *arguments: int) -> None:
    """A system call that Python has from 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(words: list[str]) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True)
    except OSError as error:
        raise NoNetworksError(f"{words[0]} cannot be run: {error}") from error
    except subprocess.CalledProcessError as error:
        raise NoNetworksError(f"{' '.join(words)}: {error.stderr.strip()}") from error
