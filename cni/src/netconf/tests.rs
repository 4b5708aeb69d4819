#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use serde_json::json;
use std::path::Path;

fn resolve(conf: Value) -> Result<NetConf, Fault> {
    RawConf::parse(conf.to_string().as_bytes())?.resolve()
}

fn with(key: &str, value: Value) -> Value {
    let mut conf = json!({"cniVersion": "1.0.0", "name": "aws-cni", "type": "ferrule-cni"});
    conf[key] = value;
    conf
}

#[test]
fn an_omitted_field_has_the_default_of_amazon_vpc_cni() {
    let conf = resolve(with("capabilities", json!({"io.kubernetes.cri.pod-annotations": true})));
    let conf = conf.unwrap();
    assert_eq!(conf.version, SpecVersion::V1_0_0);
    assert_eq!(conf.network, "aws-cni");
    assert_eq!((conf.mtu, conf.veth_prefix.as_str()), (9001, "eni"));
    assert_eq!(conf.add_wait, Duration::from_secs(45));
    assert_eq!(conf.socket, Path::new("/run/ferrule/ipamd.sock"));
    assert_eq!(conf.state_dir, Path::new("/var/lib/ferrule"));
    assert!(conf.prev_result.given().is_none());
}

#[test]
fn one_annotation_alone_asks_for_every_card() {
    let asked = |value: Value| {
        let annotations = json!({"k8s.amazonaws.com/nicConfig": value, "other": "canary"});
        let given = json!({"io.kubernetes.cri.pod-annotations": annotations});
        resolve(with("runtimeConfig", given)).unwrap().cards
    };
    assert_eq!(asked(json!("multi-nic-attachment")), Cards::Every);
    assert_eq!(asked(json!("Multi-NIC-attachment")), Cards::Unknown);
    assert_eq!(asked(Value::Null), Cards::First);
    for none in [json!({}), json!([]), json!("canary"), Value::Null] {
        assert_eq!(resolve(with("runtimeConfig", none)).unwrap().cards, Cards::First);
    }
}

#[test]
fn numbers_come_as_text_or_as_numbers() {
    assert_eq!(resolve(with("mtu", json!("1500"))).unwrap().mtu, 1500);
    assert_eq!(resolve(with("mtu", json!(1500))).unwrap().mtu, 1500);
    assert_eq!(resolve(with("mtu", json!(""))).unwrap().mtu, 9001);
    assert_eq!(resolve(with("addWait", json!("7"))).unwrap().add_wait, Duration::from_secs(7));
}

#[test]
fn input_that_is_no_json_object_has_code_6() {
    for input in ["", "  \n", "{", "nonsense", "[]", "\"canary\"", "7", "{\"a\":1}x", "\u{0}"] {
        let fault = RawConf::parse(input.as_bytes()).map(|_| ()).unwrap_err();
        assert_eq!(fault.code, Code::Undecodable, "{input:?}");
        assert!(!format!("{fault:?}").contains("canary"));
    }
    let deep = "[".repeat(100_000);
    assert_eq!(RawConf::parse(deep.as_bytes()).map(|_| ()).unwrap_err().code, Code::Undecodable);
}

#[test]
fn a_wrong_field_has_code_7_and_is_named_without_its_value() {
    for (key, value) in [
        ("cniVersion", json!(1)),
        ("cniVersion", Value::Null),
        ("name", Value::Null),
        ("name", json!("")),
        ("name", json!(["canary"])),
        ("mtu", json!("canary")),
        ("mtu", json!(100)),
        ("mtu", json!("9002")),
        ("mtu", json!(-1)),
        ("mtu", json!({})),
        ("addWait", json!("0")),
        ("addWait", json!(3600)),
        ("addWait", json!("canary")),
        ("vethPrefix", json!("eth")),
        ("vethPrefix", json!("lo")),
        ("vethPrefix", json!("vlan")),
        ("vethPrefix", json!("canary")),
        ("vethPrefix", json!("")),
        ("vethPrefix", json!("a/b")),
        ("vethPrefix", json!(3)),
        ("ipamdSocket", json!("canary.sock")),
        ("ipamdSocket", json!(format!("/{}", "canary".repeat(20)))),
        ("stateDir", json!("canary")),
        ("stateDir", json!(false)),
    ] {
        let fault = resolve(with(key, value.clone())).unwrap_err();
        assert_eq!(fault.code, Code::InvalidConfig, "{key} {value}");
        assert!(fault.message.starts_with(key), "{}", fault.message);
        assert!(!format!("{fault:?}").contains("canary"), "{fault:?}");
    }
}

#[test]
fn an_unknown_version_has_code_1() {
    for version in ["0.1.0", "0.2.0", "2.0.0", "canary", ""] {
        let fault = resolve(with("cniVersion", json!(version))).unwrap_err();
        assert_eq!(fault.code, Code::IncompatibleVersion, "{version}");
        assert!(!format!("{fault:?}").contains("canary"));
    }
}

#[test]
fn a_previous_result_is_read_or_known_to_be_unreadable() {
    let result = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.5/32"}], "dns": {}});
    let conf = resolve(with("prevResult", result)).unwrap();
    assert_eq!(conf.prev_result.given().unwrap().ips.len(), 1);
    for odd in [json!("canary"), json!({"ips": [{"address": "canary"}]}), json!([])] {
        let conf = resolve(with("prevResult", odd)).unwrap();
        assert!(matches!(conf.prev_result, PrevResult::Unreadable));
    }
}

#[test]
fn the_log_setting_is_read_from_an_invalid_configuration() {
    let raw =
        RawConf::parse(br#"{"mtu": {}, "pluginLogFile": "stderr", "pluginLogLevel": "WARN"}"#);
    let settings = raw.unwrap().log_settings();
    assert_eq!(settings, LogSettings { destination: Destination::Stderr, level: Level::Warn });
}
