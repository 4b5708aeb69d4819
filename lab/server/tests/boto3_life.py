"""The whole life of an ENI, driven by an unmodified boto3 against the lab's EC2 and IMDS.

Run by tests/boto3.rs, which serves the cloud and sets the endpoints. The cloud has two faults: every
second DescribeVpcs is throttled, and every answer to DeleteTags is lost after acting.
"""

import json
import os
import time
import urllib.error
import urllib.request

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

IMDS = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]


def imds(path, token=None, method="GET", **headers):
    """Status and text of an answer of the metadata service."""
    if token:
        headers["X-aws-ec2-metadata-token"] = token
    request = urllib.request.Request(IMDS + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, err.read().decode()


def session(ttl=60):
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(ttl)}
    return imds("/latest/api/token", method="PUT", **headers)


def refused(code, status, call, **arguments):
    """The call must fail with EC2's own code and HTTP status."""
    try:
        call(**arguments)
    except ClientError as err:
        got = (err.response["Error"]["Code"], err.response["ResponseMetadata"]["HTTPStatusCode"])
        assert got == (code, status), f"{call.__name__}: {got}, not {(code, status)}"
        assert err.response["ResponseMetadata"]["RequestId"], "an error without request id"
        return err.response["Error"]["Message"]
    raise AssertionError(f"{call.__name__}: no {code}")


def wait(what, done, seconds=20):
    """Polls until `done` gives something true."""
    end = time.monotonic() + seconds
    while True:
        value = done()
        if value:
            return value
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.05)


def metadata():
    """IMDSv2 as aws-config and amazon-vpc-cni use it; the identity document."""
    assert imds("/latest/meta-data/mac")[0] == 401, "a read without a token"
    assert imds("/latest/meta-data/mac", "made-up")[0] == 401, "a read with a made-up token"
    assert imds("/latest/api/token", method="PUT")[0] == 400, "a token without a TTL"
    for ttl in (0, 21601, "long"):
        assert session(ttl)[0] == 400, f"a token of {ttl} seconds"
    proxied = {"X-aws-ec2-metadata-token-ttl-seconds": "60", "X-Forwarded-For": "10.0.0.9"}
    assert imds("/latest/api/token", method="PUT", **proxied)[0] == 403, "a token through a proxy"
    assert imds("/latest/meta-data/mac", method="DELETE")[0] == 405
    status, token = session()
    assert status == 200 and len(token) == 56, (status, token)
    status, short = session(1)
    assert imds("/latest/meta-data/mac", short)[0] == 200
    time.sleep(1.2)
    assert imds("/latest/meta-data/mac", short)[0] == 401, "a token that is over"

    def read(path):
        status, text = imds(path, token)
        assert status == 200, f"{path}: {status}"
        return text

    mac = read("/latest/meta-data/mac")
    assert f"{mac}/" in read("/latest/meta-data/network/interfaces/macs/").split()
    for key in ("interface-id", "device-number", "subnet-id", "vpc-id", "security-group-ids",
                "local-ipv4s", "subnet-ipv4-cidr-block", "vpc-ipv4-cidr-blocks"):
        assert read(f"/latest/meta-data/network/interfaces/macs/{mac}/{key}"), key
    for key in ("instance-id", "instance-type", "local-ipv4", "placement/region",
                "placement/availability-zone"):
        assert read(f"/latest/meta-data/{key}"), key
    for absent in ("/latest/user-data", "/latest/meta-data/no-such-thing",
                   f"/latest/meta-data/network/interfaces/macs/{mac}/ipv6s",
                   f"/latest/meta-data/network/interfaces/macs/{mac}/ipv4-prefix"):
        assert imds(absent, token)[0] == 404, absent
    role = read("/latest/meta-data/iam/security-credentials/")
    credentials = json.loads(read(f"/latest/meta-data/iam/security-credentials/{role}"))
    assert credentials["Code"] == "Success", credentials
    for key in ("AccessKeyId", "SecretAccessKey", "Token", "Expiration"):
        assert credentials[key], key
    return json.loads(read("/latest/dynamic/instance-identity/document"))


def client(document, retries):
    """Credentials come from IMDS, by boto3's own chain."""
    config = Config(retries={"mode": "standard", "total_max_attempts": retries + 1},
                    connect_timeout=5, read_timeout=5)
    return boto3.session.Session(region_name=document["region"]).client("ec2", config=config)


