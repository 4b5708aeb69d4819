//! `prevResult`: the result of another plugin, or input that claims to be one.

use cni::{
    netconf::{PrevResult, RawConf},
    result::{AddResult, Interface, IpConfig},
    version::SpecVersion,
};
use serde_json::{Value, json};
use std::ffi::OsString;

/// The input is read, and is the same after it is written in each version's format and read again. Or an ADD
/// refuses it with code 7 before it changes anything.
pub fn run(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    match read(SpecVersion::V1_1_0, &value) {
        PrevResult::Absent => assert!(value.is_null(), "{value} counts as absent"),
        PrevResult::Unreadable => refused(&value),
        PrevResult::Given(result) => {
            SpecVersion::ALL.into_iter().for_each(|version| round_trip(&result, version));
            appended(&result);
            for link in &result.interfaces {
                assert!(result.addresses_of(&link.name).count() <= result.ips.len());
            }
        }
    }
}

fn conf(version: SpecVersion, value: &Value) -> Vec<u8> {
    let conf = json!({
        "cniVersion": version.as_str(), "name": "aws-cni", "type": "ferrule-cni",
        "prevResult": value, "pluginLogFile": "/dev/null", "ipamdSocket": "/dev/null",
    });
    conf.to_string().into_bytes()
}

fn read(version: SpecVersion, value: &Value) -> PrevResult {
    let raw = RawConf::parse(&conf(version, value)).expect("the configuration is an object");
    raw.resolve().expect("the rest of the configuration is valid").prev_result
}

fn round_trip(result: &AddResult, version: SpecVersion) {
    let written = result.to_json(version);
    let value: Value = serde_json::from_slice(&written).expect("the result is JSON");
    assert_eq!(value["cniVersion"], version.as_str());
    let PrevResult::Given(again) = read(version, &value) else {
        panic!("{value} cannot be read again")
    };
    assert_eq!(again.to_json(version), written, "{}", String::from_utf8_lossy(&written));
    if version == SpecVersion::NEWEST {
        let mut kept = result.clone();
        kept.ips.iter_mut().for_each(|ip| ip.version = None);
        assert_eq!(again, kept, "the format of 1.1.0 loses a field");
    }
}

/// Ferrule's interfaces are appended at the end, and its addresses refer to them.
fn appended(result: &AddResult) {
    let ip = IpConfig {
        version: None,
        address: "10.0.0.7/32".parse().expect("an address"),
        gateway: None,
        interface: Some(0),
    };
    let link = Interface { name: "eth0".to_owned(), ..Interface::default() };
    let ours = AddResult { interfaces: vec![link.clone()], ips: vec![ip], ..AddResult::default() };
    let mut all = result.clone();
    all.append(ours);
    let place = all.ips.last().and_then(|ip| ip.interface);
    assert_eq!(place.and_then(|place| all.interfaces.get(place)), Some(&link));
    assert_eq!(&all.ips[..result.ips.len()], &result.ips[..]);
}

fn refused(value: &Value) {
    let var = |name: &str| {
        let value = match name {
            "CNI_COMMAND" => "ADD",
            "CNI_CONTAINERID" => "c1",
            "CNI_IFNAME" => "eth0",
            "CNI_NETNS" => "/nowhere",
            "CNI_ARGS" => "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0",
            _ => return None,
        };
        Some(OsString::from(value))
    };
    let reply = cni::run(var, conf(SpecVersion::V1_1_0, value).as_slice());
    let error: Value = serde_json::from_slice(&reply.stdout).expect("an error object");
    assert!(reply.failed);
    assert_eq!(error["code"], 7, "{error}");
    let has =
        |field: &str, what: &str| error[field].as_str().is_some_and(|text| text.contains(what));
    assert!(has("msg", "prevResult") && has("details", "chain"), "{error}");
    assert!(!error.to_string().contains(crate::CANARY), "{error} repeats a value");
}
