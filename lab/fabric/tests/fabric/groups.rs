//! Security groups.

use crate::{
    Test,
    lab::{TestLab, allow, group},
};
use config_model::SecurityGroupId;
use lab_fabric::{DropReason, GroupRule, GroupSpec, Peer, Protocol, probe::Reason};
use std::{
    collections::BTreeSet,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

pub(crate) const TESTS: &[Test] = &[
    ("what_no_ingress_rule_allows_is_dropped_and_replies_pass", ingress_is_stateful),
    ("what_no_egress_rule_allows_is_dropped", egress_is_filtered),
    ("a_source_group_names_the_addresses_of_its_members", source_groups),
    ("ports_are_matched", ports_are_matched),
];

fn only_b(lab: &mut TestLab, spec: GroupSpec) {
    let id = SecurityGroupId::new("sg-b");
    lab.wanted.groups.insert(id.clone(), spec);
    lab.eni("b", 0).groups = BTreeSet::from([id]);
    lab.apply();
}

fn dropped(lab: &TestLab, reason: DropReason) -> u64 {
    lab.fabric.counters().unwrap().dropped(reason)
}

fn ingress_is_stateful() {
    let mut lab = TestLab::two_nodes();
    let egress = vec![allow(Protocol::All, "0.0.0.0/0")];
    only_b(&mut lab, GroupSpec { ingress: Vec::new(), egress });
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Err(Reason::NoReply));
    assert_eq!(dropped(&lab, DropReason::GroupIngress), 1);
    // b may open the connection and receives the answer.
    assert_eq!(lab.echo("b", "10.0.2.10", "10.0.1.10"), Ok(()));
    assert_eq!(dropped(&lab, DropReason::GroupIngress), 1);
}

fn egress_is_filtered() {
    let mut lab = TestLab::two_nodes();
    let ingress = vec![allow(Protocol::All, "0.0.0.0/0")];
    let egress = vec![allow(Protocol::All, "10.0.1.0/28")];
    only_b(&mut lab, GroupSpec { ingress, egress });
    lab.want_eni("a", 1, "10.0.1.20", &[]);
    lab.apply();
    assert_eq!(lab.echo("b", "10.0.2.10", "10.0.1.10"), Ok(()));
    assert_eq!(lab.echo("b", "10.0.2.10", "10.0.1.20"), Err(Reason::NoReply));
    assert_eq!(dropped(&lab, DropReason::GroupEgress), 1);
    // Its answers are not subject to egress rules, and metadata is not subject to groups at all.
    lab.route_eni("a", 1);
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Ok(()));
    assert_eq!(lab.echo("b", "10.0.2.10", "169.254.169.254"), Ok(()));
}

fn source_groups() {
    let mut lab = TestLab::two_nodes();
    let from_group = |group| GroupRule {
        protocol: Protocol::Icmp { kind: Some(8), code: None },
        peer: Peer::Group(group),
    };
    let ingress = vec![from_group(SecurityGroupId::new("sg-friends"))];
    only_b(&mut lab, GroupSpec { ingress, egress: Vec::new() });
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Err(Reason::NoReply));
    let friends = SecurityGroupId::new("sg-friends");
    lab.wanted.groups.insert(friends.clone(), GroupSpec::default());
    lab.eni("a", 0).groups = BTreeSet::from([group(), friends]);
    assert!(lab.apply().refiltered);
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Ok(()));
    lab.eni("a", 0).groups = BTreeSet::from([group()]);
    lab.apply();
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Err(Reason::NoReply));
}

fn ports_are_matched() {
    let mut lab = TestLab::two_nodes();
    let ingress = vec![allow(Protocol::Tcp { from: 80, to: 81 }, "10.0.1.0/24")];
    only_b(&mut lab, GroupSpec { ingress, egress: Vec::new() });
    let listen = |port| {
        let at = SocketAddr::from(([10, 0, 2, 10], port));
        lab.node("b").inside(|| TcpListener::bind(at).unwrap()).unwrap()
    };
    let connect = |port| -> io::Result<TcpStream> {
        let at = SocketAddr::from(([10, 0, 2, 10], port));
        let connect = || TcpStream::connect_timeout(&at, Duration::from_secs(1));
        lab.node("a").inside(connect).unwrap()
    };
    let _listening = [80, 81, 82].map(listen);
    assert!(connect(80).is_ok() && connect(81).is_ok());
    assert_eq!(connect(82).unwrap_err().kind(), io::ErrorKind::TimedOut);
}
