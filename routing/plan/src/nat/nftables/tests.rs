use super::*;
use std::net::Ipv4Addr;

fn desired() -> NatDesired {
    NatDesired {
        primary_link: "ens5".to_owned(),
        primary_address: Ipv4Addr::new(10, 0, 0, 5),
        vpc: ["10.0.0.0/16".parse().expect("a range")].into(),
        excluded: ["172.16.0.0/12".parse().expect("a range")].into(),
        snat: Some(Ports::Random),
        node_ports: true,
        mark: Mark { value: 0x80, mask: 0x80 },
        veth_prefix: "eni".to_owned(),
    }
}

/// The table as `nft` would list it after the plan was carried out.
fn listed(desired: &NatDesired) -> Listed {
    let mut listed = Listed::default();
    for chain in chains(desired, Part::Whole) {
        let hook = chain.hook.map(|hook| (hook.kind.to_owned(), hook.at.to_owned(), hook.priority));
        let policy = hook.as_ref().map(|_| "accept".to_owned());
        let rules = chain.rules.iter().map(|rule| Some(rule.comment())).collect();
        listed.chains.insert(chain.name.to_string(), ListedChain { hook, policy, rules });
    }
    listed
}

/// The plan for a node with that table.
fn plan(desired: Option<&NatDesired>, ours: Option<&Listed>) -> Option<String> {
    super::plan(
        desired.map(|it| (it, Part::Whole)),
        &Tables { ours: ours.cloned(), predecessor: false },
    )
}

#[test]
fn a_table_as_desired_rests_and_any_difference_replaces_all_of_it() {
    let desired = desired();
    let right = listed(&desired);
    assert_eq!(plan(Some(&desired), Some(&right)), None);
    let script = plan(Some(&desired), None).expect("there is nothing");
    let mut wrong = vec![Listed { more: true, ..right.clone() }, Listed::default()];
    for name in right.chains.keys() {
        let of = |change: &dyn Fn(&mut ListedChain)| {
            let mut other = right.clone();
            change(other.chains.get_mut(name).expect("the chain"));
            other
        };
        wrong.push(of(&|chain| drop(chain.rules.pop())));
        wrong.push(of(&|chain| chain.rules.push(None)));
        wrong.push(of(&|chain| chain.rules.reverse()));
        wrong.push(of(&|chain| chain.hook = Some(("nat".into(), "input".into(), 0))));
        wrong.push(of(&|chain| chain.policy = Some("drop".into())));
    }
    let single = |listed: &Listed| listed.chains.values().all(|chain| chain.rules.len() == 1);
    for other in wrong.iter().filter(|other| **other != right && !single(other)) {
        assert_eq!(plan(Some(&desired), Some(other)).as_ref(), Some(&script), "{other:?}");
    }
    let address = Ipv4Addr::new(10, 0, 0, 6);
    let moved = NatDesired { primary_address: address, ..desired };
    assert!(plan(Some(&moved), Some(&right)).is_some_and(|it| it.contains("snat to 10.0.0.6")));
}

#[test]
fn the_table_without_snat_keeps_node_ports_and_without_both_is_deleted() {
    let ports = NatDesired { snat: None, ..desired() };
    let script = plan(Some(&ports), Some(&listed(&desired()))).expect("a change");
    assert!(!script.contains("snat"), "{script}");
    assert!(script.contains("node-ports"), "{script}");
    let neither = NatDesired { node_ports: false, ..ports };
    for desired in [Some(&neither), None] {
        assert_eq!(plan(desired, Some(&listed(&self::desired()))).as_deref(), Some(GONE));
        assert_eq!(plan(desired, None), None);
    }
}

const GONE: &str = "delete table ip ferrule\n";

#[test]
fn the_bits_of_others_marks_are_kept() {
    let script = plan(Some(&desired()), None).expect("a script");
    for of in ["ct", "meta"] {
        assert!(script.contains(&format!("{of} mark set {of} mark & 0xffffff7f | 0x80")));
    }
}

#[test]
fn the_list_of_nft_is_parsed() {
    let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
        {"table": {"family": "ip", "name": "ferrule", "handle": 3}},
        {"chain": {"family": "ip", "table": "ferrule", "name": "snat", "handle": 2, "type": "nat",
            "hook": "postrouting", "prio": 105, "policy": "accept"}},
        {"rule": {"family": "ip", "table": "ferrule", "chain": "snat", "handle": 4,
            "comment": "vpc 1", "expr": [{"accept": null}]}},
        {"rule": {"family": "ip", "table": "ferrule", "chain": "snat", "handle": 5, "expr": []}}]}"#;
    let listed = parse(text).expect("what nft prints");
    let chain = ListedChain {
        hook: Some(("nat".to_owned(), "postrouting".to_owned(), 105)),
        policy: Some("accept".to_owned()),
        rules: vec![Some("vpc 1".to_owned()), None],
    };
    let chains = [("snat".to_owned(), chain)].into();
    assert_eq!(listed, Listed { chains, marks: None, more: false });
    let set = r#"{"nftables": [{"set": {"name": "x"}}]}"#;
    assert!(parse(set).expect("what nft prints").more);
    assert!(parse("{}").is_err());
}

#[test]
fn the_table_beside_iptables_only_marks_connections_that_services_lead_out_of_the_vpc() {
    let beside = |desired: &NatDesired| {
        super::plan(Some((desired, Part::Services)), &Tables { ours: None, predecessor: false })
    };
    let script = beside(&desired()).expect("a script");
    let chains: Vec<&str> = script.lines().filter_map(|it| it.strip_prefix("\tchain ")).collect();
    assert_eq!(chains, ["kept {", "from-pods {"]);
    assert!(!script.contains("snat to"), "{script}");
    // Without SNAT nothing has to leave by the primary ENI but what iptables marks.
    assert_eq!(beside(&NatDesired { snat: None, ..desired() }), None);
}
