"""IPv6, prefixes, reservations, trunks and adapters as an unmodified boto3 sees them.

Run by tests/boto3.rs, which serves a cloud with IPv6 in which the node is a c5.xlarge and the subnet
`b` has no whole /28 left.
"""

import ipaddress
import os
import time
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

IMDS = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]


def imds(path):
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    ask = urllib.request.Request(IMDS + "/latest/api/token", method="PUT", headers=headers)
    token = urllib.request.urlopen(ask, timeout=5).read().decode()
    headers = {"X-aws-ec2-metadata-token": token}
    ask = urllib.request.Request(IMDS + "/latest/meta-data/" + path, headers=headers)
    return urllib.request.urlopen(ask, timeout=5).read().decode()


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as err:
        got = err.response["Error"]["Code"]
        assert got == code, f"{call.__name__}: {got}, not {code}"
        return err.response["Error"]["Message"]
    raise AssertionError(f"{call.__name__}: no {code}")


def wait(what, done):
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.05)


def described(ec2, eni):
    return ec2.describe_network_interfaces(NetworkInterfaceIds=[eni])["NetworkInterfaces"][0]


def ipv6(ec2, mac, subnet):
    """Prefixes and addresses: made, assigned, shown, taken back."""
    found = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]
    block = found["Ipv6CidrBlockAssociationSet"][0]
    assert block["Ipv6CidrBlockState"]["State"] == "associated", block
    cidr = ipaddress.ip_network(block["Ipv6CidrBlock"])
    assert cidr.prefixlen == 64 and found["AssignIpv6AddressOnCreation"], found
    vpc = ec2.describe_vpcs(VpcIds=[found["VpcId"]])["Vpcs"][0]
    assert vpc["Ipv6CidrBlockAssociationSet"][0]["Ipv6CidrBlock"].endswith("/56"), vpc
    made = ec2.create_network_interface(SubnetId=subnet, Ipv6PrefixCount=1)["NetworkInterface"]
    (prefix,) = made["Ipv6Prefixes"]
    assert ipaddress.ip_network(prefix["Ipv6Prefix"]).subnet_of(cidr), made
    eni = made["NetworkInterfaceId"]
    named = str(cidr[0x77])
    given = ec2.assign_ipv6_addresses(NetworkInterfaceId=eni, Ipv6Addresses=[named])
    assert given["AssignedIpv6Addresses"] == [named], given
    given = ec2.assign_ipv6_addresses(NetworkInterfaceId=eni, Ipv6PrefixCount=2)
    assert len(given["AssignedIpv6Prefixes"]) == 2, given
    shown = described(ec2, eni)
    assert [a["Ipv6Address"] for a in shown["Ipv6Addresses"]] == [named], shown
    assert shown["Ipv6Address"] == named and len(shown["Ipv6Prefixes"]) == 3, shown
    taken = ec2.unassign_ipv6_addresses(
        NetworkInterfaceId=eni, Ipv6Addresses=[named], Ipv6Prefixes=given["AssignedIpv6Prefixes"])
    assert taken["UnassignedIpv6Addresses"] == [named], taken
    assert taken["UnassignedIpv6Prefixes"] == given["AssignedIpv6Prefixes"], taken
    refused("InvalidParameterCombination", ec2.create_network_interface, SubnetId=subnet,
            Ipv6PrefixCount=1, Ipv6AddressCount=1)
    by_name = ec2.create_network_interface(
        SubnetId=subnet, Ipv6Addresses=[{"Ipv6Address": named}],
    )["NetworkInterface"]
    assert by_name["Ipv6Addresses"][0]["Ipv6Address"] == named, by_name
    refused("InsufficientCidrBlocks", ec2.create_network_interface, SubnetId=subnet,
            Ipv6Prefixes=[{"Ipv6Prefix": prefix["Ipv6Prefix"]}])
    address = imds("ipv6")
    of_mac = f"network/interfaces/macs/{mac}/"
    assert imds(of_mac + "ipv6s") == address and ipaddress.ip_address(address) in cidr
    assert imds(of_mac + "subnet-ipv6-cidr-blocks") == str(cidr)
    for eni in (eni, by_name["NetworkInterfaceId"]):
        ec2.delete_network_interface(NetworkInterfaceId=eni)


def fragments(ec2, full, subnet):
    """A subnet without a whole /28, and a reservation that keeps some."""
    text = refused("InvalidParameterValue", ec2.create_network_interface, SubnetId=full,
                   Ipv4PrefixCount=1)
    assert "sufficient free Ipv4 addresses or prefixes" in text, text
    eni = ec2.create_network_interface(SubnetId=full, SecondaryPrivateIpAddressCount=2)
    eni = eni["NetworkInterface"]["NetworkInterfaceId"]
    refused("InsufficientCidrBlocks", ec2.assign_private_ip_addresses, NetworkInterfaceId=eni,
            Ipv4PrefixCount=1)
    ec2.delete_network_interface(NetworkInterfaceId=eni)
    made = ec2.create_subnet_cidr_reservation(
        SubnetId=subnet, Cidr="10.0.9.0/27", ReservationType="prefix", Description="pods",
    )["SubnetCidrReservation"]
    assert (made["Cidr"], made["ReservationType"]) == ("10.0.9.0/27", "prefix"), made
    listed = ec2.get_subnet_cidr_reservations(SubnetId=subnet)
    assert listed["SubnetIpv4CidrReservations"] == [made], listed
    eni = ec2.create_network_interface(SubnetId=subnet, Ipv4PrefixCount=1)["NetworkInterface"]
    prefix = ipaddress.ip_network(eni["Ipv4Prefixes"][0]["Ipv4Prefix"])
    assert prefix.subnet_of(ipaddress.ip_network("10.0.9.0/27")), prefix
    ec2.delete_network_interface(NetworkInterfaceId=eni["NetworkInterfaceId"])
    ended = ec2.delete_subnet_cidr_reservation(
        SubnetCidrReservationId=made["SubnetCidrReservationId"])
    assert ended["DeletedSubnetCidrReservation"] == made, ended


