"""Time and cost of runs before machines are rented: scenarios, their simulation, the paper's evaluation.

`scenario` describes a simulation, `run` runs it on abstract arrays (`dorylax.pipeline.timing`), and `result` holds its time
and cost.
"""
