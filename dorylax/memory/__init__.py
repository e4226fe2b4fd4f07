"""How much memory a run on one machine takes, before it runs.

`shapes` says how large a data set is without its data, `phases` what each phase of a run holds (all formulas are there),
`estimate` joins them with what the compiled functions take, `limit` says what the machine has. What XLA assigns to the
compiled functions, and the check before a run, are `dorylax.trainer.footprint`'s.
"""
