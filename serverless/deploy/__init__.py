"""Deployment of the handler to AWS Lambda, and its teardown.

`settings`, `names`, `policies` and `template` are pure. `stacks` deploys templates by CloudFormation, `function` reads and
invokes the deployed function, and `image/` builds its image.
"""
