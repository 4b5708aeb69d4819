#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::{super::nftables::parse, *};
use config_model::TableId;

fn marks(held: &[(u8, u32)]) -> BTreeMap<Ipv4Addr, Mark> {
    let mark = |table| Mark::of_table(TableId(table)).unwrap();
    held.iter().map(|(host, table)| (Ipv4Addr::new(10, 0, 0, *host), mark(*table))).collect()
}

/// The output of `nft -j list table ip ferrule-sources` (1.0.6) for these marks.
fn listed(held: &BTreeMap<Ipv4Addr, Mark>) -> Listed {
    let elements: Vec<String> = held
        .iter()
        .map(|(of, mark)| format!(r#"["{of}", {{"goto": {{"target": "{}"}}}}]"#, chain_of(*mark)))
        .collect();
    let map = format!(
        r#"{{"map": {{"family": "ip", "name": "by-address", "table": "ferrule-sources",
            "type": "ipv4_addr", "handle": 4, "map": "verdict", "elem": [{}]}}}}"#,
        elements.join(", ")
    );
    let mut entries = vec![map];
    for chain in chains(held) {
        let hook = chain.hook.map_or_else(String::new, |hook| {
            let Hook { kind, at, priority } = hook;
            format!(r#", "type": "{kind}", "hook": "{at}", "prio": {priority}, "policy": "accept""#)
        });
        entries.push(format!(r#"{{"chain": {{"name": "{}"{hook}}}}}"#, chain.name));
        for rule in &chain.rules {
            let comment = rule.comment();
            entries.push(format!(
                r#"{{"rule": {{"chain": "{}", "comment": "{comment}", "expr": []}}}}"#,
                chain.name
            ));
        }
    }
    parse(&format!(r#"{{"nftables": [{}]}}"#, entries.join(", "))).unwrap()
}

#[test]
fn the_table_is_added_whole_rests_and_is_deleted_whole() {
    let held = marks(&[(5, 2), (6, 3), (7, 3)]);
    let script = plan(&held, None).unwrap();
    assert!(script.contains("elements = { 10.0.0.5 : goto mark-0x100, 10.0.0.6 : goto mark-0x200"));
    assert!(script.contains("meta mark set meta mark & 0xffffc0ff | 0x100"), "{script}");
    assert_eq!(plan(&held, Some(&listed(&held))), None);
    assert_eq!(seen(Some(&listed(&held))), held);
    assert_eq!(plan(&marks(&[]), None), None);
    let gone = plan(&marks(&[]), Some(&listed(&held))).unwrap();
    assert_eq!(gone, "delete table ip ferrule-sources\n");
}

#[test]
fn a_new_or_removed_address_changes_one_element() {
    let script = plan(&marks(&[(5, 2), (8, 3)]), Some(&listed(&marks(&[(5, 2), (6, 3)]))));
    assert_eq!(
        script.unwrap(),
        "delete element ip ferrule-sources by-address { 10.0.0.6 }\n\
         add element ip ferrule-sources by-address { 10.0.0.8 : goto mark-0x200 }\n"
    );
}

#[test]
fn a_new_or_removed_eni_and_a_foreign_change_replace_the_whole_table() {
    let held = marks(&[(5, 2), (6, 3)]);
    for other in [marks(&[(5, 2)]), marks(&[(5, 2), (6, 3), (9, 4)])] {
        let script = plan(&held, Some(&listed(&other))).unwrap();
        assert!(script.starts_with("add table"), "{script}");
    }
    let mut without_rule = listed(&held);
    without_rule.chains.get_mut("before-routing").unwrap().rules.clear();
    assert!(plan(&held, Some(&without_rule)).unwrap().starts_with("add table"));
    assert_eq!(seen(Some(&without_rule)), BTreeMap::new(), "it marks nothing");
    let mut without_map = listed(&held);
    without_map.marks = None;
    assert!(plan(&held, Some(&without_map)).unwrap().starts_with("add table"));
}
