"""The sides of `benchmarks/full_graph.py`: one file each, of which one runs in a process of its own."""
