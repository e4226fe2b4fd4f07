"""Estimates the memory of a run before it starts.

`sources` finds the sizes of a data set without its data. `phases` has the formulas for one machine's phases, `hosts` those
for hosts, and `streamed_partition` those for partitioning. `estimate` compares the peak with the limit from
`dorylax.machine`. `dorylax.trainer.footprint` adds the memory that XLA assigns to compiled functions, and checks a run.
"""
