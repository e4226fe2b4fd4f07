"""A deployment's whole life on moto, with every kind of step that a plan can have."""

from __future__ import annotations

import json

from dorylax.serverless.deploy.apply import Applier
from dorylax.serverless.deploy.clients import Clients
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.plan import Wanted, plan_deploy, plan_teardown
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.state import read
from dorylax.storage.location import Location
from support.escalations import ADMINISTRATOR
from support.mocked_aws import REGION, MockedAws

NAMES = Names("gnn", "123456789012", REGION)
EVERYTHING = json.dumps(ADMINISTRATOR)
ANYBODY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
    }
)
STAGES = Location.of("s3://mine/stages")


def make_network(clients: Clients) -> dict[str, tuple[str, ...]]:
    """Two subnets and a security group, as settings of a deployment."""
    ec2 = clients("ec2")
    network = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [ec2.create_subnet(VpcId=network, CidrBlock=f"10.0.{k}.0/24")["Subnet"]["SubnetId"] for k in range(2)]
    group = ec2.create_security_group(GroupName="gnn", Description="gnn", VpcId=network)["GroupId"]
    return {"subnets": tuple(subnets), "security_groups": (group,)}


def live(clients: Clients, aws: MockedAws, network: dict[str, tuple[str, ...]]) -> None:
    """Makes a deployment, changes it, has others change it, mends it, and takes it away.

    Args:
        clients: of the region.
        aws: what records the calls. Those of others are not on record.
        network: a VPC to go into and come out of; empty for none.
    """
    with aws.unrecorded():
        aws.make_boundary(NAMES.name, vpc=bool(network))
        clients("s3").create_bucket(Bucket=STAGES.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        clients("s3").put_object(Bucket=STAGES.bucket, Key=STAGES.key(f"{0:064x}"), Body=b"")

    def deploy(tag: str, **settings: object) -> None:
        wanted = Wanted(Deployment(name=NAMES.name, region=REGION, **settings), NAMES, NAMES.image(tag), tag)

        def push(address: str) -> None:
            clients("ecr").get_authorization_token()
            aws.push(address)

        actions = plan_deploy(wanted, read(NAMES, clients, boundary=True))
        Applier(clients, NAMES, wanted, push, sleep=lambda _: None).apply(actions)

    deploy("1", reserved_concurrency=7)
    deploy("2", memory_mb=3008, log_retention_days=30, **network)
    with aws.unrecorded():
        clients("iam").delete_role_permissions_boundary(RoleName=NAMES.role)
        clients("iam").put_role_policy(RoleName=NAMES.role, PolicyName="more", PolicyDocument=EVERYTHING)
        clients("ecr").put_image_tag_mutability(repositoryName=NAMES.name, imageTagMutability="MUTABLE")
    deploy("2", **network)
    deploy("2")  # out of the network
    deploy("2")
    with aws.unrecorded():
        policy = clients("iam").create_policy(PolicyName="theirs", PolicyDocument=EVERYTHING)
        clients("iam").attach_role_policy(RoleName=NAMES.role, PolicyArn=policy["Policy"]["Arn"])
        clients("iam").update_assume_role_policy(RoleName=NAMES.role, PolicyDocument=ANYBODY)
    deploy("2")
    clients("invoke").invoke(FunctionName=NAMES.name)
    found = read(NAMES, clients, STAGES)
    Applier(clients, NAMES, artefacts=STAGES).apply(plan_teardown(NAMES, found, artefacts="s3://mine/stages"))
