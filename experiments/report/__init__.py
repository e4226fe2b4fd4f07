"""The report of a sweep: `report.html`, one file that opens offline, the same figures as PNG and SVG, tables as Markdown."""

from dorylax.experiments.report.write import write_report

__all__ = ["write_report"]
