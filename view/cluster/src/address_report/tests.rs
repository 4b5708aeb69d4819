#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use crate::Width;
use proptest::prelude::*;
use serde_json::{Value, json};

fn pod(namespaced: &str, node: &str, address: &str) -> Pod {
    let (namespace, name) = namespaced.split_once('/').unwrap();
    serde_json::from_value(json!({
        "metadata": { "namespace": namespace, "name": name }, "spec": { "nodeName": node },
        "status": { "phase": "Running", "podIPs": [{ "ip": address }] },
    }))
    .unwrap()
}

fn assigned(address: &str, eni: &str, name: &str) -> Value {
    json!({ "address": address, "eni": eni, "seconds": 300,
        "pod": { "namespace": "shop", "name": name, "confirmed": true } })
}

fn subnet(available: u64) -> Value {
    json!({ "id": "subnet-1", "zone": "z-1a", "cidr": "10.0.0.0/24", "total": 251, "available": available,
        "secondsAgo": 60, "forPods": true, "inUse": true })
}

fn book(prefixes: bool, subnets: Value, enis: Value, used: Value) -> Addresses {
    serde_json::from_value(json!({ "version": "1", "phase": "running", "prefixes": prefixes,
        "subnets": subnets, "enis": enis, "used": used }))
    .unwrap()
}

fn eni(id: &str, primary: &str, blocks: &[&str]) -> Value {
    json!({ "id": id, "subnet": "subnet-1", "subnetCidr": "10.0.0.0/24", "primaryAddress": primary,
        "blocks": blocks, "managed": true, "total": 16, "assigned": 1, "free": 15 })
}

/// Two nodes with a prefix and a pod each.
fn healthy() -> AddressData {
    let of = |node: &str, eni_id: &str, primary: &str, block: &str, address: &str, name: &str| {
        let book = book(
            true,
            json!([subnet(100)]),
            json!([eni(eni_id, primary, &[block])]),
            json!([assigned(address, eni_id, name)]),
        );
        (node.to_owned(), Ok(book))
    };
    AddressData {
        pods: Some(vec![pod("shop/a", "n1", "10.0.0.17"), pod("shop/b", "n2", "10.0.0.33")]),
        answers: BTreeMap::from([
            of("n1", "eni-1", "10.0.0.4", "10.0.0.16/28", "10.0.0.17", "a"),
            of("n2", "eni-2", "10.0.0.5", "10.0.0.32/28", "10.0.0.33", "b"),
        ]),
        ..AddressData::default()
    }
}

fn change<'a>(data: &'a mut AddressData, node: &str) -> &'a mut Addresses {
    match data.answers.get_mut(node).unwrap() {
        Ok(addresses) => addresses,
        Err(why) => panic!("{why}"),
    }
}

fn kinds(data: &AddressData) -> Vec<(String, String)> {
    let findings = AddressReport::of(data).findings;
    findings.into_iter().map(|it| (it.kind, it.object)).collect()
}

fn one(kind: &str, object: &str) -> Vec<(String, String)> {
    vec![(kind.to_owned(), object.to_owned())]
}

#[test]
fn a_healthy_cluster_has_no_finding_and_its_addresses_are_a_table_and_a_tree() {
    let report = AddressReport::of(&healthy());
    assert!(report.is_good() && report.findings.is_empty(), "{:?}", report.findings);
    let narrow = report.text(Width::Narrow, None).to_string();
    let cells: Vec<Vec<&str>> = narrow
        .lines()
        .map(|line| line.split("   ").map(str::trim).filter(|it| !it.is_empty()).collect())
        .collect();
    assert_eq!(cells[0], HEADS_OF_A_TABLE);
    // 16 prefixes: 2 of nodes, and 2 with reserved addresses; EC2's count allows 6.
    let expected = [
        "subnet-1",
        "z-1a",
        "10.0.0.0/24",
        "100/251",
        "60 s ago",
        "<= 6",
        "-",
        "2",
        "2",
        "2",
        "0",
        "30",
    ];
    assert_eq!(cells[1], expected);
    let wide = report.text(Width::Wide, None).to_string();
    let tree = "  eni-1 on n1, card 0, device 0, primary 10.0.0.4: 1 assigned, 0 cooling, 15 free\n    \
                10.0.0.16/28  15 free\n      10.0.0.17  shop/a\n";
    assert!(wide.contains(tree), "{wide}");
    let check = report.findings_text().to_string();
    assert_eq!(check, "2 addresses in use, 1 subnet, 2 nodes: no problem\n");
}

