"""Every Python example in the README and in docs/ runs, for fewer epochs, and the guide's commands for experiments too."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from support import dgl_double, wandb_double

from dorylax.cli.app import cli
from dorylax.cli.app import main as dorylax
from dorylax.cli.options import collect
from dorylax.config import RunConfig
from dorylax.experiments.run import command as sweep_command
from dorylax.simulation.settings import load as load_scenario

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDED = {"from-pyg.md": ["torch", "torch_geometric"], "from-dgl.md": ["torch"]}
OWN_TESTS = {"experiments.md", "observers.md"}
SMALLER = {  # pieces of examples that only make them take longer
    "experiments.md": {"train.epochs: 40": "train.epochs: 3", "seeds: 5": "seeds: 1"},
    "serverless.md": {"workers=2": "workers=1"},
    "simulation.md": {"servers=1..4": "servers=1..2"},
    "tasks.md": {"range(3)": "range(2)"},
}


class Block(NamedTuple):
    """A block of code, and where it begins in its page."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The blocks for Python and for the shell of a page."""
    text = page.read_text()
    found = re.finditer(r"^```(python|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], text.count("\n", 0, match.start(2))) for match in found]


EXAMPLES = {page.name: [block for block in blocks(page) if block.language == "python"] for page in PAGES}


def execute(page: str, examples: list[Block], namespace: dict[str, object]) -> None:
    """Executes blocks of a page in order: later ones may use what earlier ones define. Errors name the line of the page."""
    path = next(path for path in PAGES if path.name == page)
    for block in examples:
        text = re.sub(r"\bepochs=\d\d+", "epochs=3", block.text)
        for large, small in SMALLER.get(page, {}).items():
            text = text.replace(large, small)
        exec(compile("\n" * block.line + text, path, "exec"), namespace)


@pytest.mark.parametrize("page", [name for name, found in EXAMPLES.items() if found and name not in OWN_TESTS])
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NEEDED.get(page, ()):
        pytest.importorskip(name)
    if page == "from-dgl.md":  # DGL itself needs an older torch
        monkeypatch.setitem(sys.modules, "dgl", dgl_double.module())
    execute(page, EXAMPLES[page], {"__name__": "example"})


@pytest.mark.parametrize("page", SMALLER)
def test_examples_are_made_smaller(page: str) -> None:
    whole = "".join(block.text for block in EXAMPLES[page])
    assert [piece for piece in SMALLER[page] if piece not in whole] == []


def test_the_observer_for_wandb_tells_all(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = wandb_double.module()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    execute("observers.md", EXAMPLES["observers.md"], {"__name__": "example"})
    (run,) = wandb.runs
    assert run.closed
    assert run.updates == {"epochs": 5}
    assert [step for step, _ in run.logged] == list(range(5))
    assert all({"epoch", "loss", "val_accuracy", "seconds"} <= values.keys() for _, values in run.logged)
    assert run.summary["epochs"] == 5
    assert 0 <= run.summary["test_accuracy"] <= 1


def test_the_guide_to_experiments_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its commands the first and the last; the example that calls the sweep from Python trains the other runs.

    Not the first block: installing is what CI does, and the flagship has its own tests.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dorylax.experiments.run.cores", lambda: 1)  # else other processes train, and import all anew
    examples, namespace = EXAMPLES["experiments.md"], {"__name__": "example"}
    files = [block for block in examples if ".write_text(" in block.text]
    execute("experiments.md", files, namespace)
    _, *shell = [block for block in blocks(ROOT / "docs" / "experiments.md") if block.language == "sh"]
    lines = [shlex.split(line, comments=True) for block in shell for line in block.text.splitlines()]
    assert len(lines) >= 3
    assert all(line[:2] == ["dorylax", "sweep"] for line in lines)
    dry, last = lines[0][2:], lines[-1][2:]
    words = [sys.executable, str(ROOT / "experiments" / "run.py"), "--sweep", *dry]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 runs to do" in done.stdout
    assert dorylax(["sweep", *last]) == 0
    report = tmp_path / "runs" / "mine" / "report.html"
    selected = report.read_text()
    capsys.readouterr()
    execute("experiments.md", examples[len(files) :], namespace)
    assert report.read_text() != selected
    assert "adam" in capsys.readouterr().out  # what the last example prints


def parsed(command: click.Command, words: list[str]) -> click.Context:
    """What a command makes of its words; it is not run.

    Raises:
        UsageError: there is no such command or option.
    """
    context = command.make_context("", list(words), resilient_parsing=False)
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None
        return parsed(inner, rest)
    return context


def of_ours(page: str) -> list[tuple[click.Command, list[str]]]:
    """The commands of a page that are dorylax's own, with their words."""
    found: list[tuple[click.Command, list[str]]] = []
    text = (ROOT / page).read_text()
    for block in re.findall(r"^ *```(?:sh|bash)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" && | > ", line):
                words = shlex.split(part, comments=True)
                words = shlex.split(words[3]) if words[:2] == ["ray", "exec"] else words
                while words and re.match(r"[A-Z_]+=", words[0]):
                    words = words[1:]
                if words and Path(words[0]).name == "dorylax":
                    found.append((cli, words[1:]))
                elif len(words) > 1 and Path(words[0]).name == "python" and words[1] == "experiments/run.py":
                    found.append((sweep_command, words[2:]))
    return found


@pytest.mark.parametrize(
    "page", [str(page.relative_to(ROOT)) for page in PAGES if of_ours(str(page.relative_to(ROOT)))]
)
def test_every_command_is_one_and_its_settings_go_together(page: str) -> None:
    """Of blocks for the shell, which mostly take long, or other machines."""
    for command, words in of_ours(page):
        if words[-1] in ("-h", "--help"):
            continue
        context = parsed(command, words)
        # What another command writes first is not there.
        if settings := [
            one
            for one in context.params.get("settings") or ()
            if "model.options." not in one and not one.endswith(".yaml")
        ]:
            named = {f"{key}.name": context.params.get(key) for key in ("data", "model")}
            own = {key: value for key, value in named.items() if value is not None}
            RunConfig.resolve(collect(None, own, settings).values)


def test_the_scenario_of_the_page_on_simulation_is_one(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "simulation.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "scenario.yaml").write_text(block)
    assert load_scenario(tmp_path / "scenario.yaml").name == "amazon on functions"


def test_the_class_of_the_readme_trains_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = EXAMPLES["README.md"]
    kept = [one for one in ast.parse(block.text).body if isinstance(one, ast.Import | ast.ImportFrom | ast.ClassDef)]
    (words,) = (words for _, words in of_ours("README.md") if any(word.endswith(":MyGNN") for word in words))
    monkeypatch.chdir(tmp_path)
    file = next(word for word in words if word.endswith(":MyGNN")).partition(":")[0]
    Path(file).write_text("\n".join(map(ast.unparse, kept)))
    assert dorylax([*words, "--set", "data.size=tiny", "--epochs", "2", "--out", "run"]) == 0
    assert dorylax(["predict", "--run", "run", "--trust"]) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_fill_in(page: Path) -> None:
    prose = re.sub(r"^```diff\n.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)  # hunks begin with @@
    assert not re.findall(r"@@|TODO|FIXME", prose)


def test_ci_finds_the_test_command() -> None:
    after = (ROOT / "README.md").read_text().split("<!-- test-command -->")[1]
    assert re.match(r"\n```sh\npython3 -m venv \.venv && .*pytest\n```", after)


def anchors(page: Path) -> set[str]:
    """What links may name in a page: its headings in lower case, without punctuation, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "benchmarks" / "README.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            there = page.parent / name if name else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


def test_guides_are_short() -> None:
    """In words, code included; logs and generated pages are apart, and the architecture page may have twice as many."""
    apart = ("api.md", "commands.md", "inputs.md", "settings.md")
    pages = [page for page in PAGES[1:] if "log" not in page.parts and page.name not in apart]
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert {name: count for name, count in words.items() if count > (2500 if name == "architecture.md" else 1200)} == {}
    assert sum(words.values()) <= 35_000
