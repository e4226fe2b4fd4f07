"""Observers of a run: `base.Observer` is the contract, and each observer of dorylax has a file.

`dorylax.runs.metrics` has the one that writes metrics.jsonl.
"""
