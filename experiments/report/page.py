"""`report.html` and `report.md`: one page that opens offline, on a phone too, in light and in dark; and its text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas  # type: ignore[import-untyped]
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from dorylax.experiments.report.figures import PHONE, WIDE, NamedFigure, themed, write_files
from dorylax.figure_style import ALL
from dorylax.store.durable import make_folder, write_file, write_folder

DASH = "–"
"""Cell of a table without a value."""

_SHORT = 22  # letters of a part of a cell that stays on one line


class Table(NamedTuple):
    """A table of text with a heading and a note below, which may be empty.

    The first column of the frame is on the left, numbers are on the right.
    """

    title: str
    frame: pandas.DataFrame
    note: str = ""

    @classmethod
    def of(cls, title: str, rows: Iterable[Mapping[str, str]], note: str = "") -> Table:
        """A table whose columns are the rows' keys; columns without any value are omitted."""
        frame = pandas.DataFrame(list(rows)).fillna(DASH)
        return cls(title, frame.loc[:, ~frame.isin([DASH, ""]).all()], note)


class Section(NamedTuple):
    """A part of a report: sentences, figures, tables, and tables that are folded at first.

    The title is empty for the only section. The page skips figures and tables that are None.
    """

    title: str = ""
    sentences: Sequence[str] = ()
    figures: Sequence[NamedFigure | None] = ()
    tables: Sequence[Table | None] = ()
    folded: Sequence[Table] = ()


def render(template: str = "page.html.jinja", **content: Any) -> str:
    """The page, or with another template of this folder the Markdown, of the content that the templates document."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=template.startswith("page.html"),
        keep_trailing_newline=True,
    )
    environment.filters |= {"breakable": _breakable, "parts": _parts}
    colors = {theme: " ".join(f"--{one.name}: {getattr(one, theme)};" for one in ALL) for theme in ("light", "dark")}
    return environment.get_template(template).render(
        themed=lambda *arguments: Markup(themed(*arguments)), wide=WIDE, phone=PHONE, **colors, **content
    )


def write_pages(folder: Path, **content: Any) -> Path:
    """Write report.html, report.md and figures/; return the path of the page.

    If the file system refuses (OSError), an earlier report is still whole.
    """
    make_folder(folder)
    page, text = render(**content), render("page.md.jinja", **content)

    def draw(images: Path) -> None:
        for section in (content["top"], *content["sections"]):
            for figure in filter(None, section.figures):
                write_files(figure, images)

    write_folder(folder / "figures", draw)
    write_file(folder / "report.md", text)
    write_file(folder / "report.html", page)
    return folder / "report.html"


def _breakable(title: str) -> Markup:
    """A column's title that may break within the name of a setting."""
    return Markup(re.sub("([._])", r"\1<wbr>", str(escape(title))))


def _parts(text: str) -> Markup:
    """A cell whose numbers stay on one line each; sentences do not."""
    parts = text.split(", ")
    if not text or max(map(len, parts)) > _SHORT:
        return escape(text)
    return Markup(", ").join(Markup("<span>{}</span>").format(part) for part in parts)
