"""Every Python example in the README and in docs/ runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = {
    page.name: re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL) for page in PAGES
}


@pytest.mark.parametrize("page", [name for name, blocks in EXAMPLES.items() if blocks])
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    for block in EXAMPLES[page]:  # of one page, in order: later ones may use what earlier ones define
        exec(compile(block, page, "exec"), namespace)


def test_the_readme_has_examples() -> None:
    assert EXAMPLES["README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_fill_in(page: Path) -> None:
    assert not re.findall(r"@@|TODO|FIXME", page.read_text())


def test_ci_finds_the_test_command() -> None:
    after = (ROOT / "README.md").read_text().split("<!-- test-command -->")[1]
    assert re.match(r"\n```sh\npython3 -m venv \.venv && .*pytest\n```", after)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    assert not [target for target in targets if "://" not in target and not (page.parent / target).exists()]
