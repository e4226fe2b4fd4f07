"""What may watch a run: `base.Observer` is the contract, a file each what comes with dorylax.

`dorylax.runs.metrics` has the one that writes metrics.jsonl.
"""
