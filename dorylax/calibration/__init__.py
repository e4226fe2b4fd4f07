"""Measures this machine: how fast it gathers, multiplies, copies, hands over and sends, as a cluster's file has it.

Each family of measurements is a file with a function that lists its steps (`steps.Step`); `machine` puts them together,
`description` makes of them the file that `pipeline.cluster` takes (docs/clock.md).
"""
