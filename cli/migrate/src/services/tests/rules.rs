//! The rules of kube-proxy leave a node once no connection uses them, and those of other programs stay.

use crate::services::rules::{
    Action, Flow, Frontend, Kept, NodeRules, ProxyTable, Saved, elements, plan,
};
use proptest::prelude::*;
use serde_json::json;
use std::{collections::BTreeMap, net::IpAddr};

/// Parses the output of `iptables-save`.
fn parse(variant: &str, text: &str) -> Saved {
    let mut tables: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let mut table = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('*') {
            table = name.to_owned();
            tables.entry(table.clone()).or_default();
        } else if let Some(chain) = line.strip_prefix(':') {
            let name = chain.split(' ').next().unwrap().to_owned();
            tables.get_mut(&table).unwrap().entry(name).or_default();
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let (chain, rule) = rule.split_once(' ').unwrap();
            let chains = tables.get_mut(&table).unwrap();
            chains.get_mut(chain).unwrap().push(rule.to_owned());
        }
    }
    Saved { variant: variant.to_owned(), tables }
}

/// Applies the input of `iptables-restore --noflush`, and fails as the program does.
fn restore(saved: &mut Saved, script: &str) {
    let mut table = String::new();
    for line in script.lines() {
        let chains = saved.tables.entry(table.clone()).or_default();
        if let Some(name) = line.strip_prefix('*') {
            table = name.to_owned();
        } else if let Some(chain) = line.strip_prefix(':') {
            let name = chain.split(' ').next().unwrap();
            chains.get_mut(name).unwrap().clear();
        } else if let Some(rule) = line.strip_prefix("-D ") {
            let (chain, rule) = rule.split_once(' ').unwrap();
            let rules = chains.get_mut(chain).unwrap();
            let index = rules.iter().position(|it| it == rule).unwrap();
            rules.remove(index);
        } else if let Some(name) = line.strip_prefix("-X ") {
            let used = chains.values().flatten().any(|rule| rule.ends_with(&format!("-j {name}")));
            assert!(!used, "{name} is in use");
            assert_eq!(chains.remove(name), Some(Vec::new()), "{name}");
        } else {
            assert_eq!(line, "COMMIT");
        }
    }
    saved.tables.retain(|name, _| !name.is_empty());
}

fn apply(node: &mut NodeRules, action: &Action) {
    match action {
        Action::Restore { variant, script } => {
            let saved = node.saved.iter_mut().find(|saved| saved.variant == *variant).unwrap();
            restore(saved, script);
        }
        Action::DeleteTable { family } => node.tables.retain(|table| table.family != *family),
    }
}

/// The rules of kube-proxy 1.36 in the mode iptables, beside those of a kubelet and of amazon-vpc-cni.
const SAVED: &str = r#"
*mangle
:PREROUTING ACCEPT [0:0]
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:AWS-SNAT-CHAIN-0 - [0:0]
:KUBE-EXT-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABCDEFGHIJKLMNOP - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -m comment --comment "AWS SNAT CHAIN" -j AWS-SNAT-CHAIN-0
-A AWS-SNAT-CHAIN-0 -m comment --comment "not -j KUBE-SERVICES" -j RETURN
-A KUBE-EXT-ABCDEFGHIJKLMNOP -m comment --comment "masquerade traffic" -j KUBE-MARK-MASQ
-A KUBE-EXT-ABCDEFGHIJKLMNOP -j KUBE-SVC-ABCDEFGHIJKLMNOP
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-NODEPORTS -d 127.0.0.0/8 -p tcp -m comment --comment "default/web" -m tcp --dport 30080 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j KUBE-EXT-ABCDEFGHIJKLMNOP
-A KUBE-NODEPORTS -p tcp -m comment --comment "default/web" -m tcp --dport 30080 -j KUBE-EXT-ABCDEFGHIJKLMNOP
-A KUBE-SEP-ABCDEFGHIJKLMNOP -p tcp -m comment --comment "default/web" -m tcp -j DNAT --to-destination 10.0.1.7:8080
-A KUBE-SERVICES -d 172.20.7.7/32 -p tcp -m comment --comment "default/web cluster IP" -m tcp --dport 80 -j KUBE-SVC-ABCDEFGHIJKLMNOP
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-ABCDEFGHIJKLMNOP -m comment --comment "default/web -> 10.0.1.7:8080" -j KUBE-SEP-ABCDEFGHIJKLMNOP
COMMIT
"#;

