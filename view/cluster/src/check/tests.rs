#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;

fn site(number: usize) -> Site {
    Site {
        node: format!("n{number}"),
        address: Some(format!("10.0.0.{number}")),
        probe: Some(format!("probe-{number}")),
        targets: vec![format!("10.0.1.{number}")],
        why_not: None,
        host_probe: None,
    }
}

fn around() -> Around {
    Around {
        port: 7777,
        services: vec!["172.20.0.9".to_owned()],
        service_port: 80,
        external: vec!["198.51.100.9".to_owned()],
        balancer: vec!["203.0.113.9".to_owned()],
        node_port: Some(30007),
        host_port: None,
        name: "kubernetes.default.svc".to_owned(),
        internet: None,
    }
}

fn good(tries: Vec<(Column, Try)>) -> Vec<(Column, Try, Outcome)> {
    let outcome = |column, how| Outcome {
        good: true,
        micros: (how == How::Udp).then_some(if column == Column::SameNode { 78 } else { 1250 }),
        mtu: (how == How::Large).then_some(9001),
        ..Outcome::default()
    };
    let with = |(column, it): (Column, Try)| {
        let outcome = outcome(column, it.how);
        (column, it, outcome)
    };
    tries.into_iter().map(with).collect()
}

#[test]
fn each_node_tries_its_own_target_and_those_of_others_over_tcp_and_udp() {
    let all = [site(1), site(2), site(3)];
    let tries = tries(&all[0], &all, &around());
    let of = |column| -> Vec<String> {
        let those = tries.iter().filter(|(of, _)| *of == column);
        those.map(|(_, it)| format!("{:?} {}", it.how, it.to)).collect()
    };
    assert_eq!(of(Column::SameNode), ["Http 10.0.1.1:7777", "Udp 10.0.1.1:7777"]);
    assert_eq!(of(Column::OtherNodes).len(), 4);
    assert_eq!(of(Column::NodePort), ["Http 10.0.0.1:30007", "Http 10.0.0.2:30007"]);
    assert_eq!(of(Column::Host), ["Tcp 10.0.0.1:10250"]);
    assert!(of(Column::Internet).is_empty(), "it was not asked for");
    let alone = super::tries(&all[0], &all[..1], &around());
    assert!(alone.iter().all(|(column, _)| *column != Column::OtherNodes));
}

#[test]
fn in_a_large_cluster_each_node_tries_some_and_every_node_is_tried() {
    let all: Vec<Site> = (0..200).map(site).collect();
    let mut tried = std::collections::BTreeSet::new();
    for site in &all {
        let tries = tries(site, &all, &around());
        assert!(tries.len() < 40, "{}", tries.len());
        tried.extend(
            tries.into_iter().filter(|(of, _)| *of == Column::OtherNodes).map(|(_, it)| it.to),
        );
    }
    assert_eq!(tried.len(), 200);
}

#[test]
fn an_ipv6_address_has_brackets() {
    let all = [Site { targets: vec!["2001:db8::1".to_owned()], ..site(1) }];
    let tries = tries(&all[0], &all, &around());
    assert_eq!(tries[0].1.to, "[2001:db8::1]:7777");
}

#[test]
fn the_matrix_shows_failures_and_the_next_step() {
    let all = [site(1), site(2)];
    let mut matrix = Matrix::default();
    matrix.add(&all[0], Ok(good(tries(&all[0], &all, &around()))));
    assert!(matrix.is_good());
    let mut second = good(tries(&all[1], &all, &around()));
    for (column, _, outcome) in &mut second {
        if *column == Column::OtherNodes {
            *outcome = Outcome { said: "no answer within 3 s".to_owned(), ..Outcome::default() };
        }
    }
    matrix.add(&all[1], Ok(second));
    matrix.add(&site(3), Err("its pod waits: image".to_owned()));
    assert!(!matrix.is_good());
    matrix.nodes = Chosen { tested: 3, all: 1000 };
    let text = matrix.text(None).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..7],
        [
            "tested 3 of 1000 nodes; choose others with --node or --sample",
            "",
            "FROM   SAME NODE   OTHER NODES   MTU       SERVICE   NODEPORT   EXTERNALIP   LOADBALANCER   HOST   DNS   RTT (ms)",
            "n1     ok          ok            ok 9001   ok        ok         ok           ok             ok     ok    0.07 / 1.25",
            "n2     ok          FAIL 0/2      ok 9001   ok        ok         ok           ok             ok     ok    0.07 / -",
            "n3     -           -             -         -         -          -            -              -      -     -",
            "not tested: IPV6 (pods have no second address), HOSTPORT (--host-port), HOSTNETWORK (--host-network), \
             INTERNET (--internet)",
        ]
    );
    assert!(text.contains("FAIL  n2: HTTP to 10.0.1.1:7777: no answer within 3 s\n"), "{text}");
    assert!(text.contains("next: check the nodes' security groups"), "{text}");
    assert!(text.contains("FAIL  n3: its probe: its pod waits: image"), "{text}");
}

