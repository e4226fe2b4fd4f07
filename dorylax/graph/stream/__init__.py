"""Graphs that do not fit in memory: sorted on disk, and written to folders piece by piece."""
