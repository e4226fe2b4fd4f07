"""Deployment of the handler to AWS Lambda, and its teardown.

`settings`, `names`, `policies` and `plan` are pure. `state` reads existing resources, `apply` changes them, and `image/`
builds the image.
"""
