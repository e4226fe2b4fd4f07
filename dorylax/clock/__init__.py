"""Time as a parameter: the same coroutines on the real clock with threads or on a virtual one that jumps (docs/clock.md)."""

from dorylax.clock.base import Clock, Request, Timed, Workers
from dorylax.clock.duration import Duration, Shared, Use
from dorylax.clock.real import RealClock
from dorylax.clock.virtual import VirtualClock

__all__ = ["Clock", "Duration", "RealClock", "Request", "Shared", "Timed", "Use", "VirtualClock", "Workers"]
