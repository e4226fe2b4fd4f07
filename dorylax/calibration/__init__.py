"""Measures this machine: how fast it gathers, multiplies, copies, hands over and sends, as a cluster's file has it.

Each family of measurements is a module with a function that lists its steps (`steps.Step`). `machine` runs all steps, and
`description` turns the results into the file that `pipeline.cluster` takes (docs/clock.md).
"""
