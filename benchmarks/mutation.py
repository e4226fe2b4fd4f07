"""Which errors the tests would not notice: changes the code that decides, one place at a time, and runs its tests.

    python benchmarks/mutation.py                                    # everything: hours
    python benchmarks/mutation.py --sample 200 --seed 1              # 200 changes, drawn
    python benchmarks/mutation.py '**/stash.py' serverless/controller/slot_limit.py
    python benchmarks/mutation.py '**/stash.py' --list               # what would be changed
    python benchmarks/mutation.py --faults                           # the planted faults: minutes
    python benchmarks/mutation.py --faults store ops-self-loops      # of a room, or by name
    python benchmarks/mutation.py --faults ops --measure tests/ops --matrix kills.json

A *mutant* is one change: a comparison (`<` for `<=`), `and` for `or`, a condition negated, a number plus one, `True` for
`False`, `+` for `-`, `min` for `max`, or a statement left out (a guard, a return, a call, an assignment to a field). Mutants
are made in a copy of the checkout, so that the checkout itself stays as it is. The tests that mirror the file, and those
that `FURTHER` names, run in a process of their own until one fails, or for four times as long as they usually take: the
mutant is *killed*. All others *survive*, and are printed. `equivalent_mutants.toml` has those that change nothing that
anybody could notice, and why. The last line counts; the exit status is 1 where more than a tenth survives unexplained.

A *planted fault* is a plausible error that `planted_faults.toml` describes by behaviour, so that it can be planted again
after a rewrite. `--faults` runs the tests that each entry names (`killed_by`) until one fails. The exit status is 1 if a
fault survives, cannot be planted, or names tests that are missing or already fail. `--measure` runs the given tests to their
end instead, and writes every failing test with its CPU seconds to `--matrix` (JSON), from which `killed_by` is filled.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.child import in_child
from harness.command_line import parsed, parser_of
from harness.mutants import Mutant, mutants
from harness.planted import Fault, Outcome, PlantedFaultError, Recording, planted_faults, recorded

ROOT = Path(__file__).resolve().parent.parent
LOG, OUTCOMES = "log", "outcomes.jsonl"
"""Files of a run of tests, in the copy of the checkout."""
EXPLAINED = Path(__file__).with_name("equivalent_mutants.toml")
MOST_SURVIVORS = 0.1
TIME_LIMIT = ("-o", "timeout=60")
"""Of one test, for planted faults that make it hang."""

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


def run(tests: Sequence[str], folder: Path, seconds: float, options: Sequence[str] = ("-x",)) -> int | None:
    """Runs tests of the copy in a process of their own; pytest's exit status, or None after so many seconds.

    The process is forked from this one, which has imported what takes long, and nothing of the package. All of them share
    compiled functions; a changed function is another entry of the cache. By default the first failure ends the run.
    """
    for name in (LOG, OUTCOMES):
        (folder / name).unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            status = _run_here([*options, *tests], folder)
        except BaseException:  # this process must not go on as the other one does
            traceback.print_exc()
            status = pytest.ExitCode.INTERNAL_ERROR
        os._exit(status)
    end = time.monotonic() + seconds
    while not (ended := os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and time.monotonic() < end:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests have started, too; nobody else can have its number yet
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _run_here(words: Sequence[str], folder: Path) -> int:
    """Runs pytest in this process, on the copy."""
    os.chdir(folder)
    sys.path[0] = os.environ["PYTHONPATH"] = str(folder)  # for the processes that tests start, too
    os.environ |= {"PYTEST_XDIST_WORKER": "mutation", "JAX_COMPILATION_CACHE_DIR": str(folder / ".compiled")}
    with (folder / LOG).open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    plugins = [Unshrunk(), Recording(folder / OUTCOMES)]
    return pytest.main(["-n", "0", "-q", "-p", "no:cacheprovider", *words], plugins=plugins)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("files", nargs="*", default=DECIDING, help="patterns; by default the files that decide")
    parser.add_argument("--sample", type=int, help="how many mutants, drawn; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    parser.add_argument(
        "--faults", nargs="*", metavar="NAME", help="run planted faults, by name or room; all by default"
    )
    parser.add_argument("--measure", nargs="+", metavar="TESTS", help="of faults: run these tests to their end")
    parser.add_argument("--matrix", type=Path, help="JSON file that --measure adds its findings to")
    options = parsed(parser, files=["**/ordered_sum.py"], sample=1)
    if options.faults is not None:
        try:
            chosen_faults = planted_faults(options.faults)
        except PlantedFaultError as error:
            parser.error(str(error))
        with tempfile.TemporaryDirectory(prefix="dorylax-mutation-") as folder:
            if options.measure:
                return int(in_child(measure, chosen_faults, options.measure, options.matrix, Path(folder)))
            return int(in_child(verify, chosen_faults, Path(folder)))
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
    copy_checkout(folder)
    explained = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    limits: dict[tuple[str, ...], float] = {}
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
        with changed(folder / name, mutant.applied((folder / name).read_bytes())):
            if run(tests, folder, limits[tests]) == 0:
                unexplained += 1
                print(f"survives: {name}:{mutant.place[0]} {mutant}", flush=True)
    killed = len(chosen) - unexplained - equivalent
    print(f"{len(chosen)} mutants: {killed} killed, {unexplained} survive, {equivalent} are known to change nothing")
    return int(unexplained > MOST_SURVIVORS * len(chosen))


def copy_checkout(folder: Path) -> None:
    """Copies the checkout's files, without those that git ignores, and imports what every run of tests takes long to."""
    import flax.nnx  # noqa: F401  (see `run`)
    import optax  # noqa: F401

    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