/// The same node after kube-proxy.
const LEFT: &str = r#"
*mangle
:PREROUTING ACCEPT [0:0]
:KUBE-IPTABLES-HINT - [0:0]
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:AWS-SNAT-CHAIN-0 - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A POSTROUTING -m comment --comment "AWS SNAT CHAIN" -j AWS-SNAT-CHAIN-0
-A AWS-SNAT-CHAIN-0 -m comment --comment "not -j KUBE-SERVICES" -j RETURN
COMMIT
"#;

fn node() -> NodeRules {
    let table = ProxyTable { family: "ip6".to_owned(), ..ProxyTable::default() };
    let saved = vec![parse("iptables-nft", SAVED), parse("ip6tables-nft", LEFT)];
    NodeRules { saved, tables: vec![table], ..NodeRules::default() }
}

fn flow(protocol: u8, address: &str, port: u16) -> Flow {
    Flow { protocol, address: address.parse().unwrap(), port }
}

#[test]
fn all_chains_of_kube_proxy_are_removed_and_those_of_others_stay() {
    let mut node = node();
    let first = plan(&node);
    assert_eq!((first.actions.len(), first.kept), (2, None));
    for action in &first.actions {
        apply(&mut node, action);
    }
    assert_eq!(node.saved[0].tables, parse("iptables-nft", LEFT).tables);
    assert!(plan(&node).is_clean());
}

#[test]
fn a_connection_to_a_service_keeps_the_rules() {
    let uses = [flow(6, "172.20.7.7", 80), flow(6, "10.0.0.5", 30_080)];
    for flow in uses {
        let node = NodeRules { flows: vec![flow], ..node() };
        let plan = plan(&node);
        assert_eq!(plan.kept, Some(Kept::Flows { count: 1, first: flow }));
        assert!(plan.actions.is_empty() && !plan.is_clean());
    }
    // A host port of the plugin portmap, another protocol, another port.
    let others = [flow(6, "10.0.0.5", 8080), flow(17, "172.20.7.7", 80), flow(6, "172.20.7.7", 81)];
    let node = NodeRules { flows: others.to_vec(), ..node() };
    assert_eq!(plan(&node).kept, None);
}

#[test]
fn a_connection_to_a_frontend_of_nftables_keeps_the_rules() {
    let mut node = node();
    let address: IpAddr = "fd00::7".parse().unwrap();
    let of_cluster = Frontend { address: Some(address), protocol: 17, port: 53 };
    node.tables[0].frontends.insert(of_cluster);
    node.flows = vec![flow(17, "fd00::7", 53)];
    assert!(matches!(plan(&node).kept, Some(Kept::Flows { count: 1, .. })));
}

#[test]
fn a_running_kube_proxy_keeps_its_rules() {
    let mut node = NodeRules { is_proxy_running: true, ..node() };
    assert_eq!(plan(&node).kept, Some(Kept::KubeProxyRuns));
    node.saved = vec![parse("iptables-nft", LEFT)];
    node.tables.clear();
    assert!(plan(&node).is_clean(), "there are no rules");
}

#[test]
fn a_rule_of_another_program_keeps_the_chains_that_it_uses() {
    let text = SAVED.replace(
        "-A AWS-SNAT-CHAIN-0 -m comment --comment \"not -j KUBE-SERVICES\" -j RETURN",
        "-A AWS-SNAT-CHAIN-0 -j KUBE-MARK-MASQ",
    );
    let node = NodeRules { saved: vec![parse("iptables-nft", &text)], ..NodeRules::default() };
    let plan = plan(&node);
    let Some(Kept::Foreign { rule }) = plan.kept else { panic!("{plan:?}") };
    assert_eq!(rule, "iptables-nft -t nat -A AWS-SNAT-CHAIN-0 -j KUBE-MARK-MASQ");
}

