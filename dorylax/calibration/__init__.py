"""Measures this machine for a cluster's file: gathers, matrix products, copies, overheads of tasks, and messages.

Each family of measurements is a module with a function that lists its steps (`steps.Step`). `machine` runs all steps, and
`description` turns the results into the file that `pipeline.cluster` takes (docs/clock.md).
"""
