"""Training on one machine what does not fit into its memory: the same program, over units of rows.

`units` cuts the rows, `schedule` says in which sweep over them each task runs, `residency` what stays in memory, `columns`
where rows lie, `prefetch` reads them ahead, and `executor` computes. How runs use it is `dorylax.trainer`'s.
"""