#[test]
fn a_node_without_rules_is_clean_whatever_its_connections_are() {
    let saved = vec![parse("iptables-nft", LEFT)];
    let flows = vec![flow(6, "172.20.7.7", 80)];
    let clean = NodeRules { saved, flows, ..NodeRules::default() };
    assert!(plan(&clean).is_clean() && !clean.has_rules());
    assert!(node().has_rules(), "its connections are needed");
}

#[test]
fn the_maps_of_nftables_have_the_frontends() {
    let document = json!({ "nftables": [
        { "metainfo": { "json_schema_version": 1 } },
        { "map": { "family": "ip", "name": "service-ips", "table": "kube-proxy", "elem": [
            [{ "concat": ["172.20.0.10", "udp", 53] }, { "goto": { "target": "service-A" } }],
            [
                { "elem": { "val": { "concat": ["172.20.0.1", "tcp", 443] }, "comment": "default/kubernetes" } },
                { "goto": { "target": "service-B" } },
            ],
        ] } },
        { "map": { "family": "ip", "name": "service-nodeports", "table": "kube-proxy", "elem": [
            [{ "concat": ["sctp", 30868] }, { "goto": { "target": "external-C" } }],
        ] } },
        { "map": { "family": "ip", "name": "empty", "table": "kube-proxy" } },
    ] });
    let of = |address: Option<&str>, protocol, port| Frontend {
        address: address.map(|it| it.parse().unwrap()),
        protocol,
        port,
    };
    let expected =
        [of(None, 132, 30_868), of(Some("172.20.0.1"), 6, 443), of(Some("172.20.0.10"), 17, 53)];
    assert_eq!(elements(&document), Ok(expected.into()));
    let odd = json!({ "nftables": [{ "map": { "elem": [[{ "concat": ["tcp"] }, {}]] } }] });
    assert!(elements(&odd).is_err(), "an element without a port");
}

proptest! {
    /// The removal converges and rests after an interruption between any two transactions, and spares foreign chains.
    #[test]
    fn a_removal_converges_after_any_interruption(
        services in 0_u16..20,
        foreign in proptest::collection::btree_set("[A-Z]{3,9}", 0..6),
        applied in 0_usize..3,
    ) {
        let mut text = String::from("*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n");
        for number in 0..services {
            text += &format!(":KUBE-SVC-{number:016} - [0:0]\n:KUBE-SEP-{number:016} - [0:0]\n");
        }
        for name in &foreign {
            text += &format!(":X-{name} - [0:0]\n");
        }
        text += "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n";
        for number in 0..services {
            text += &format!("-A KUBE-SERVICES -d 172.20.0.{number}/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-{number:016}\n");
            text += &format!("-A KUBE-SVC-{number:016} -j KUBE-SEP-{number:016}\n");
        }
        for name in &foreign {
            text += &format!("-A PREROUTING -j X-{name}\n-A X-{name} -j RETURN\n");
        }
        let saved = ["iptables-legacy", "iptables-nft", "ip6tables-nft"].map(|it| parse(it, &text));
        let mut node = NodeRules { saved: saved.to_vec(), ..node() };
        for action in plan(&node).actions.iter().take(applied) {
            apply(&mut node, action);
        }
        for action in &plan(&node).actions {
            apply(&mut node, action);
        }
        prop_assert!(plan(&node).is_clean());
        for saved in &node.saved {
            let nat = &saved.tables["nat"];
            prop_assert_eq!(nat.len(), foreign.len() + 1);
            prop_assert_eq!(nat["PREROUTING"].len(), foreign.len());
        }
    }
}
