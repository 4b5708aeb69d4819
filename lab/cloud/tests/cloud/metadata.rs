//! IMDS: paths, listings, lag.

use crate::world::{World, quiet};
use config_model::{EniId, Span};
use lab_cloud::{AssignPrivateIpAddresses, CloudSpec, Launch};

const ROOT: &str = "/latest/meta-data/";

fn at(world: &mut World, path: &str) -> Option<String> {
    world.imds(&format!("{ROOT}{path}"))
}

fn interface(world: &mut World, eni: &EniId, path: &str) -> Option<String> {
    let mac = world.find(eni).unwrap().mac;
    at(world, &format!("network/interfaces/macs/{mac}/{path}"))
}

#[test]
fn an_instance_finds_itself() {
    let mut world = World::new();
    let primary = world.primary();
    let node = world.node.to_string();
    let address = primary.primary_address().unwrap().to_string();
    let mac = primary.mac.to_string();
    let zone = "eu-west-1a";
    for (path, text) in [
        ("instance-id", node.as_str()),
        ("instance-type", "c5.large"),
        ("local-ipv4", &address),
        ("mac", &mac),
        ("placement/availability-zone", zone),
        ("placement/availability-zone-id", "euw1-az1"),
        ("placement/region", "eu-west-1"),
        ("iam/security-credentials/", "lab-node"),
        ("services/domain", "amazonaws.com"),
        ("tags/instance/Name", "node"),
        ("tags/instance", "Name"),
        ("security-groups", "default"),
        ("system", "nitro"),
    ] {
        assert_eq!(at(&mut world, path).as_deref(), Some(text), "{path}");
    }
    let public = primary.public_ip.unwrap().to_string();
    assert_eq!(at(&mut world, "public-ipv4"), Some(public));
    let dashed = address.replace('.', "-");
    let name = format!("ip-{dashed}.eu-west-1.compute.internal");
    assert_eq!(at(&mut world, "local-hostname"), Some(name));
}