def life(ec2, document):
    instance_id = document["instanceId"]
    instance = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
    assert instance["State"] == {"Code": 16, "Name": "running"}, instance["State"]
    assert instance["InstanceType"] == document["instanceType"]
    primary = instance["NetworkInterfaces"][0]
    assert primary["Attachment"]["DeviceIndex"] == 0
    subnet_id = instance["SubnetId"]

    def free():
        subnets = ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"]
        return subnets[0]["AvailableIpAddressCount"]

    before = free()
    wish = {
        "SubnetId": subnet_id,
        "Description": 'life & <death> "of an ENI"',
        "Groups": [group["GroupId"] for group in instance["SecurityGroups"]],
        "SecondaryPrivateIpAddressCount": 4,
        "ClientToken": "once-only",
        "TagSpecifications": [{
            "ResourceType": "network-interface",
            "Tags": [{"Key": "kind", "Value": "a b&c"}, {"Key": "empty", "Value": ""}],
        }],
    }
    refused("DryRunOperation", 412, ec2.create_network_interface, DryRun=True, **wish)
    assert free() == before, "a dry run took addresses"

    eni = ec2.create_network_interface(**wish)["NetworkInterface"]
    eni_id = eni["NetworkInterfaceId"]
    assert eni["Description"] == wish["Description"], eni["Description"]
    assert len(eni["PrivateIpAddresses"]) == 5
    assert [address["Primary"] for address in eni["PrivateIpAddresses"]] == [True] + [False] * 4
    assert eni["PrivateIpAddress"] == eni["PrivateIpAddresses"][0]["PrivateIpAddress"]
    tags = {tag["Key"]: tag["Value"] for tag in eni["TagSet"]}
    assert tags["kind"] == "a b&c" and tags["empty"] == "", tags
    assert eni["MacAddress"] and eni["VpcId"] == instance["VpcId"]
    again = ec2.create_network_interface(**wish)["NetworkInterface"]
    assert again["NetworkInterfaceId"] == eni_id, "a client token gave a second ENI"
    assert free() == before - 5, (before, free())

    def described():
        return ec2.describe_network_interfaces(NetworkInterfaceIds=[eni_id])["NetworkInterfaces"][0]

    wait("available", lambda: described()["Status"] == "available")
    refused("InvalidParameterValue", 400, ec2.attach_network_interface, DeviceIndex=0,
            InstanceId=instance_id, NetworkInterfaceId=eni_id)
    attached = ec2.attach_network_interface(
        DeviceIndex=1, InstanceId=instance_id, NetworkInterfaceId=eni_id)
    attachment_id = attached["AttachmentId"]
    wait("attached", lambda: described().get("Attachment", {}).get("Status") == "attached")
    assert described()["Attachment"]["DeleteOnTermination"] is False
    assert described()["Status"] == "in-use"
    refused("InvalidParameterValue", 400, ec2.delete_network_interface,
            NetworkInterfaceId=eni_id)

    ec2.modify_network_interface_attribute(
        NetworkInterfaceId=eni_id,
        Attachment={"AttachmentId": attachment_id, "DeleteOnTermination": True})
    assert described()["Attachment"]["DeleteOnTermination"] is True
    ec2.modify_network_interface_attribute(
        NetworkInterfaceId=eni_id, SourceDestCheck={"Value": False})
    assert described()["SourceDestCheck"] is False
    refused("InvalidGroup.NotFound", 400, ec2.modify_network_interface_attribute,
            NetworkInterfaceId=eni_id, Groups=["sg-00000000000000000"])

    given = ec2.assign_private_ip_addresses(
        NetworkInterfaceId=eni_id, SecondaryPrivateIpAddressCount=3)
    new = [address["PrivateIpAddress"] for address in given["AssignedPrivateIpAddresses"]]
    held = [address["PrivateIpAddress"] for address in described()["PrivateIpAddresses"]]
    assert len(new) == 3 and len(held) == 8 and set(new) < set(held), (new, held)
    refused("PrivateIpAddressLimitExceeded", 400, ec2.assign_private_ip_addresses,
            NetworkInterfaceId=eni_id, SecondaryPrivateIpAddressCount=50)
    ec2.unassign_private_ip_addresses(NetworkInterfaceId=eni_id, PrivateIpAddresses=new[:2])
    held = [address["PrivateIpAddress"] for address in described()["PrivateIpAddresses"]]
    assert len(held) == 6 and not set(new[:2]) & set(held), held
    refused("InvalidParameterValue", 400, ec2.unassign_private_ip_addresses,
            NetworkInterfaceId=eni_id, PrivateIpAddresses=[eni["PrivateIpAddress"]])

    ec2.create_tags(Resources=[eni_id], Tags=[{"Key": "later", "Value": "ü"}])
    found = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [eni_id]}])["Tags"]
    assert {tag["Key"] for tag in found} == {"kind", "empty", "later"}, found
    assert {tag["ResourceType"] for tag in found} == {"network-interface"}, found
    return eni_id, attachment_id, subnet_id, before