#[test]
fn a_node_whose_target_never_starts_is_a_failure() {
    let why = Some("its pod target-1 is Pending".to_owned());
    let all = [Site { targets: Vec::new(), why_not: why, ..site(1) }, site(2)];
    let mut matrix = Matrix::default();
    matrix.add(&all[0], Ok(good(tries(&all[0], &all, &around()))));
    assert!(!matrix.is_good());
    let text = matrix.text(None).to_string();
    assert!(text.contains("FAIL  n1: its pods: its pod target-1 is Pending\n"), "{text}");
}

#[test]
fn a_probe_that_does_not_answer_every_try_has_not_tried() {
    let all = [site(1), site(2)];
    let wanted = tries(&all[0], &all, &around());
    let outcomes = good(wanted.clone()).into_iter().map(|(_, _, outcome)| outcome).collect();
    assert_eq!(answered(wanted.clone(), outcomes).unwrap(), good(wanted.clone()));
    let count = wanted.len();
    let why = answered(wanted, Vec::new()).unwrap_err();
    assert!(why.starts_with(&format!("the probe answered 0 of {count} tests")), "{why}");
}

#[test]
fn a_node_port_is_tried_on_the_next_node_that_is_ready() {
    let late = Site { why_not: Some("it starts".to_owned()), ..site(2) };
    let all = [site(1), late, site(3)];
    let tries = tries(&all[0], &all, &around());
    let ports = tries.iter().filter(|(column, _)| *column == Column::NodePort);
    let to: Vec<&str> = ports.map(|(_, it)| it.to.as_str()).collect();
    assert_eq!(to, ["10.0.0.1:30007", "10.0.0.3:30007"]);
}

#[test]
fn the_ipv6_address_of_a_dual_stack_pod_has_its_own_column() {
    let dual = |number: usize| Site {
        targets: vec![format!("10.0.1.{number}"), format!("2001:db8::{number}")],
        ..site(number)
    };
    let all = [dual(1), dual(2)];
    let services = vec!["172.20.0.9".to_owned(), "fd00::9".to_owned()];
    let tries = tries(&all[0], &all, &Around { services, ..around() });
    let of = |column| -> Vec<&str> {
        tries.iter().filter(|(of, _)| *of == column).map(|(_, it)| it.to.as_str()).collect()
    };
    let ipv6 = [
        "[2001:db8::1]:7777",
        "[2001:db8::1]:7777",
        "[2001:db8::2]:7777",
        "[2001:db8::2]:7777",
        "[fd00::9]:80",
    ];
    assert_eq!(of(Column::Ipv6), ipv6);
    assert_eq!(of(Column::SameNode), ["10.0.1.1:7777", "10.0.1.1:7777"]);
    assert_eq!(of(Column::Mtu).len(), 4, "large packets go to both addresses of both pods");
    assert_eq!(of(Column::Service), ["172.20.0.9:80"]);
}

#[test]
fn a_host_port_is_tried_on_the_own_node_and_the_next() {
    let all = [site(1), site(2)];
    let tries = tries(&all[0], &all, &Around { host_port: Some(7000), ..around() });
    let ports = tries.iter().filter(|(column, _)| *column == Column::HostPort);
    let to: Vec<&str> = ports.map(|(_, it)| it.to.as_str()).collect();
    assert_eq!(to, ["10.0.0.1:7000", "10.0.0.2:7000"]);
}

