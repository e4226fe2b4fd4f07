"""Streamed training for data larger than one machine's memory: an unchanged program runs over units of rows.

`units` cuts the rows, `schedule` assigns each task to a sweep over them, `residency` chooses the values kept in memory,
`columns` store rows, `prefetch` reads them ahead, and `executor` computes. `dorylax.trainer` uses it for runs.
"""