_stamps = itertools.count(int(time.time()))


@contextlib.contextmanager
def changed(path: Path, content: bytes) -> Iterator[None]:
    """Replaces a file's content for a while; its time tells Python that the compiled file is out of date."""
    source = path.read_bytes()
    try:
        path.write_bytes(content)
        os.utime(path, (stamp := next(_stamps), stamp))
        yield
    finally:
        path.write_bytes(source)
        os.utime(path, (stamp := next(_stamps), stamp))


def planted(fault: Fault, folder: Path) -> contextlib.AbstractContextManager[None]:
    """Plants a fault in the copy for a while."""
    path = folder / fault.file
    if not path.is_file():
        raise PlantedFaultError(f"{fault.name}: there is no file {fault.file}: plant it anew")
    return changed(path, fault.applied(path.read_text(encoding="utf-8")).encode())


def verify(faults: Sequence[Fault], folder: Path) -> int:
    """Runs the tests that each fault names until one fails; 1 if a fault survives or is not tested."""
    copy_checkout(folder)
    named = sorted({test for fault in faults for test in fault.killed_by})
    passing = run(named, folder, 1800.0, TIME_LIMIT) if named else 0
    usual = recorded(folder / OUTCOMES)
    if passing != 0:
        print((folder / LOG).read_text(encoding="utf-8"))
        print("the tests named in killed_by do not all pass without a fault")
        return 1
    bad, spent = 0, sum(outcome.seconds for outcome in usual)
    for fault in faults:
        tests = [test for test in named if test in fault.killed_by]
        tests.sort(key=lambda test: sum(outcome.seconds for outcome in usual if _is_case(outcome, test)))
        try:
            with planted(fault, folder):
                status = run(tests, folder, 600.0, ("-x", *TIME_LIMIT)) if tests else 0
        except PlantedFaultError as error:
            status = None
            print(f"gone      {error}", flush=True)
            bad += 1
            continue
        outcomes = recorded(folder / OUTCOMES) if tests else []
        spent += sum(outcome.seconds for outcome in outcomes)
        if killer := next((outcome for outcome in outcomes if outcome.failed), None):
            print(f"killed    {fault.name} by {killer.test} ({killer.seconds:.2f} s)", flush=True)
        elif status is None:
            print(f"killed    {fault.name}: its tests hang", flush=True)
        else:
            bad += 1
            print(f"SURVIVES  {fault.name} (pytest's status {status}): {fault.behaviour}", flush=True)
    print(f"{len(faults)} planted faults: {len(faults) - bad} killed; {spent:.0f} CPU seconds in tests")
    return int(bad > 0)


def measure(faults: Sequence[Fault], tests: Sequence[str], matrix: Path | None, folder: Path) -> int:
    """Runs tests to their end with each fault, and records those that fail."""
    copy_checkout(folder)
    run(tests, folder, 1800.0, TIME_LIMIT)
    usual = recorded(folder / OUTCOMES)
    failing = {outcome.test for outcome in usual if outcome.failed}
    print(
        f"without a fault: {len(usual)} tests, {sum(one.seconds for one in usual):.0f} CPU seconds; failing: {failing}"
    )
    found = json.loads(matrix.read_text(encoding="utf-8")) if matrix is not None and matrix.exists() else {}
    for fault in faults:
        with planted(fault, folder):
            status = run(tests, folder, 1800.0, TIME_LIMIT)
        outcomes = recorded(folder / OUTCOMES)
        kills = {one.test: one.seconds for one in outcomes if one.failed and one.test not in failing}
        seconds = sum(one.seconds for one in outcomes)
        print(
            f"{fault.name}: {len(kills)} of {len(outcomes)} fail, {seconds:.0f} CPU seconds, status {status}",
            flush=True,
        )
        entry = found.setdefault(fault.name, {"ran": [], "seconds": 0.0, "killed_by": {}})
        entry["ran"] = sorted({*entry["ran"], *tests})
        entry["seconds"] += seconds
        entry["killed_by"] |= kills
        if matrix is not None:
            matrix.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _is_case(outcome: Outcome, test: str) -> bool:
    return outcome.test == test or outcome.test.startswith((f"{test}[", f"{test}::"))


if __name__ == "__main__":
    raise SystemExit(main())