#[test]
fn directories_are_listed_as_ec2_lists_them() {
    let mut world = World::new();
    let mac = world.primary().mac;
    assert_eq!(world.imds("/latest/").as_deref(), Some("dynamic/\nmeta-data/"));
    assert!(world.imds("/").unwrap().ends_with("\nlatest"));
    let root = at(&mut world, "").unwrap();
    for entry in ["instance-id", "mac", "network/", "placement/", "iam/", "tags/"] {
        assert!(root.lines().any(|line| line == entry), "{entry} is not in\n{root}");
    }
    assert_eq!(root.lines().collect::<Vec<_>>(), {
        let mut sorted: Vec<_> = root.lines().collect();
        sorted.sort_unstable();
        sorted
    });
    assert_eq!(at(&mut world, "network/interfaces/macs/"), Some(format!("{mac}/")));
    assert_eq!(at(&mut world, "network/interfaces/macs"), Some(format!("{mac}/")));
    let fields = at(&mut world, &format!("network/interfaces/macs/{mac}/")).unwrap();
    let wanted = [
        "device-number",
        "interface-id",
        "ipv4-associations/",
        "local-hostname",
        "local-ipv4s",
        "mac",
        "owner-id",
        "public-hostname",
        "public-ipv4s",
        "security-group-ids",
        "security-groups",
        "subnet-id",
        "subnet-ipv4-cidr-block",
        "vpc-id",
        "vpc-ipv4-cidr-block",
        "vpc-ipv4-cidr-blocks",
    ];
    assert_eq!(fields.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn a_missing_path_is_404() {
    let mut world = World::new();
    let mac = world.primary().mac;
    for path in [
        "ipv6",
        "mac/",
        "mac/x",
        "nothing",
        "network/interfaces/macs/02:00:00:00:00:00/",
        "iam/security-credentials/other",
        "tags/instance/Other",
        "spot/instance-action",
    ] {
        assert_eq!(at(&mut world, path), None, "{path}");
    }
    for field in ["ipv6s", "ipv4-prefix", "ipv6-prefix", "subnet-ipv6-cidr-blocks", "network-card"]
    {
        let path = format!("network/interfaces/macs/{mac}/{field}");
        assert_eq!(at(&mut world, &path), None, "{path}");
    }
    for path in ["/1999-01-01/meta-data/mac", "/latest/user-data", "/latest/meta-data//mac"] {
        assert_eq!(world.imds(path), None, "{path}");
    }
    let nobody = config_model::InstanceId::new("i-0");
    assert_eq!(world.cloud.imds(world.now, &nobody, "/latest/meta-data/mac"), None);
}

#[test]
fn metadata_of_an_interface_has_all_keys_that_a_cni_reads() {
    let mut world = World::of(quiet(), "p4d.24xlarge");
    let eni = world.create("a");
    let mut attach = world.attach(&eni, 1);
    attach.network_card_index = Some(2);
    world.call(attach);
    let assign = world.assign(&eni, 2);
    world.call(assign);
    world.call(AssignPrivateIpAddresses {
        network_interface_id: Some(eni.clone()),
        ipv4_prefix_count: Some(1),
        ..Default::default()
    });
    let shown = world.find(&eni).unwrap();
    let addresses: Vec<String> =
        shown.private_addresses.iter().map(|a| a.address.to_string()).collect();
    assert_eq!(addresses.len(), 3);
    for (path, text) in [
        ("interface-id", eni.to_string()),
        ("device-number", "1".to_owned()),
        ("network-card", "2".to_owned()),
        ("subnet-id", shown.subnet_id.to_string()),
        ("vpc-id", shown.vpc_id.to_string()),
        ("security-group-ids", shown.groups[0].id.to_string()),
        ("local-ipv4s", addresses.join("\n")),
        ("ipv4-prefix", shown.ipv4_prefixes[0].to_string()),
        ("subnet-ipv4-cidr-block", "10.0.0.0/20".to_owned()),
        ("vpc-ipv4-cidr-blocks", "10.0.0.0/16".to_owned()),
    ] {
        assert_eq!(interface(&mut world, &eni, path), Some(text), "{path}");
    }
}

#[test]
fn an_eni_appears_after_attach_delay_and_lag() {
    let mut spec = quiet();
    spec.timing.attach = Span::seconds(2);
    spec.timing.imds_lag = Span::seconds(30);
    let mut world = World::of(spec, "c5.large");
    // A fresh instance knows itself in spite of the lag.
    assert!(at(&mut world, "mac").is_some());
    world.pass(Span::seconds(100));
    let eni = world.attached(1);
    let mac = world.find(&eni).unwrap().mac.to_string();
    let shows = |world: &mut World| at(world, "network/interfaces/macs/").unwrap().contains(&mac);
    world.pass(Span::millis(31_999));
    assert_eq!((world.plugged(), shows(&mut world)), (2, false));
    world.pass(Span::millis(1));
    assert!(shows(&mut world));
    // Addresses lag as well, both coming and going.
    let assign = world.assign(&eni, 1);
    world.call(assign);
    world.pass(Span::seconds(29));
    assert_eq!(interface(&mut world, &eni, "local-ipv4s").unwrap().lines().count(), 1);
    world.pass(Span::seconds(1));
    assert_eq!(interface(&mut world, &eni, "local-ipv4s").unwrap().lines().count(), 2);
    // A reboot reads what is true at the boot.
    let assign = world.assign(&eni, 1);
    world.call(assign);
    world.cloud.reboot(world.now, &world.node.clone()).unwrap();
    assert_eq!(interface(&mut world, &eni, "local-ipv4s").unwrap().lines().count(), 3);
}

#[test]
fn the_identity_document_and_credentials_carry_dates_of_the_wall_clock() {
    let mut spec = quiet();
    spec.epoch_unix_ms = 1_795_225_335_000;
    let mut world = World::of(spec, "m6g.large");
    let document = world.imds("/latest/dynamic/instance-identity/document").unwrap();
    for part in [
        "\"accountId\" : \"123456789012\"",
        "\"architecture\" : \"arm64\"",
        "\"region\" : \"eu-west-1\"",
        "\"pendingTime\" : \"2026-11-21T01:42:15Z\"",
        "\"kernelId\" : null",
    ] {
        assert!(document.contains(part), "{part} is not in {document}");
    }
    let path = "iam/security-credentials/lab-node";
    let credentials = at(&mut world, path).unwrap();
    assert!(credentials.contains("\"Code\" : \"Success\""), "{credentials}");
    assert!(credentials.contains("\"Expiration\" : \"2026-11-21T07:42:15Z\""), "{credentials}");
    world.pass(Span::seconds(5 * 3600));
    let later = at(&mut world, path).unwrap();
    assert!(later.contains("\"Expiration\" : \"2026-11-21T12:42:15Z\""), "{later}");
}

#[test]
fn tags_and_role_can_be_hidden() {
    let mut world = World::new();
    let mut launch = Launch::new("quiet", "t3.nano", world.subnet("tiny"));
    launch.metadata_tags = false;
    launch.role = None;
    let node = world.cloud.launch(world.now, launch).unwrap();
    world.node = node;
    for path in ["tags/instance/Name", "tags/", "iam/", "public-ipv4"] {
        assert_eq!(at(&mut world, path), None, "{path}");
    }
}

#[test]
fn the_default_spec_is_consistent() {
    let mut world = World::of(CloudSpec::two_zones(), "c5.xlarge");
    world.pass(Span::seconds(10));
    assert!(at(&mut world, "mac").is_some());
}
