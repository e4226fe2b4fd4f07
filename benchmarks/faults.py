"""Which faults does dorylax survive? Each family of `hostile/` tries its own: how many, survived, lost, crashed.

    python benchmarks/faults.py                     # every family
    python benchmarks/faults.py --only power_loss   # one of them; --list names them

Lost: something that was acknowledged is gone, or something wrong was taken for true. Crashed: it hung, ended in a traceback
or an abort, or left processes or files behind. The exit status is 1 if there is any of either.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

from harness.command_line import parsed, parser_of, write_json
from hostile.base import Family, Line

FAMILIES = sorted(
    path.stem for path in (Path(__file__).parent / "hostile").glob("*.py") if path.stem not in ("__init__", "base")
)


def try_family(name: str, *, tiny: bool) -> list[Line]:
    """Prints the lines of one family as they come."""
    module = importlib.import_module(f"hostile.{name}")
    print(f"{name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
    found, begin = [], time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dorylax-faults-") as folder:
        for line in cast(Family, module).lines(Path(folder), tiny=tiny):
            found.append(line)
            print(
                f"  {line.fault:<78} {line.tried:>9,} {line.survived:>9,} {line.lost:>6,} {line.crashed:>8,}",
                flush=True,
            )
    print(f"  {time.perf_counter() - begin:.0f} s", flush=True)
    return found


def main() -> None:
    """Tries all of them, or some."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="FAMILY", help="these families"
    )
    parser.add_argument("--list", action="store_true", help="print the families' names and end")
    parser.add_argument("--json", type=Path, help="write the lines to a file, too")
    arguments = parsed(parser)
    if arguments.list:
        print("\n".join(FAMILIES))
        return
    print(f"{'':<80} {'tried':>9} {'survived':>9} {'lost':>6} {'crashed':>8}")
    found = {name: try_family(name, tiny=arguments.tiny) for name in arguments.only}
    lines = [line for family in found.values() for line in family]
    tried, survived, lost, crashed = (
        sum(getattr(line, of) for line in lines) for of in ("tried", "survived", "lost", "crashed")
    )
    print(f"{'all':<80} {tried:>9,} {survived:>9,} {lost:>6,} {crashed:>8,}")
    write_json(arguments.json, {name: [dataclasses.asdict(line) for line in family] for name, family in found.items()})
    sys.exit(1 if lost or crashed else 0)


if __name__ == "__main__":
    main()
