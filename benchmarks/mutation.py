"""Which plausible errors the tests would not notice: plants faults in a copy of the checkout, and runs tests on each.

    python benchmarks/mutation.py                            # all planted faults
    python benchmarks/mutation.py store ops-self-loops       # those of a room, or by name
    python benchmarks/mutation.py --sample 20 --seed 1       # some, drawn
    python benchmarks/mutation.py ops --measure tests/ops --matrix kills.json

A *planted fault* is a plausible error that `planted_faults.toml` describes by behaviour, so that it can be planted again
after a rewrite. The tests that an entry names (`killed_by`) run until one fails. The exit status is 1 if a fault survives,
cannot be planted, or names tests that are missing or already fail. `--measure` runs the given tests to their end instead,
and adds every failing test with its CPU seconds to `--matrix` (JSON), from which `killed_by` is filled.
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
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.child import in_child
from harness.command_line import parsed, parser_of
from harness.planted import Fault, Outcome, PlantedFaultError, Recording, planted_faults, recorded

ROOT = Path(__file__).resolve().parent.parent
LOG, OUTCOMES = "log", "outcomes.jsonl"
"""Files of a run of tests, in the copy of the checkout."""
TIME_LIMIT = ("-o", "timeout=60")
"""Of one test, for faults that make it hang."""


class Unshrunk:
    """A plugin of pytest: Hypothesis stops at the first example that fails."""

    def pytest_configure(self) -> None:
        """Runs after tests/conftest.py, whose profile it changes."""
        from hypothesis import Phase, settings

        settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate])
        settings.load_profile("unshrunk")


def run(tests: Sequence[str], folder: Path, seconds: float, options: Sequence[str] = ("-x",)) -> int | None:
    """Run tests of the copy in a separate process. Return pytest's exit status, or None after so many seconds.

    The process is forked from this one, which has imported the slow libraries, but not the package. All of them share
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
        os.killpg(
            child, signal.SIGKILL
        )  # and the processes that the tests have started; its number is not in use again yet
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
    parser.add_argument("faults", nargs="*", metavar="NAME", help="faults by name or room; all by default")
    parser.add_argument("--sample", type=int, help="how many of them, drawn; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--measure", nargs="+", metavar="TESTS", help="run these tests to their end")
    parser.add_argument("--matrix", type=Path, help="JSON file that --measure adds its findings to")
    options = parsed(parser, faults=["parameters"], sample=1)
    try:
        chosen = planted_faults(options.faults)
    except PlantedFaultError as error:
        parser.error(str(error))
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    with tempfile.TemporaryDirectory(prefix="dorylax-mutation-") as folder:
        if options.measure:
            return int(in_child(measure, chosen, options.measure, options.matrix, Path(folder)))
        return int(in_child(verify, chosen, Path(folder)))


def copy_checkout(folder: Path) -> None:
    """Copy the checkout's files, without those that git ignores, and import the slow libraries of every test run."""
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
    """Replace a file's content in a context. Its new time makes Python compile it again."""
    source = path.read_bytes()
    try:
        path.write_bytes(content)
        os.utime(path, (stamp := next(_stamps), stamp))
        yield
    finally:
        path.write_bytes(source)
        os.utime(path, (stamp := next(_stamps), stamp))


def planted(fault: Fault, folder: Path) -> contextlib.AbstractContextManager[None]:
    """Plant a fault in the copy in a context."""
    path = folder / fault.file
    if not path.is_file():
        raise PlantedFaultError(f"{fault.name}: there is no file {fault.file}: plant it anew")
    return changed(path, fault.applied(path.read_text(encoding="utf-8")).encode())


def verify(faults: Sequence[Fault], folder: Path) -> int:
    """Runs the tests that each fault names until one fails; returns 1 if a fault survives or is not tested."""
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
