//! The output of `iptables-save` and `nft -j`.

use config_model::Mark;
use routing_plan::nat::{
    Backend, NatDesired, Netfilter, Ports, Tables,
    iptables::{self, Saved},
    nftables, plan,
};
use std::fmt::Write as _;

/// A listing that is understood is the same after it is written and read again. A plan for any listing refers
/// to Ferrule's chains only.
pub fn iptables_save(data: &[u8]) {
    let Ok(saved) = std::str::from_utf8(data).map(iptables::parse) else { return };
    let Ok(saved) = saved else { return };
    assert_eq!(iptables::parse(&written(&saved)).as_ref(), Ok(&saved), "{}", written(&saved));
    let seen = Netfilter { nft: Some(saved), ..Netfilter::default() };
    for backend in Backend::ALL {
        let changes = plan(Some(&desired()), backend, &seen);
        assert!(changes.iter().all(|change| change.backend == Backend::IptablesNft), "{changes:?}");
    }
}

fn written(saved: &Saved) -> String {
    let mut text = String::new();
    for (name, table) in &saved.tables {
        let _ = writeln!(text, "*{name}");
        for chain in table.chains.keys() {
            let _ = writeln!(text, ":{chain} - [0:0]");
        }
        for (chain, rules) in &table.chains {
            for rule in rules {
                let _ = writeln!(text, "-A {chain} {rule}");
            }
        }
        let _ = writeln!(text, "COMMIT");
    }
    text
}

/// A plan for any listing refers to Ferrule's table only.
pub fn nft_list(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(listed) = nftables::parse(text) else { return };
    let tables = Tables { ours: Some(listed), predecessor: data.len().is_multiple_of(2) };
    let seen = Netfilter { nftables: Some(tables), ..Netfilter::default() };
    for desired in [None, Some(&desired())] {
        for change in plan(desired, Backend::Nftables, &seen) {
            assert_eq!(change.backend, Backend::Nftables);
            assert!(change.script.contains("table ip "), "{}", change.script);
        }
    }
}

fn desired() -> NatDesired {
    let net = |text: &str| [text.parse().expect("a range")].into();
    NatDesired {
        primary_link: "eth0".to_owned(),
        primary_address: [10, 0, 0, 10].into(),
        vpc: net("10.0.0.0/16"),
        excluded: net("192.168.0.0/24"),
        snat: Some(Ports::Hashed),
        node_ports: true,
        mark: Mark { value: 0x80, mask: 0x80 },
        veth_prefix: "eni".to_owned(),
    }
}
