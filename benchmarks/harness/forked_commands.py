"""Commands that a process runs which has imported everything, and forks itself for each of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from harness.warm_process import Ended

_SECONDS = 120


@final
class ForkServer:
    """That process.

    Args:
        folder: for what commands print.
    """

    def __init__(self, folder: Path) -> None:
        self._said = folder / "said"
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        words = [sys.executable, "-m", "harness.forked_commands"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path}
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, arguments: Sequence[str], kill: int | None = None) -> Ended:
        """Runs a command; `kill`: before which rename it is killed, counted from 1."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), kill, str(self._said)]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Ended(code, "", self._said.read_text("utf-8", errors="replace"))


def _serve() -> None:
    import dorylax.cli.seeds
    import dorylax.pipeline.engine
    import dorylax.pipeline.saved
    import dorylax.trainer  # noqa: F401
    from dorylax.cli import main

    for request in sys.stdin:
        arguments, kill, said = json.loads(request)
        child = os.fork()
        if child == 0:
            error = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(error, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            signal.alarm(_SECONDS)
            if kill is not None:
                _kill_before(kill)
            try:
                code = main(arguments)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                code = 70
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _kill_before(number: int) -> None:
    rename, seen = os.replace, 0

    def replace(*arguments: Any, **options: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(*arguments, **options)

    os.replace = replace


if __name__ == "__main__":
    _serve()
