#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use serde_json::{Value, json};

fn result() -> AddResult {
    AddResult {
        interfaces: vec![
            Interface {
                name: "eni0d7763386da".into(),
                mac: Some("02:00:00:00:00:01".into()),
                mtu: Some(9001),
                ..Interface::default()
            },
            Interface {
                name: "eth0".into(),
                mac: Some("02:00:00:00:00:02".into()),
                mtu: Some(9001),
                sandbox: Some("/run/netns/a".into()),
                ..Interface::default()
            },
        ],
        ips: vec![IpConfig {
            version: None,
            address: "10.0.1.7/32".parse().unwrap(),
            gateway: Some("169.254.1.1".parse().unwrap()),
            interface: Some(1),
        }],
        routes: vec![
            Route {
                scope: Some(253),
                mtu: Some(9001),
                ..Route::direct("169.254.1.1/32".parse().unwrap())
            },
            Route::via("0.0.0.0/0".parse().unwrap(), "169.254.1.1".parse().unwrap()),
        ],
        dns: Dns::default(),
    }
}

fn encoded(version: SpecVersion) -> Value {
    serde_json::from_slice(&result().to_json(version)).unwrap()
}

#[test]
fn a_result_of_0_3_and_0_4_names_the_family_of_each_address() {
    for version in [SpecVersion::V0_3_0, SpecVersion::V0_3_1, SpecVersion::V0_4_0] {
        assert_eq!(
            encoded(version),
            json!({
                "cniVersion": version.as_str(),
                "interfaces": [
                    {"name": "eni0d7763386da", "mac": "02:00:00:00:00:01"},
                    {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/a"},
                ],
                "ips": [{
                    "version": "4", "address": "10.0.1.7/32",
                    "gateway": "169.254.1.1", "interface": 1,
                }],
                "routes": [{"dst": "169.254.1.1/32"}, {"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
                "dns": {},
            })
        );
    }
}

#[test]
fn a_result_of_1_0_drops_the_family() {
    assert_eq!(
        encoded(SpecVersion::V1_0_0),
        json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "eni0d7763386da", "mac": "02:00:00:00:00:01"},
                {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/a"},
            ],
            "ips": [{"address": "10.0.1.7/32", "gateway": "169.254.1.1", "interface": 1}],
            "routes": [{"dst": "169.254.1.1/32"}, {"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
            "dns": {},
        })
    );
}

#[test]
fn a_result_of_1_1_has_mtu_and_scope() {
    assert_eq!(
        encoded(SpecVersion::V1_1_0),
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "eni0d7763386da", "mac": "02:00:00:00:00:01", "mtu": 9001},
                {
                    "name": "eth0", "mac": "02:00:00:00:00:02", "mtu": 9001,
                    "sandbox": "/run/netns/a",
                },
            ],
            "ips": [{"address": "10.0.1.7/32", "gateway": "169.254.1.1", "interface": 1}],
            "routes": [
                {"dst": "169.254.1.1/32", "mtu": 9001, "scope": 253},
                {"dst": "0.0.0.0/0", "gw": "169.254.1.1"},
            ],
            "dns": {},
        })
    );
}

#[test]
fn a_result_keeps_everything_that_a_version_can_express() {
    for version in SpecVersion::ALL {
        let read: AddResult = serde_json::from_slice(&result().to_json(version)).unwrap();
        assert_eq!(read, result().in_words_of(version));
    }
}

#[test]
fn appending_keeps_each_address_on_its_own_link() {
    let mut chained = result();
    chained.dns.nameservers.push("10.0.0.2".into());
    chained.append(result());
    assert_eq!(chained.interfaces.len(), 4);
    assert_eq!(chained.ips.iter().map(|ip| ip.interface).collect::<Vec<_>>(), [Some(1), Some(3)]);
    assert_eq!(chained.dns.nameservers, ["10.0.0.2"]);
}

#[test]
fn only_the_addresses_of_the_pods_own_interface_count() {
    let mut chained = result();
    chained.append(AddResult {
        interfaces: vec![Interface {
            name: "v4if0".into(),
            sandbox: Some("/run/netns/a".into()),
            ..Interface::default()
        }],
        ips: vec![IpConfig {
            version: None,
            address: "169.254.172.9/22".parse().unwrap(),
            gateway: None,
            interface: Some(0),
        }],
        ..AddResult::default()
    });
    let ours: Vec<String> =
        chained.addresses_of("eth0").map(|ip| ip.address.addr().to_string()).collect();
    assert_eq!(ours, ["10.0.1.7"]);
}
