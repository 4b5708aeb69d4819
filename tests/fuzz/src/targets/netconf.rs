//! The network configuration on standard input.

use super::judge;
use cni::{fault::Code, netconf::RawConf};
use serde_json::Value;
use std::time::Duration;

/// The input is refused with code 6, 1 or 7, or it is the same after it is printed and read again.
pub fn run(data: &[u8]) {
    let raw = match RawConf::parse(data) {
        Ok(raw) => raw,
        Err(fault) => return judge(&fault, &[Code::Undecodable]),
    };
    let resolved = raw.resolve();
    match &resolved {
        Err(fault) => judge(fault, &[Code::IncompatibleVersion, Code::InvalidConfig]),
        Ok(conf) => {
            assert_eq!(
                raw.version(),
                Some(conf.version),
                "a version for errors, another for results"
            );
            assert!(!conf.network.is_empty());
            assert!((576..=9001).contains(&conf.mtu), "MTU {}", conf.mtu);
            assert!((1..=4).contains(&conf.veth_prefix.len()), "prefix {}", conf.veth_prefix);
            assert!(conf.add_wait >= Duration::from_secs(1));
            assert!(conf.add_wait <= Duration::from_secs(180));
            assert!(conf.socket.is_absolute() && conf.socket.as_os_str().len() <= 107);
            assert!(conf.state_dir.is_absolute());
        }
    }
    let valid = raw.valid_attachments("aws-cni");
    if let Err(fault) = &valid {
        judge(fault, &[Code::InvalidConfig]);
    }
    // Another serializer prints the same JSON.
    let value: Value = serde_json::from_slice(data).expect("the input is JSON");
    let printed = RawConf::parse(value.to_string().as_bytes()).expect("the input is an object");
    assert_eq!(format!("{resolved:?}"), format!("{:?}", printed.resolve()));
    assert_eq!(raw.log_settings(), printed.log_settings());
    assert_eq!(valid, printed.valid_attachments("aws-cni"));
}
