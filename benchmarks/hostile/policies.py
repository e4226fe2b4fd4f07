"""Somebody tries every known way to get more rights in AWS than the policies of `dorylax aws` give them.

Lost: a way that is open. Crashed: a call of a deployment's life that the deployer's policy forbids. Needs moto and pytest:
the ways, IAM's rules and the deployment's life are those of the tests (tests/support), and nothing is asked of AWS.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from hostile.base import Line

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.deployments import NAMES, STAGES, live, make_network
from support.escalations import ADMINISTRATOR, ways
from support.iam import Request, allowed
from support.mocked_aws import mocked_aws

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.clients import Clients

Network = dict[str, tuple[str, ...]]

NETWORK: Network = {"subnets": ("subnet-0a",), "security_groups": ("sg-0b",)}
OWN_CODE = {"lambda:SourceFunctionArn": (NAMES.function_arn,)}


def escalations(who: str, policy: policies.Policy) -> Line:
    tried = list(ways(NAMES, STAGES.bucket))
    lost = sum(all(allowed(request, policy) for request in way.requests) for way in tried)
    return Line(f"known ways to more rights, {who}", len(tried), len(tried) - lost, lost)


def beyond_the_boundary(*, vpc: bool) -> Line:
    boundary = policies.boundary_policy(NAMES, vpc=vpc)
    asked = [
        Request(request.action, request.resource, {**request.context, **OWN_CODE})
        for way in ways(NAMES, STAGES.bucket)
        for request in way.requests
    ]
    lost = sum(allowed(request, ADMINISTRATOR, boundary) for request in asked)
    return Line(
        f"requests of a function whose role was given all rights{_in(vpc)}", len(asked), len(asked) - lost, lost
    )


def life(*, vpc: bool) -> Line:
    with mocked_aws() as aws:
        clients = Clients("eu-west-1")
        with aws.unrecorded():
            network: Network = make_network(clients) if vpc else {}
        live(clients, aws, network)
        clients.close()
    policy = policies.deployer_policy(NAMES, artefacts=STAGES, **network)
    refused = sum(not allowed(request, policy) for request in aws.requests)
    return Line(
        f"needed: requests of deploying, mending and taking away{_in(vpc)}",
        len(aws.requests),
        len(aws.requests) - refused,
        crashed=refused,
    )


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:  # noqa: ARG001
    """Tries all ways with the policies that are handed out; with `tiny`, deploys without a VPC alone."""
    for network in ({}, NETWORK):
        vpc = bool(network)
        yield escalations(f"by who deploys{_in(vpc)}", policies.deployer_policy(NAMES, artefacts=STAGES, **network))
        yield escalations(f"by who trains{_in(vpc)}", policies.trainer_policy(NAMES, vpc=vpc, artefacts=STAGES))
        yield beyond_the_boundary(vpc=vpc)
    for vpc in (False,) if tiny else (False, True):
        yield life(vpc=vpc)


def _in(vpc: bool) -> str:
    return ", VPC" if vpc else ""