const HEADS_OF_A_TABLE: [&str; 12] = [
    "SUBNET",
    "ZONE",
    "CIDR",
    "AVAILABLE",
    "COUNTED",
    "PREFIXES",
    "FULL IN",
    "NODES",
    "ENIS",
    "ASSIGNED",
    "COOLING",
    "FREE",
];

#[test]
fn an_address_of_a_pod_that_does_not_exist_is_a_leak() {
    let mut data = healthy();
    data.pods.as_mut().unwrap().remove(0);
    assert_eq!(kinds(&data), one("address_leaked", "10.0.0.17"));
    let text = AddressReport::of(&data).findings_text().to_string();
    let line = "TROUBLE  10.0.0.17: n1 has it assigned to shop/a for 5 min, which does not exist or has ended\n";
    assert!(text.starts_with(line), "{text}");
    assert!(text.contains("crictl pods --name a") && text.ends_with("1 problem\n"), "{text}");

    let mut data = healthy();
    data.pods.as_mut().unwrap()[0].status.phase = "Succeeded".to_owned();
    assert_eq!(kinds(&data), one("address_leaked", "10.0.0.17"));
    data.pods = None;
    assert!(kinds(&data).is_empty(), "without the pods no leak is known");
}

#[test]
fn an_address_that_is_in_use_twice_is_found_in_books_and_in_pods() {
    // Two books.
    let mut data = healthy();
    let other: UsedAddress = serde_json::from_value(assigned("10.0.0.17", "eni-2", "b")).unwrap();
    change(&mut data, "n2").used[0] = other;
    data.pods.as_mut().unwrap()[1] = pod("shop/b", "n2", "10.0.0.17");
    let found = AddressReport::of(&data).findings;
    assert!(
        found.iter().all(|it| (&*it.kind, &*it.object) == ("address_twice", "10.0.0.17")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|it| it.cause == "it is assigned to shop/a on n1 and shop/b on n2"),
        "{found:?}"
    );
    assert!(
        found.iter().any(|it| it.cause == "it is in the status of shop/a on n1 and shop/b on n2"),
        "{found:?}"
    );

    // A pod with the address of another pod.
    let mut data = healthy();
    data.pods.as_mut().unwrap().push(pod("shop/c", "n1", "10.0.0.17"));
    let found = AddressReport::of(&data).findings;
    assert!(
        found
            .iter()
            .any(|it| it.cause == "shop/c uses it, but the daemon of n1 has it assigned to shop/a")
    );

    // A block.
    let mut data = healthy();
    change(&mut data, "n2").enis[0].blocks.push("10.0.0.20/32".to_owned());
    assert_eq!(kinds(&data), one("block_twice", "10.0.0.20/32"));
}

#[test]
fn an_address_in_use_that_is_free_in_the_book_is_found() {
    let mut data = healthy();
    change(&mut data, "n1").used.clear();
    assert_eq!(kinds(&data), one("address_unrecorded", "10.0.0.17"));
    change(&mut data, "n1").phase = "starting: waits for EC2".to_owned();
    assert!(kinds(&data).is_empty(), "a daemon that starts does not know its addresses");
    let mut data = healthy();
    data.pods.as_mut().unwrap().push(pod("shop/branch", "n1", "10.9.0.1"));
    let mut host = pod("kube-system/proxy", "n1", "10.0.0.4");
    host.spec.host_network = true;
    data.pods.as_mut().unwrap().push(host);
    assert!(kinds(&data).is_empty());
}

#[test]
fn a_fragmented_subnet_is_a_problem_for_nodes_that_request_prefixes() {
    let mut data = healthy();
    for node in ["n1", "n2"] {
        change(&mut data, node).subnets[0].fragmented = true;
    }
    assert_eq!(kinds(&data), one("subnet_fragmented", "subnet-1"));
    let text = AddressReport::of(&data).text(Width::Narrow, None).to_string();
    assert!(text.contains("fragmented"), "{text}");
    for node in ["n1", "n2"] {
        change(&mut data, node).prefixes = false;
    }
    assert!(kinds(&data).is_empty(), "single addresses need no prefix");

    // Single addresses of nodes in each prefix, without a refusal of EC2.
    let mut data = healthy();
    let scattered = (3..15).map(|n| format!("10.0.0.{}/32", n * 16 + 5));
    change(&mut data, "n1").enis[0].blocks.extend(scattered);
    assert_eq!(kinds(&data), one("subnet_fragmented", "subnet-1"));
    assert_eq!(AddressReport::of(&data).subnets[0].free_prefixes_at_most, Some(0));
}

