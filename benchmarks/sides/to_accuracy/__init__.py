"""The sides of `benchmarks/time_to_accuracy.py`: one file each, of which one runs in a process of its own."""
