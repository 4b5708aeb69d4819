//! The traffic matrix.

use crate::{
    Test,
    lab::{TestLab, ip, ip_batch},
};
use lab_fabric::{
    NicProfile,
    probe::{self, ProbePlan, ProbePod, ProbeReport, Reason},
};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("pods_on_two_nodes_and_four_enis_reach_each_other", pods_reach_each_other),
    ("a_missing_rule_is_named_as_the_cause", a_missing_rule_is_named),
    ("a_small_mtu_on_the_way_is_found", a_small_mtu_is_found),
    ("every_pair_of_many_pods_is_probed", every_pair_of_many_pods_is_probed),
];

/// Two nodes of `enis` ENIs with `each` pods each, all wired.
fn house(enis: u16, each: u8) -> (TestLab, ProbePlan) {
    let mut lab = TestLab::empty();
    let mut pods = Vec::new();
    for (subnet, node) in [(1, "a"), (2, "b")] {
        lab.want_node(node, NicProfile::EthN, &format!("10.0.{subnet}.10"));
        for device in 0..enis {
            let base = 10 + device * 40;
            let own: Vec<String> =
                (1..=each).map(|n| format!("10.0.{subnet}.{}", base + u16::from(n))).collect();
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            lab.want_eni(node, device, &format!("10.0.{subnet}.{base}"), &own);
            pods.extend(own.iter().map(|address| (node, device, ip(address))));
        }
    }
    lab.apply();
    for node in ["a", "b"] {
        (1..enis).for_each(|device| lab.route_eni(node, device));
    }
    let mut probed = Vec::new();
    for (node, device, address) in pods {
        let netns = format!("pod-{address}");
        lab.wire_pod(node, &netns, &address.to_string(), device);
        let name = format!("default/{netns}");
        let address = address.into();
        probed.push(ProbePod { name, node: node.into(), netns, address });
    }
    let enis = lab.wanted.enis.clone().into_iter().collect();
    (lab, ProbePlan::full(probed, enis))
}

fn run(lab: &TestLab, plan: &ProbePlan) -> ProbeReport {
    probe::run(&lab.fabric, plan).unwrap()
}

fn pods_reach_each_other() {
    let (lab, plan) = house(2, 2);
    let report = run(&lab, &plan);
    assert!(report.passed(), "{report:#?}");
    assert_eq!((report.pods.tried, report.pods.reached), (56, 56));
    assert_eq!((report.node_to_pod.reached, report.pod_to_node.reached), (16, 16));
    assert_eq!(report.tcp.reached, 20);
    let counters = lab.fabric.counters().unwrap();
    assert!(counters.drops.values().all(|count| count.packets == 0), "{counters:?}");
    for pod in &plan.pods {
        let holder = plan.enis.iter().find(|(_, e)| e.holds(pod.address)).unwrap();
        assert!(
            counters.enis[&holder.0].sources[&ip(&pod.address.to_string())].packets > 0,
            "{pod:?}"
        );
    }
}

fn a_missing_rule_is_named() {
    let (lab, mut plan) = house(2, 1);
    plan.patience = Duration::from_millis(200);
    plan.tcp_pairs = 2;
    let victim = ip("10.0.1.51");
    ip_batch(&lab.node("a"), "rule del pref 1536 from 10.0.1.51 lookup 2\n");
    let report = run(&lab, &plan);
    assert!(!report.passed());
    for failure in report.failures {
        assert!(
            [failure.from.address, failure.to.address].contains(&victim.into()),
            "{failure:#?}"
        );
        let because = failure.because.join("\n");
        assert!(because.contains("no rule 1536 from 10.0.1.51 to table 2 on node a"), "{because}");
        assert!(because.contains("packets from 10.0.1.51 that left by eni-a0"), "{because}");
    }
}

fn a_small_mtu_is_found() {
    let (lab, mut plan) = house(1, 1);
    plan.patience = Duration::from_millis(300);
    plan.tcp_pairs = 0;
    ip_batch(&lab.node("a"), "link set eth0 mtu 1500\n");
    let report = run(&lab, &plan);
    let found = report.failures.iter().any(|failure| {
        failure.from.address == std::net::IpAddr::from(ip("10.0.1.11"))
            && matches!(failure.reason, Reason::FragmentationNeeded { mtu: 1500, .. })
    });
    assert!(found, "{report:#?}");
}

fn every_pair_of_many_pods_is_probed() {
    let (lab, plan) = house(4, 11);
    let report = run(&lab, &plan);
    assert!(report.passed(), "{:#?}", report.failures.first());
    assert_eq!(report.pods.reached, 88 * 87);
    println!("88 pods, {} pairs: {} ms", report.pods.tried, report.took_ms);
}
