#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::{super::nftables::parse, *};

const V4: Egress = Egress { family: Family::V4, ports: Ports::Random };
const V6: Egress = Egress { family: Family::V6, ports: Ports::Hashed };

/// The output of `nft -j list table` (1.0.6) for these rules.
fn listed(of: Egress) -> Listed {
    let mut entries = Vec::new();
    for chain in chains(of) {
        let Hook { kind, at, priority } = chain.hook.unwrap();
        entries.push(format!(
            r#"{{"chain": {{"name": "{}", "type": "{kind}", "hook": "{at}", "prio": {priority},
                "policy": "accept"}}}}"#,
            chain.name
        ));
        for rule in &chain.rules {
            entries.push(format!(
                r#"{{"rule": {{"chain": "{}", "comment": "{}", "expr": []}}}}"#,
                chain.name,
                rule.comment()
            ));
        }
    }
    parse(&format!(r#"{{"nftables": [{}]}}"#, entries.join(", "))).unwrap()
}

#[test]
fn the_table_is_added_whole_rests_and_is_deleted_whole() {
    let none = Tables::default();
    let script = plan(Some(V4), &none).unwrap();
    for line in [
        "table ip ferrule-egress {",
        "ip daddr 169.254.172.0/22 ct state new reject",
        "ip saddr 169.254.172.0/22 ip daddr 224.0.0.0/4 accept",
        "ip saddr 169.254.172.0/22 masquerade fully-random",
    ] {
        assert!(script.contains(line), "{script}");
    }
    let there = Tables { v4: Some(listed(V4)), v6: None };
    assert_eq!(plan(Some(V4), &there), None);
    assert_eq!(plan(None, &there).unwrap(), "delete table ip ferrule-egress\n");
    assert_eq!(plan(None, &none), None);
}

#[test]
fn a_change_of_the_family_replaces_the_table() {
    let there = Tables { v4: Some(listed(V4)), v6: None };
    let script = plan(Some(V6), &there).unwrap();
    assert!(script.contains("delete table ip ferrule-egress\n"), "{script}");
    assert!(script.contains("ip6 saddr fd66:6572:7275:6c65::/96 masquerade random "), "{script}");
    assert_eq!(plan(Some(V6), &Tables { v4: None, v6: Some(listed(V6)) }), None);
}

#[test]
fn any_difference_replaces_the_whole_table() {
    let spoils: [fn(&mut Listed); 4] = [
        |there| drop(there.chains.remove("to-pods")),
        |there| drop(there.chains.get_mut("to-outside").unwrap().rules.pop()),
        |there| there.chains.get_mut("to-outside").unwrap().rules.push(None),
        |there| there.chains.get_mut("to-pods").unwrap().policy = Some("drop".to_owned()),
    ];
    let whole = plan(Some(V4), &Tables::default());
    for spoil in spoils {
        let mut v4 = listed(V4);
        spoil(&mut v4);
        assert_eq!(plan(Some(V4), &Tables { v4: Some(v4), v6: None }), whole);
    }
    let other_ports = Egress { ports: Ports::Kept, ..V4 };
    let there = Tables { v4: Some(listed(other_ports)), v6: None };
    assert_eq!(plan(Some(V4), &there), whole);
}
