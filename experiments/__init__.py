"""Experiments: sweeps over configurations, their tables, and the script that runs them (`experiments/run.py`)."""