#[test]
fn lost_enis_and_stuck_addresses_are_found() {
    let mut data = healthy();
    let addresses = change(&mut data, "n1");
    addresses.enis[0].missing = true;
    addresses.enis[0].lost = vec!["10.0.0.16/28".to_owned()];
    let stuck =
        json!({ "address": "10.0.0.19", "eni": "eni-1", "seconds": 900, "stuckSeconds": 870 });
    addresses.used.push(serde_json::from_value(stuck).unwrap());
    let found: Vec<String> = kinds(&data).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(found, ["address_stuck", "block_lost", "eni_missing"]);
}

#[test]
fn a_filter_by_subnet_keeps_its_findings_and_a_second_look_drops_those_that_are_over() {
    let mut data = healthy();
    data.pods.as_mut().unwrap().remove(0);
    let mut other = eni("eni-9", "10.1.0.4", &["10.1.0.9/32"]);
    other["subnet"] = json!("subnet-2");
    change(&mut data, "n2").enis.push(serde_json::from_value(other).unwrap());
    let report = AddressReport::of(&data);
    assert_eq!(report.subnets.len(), 2);
    assert_eq!(report.clone().only_subnets(&["subnet-2".to_owned()]).findings, []);
    let named = ["subnet-2".to_owned(), "subnet-3".to_owned()];
    assert_eq!(report.unknown_subnet(&named), Some(&named[1]));
    assert_eq!(report.unknown_subnet(&named[..1]), None);
    let first = report.clone().only_subnets(&["subnet-1".to_owned()]);
    assert_eq!((first.subnets.len(), first.findings.len()), (1, 1));
    assert!(report.confirmed_by(&AddressReport::of(&healthy())).findings.is_empty());
}

#[test]
fn a_second_look_without_an_answer_ends_no_finding() {
    let mut data = healthy();
    data.pods.as_mut().unwrap().remove(0);
    let first = AddressReport::of(&data);
    let second = AddressData {
        pods: None,
        unasked: vec!["cannot list pods: refused".to_owned()],
        ..healthy()
    };
    let report = first.clone().confirmed_by(&AddressReport::of(&second));
    let leak = "a second look at 10.0.0.17: n1 has it assigned to shop/a for 5 min, which does not exist or has ended";
    assert_eq!(report.unasked, [leak, "cannot list pods: refused"]);
    assert!(report.findings.is_empty());

    let mut second = data.clone();
    second.answers.insert("n1".to_owned(), Err("no answer".to_owned()));
    let report = first.confirmed_by(&AddressReport::of(&second));
    assert_eq!(report.unasked, [leak, "addresses of n1: no answer"]);
}

fn node(name: &str, ready: &str, labels: Value) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    }))
    .unwrap()
}

#[test]
fn a_node_that_should_have_a_daemon_and_has_none_is_not_read() {
    let mut data = healthy();
    let fargate = json!({ "eks.amazonaws.com/compute-type": "fargate" });
    let bare = ["n1", "n2", "n3"].map(|name| node(name, "True", json!({})));
    data.nodes = Some(bare.into_iter().chain([node("f1", "True", fargate)]).collect());
    let unasked = AddressReport::of(&data).unasked;
    assert_eq!(unasked, ["addresses of n3: no Ferrule pod runs there; run ferrule status"]);
    data.named = vec!["n1".to_owned()];
    assert!(AddressReport::of(&data).unasked.is_empty(), "the user named another node");
}

#[test]
fn a_status_of_a_pod_is_old_if_its_node_is_gone_or_not_ready() {
    let twice = |nodes: Vec<Node>| {
        let mut data = healthy();
        data.pods.as_mut().unwrap().push(pod("shop/c", "n3", "10.0.0.17"));
        data.nodes = Some(nodes);
        kinds(&data)
    };
    let both = || vec![node("n1", "True", json!({})), node("n2", "True", json!({}))];
    assert!(twice(both()).is_empty(), "the node is gone");
    let with = |ready: &str| both().into_iter().chain([node("n3", ready, json!({}))]).collect();
    assert!(twice(with("Unknown")).is_empty());
    assert_eq!(twice(with("True")), one("address_twice", "10.0.0.17"));
}

