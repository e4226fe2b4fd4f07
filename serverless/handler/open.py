"""Creates the sandbox of a process."""

from __future__ import annotations

import time

import jax

from dorylax.net.client import DataClient
from dorylax.serverless.handler.sandbox import Sandbox
from dorylax.serverless.handler.settings import SandboxSettings


def open_sandbox(settings: SandboxSettings) -> Sandbox:
    """Configure and start JAX by the settings, and return a new sandbox."""
    for name, value in settings.jax.items():
        jax.config.update(name, value)
    jax.devices()  # starts XLA now rather than in the first call
    sandbox = Sandbox(DataClient(settings.keys, settings.link))
    time.sleep(settings.cold_start_seconds)
    return sandbox