def filters_and_pages(ec2, document, eni_id, subnet_id):
    def ids(*filters):
        listed = ec2.describe_network_interfaces(
            Filters=[{"Name": name, "Values": list(values)} for name, *values in filters])
        return {eni["NetworkInterfaceId"] for eni in listed["NetworkInterfaces"]}

    assert ids(("attachment.instance-id", document["instanceId"]), ("tag:kind", "a b*")) == {eni_id}
    assert ids(("tag-key", "later"), ("status", "available", "in-use")) == {eni_id}
    assert ids(("description", "life*")) == {eni_id}
    assert ids(("tag:kind", "nobody")) == set()
    extra = [ec2.create_network_interface(SubnetId=subnet_id, Description="page")
             ["NetworkInterface"]["NetworkInterfaceId"] for _ in range(12)]
    pages = list(ec2.get_paginator("describe_network_interfaces").paginate(
        Filters=[{"Name": "description", "Values": ["page"]}], PaginationConfig={"PageSize": 5}))
    sizes = [len(page["NetworkInterfaces"]) for page in pages]
    listed = [eni["NetworkInterfaceId"] for page in pages for eni in page["NetworkInterfaces"]]
    assert sizes == [5, 5, 2] and sorted(listed) == sorted(extra), sizes
    for eni in extra:
        wait("gone", lambda: not delete(ec2, eni))
    types = ec2.describe_instance_types(InstanceTypes=["c5.xlarge"])["InstanceTypes"]
    info = types[0]["NetworkInfo"]
    assert (info["MaximumNetworkInterfaces"], info["Ipv4AddressesPerInterface"]) == (4, 15), info
    groups = ec2.describe_security_groups()["SecurityGroups"]
    assert any(group["GroupName"] == "default" for group in groups), groups


def delete(ec2, eni):
    """Asks for the end of an ENI; false once it is gone."""
    try:
        ec2.delete_network_interface(NetworkInterfaceId=eni)
    except ClientError as err:
        assert err.response["Error"]["Code"] == "InvalidNetworkInterfaceID.NotFound", err
    listed = ec2.describe_network_interfaces(Filters=[
        {"Name": "network-interface-id", "Values": [eni]}])
    return listed["NetworkInterfaces"]


def weather(ec2, patient, eni_id):
    """Throttling and lost answers, as an SDK sees them."""
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(len(ec2.describe_vpcs()["Vpcs"]))
        except ClientError as err:
            outcomes.append(err.response["Error"]["Code"])
            assert err.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert sorted(map(str, outcomes)) == ["1", "1"] + ["RequestLimitExceeded"] * 2, outcomes
    for _ in range(3):
        assert patient.describe_vpcs()["Vpcs"][0]["CidrBlock"], "retries did not help"
    try:
        ec2.delete_tags(Resources=[eni_id], Tags=[{"Key": "later"}])
        raise AssertionError("the answer was not lost")
    except BotoCoreError as err:
        assert not isinstance(err, botocore.exceptions.ReadTimeoutError), "it hangs"
    tags = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [eni_id]}])["Tags"]
    assert "later" not in {tag["Key"] for tag in tags}, "the lost call did not act"


def strange_requests(ec2):
    gone = "eni-00000000000000000"
    message = refused("InvalidNetworkInterfaceID.NotFound", 400, ec2.describe_network_interfaces,
                      NetworkInterfaceIds=[gone])
    assert gone in message, message
    refused("InvalidInstanceID.Malformed", 400, ec2.describe_instances, InstanceIds=["node1"])
    refused("InvalidInstanceID.NotFound", 400, ec2.describe_instances,
            InstanceIds=["i-00000000000000000"])
    refused("InvalidAction", 400, ec2.describe_spot_price_history)
    refused("UnknownParameter", 400, ec2.attach_network_interface, DeviceIndex=1, EnaQueueCount=2,
            InstanceId="i-00000000000000000", NetworkInterfaceId=gone)


def death(ec2, eni_id, attachment_id, subnet_id, before):
    def described():
        return ec2.describe_network_interfaces(NetworkInterfaceIds=[eni_id])["NetworkInterfaces"][0]

    ec2.detach_network_interface(AttachmentId=attachment_id)
    wait("available", lambda: described()["Status"] == "available")
    assert "Attachment" not in described()
    ec2.delete_network_interface(NetworkInterfaceId=eni_id)
    refused("InvalidNetworkInterfaceID.NotFound", 400, ec2.delete_network_interface,
            NetworkInterfaceId=eni_id)
    subnet = ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"][0]
    assert subnet["AvailableIpAddressCount"] == before, subnet


def main():
    document = metadata()
    ec2, patient = client(document, retries=0), client(document, retries=4)
    eni_id, attachment_id, subnet_id, before = life(ec2, document)
    filters_and_pages(ec2, document, eni_id, subnet_id)
    weather(ec2, patient, eni_id)
    strange_requests(ec2)
    death(ec2, eni_id, attachment_id, subnet_id, before)
    print("PASS with boto3", boto3.__version__)


main()