#[test]
fn each_address_of_a_service_is_tried_from_a_pod_and_from_the_host_network() {
    let all = [site(1), site(2)];
    let external = vec!["198.51.100.9".to_owned(), "2001:db8:1::9".to_owned()];
    let around = Around { external, ..around() };
    let of = |tries: &[(Column, Try)], column| -> Vec<String> {
        let those = tries.iter().filter(|(of, _)| *of == column);
        those.map(|(_, it)| format!("{:?} {}", it.how, it.to)).collect()
    };
    let tries = tries(&all[0], &all, &around);
    assert_eq!(of(&tries, Column::ExternalIp), ["Http 198.51.100.9:80"]);
    assert_eq!(of(&tries, Column::LoadBalancer), ["Http 203.0.113.9:80"]);
    assert_eq!(of(&tries, Column::Ipv6), ["Http [2001:db8:1::9]:80"]);
    assert!(of(&tries, Column::HostNetwork).is_empty());
    let tries = host_tries(&all[0], &all, &around);
    let expected = [
        "Http 172.20.0.9:80",
        "Http 198.51.100.9:80",
        "Http [2001:db8:1::9]:80",
        "Http 203.0.113.9:80",
        "Http 10.0.0.1:30007",
        "Http 10.0.0.2:30007",
        "Dns kubernetes.default.svc",
    ];
    assert_eq!(of(&tries, Column::HostNetwork), expected);
    assert_eq!(tries.len(), expected.len());
}

#[test]
fn a_pod_of_the_host_network_that_does_not_start_fails_its_tests_only() {
    let all = [site(1), site(2)];
    let mut matrix = Matrix::default();
    let mut tried = good(tries(&all[0], &all, &around()));
    tried.extend(failed(host_tries(&all[0], &all, &around()), "its pod host-1 is Pending"));
    matrix.add(&all[0], Ok(tried));
    assert_eq!(matrix.rows[0].cells[&Column::HostNetwork], (0, 6));
    let failures: Vec<_> = matrix.failures.iter().map(|it| it.column).collect();
    assert_eq!(failures, [Some(Column::HostNetwork); 6]);
    let text = matrix.text(None).to_string();
    assert!(
        text.contains("FAIL  n1: HTTP to 172.20.0.9:80: its pod host-1 is Pending\n"),
        "{text}"
    );
    assert!(text.contains("--host-network"), "{text}");
}

#[test]
fn a_column_that_the_api_server_refuses_is_not_tested_and_has_the_cause() {
    let all = [site(1), site(2)];
    let mut matrix = Matrix::default();
    let around = Around { external: Vec::new(), ..around() };
    matrix.add(&all[0], Ok(good(tries(&all[0], &all, &around))));
    matrix.refused.insert(Column::ExternalIp, "external addresses are denied".to_owned());
    assert!(matrix.is_good(), "a policy of the cluster is no failure of its network");
    let text = matrix.text(None).to_string();
    assert!(text.contains("EXTERNALIP (external addresses are denied), HOSTPORT"), "{text}");
    let document = serde_json::to_value(&matrix).unwrap();
    assert_eq!(document["refused"]["external-ip"], "external addresses are denied");
}

#[test]
fn lost_large_packets_are_a_failure_with_the_size_that_passes() {
    let all = [site(1), site(2)];
    let mut matrix = Matrix::default();
    let mut tried = good(tries(&all[0], &all, &around()));
    let large = tried.iter_mut().rfind(|(column, ..)| *column == Column::Mtu).unwrap();
    let said = "packets of 9001 bytes are lost".to_owned();
    large.2 = Outcome { said, mtu: Some(1500), ..Outcome::default() };
    matrix.add(&all[0], Ok(tried));
    assert_eq!(matrix.rows[0].mtu, Some(1500));
    let text = matrix.text(None).to_string();
    assert!(text.contains("   FAIL 1/2   "), "{text}");
    assert!(text.contains("large packets to 10.0.1.2:7777: packets of 9001 bytes"), "{text}");
    assert!(text.contains("AWS_VPC_ENI_MTU"), "{text}");
}

#[test]
fn the_names_of_columns_are_those_of_the_document() {
    for column in Column::ALL {
        assert_eq!(serde_json::to_value(column).unwrap(), column.name());
    }
}
