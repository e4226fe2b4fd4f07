"""Which errors the tests would not notice: changes the code that decides, one place at a time, and runs its tests.

    python benchmarks/mutation.py                                    # everything: hours
    python benchmarks/mutation.py --sample 200 --seed 1              # 200 changes, drawn
    python benchmarks/mutation.py '**/stash.py' serverless/controller/slot_limit.py
    python benchmarks/mutation.py '**/stash.py' --list               # what would be changed

A *mutant* is one change: a comparison (`<` for `<=`), `and` for `or`, a condition negated, a number plus one, `True` for
`False`, `+` for `-`, `min` for `max`, or a statement left out (a guard, a return, a call, an assignment to a field). Mutants
are made in a copy of the checkout, so that the checkout itself stays as it is. The tests that mirror the file, and those
that `FURTHER` names, run in a process of their own until one fails, or for four times as long as they usually take: the
mutant is *killed*. All others *survive*, and are printed. `equivalent_mutants.toml` has those that change nothing that
anybody could notice, and why. The last line counts; the exit status is 1 where more than a tenth survives unexplained.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from harness.child import in_child
from harness.command_line import parsed, parser_of
from harness.mutants import Mutant, mutants

ROOT = Path(__file__).resolve().parent.parent
EXPLAINED = Path(__file__).with_name("equivalent_mutants.toml")
MOST_SURVIVORS = 0.1

DECIDING = (
    *("pipeline/**/staleness.py", "pipeline/**/gate.py", "pipeline/**/stamps.py", "pipeline/**/buffers.py"),
    *("pipeline/**/guard.py", "pipeline/**/saved.py", "pipeline/progress.py", "pipeline/parameters/policy/[!_]*.py"),
    *(f"pipeline/parameters/{name}.py" for name in ("sequencer", "server", "stash", "assembly")),
    *(f"pipeline/parameters/{name}.py" for name in ("ordered_sum", "epochs_seen", "group")),
    *("pipeline/transport/delivery.py", "pipeline/**/counters.py"),
    "serverless/controller/[!_c]*.py",
    *(f"serverless/data/{name}.py" for name in ("admission", "arrival", "keys")),
    *("dorylax/cost/bill.py", "dorylax/**/checkpoint.py"),
)
"""Files, by pattern."""

FURTHER = {
    "stamps.py": ["tests/pipeline/test_buffers.py"],
    "buffers.py": ["tests/pipeline/test_global_sums.py"],
    "saved.py": ["tests/pipeline/test_engine.py"],
    "race.py": ["tests/serverless/controller/test_controller.py"],
    "watch.py": ["tests/serverless/controller/test_controller.py"],
    "throttle.py": ["tests/serverless/controller/test_brake.py"],
    "arrival.py": ["tests/serverless/data/test_parcel.py"],
    "admission.py": ["tests/serverless/test_intruders.py"],
    "policy/*.py": ["tests/pipeline/parameters/policy/test_policies.py"],
}
"""Tests beside those that mirror a file, by the end of its path."""


def tests_of(file: Path) -> list[str]:
    """The tests that a mutant of this file has to pass."""
    path = file.relative_to(ROOT)
    inside = path.relative_to("dorylax") if path.parts[0] == "dorylax" else path
    mirror = ROOT / "tests" / inside.with_name(f"test_{path.name}")
    found = [mirror] if mirror.exists() else sorted((ROOT / "tests").rglob(mirror.name))
    further = [name for end, names in FURTHER.items() if path.match(end) for name in names]
    return [*(str(one.relative_to(ROOT)) for one in found), *further]


class Unshrunk:
    """A plugin of pytest: Hypothesis stops at the first example that fails."""

    def pytest_configure(self) -> None:
        """After tests/conftest.py, whose profile it changes."""
        from hypothesis import Phase, settings

        settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate])
        settings.load_profile("unshrunk")


def run(tests: Sequence[str], folder: Path, seconds: float) -> int | None:
    """Runs tests of the copy until one fails, in a process of its own; pytest's exit status, or None after so many seconds.

    The process is forked from this one, which has imported what takes long, and nothing of the package.
    """
    child = os.fork()
    if child == 0:
        import pytest

        os.setsid()
        os.chdir(folder)
        sys.path[0] = str(folder)
        with (folder / "log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os._exit(pytest.main(["-n", "0", "-qx", "-p", "no:cacheprovider", *tests], plugins=[Unshrunk()]))
    end = time.monotonic() + seconds
    while not (ended := os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and time.monotonic() < end:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests have started, too; nobody else can have its number yet
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("files", nargs="*", default=DECIDING, help="patterns; by default the files that decide")
    parser.add_argument("--sample", type=int, help="how many mutants, drawn; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    options = parsed(parser, files=["**/ordered_sum.py"], sample=1)
    found = {pattern: sorted(ROOT.glob(pattern)) for pattern in options.files}
    if missing := [pattern for pattern, files in found.items() if not files]:
        parser.error(f"there is no file {', '.join(missing)}: patterns are relative to {ROOT}")
    files = sorted(set().union(*found.values()))
    if untested := [str(file.relative_to(ROOT)) for file in files if not tests_of(file)]:
        parser.error(f"no tests mirror {', '.join(untested)}: name some in FURTHER")
    chosen = [mutant for file in files for mutant in mutants(file)]
    if options.sample is not None and options.sample < len(chosen):
        keep = set(random.Random(options.seed).sample(range(len(chosen)), options.sample))
        chosen = [mutant for place, mutant in enumerate(chosen) if place in keep]
    if options.list:
        print("\n".join(f"{mutant.file.relative_to(ROOT)}:{mutant.place[0]} {mutant}" for mutant in chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix="dorylax-mutation-") as folder:
        return int(in_child(judge, chosen, Path(folder)))


def judge(chosen: Sequence[Mutant], folder: Path) -> int:
    """Runs the tests on every mutant, in a copy of the checkout in this folder."""
    import flax.nnx  # noqa: F401  (see `run`)
    import optax  # noqa: F401

    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    explained = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    limits: dict[tuple[str, ...], float] = {}
    stamp = time.time()
    unexplained = equivalent = 0
    for mutant in chosen:
        name, tests = str(mutant.file.relative_to(ROOT)), tuple(tests_of(mutant.file))
        if str(mutant) in explained.get(name, {}):
            equivalent += 1
            continue
        if tests not in limits:
            begin = time.monotonic()
            if run(tests, folder, 600.0) != 0:
                raise SystemExit(f"{name}: its tests do not pass as it is: {' '.join(tests)}")
            limits[tests] = 20.0 + 4 * (time.monotonic() - begin)
        source, stamp = (folder / name).read_bytes(), stamp + 2
        (folder / name).write_bytes(mutant.applied(source))
        os.utime(folder / name, (stamp, stamp))  # by which Python knows that what it has compiled is out of date
        if run(tests, folder, limits[tests]) == 0:
            unexplained += 1
            print(f"survives: {name}:{mutant.place[0]} {mutant}", flush=True)
        (folder / name).write_bytes(source)
        os.utime(folder / name, (stamp + 1, stamp + 1))
    killed = len(chosen) - unexplained - equivalent
    print(f"{len(chosen)} mutants: {killed} killed, {unexplained} survive, {equivalent} are known to change nothing")
    return int(unexplained > MOST_SURVIVORS * len(chosen))


if __name__ == "__main__":
    raise SystemExit(main())
