use super::*;
use std::net::Ipv4Addr;

fn desired() -> NatDesired {
    let nets = |nets: &[&str]| nets.iter().map(|net| net.parse().expect("a range")).collect();
    NatDesired {
        primary_link: "ens5".to_owned(),
        primary_address: Ipv4Addr::new(10, 0, 0, 5),
        vpc: nets(&["10.0.0.0/16", "100.64.0.0/16"]),
        excluded: nets(&["172.16.0.0/12"]),
        snat: Some(Ports::Random),
        node_ports: true,
        mark: Mark { value: 0x80, mask: 0x80 },
        veth_prefix: "eni".to_owned(),
    }
}

/// A node on which the kernel's own chains exist.
fn empty() -> Saved {
    let text = "*mangle\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n";
    parse(text).expect("it is what iptables-save prints")
}

/// The effect of `iptables-restore --noflush` on a script.
fn restore(saved: &mut Saved, script: &str) {
    let mut table = String::new();
    for line in script.lines() {
        if let Some(name) = line.strip_prefix('*') {
            name.clone_into(&mut table);
            continue;
        }
        let chains = &mut saved.tables.entry(table.clone()).or_default().chains;
        if let Some(chain) = line.strip_prefix(':') {
            let name = chain.split(' ').next().expect("a name").to_owned();
            chains.insert(name, Vec::new());
        } else if let Some(chain) = line.strip_prefix("-X ") {
            let jumps = |rule: &String| jumps_to(rule, chain);
            assert!(!chains.values().flatten().any(jumps), "{chain} is still jumped to");
            assert_eq!(chains.remove(chain), Some(Vec::new()), "{chain} is not empty");
        } else if line != "COMMIT" {
            let (verb, rest) = line.split_at(3);
            let (chain, rule) = rest.split_once(' ').expect("a chain and a rule");
            let rules = chains.get_mut(chain).unwrap_or_else(|| panic!("no chain {chain}"));
            let at = rules.iter().position(|it| it == rule);
            match verb {
                "-A " => rules.push(rule.to_owned()),
                "-D " => drop(rules.remove(at.unwrap_or_else(|| panic!("no rule {rule}")))),
                _ => panic!("{line}"),
            }
        }
    }
}

fn settle(desired: Option<&NatDesired>, saved: &mut Saved) -> String {
    let script = plan(desired, saved).unwrap_or_default();
    restore(saved, &script);
    assert_eq!(plan(desired, saved), None, "it does not rest");
    script
}

fn rules<'a>(saved: &'a Saved, table: &str, chain: &str) -> &'a [String] {
    &saved.tables[table].chains[chain]
}

#[test]
fn the_rules_equal_those_of_amazon_vpc_cni_and_rest() {
    let mut saved = empty();
    settle(Some(&desired()), &mut saved);
    assert_eq!(
        rules(&saved, "nat", "AWS-SNAT-CHAIN-0"),
        [
            "-d 10.0.0.0/16 -m comment --comment \"AWS SNAT CHAIN\" -j RETURN",
            "-d 100.64.0.0/16 -m comment --comment \"AWS SNAT CHAIN\" -j RETURN",
            "-d 172.16.0.0/12 -m comment --comment \"AWS SNAT CHAIN EXCLUSION\" -j RETURN",
            "! -o vlan+ -m comment --comment \"AWS, SNAT\" -m addrtype ! --dst-type LOCAL \
             -j SNAT --to-source 10.0.0.5 --random-fully",
        ]
    );
    assert_eq!(
        rules(&saved, "nat", "PREROUTING"),
        [
            "-i eni+ -m comment --comment \"AWS, outbound connections\" -j AWS-CONNMARK-CHAIN-0",
            "-m comment --comment \"AWS, CONNMARK\" -j CONNMARK --restore-mark --nfmask 0x80 \
             --ctmask 0x80",
        ]
    );
    assert_eq!(
        rules(&saved, "mangle", "PREROUTING")[0],
        "-i ens5 -m comment --comment \"AWS, primary ENI\" -m addrtype --dst-type LOCAL \
         --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80"
    );
    assert_eq!(rules(&saved, "mangle", "PREROUTING").len(), 3);
}

#[test]
fn any_removed_rule_of_ours_is_restored() {
    let mut whole = empty();
    settle(Some(&desired()), &mut whole);
    for (table, chains) in &whole.tables {
        for (chain, rules) in &chains.chains {
            for nth in 0..rules.len() {
                let mut saved = whole.clone();
                let of = saved.tables.get_mut(table).and_then(|it| it.chains.get_mut(chain));
                of.expect("the chain").remove(nth);
                settle(Some(&desired()), &mut saved);
                assert_eq!(saved, whole, "without rule {nth} of {chain}");
            }
        }
    }
}

