"""The sides of `full_graph.py`, `gpu.py` and `time_to_accuracy.py`, each of which runs in a process of its own."""
