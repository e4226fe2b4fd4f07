"""Edges from files, some at a time: one file per format."""