#[test]
fn a_pod_that_ends_can_have_released_its_address() {
    let mut data = healthy();
    change(&mut data, "n1").used.clear();
    data.pods.as_mut().unwrap()[0].metadata.deletion_timestamp = Some("now".to_owned());
    assert!(kinds(&data).is_empty());
}

#[test]
fn exact_counts_of_large_prefixes_are_not_printed() {
    let mut data = healthy();
    let eni = &mut change(&mut data, "n1").enis[0];
    eni.blocks = vec!["2001:db8::/80".to_owned()];
    (eni.total, eni.free) = (1 << 48, (1 << 48) - 1);
    let text = AddressReport::of(&data).text(Width::Wide, None).to_string();
    assert!(text.contains("2001:db8::/80  many free"), "{text}");
    assert!(text.contains("0 cooling, many free"), "{text}");
    assert!(!text.contains("2814749767"), "{text}");
}

#[test]
fn a_daemon_without_an_answer_is_not_read_and_nothing_is_concluded_from_it() {
    let mut data = healthy();
    data.answers.insert("n1".to_owned(), Err("no answer within 10 s".to_owned()));
    let report = AddressReport::of(&data);
    assert_eq!((report.findings.len(), report.nodes), (0, 1));
    let text = report.findings_text().to_string();
    assert!(text.contains("not read: addresses of n1: no answer within 10 s"), "{text}");
}

/// Nodes with prefixes, and pods at these offsets in their node's prefixes.
fn layouts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::btree_set(0_u8..16, 0..9), 1..12)
        .prop_map(|nodes| nodes.into_iter().map(|pods| pods.into_iter().collect()).collect())
}

fn of_layout(nodes: &[Vec<u8>]) -> AddressData {
    let mut data = AddressData { pods: Some(Vec::new()), ..AddressData::default() };
    for (n, offsets) in nodes.iter().enumerate() {
        let (node, eni_id) = (format!("n{n}"), format!("eni-{n}"));
        let mut used = Vec::new();
        for offset in offsets {
            let (address, name) =
                (format!("10.0.{}.{}", n + 1, 16 + offset), format!("p{n}-{offset}"));
            used.push(assigned(&address, &eni_id, &name));
            data.pods.as_mut().unwrap().push(pod(&format!("shop/{name}"), &node, &address));
        }
        let enis = json!([eni(
            &eni_id,
            &format!("10.0.{}.4", n + 1),
            &[&format!("10.0.{}.16/28", n + 1)]
        )]);
        data.answers.insert(node, Ok(book(true, json!([]), enis, json!(used))));
    }
    data
}

proptest! {
    #[test]
    fn a_consistent_cluster_has_no_finding_and_each_planted_fault_is_the_only_one(
        nodes in layouts(), which in any::<prop::sample::Index>(),
    ) {
        let data = of_layout(&nodes);
        prop_assert_eq!(kinds(&data), Vec::new());
        let pods = data.pods.clone().unwrap();
        if pods.is_empty() {
            return Ok(());
        }
        let at = which.index(pods.len());
        let (node, address) = (pods[at].spec.node_name.clone().unwrap(), pods[at].status.pod_ips[0].ip.clone());

        let mut leak = data.clone();
        leak.pods.as_mut().unwrap().remove(at);
        prop_assert_eq!(kinds(&leak), one("address_leaked", &address));

        let mut unrecorded = data.clone();
        change(&mut unrecorded, &node).used.retain(|it| it.address != address);
        prop_assert_eq!(kinds(&unrecorded), one("address_unrecorded", &address));

        let mut twice = data.clone();
        twice.pods.as_mut().unwrap().push(pod("shop/other", "not-read", &address));
        prop_assert_eq!(kinds(&twice), one("address_twice", &address));

        let mut block = data.clone();
        let stolen = format!("{address}/32");
        let book: Addresses = book(false, json!([]), json!([eni("eni-x", "10.9.0.4", &[&stolen])]), json!([]));
        block.answers.insert("other".to_owned(), Ok(book));
        prop_assert_eq!(kinds(&block), one("block_twice", &stolen));
    }
}