#[test]
fn a_change_of_ranges_touches_the_two_chains_alone() {
    let mut saved = empty();
    settle(Some(&desired()), &mut saved);
    let mut other = desired();
    other.vpc.insert("192.168.0.0/20".parse().expect("a range"));
    let script = settle(Some(&other), &mut saved);
    assert!(!script.contains("*mangle") && !script.contains("-A POSTROUTING"), "{script}");
    assert!(script.contains(":AWS-SNAT-CHAIN-0 - [0:0]"), "{script}");
}

#[test]
fn an_excluded_range_of_all_addresses_has_no_destination() {
    let mut saved = empty();
    let excluded = ["0.0.0.0/0".parse().expect("a range")].into();
    settle(Some(&NatDesired { excluded, ..desired() }), &mut saved);
    let excluded = "-m comment --comment \"AWS SNAT CHAIN EXCLUSION\" -j RETURN";
    assert_eq!(rules(&saved, "nat", "AWS-SNAT-CHAIN-0")[2], excluded);
}

#[test]
fn rules_of_node_ports_stay_without_snat_and_no_rule_stays_without_both() {
    let mut saved = empty();
    settle(Some(&desired()), &mut saved);
    settle(Some(&NatDesired { snat: None, ..desired() }), &mut saved);
    assert!(rules(&saved, "nat", "POSTROUTING").is_empty());
    assert_eq!(saved.tables["nat"].chains.len(), 2, "chains of ours stay");
    assert_eq!(rules(&saved, "mangle", "PREROUTING").len(), 3);
    settle(Some(&NatDesired { snat: None, node_ports: false, ..desired() }), &mut saved);
    assert_eq!(saved, empty());
}

#[test]
fn rules_of_earlier_versions_are_removed_and_foreign_rules_stay() {
    let foreign = "-d 10.9.9.9/32 -j KUBE-MARK-MASQ";
    let text = format!(
        "# Generated by iptables-save\n*nat\n:PREROUTING ACCEPT [3:180]\n:POSTROUTING ACCEPT [0:0]\n\
         :AWS-SNAT-CHAIN-0 - [0:0]\n:AWS-SNAT-CHAIN-1 - [0:0]\n:KUBE-SVC-X - [0:0]\n\
         -A PREROUTING -i eni+ -m comment --comment \"AWS, outbound connections\" -m state \
         --state NEW -j AWS-CONNMARK-CHAIN-0\n\
         -A POSTROUTING -m comment --comment \"AWS SNAT CHAIN\" -j AWS-SNAT-CHAIN-0\n\
         -A POSTROUTING -m comment --comment \"somebody's AWS SNAT\" -j ACCEPT\n\
         -A AWS-SNAT-CHAIN-0 ! -d 10.0.0.0/16 -j AWS-SNAT-CHAIN-1\n\
         [7:420] -A KUBE-SVC-X {foreign}\n-A AWS-SNAT-CHAIN-1 -j ACCEPT\nCOMMIT\n"
    );
    let mut saved = parse(&text).expect("it is what iptables-save prints");
    saved.tables.entry("mangle".to_owned()).or_default();
    saved.tables.get_mut("mangle").expect("it").chains.insert("PREROUTING".into(), Vec::new());
    let script = settle(Some(&desired()), &mut saved);
    assert!(script.contains("-X AWS-SNAT-CHAIN-1"), "{script}");
    assert_eq!(rules(&saved, "nat", "KUBE-SVC-X"), [foreign]);
    assert_eq!(rules(&saved, "nat", "PREROUTING").len(), 2);
    settle(None, &mut saved);
    assert_eq!(
        rules(&saved, "nat", "POSTROUTING"),
        ["-m comment --comment \"somebody's AWS SNAT\" -j ACCEPT"]
    );
}

#[test]
fn connections_are_marked_behind_kube_proxy() {
    let mut saved = empty();
    settle(Some(&desired()), &mut saved);
    let nat = saved.tables.get_mut("nat").expect("the table");
    let services = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
    nat.chains.get_mut("PREROUTING").expect("the chain").push(services.to_owned());
    settle(Some(&desired()), &mut saved);
    assert_eq!(rules(&saved, "nat", "PREROUTING")[0], services);
    assert_eq!(rules(&saved, "nat", "PREROUTING").len(), 3);
}

#[test]
fn an_unparsable_text_changes_nothing() {
    for text in ["-A PREROUTING -j ACCEPT", "*nat\nPREROUTING", "COMMIT", "*nat\n: x"] {
        let error = parse(text).expect_err(text);
        assert!(error.to_string().contains("iptables-save"), "{error}");
    }
}
