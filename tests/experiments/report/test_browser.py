"""The page in a real browser, if one is installed: no downloads, no cut or covered text, both themes, several widths."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from support.reports import LONG, written_report

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
BROWSER = next((path for name in _NAMES if (path := shutil.which(name))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: install one of {', '.join(_NAMES)}")

# In the page, once it is laid out.
_PROBE = """
<script>
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("load", () => {
  const seen = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.getBoundingClientRect().width > 0);
  const look = () => ({
    paper: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
    line: getComputedStyle(document.querySelector("svg text")).fill,
  });
  const before = look();
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  document.getElementById("theme").click();
  const edge = document.querySelector("main").getBoundingClientRect().right;
  const cells = seen("th, td").map((one) => [one.dataset.column || one.textContent, one.getBoundingClientRect()]);
  const over = [];
  for (const svg of seen("figure svg")) {
    const texts = [...svg.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
    texts.forEach(([text, a], place) => texts.slice(place + 1).forEach(([other, b]) => {
      // A text's box has room above and below its letters.
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 0.35 * Math.min(a.height, b.height)) over.push([text, other]);
    }));
  }
  const found = {
    errors,
    before,
    after: look(),
    fetched: performance.getEntriesByType("resource").map((one) => one.name),
    width: document.documentElement.clientWidth,
    needed: document.documentElement.scrollWidth,
    wide: seen("figure .wide svg").length,
    narrow: seen("figure .narrow svg").length,
    figures: document.querySelectorAll("figure").length,
    rows: document.querySelectorAll("tbody tr").length,
    smallest: Math.min(...seen("figure svg").flatMap((svg) =>
      [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect().height))),
    over,
    cut: cells.filter(([, box]) => box.right > edge + 1 || box.left < 0).map(([text]) => text),
    scrolled: seen("table, td, th").filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent),
    shown: cells.filter(([, box]) => box.right <= innerWidth && box.left >= 0).map(([text]) => text),
    twice: ids.length - new Set(ids).size,
  };
  parent.postMessage(found, "*");
});
</script>
"""
_FRAME = """<!doctype html><body style="margin:0">
<iframe id="page" src="probed.html" style="width:{width}px;height:800px;border:0"></iframe><pre id="found"></pre><script>
addEventListener("message", (event) => {{ document.getElementById("found").textContent = JSON.stringify(event.data); }});
</script>"""


def probed(folder: Path, report: Path) -> Path:
    """A folder with a report's page, with what looks at it."""
    html = report.read_text(encoding="utf-8")
    (folder / "probed.html").write_text(html.replace("<head>", f"<head>{_PROBE}", 1), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small study."""
    folder = tmp_path_factory.mktemp("page")
    return probed(folder, written_report(folder, only=[("model.name", "gcn")]))


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one whose settings have long names, in several groups."""
    folder = tmp_path_factory.mktemp("long")
    return probed(
        folder, written_report(folder, LONG, only=[("optimizer.name", "adam"), ("model.hidden_features", "16")])
    )


def looked_at(folder: Path, width: int, *, dark: bool = False) -> dict[str, Any]:
    """Measures the page in a window of this width in pixels."""
    (folder / "frame.html").write_text(_FRAME.format(width=width), encoding="utf-8")
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=8000",
        f"--window-size={width + 200},900",
        "--dump-dom",
        (folder / "frame.html").as_uri(),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    match = re.search(r'<pre id="found">(.+?)</pre>', shown, re.DOTALL)
    assert match is not None, shown[:2000]
    found: dict[str, Any] = json.loads(unescape(match[1]))
    return found


@pytest.mark.parametrize(("width", "narrow"), [(360, True), (1200, False)], ids=["phone", "screen"])
def test_it_fits_and_shows_each_figure_once(page: Path, width: int, narrow: bool) -> None:
    found = looked_at(page, width)
    assert found["errors"] == []
    assert found["fetched"] == []
    assert found["width"] == width or found["width"] == width - 15  # a scroll bar
    assert found["needed"] <= found["width"]
    assert found["figures"] >= 6
    assert (found["narrow"], found["wide"]) == ((found["figures"], 0) if narrow else (0, found["figures"]))
    assert found["smallest"] >= 8  # pixels: text that can be read
    assert found["twice"] == 0
    assert found["rows"] > 0


@pytest.mark.parametrize("width", [1440, 1200, 390])
@pytest.mark.parametrize("name", ["page", "long_names"])
def test_no_column_is_cut_and_no_label_lies_over_another(name: str, width: int, request: pytest.FixtureRequest) -> None:
    found = looked_at(request.getfixturevalue(name), width)
    assert found["needed"] <= found["width"]
    assert found["cut"] == []
    assert found["scrolled"] == []
    assert found["over"] == []
    assert {"verdict", "accuracy, points"} <= set(found["shown"])


def test_it_is_dark_where_the_reader_prefers_it_and_the_button_changes_it(page: Path) -> None:
    light, dark = looked_at(page, 800), looked_at(page, 800, dark=True)
    assert light["before"] == dark["after"]
    assert dark["before"] == light["after"]
    assert light["before"] != dark["before"]
    assert brightness(light["before"]["paper"]) > 0.9
    assert brightness(dark["before"]["paper"]) < 0.2
    for look in (light["before"], dark["before"]):
        assert abs(brightness(look["paper"]) - brightness(look["ink"])) > 0.6
        assert abs(brightness(look["paper"]) - brightness(look["line"])) > 0.3  # text in figures


def brightness(colour: str) -> float:
    """Of `rgb(r, g, b)`, 0 to 1."""
    channels = [int(number) for number in re.findall(r"\d+", colour)[:3]]
    return sum(channels) / (3 * 255)
