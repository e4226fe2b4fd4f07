"""What runs would take and cost that nobody has rented machines for: scenarios, their simulation, the paper's evaluation.

`scenario` says what is simulated, `run` simulates it on values without numbers (`dorylax.pipeline.timing`), `result` holds
what comes of it, and `catalogue` knows scenarios by name.
"""
