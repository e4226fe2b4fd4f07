"""Files of any run: atomic writes, locks, storage on this machine and in S3, checkpoints, the run directory.

Imports `errors`, `settings`, and `runs`.
"""
