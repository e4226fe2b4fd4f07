"""Which faults does dorylax survive? Each family of `hostile/` tries its own: how many, survived, lost, crashed.

    python benchmarks/faults.py                     # every family
    python benchmarks/faults.py --only power_loss   # one of them

Lost: something that was acknowledged is gone, or something wrong was taken for true. Crashed: it hung, ended in a traceback
or an abort, or left processes or files behind. The exit status is 1 if there is any of either.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

from harness.command_line import parsed, parser_of, write_json
from hostile.base import Line

FAMILIES = ("contention", "damage", "io_errors", "power_loss")


def try_family(name: str, *, tiny: bool) -> list[Line]:
    """Prints the lines of one family as they come."""
    module = importlib.import_module(f"hostile.{name}")
    print(f"{name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
    found, begin = [], time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dorylax-faults-") as folder:
        for line in module.lines(Path(folder), tiny=tiny):
            found.append(line)
            print(_row(*line), flush=True)
    print(f"  {time.perf_counter() - begin:.0f} s", flush=True)
    return found


def _row(name: str, *counts: int) -> str:
    return f"  {name:<78}" + "".join(f"{count:>{width},}" for count, width in zip(counts, (10, 10, 7, 9), strict=True))


def main() -> None:
    """Tries all of them, or some."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="FAMILY", help=f"of {FAMILIES}"
    )
    parser.add_argument("--json", type=Path, help="write the lines to a file, too")
    arguments = parsed(parser)
    print(f"{'':<80} {'tried':>9} {'survived':>9} {'lost':>6} {'crashed':>8}")
    with tempfile.TemporaryDirectory() as compiled:  # by all processes together
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", compiled)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        found = {name: try_family(name, tiny=arguments.tiny) for name in arguments.only}
    lines = [line for family in found.values() for line in family]
    totals = [sum(counts) for counts in list(zip(*lines, strict=True))[1:]]
    print(_row("all", *totals))
    write_json(arguments.json, {name: [line._asdict() for line in family] for name, family in found.items()})
    sys.exit(1 if totals[2] or totals[3] else 0)


if __name__ == "__main__":
    main()
