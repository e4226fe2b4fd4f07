"""Observers of a run: `base.Observer` is the contract, and each observer of dorylax has a file.

`dorylax.store.metrics` has the one that writes metrics.jsonl.
"""
