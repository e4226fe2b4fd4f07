"""Puts the handler into AWS Lambda and takes it away again: settings, what is there, a plan, its effects.

`settings`, `names`, `policies` and `plan` decide and touch nothing; `state` reads, `apply` acts, `image/` makes the image.
"""
