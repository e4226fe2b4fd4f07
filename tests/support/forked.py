"""A process that `dorylax.processes` starts, and that does what each line of its input says."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from pathlib import Path

import numpy as np

from dorylax.processes import call_this_process

tempfile.gettempdir()  # which the warm process remembers


def main() -> None:
    call_this_process("forked in tests")
    for line in sys.stdin:
        match line.split():
            case ["tell"]:
                print(json.dumps(_state()), flush=True)
            case ["exit", code]:
                sys.exit(int(code))
            case ["signal", number]:
                os.kill(os.getpid(), int(number))
            case _:
                raise ArithmeticError("as asked")


def _state() -> dict[str, object]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    bridge = sys.modules.get("jax._src.xla_bridge")
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "name": status["Name"].strip(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path,
        "temporary": tempfile.gettempdir(),
        "inherited": [status[key] for key in ("Umask", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed")],
        "limits": Path("/proc/self/limits").read_text(),
        "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],  # the last one lists them
        "modules": sorted(sys.modules),
        "backends": bridge is not None and bridge.backends_are_initialized(),
        "drawn": [secrets.token_hex(), next(tempfile._get_candidate_names()), float(np.random.random())],
    }
