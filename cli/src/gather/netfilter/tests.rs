//! Tests on output of the programs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

#[test]
fn chains_of_nft_have_their_hooks_policies_and_rules() {
    let text = r#"{"nftables": [
        {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"table": {"family": "ip", "name": "filter", "handle": 1}},
        {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "handle": 1,
            "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "ip", "table": "filter", "name": "OWN", "handle": 2}},
        {"rule": {"family": "ip", "table": "filter", "chain": "OWN", "handle": 3, "expr": []}},
        {"rule": {"family": "ip", "table": "filter", "chain": "OWN", "handle": 4, "expr": []}}
    ]}"#;
    let chains = of_nft(text).unwrap();
    let found: Vec<_> = chains
        .iter()
        .map(|c| (c.name.as_str(), c.hook.as_deref(), c.policy.as_deref(), c.rules))
        .collect();
    let expected = [("FORWARD", Some("forward"), Some("drop"), 0), ("OWN", None, None, 2)];
    assert_eq!(found, expected);
    assert!(of_nft("{").unwrap_err().starts_with("cannot parse the output of nft"));
}

#[test]
fn chains_of_legacy_iptables_have_their_policies_and_rules() {
    let text = "# Generated\n*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n*filter\n:FORWARD DROP [0:0]\n\
                :OWN - [0:0]\n-A FORWARD -j OWN\n-A OWN -s 10.0.0.1/32 -j ACCEPT\nCOMMIT\n";
    let found: Vec<_> = of_save(text, "ip")
        .into_iter()
        .map(|c| (c.table, c.name, c.hook, c.policy, c.rules))
        .collect();
    let chain = |table: &str, name: &str, base: Option<(&str, &str)>, rules| {
        let hook = base.map(|(hook, _)| hook.to_owned());
        let policy = base.map(|(_, policy)| policy.to_owned());
        (table.to_owned(), name.to_owned(), hook, policy, rules)
    };
    assert_eq!(
        found,
        [
            chain("nat", "OUTPUT", Some(("output", "accept")), 0),
            chain("filter", "FORWARD", Some(("forward", "drop")), 1),
            chain("filter", "OWN", None, 1),
        ]
    );
}