def trunk(ec2, instance, subnet):
    """A trunk on the node, a branch on the trunk."""
    made = ec2.create_network_interface(SubnetId=subnet, InterfaceType="trunk")["NetworkInterface"]
    assert made["InterfaceType"] == "trunk", made
    trunk_id = made["NetworkInterfaceId"]
    attached = ec2.attach_network_interface(
        InstanceId=instance, NetworkInterfaceId=trunk_id, DeviceIndex=3, NetworkCardIndex=0)
    wait("the trunk", lambda: described(ec2, trunk_id)["Attachment"]["Status"] == "attached")
    branch = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]
    branch = branch["NetworkInterfaceId"]
    association = ec2.associate_trunk_interface(
        BranchInterfaceId=branch, TrunkInterfaceId=trunk_id, VlanId=7)["InterfaceAssociation"]
    assert (association["VlanId"], association["InterfaceProtocol"]) == (7, "VLAN"), association
    shown = described(ec2, branch)
    assert (shown["InterfaceType"], shown["Status"]) == ("branch", "associated"), shown
    by_trunk = [{"Name": "trunk-interface-association.trunk-interface-id", "Values": [trunk_id]}]
    listed = ec2.describe_trunk_interface_associations(Filters=by_trunk)["InterfaceAssociations"]
    assert listed == [association], listed
    refused("InvalidNetworkInterface.InUse", ec2.associate_trunk_interface,
            BranchInterfaceId=branch, TrunkInterfaceId=trunk_id, VlanId=8)
    ended = ec2.disassociate_trunk_interface(AssociationId=association["AssociationId"])
    assert ended["Return"], ended
    ec2.delete_network_interface(NetworkInterfaceId=branch)
    ec2.detach_network_interface(AttachmentId=attached["AttachmentId"])
    wait("the detach", lambda: described(ec2, trunk_id)["Status"] == "available")
    ec2.delete_network_interface(NetworkInterfaceId=trunk_id)
    kinds = [{"Name": "interface-type", "Values": ["trunk", "branch"]}]
    assert ec2.describe_network_interfaces(Filters=kinds)["NetworkInterfaces"] == []


def adapters(ec2, instance, subnet):
    """An adapter alone has no address, and does not come to a running instance."""
    made = ec2.create_network_interface(SubnetId=subnet, InterfaceType="efa-only")
    made = made["NetworkInterface"]
    assert made["InterfaceType"] == "efa-only" and "PrivateIpAddress" not in made, made
    assert made["PrivateIpAddresses"] == [] and made["Ipv6Addresses"] == [], made
    refused("IncorrectState", ec2.attach_network_interface, InstanceId=instance, DeviceIndex=1,
            NetworkInterfaceId=made["NetworkInterfaceId"])
    ec2.delete_network_interface(NetworkInterfaceId=made["NetworkInterfaceId"])
    refused("InvalidParameterValue", ec2.create_network_interface, SubnetId=subnet,
            InterfaceType="lambda")


def leftovers(ec2, subnet):
    """What an elected collector asks for."""
    tags = [{"Key": "node.k8s.amazonaws.com/instance_id", "Value": "i-0"},
            {"Key": "cluster.k8s.amazonaws.com/name", "Value": "mine"}]
    made = []
    for number in range(6):
        eni = ec2.create_network_interface(
            SubnetId=subnet, Description=f"aws-K8S-i-{number}",
            TagSpecifications=[{"ResourceType": "network-interface", "Tags": tags}])
        made.append(eni["NetworkInterface"]["NetworkInterfaceId"])
    ec2.create_tags(Resources=made[:1],
                    Tags=[{"Key": "cluster.k8s.amazonaws.com/name", "Value": "theirs"}])
    vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    filters = [{"Name": "tag-key", "Values": ["node.k8s.amazonaws.com/instance_id"]},
               {"Name": "tag:cluster.k8s.amazonaws.com/name", "Values": ["mine"]},
               {"Name": "status", "Values": ["available"]},
               {"Name": "description", "Values": ["aws-K8S-*"]},
               {"Name": "vpc-id", "Values": [vpc]}]

    def found():
        pages = ec2.get_paginator("describe_network_interfaces")
        pages = pages.paginate(Filters=filters, PaginationConfig={"PageSize": 5})
        return {e["NetworkInterfaceId"] for page in pages for e in page["NetworkInterfaces"]}

    wait("what is left", lambda: found() == set(made[1:]))
    for eni in made:
        ec2.delete_network_interface(NetworkInterfaceId=eni)


def main():
    ec2 = boto3.client(
        "ec2", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="y",
        config=Config(retries={"mode": "standard", "total_max_attempts": 1}))
    instance, mac = imds("instance-id"), imds("mac")
    names = {t["Value"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]
             for t in s["Tags"] if t["Key"] == "Name"}
    ipv6(ec2, mac, names["a"])
    fragments(ec2, names["b"], names["a"])
    trunk(ec2, instance, names["a"])
    adapters(ec2, instance, names["a"])
    leftovers(ec2, names["a"])
    refused("InvalidInstanceType", ec2.describe_instance_types, InstanceTypes=["z9.mystery"])
    print("PASS with boto3", boto3.__version__)


main()
