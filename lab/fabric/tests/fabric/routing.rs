//! The router: gateways, subnets, the source check, the mapping of addresses.

use crate::{
    Test,
    lab::{TestLab, eni_id, ip},
};
use lab_fabric::{Applied, DropReason, probe::Reason};
use tests_eventually::eventually;

pub(crate) const TESTS: &[Test] = &[
    ("two_subnets_reach_each_other_with_full_packets", two_subnets_reach_each_other),
    ("gateways_metadata_and_endpoint_answer", gateways_metadata_and_endpoint_answer),
    ("a_spoofed_packet_is_dropped_and_counted", a_spoofed_packet_is_dropped_and_counted),
    ("without_the_check_any_source_passes", without_the_check_any_source_passes),
    ("an_address_follows_its_eni", an_address_follows_its_eni),
    ("an_unassigned_address_does_not_answer", an_unassigned_address_does_not_answer),
    ("applying_again_changes_nothing", applying_again_changes_nothing),
    ("a_broken_link_is_repaired", a_broken_link_is_repaired),
];

fn two_subnets_reach_each_other() {
    let mut lab = TestLab::two_nodes();
    lab.want_node("c", lab_fabric::NicProfile::EthN, "10.0.1.30");
    lab.apply();
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Ok(()));
    assert_eq!(lab.echo("b", "10.0.2.10", "10.0.1.10"), Ok(()));
    // A neighbor of the same subnet: the router answers its ARP.
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.1.30"), Ok(()));
    let counters = lab.fabric.counters().unwrap();
    let sent = &counters.enis[&eni_id("a", 0)].sources[&ip("10.0.1.10")];
    assert!(sent.packets >= 3 && sent.bytes >= 3 * 9001, "{sent:?}");
    assert!(counters.drops.values().all(|count| count.packets == 0), "{counters:?}");
}

fn gateways_metadata_and_endpoint_answer() {
    let lab = TestLab::two_nodes();
    for to in ["10.0.1.1", "169.254.169.254", "10.0.1.3"] {
        assert_eq!(lab.echo("a", "10.0.1.10", to), Ok(()), "{to}");
        assert_eq!(lab.echo("b", "10.0.2.10", to), Ok(()), "{to}");
    }
    let listener = lab.fabric.listen_in_vpc("169.254.169.254:80".parse().unwrap()).unwrap();
    let from = lab.node("b").inside(|| {
        let stream = std::net::TcpStream::connect("169.254.169.254:80").unwrap();
        stream.local_addr().unwrap()
    });
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer, from.unwrap());
    assert_eq!(peer.ip(), ip("10.0.2.10"));
}

fn a_spoofed_packet_is_dropped_and_counted() {
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &["10.0.1.21"]);
    lab.apply();
    // An address of eth1, leaving by eth0.
    assert_eq!(lab.echo("a", "10.0.1.21", "10.0.2.10"), Err(Reason::NoReply));
    lab.has_dropped(DropReason::SourceCheck, 1);
    let counters = lab.fabric.counters().unwrap();
    assert_eq!(counters.enis[&eni_id("a", 0)].spoofed[&ip("10.0.1.21")].packets, 1);
    assert_eq!(counters.enis[&eni_id("a", 1)].sources[&ip("10.0.1.21")].packets, 0);
    // Counters survive a change of the ruleset.
    lab.want_eni("b", 1, "10.0.2.20", &[]);
    assert!(lab.apply().refiltered);
    assert_eq!(lab.fabric.counters().unwrap().dropped(DropReason::SourceCheck), 1);
}

fn without_the_check_any_source_passes() {
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &["10.0.1.21"]);
    lab.eni("a", 0).source_dest_check = false;
    lab.apply();
    lab.route_eni("a", 1);
    lab.wire_pod("a", "web", "10.0.1.21", 1);
    let counted = |lab: &TestLab| {
        lab.fabric.counters().unwrap().enis[&eni_id("b", 0)].sources[&ip("10.0.2.10")].packets
    };
    let before = counted(&lab);
    // The reply goes to the address's own ENI; that it was sent shows that the request arrived.
    let _ = lab.echo("a", "10.0.1.21", "10.0.2.10");
    eventually("the request arrives", tests_eventually::PATIENCE, || counted(&lab) == before + 1);
    assert_eq!(lab.fabric.counters().unwrap().dropped(DropReason::SourceCheck), 0);
}

fn an_address_follows_its_eni() {
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &["10.0.1.21"]);
    lab.want_eni("b", 1, "10.0.1.40", &[]);
    lab.apply();
    lab.route_eni("a", 1);
    lab.route_eni("b", 1);
    lab.wire_pod("a", "web", "10.0.1.21", 1);
    lab.reaches("b", "10.0.2.10", "10.0.1.21", 9001);
    lab.node("a").remove_pod("web").unwrap();
    lab.eni("a", 1).secondary.clear();
    lab.eni("b", 1).secondary.insert(ip("10.0.1.21"));
    assert_eq!(lab.apply().remapped, 1);
    lab.wire_pod("b", "web", "10.0.1.21", 1);
    lab.reaches("a", "10.0.1.10", "10.0.1.21", 9001);
}

fn an_unassigned_address_does_not_answer() {
    let lab = TestLab::two_nodes();
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.99"), Err(Reason::NoReply));
    lab.has_dropped(DropReason::NoSuchAddress, 1);
    // In its own subnet the node gets no ARP answer, so its own kernel reports the error.
    let here = lab.echo("a", "10.0.1.10", "10.0.1.99");
    assert!(matches!(here, Err(Reason::NoReply | Reason::Unreachable { .. })), "{here:?}");
    assert_eq!(lab.fabric.counters().unwrap().dropped(DropReason::NoSuchAddress), 1);
}

fn applying_again_changes_nothing() {
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &["10.0.1.21", "10.0.1.22"]);
    let first = lab.apply();
    assert_eq!((first.attached, first.remapped), (vec![eni_id("a", 1)], 3));
    assert_eq!(lab.apply(), Applied::default());
}

fn a_broken_link_is_repaired() {
    let mut lab = TestLab::two_nodes();
    crate::lab::ip_batch(&lab.node("a"), "link delete eth0\n");
    assert!(lab.echo("a", "10.0.1.10", "10.0.2.10").is_err());
    assert_eq!(lab.apply().attached, [eni_id("a", 0)]);
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Ok(()));
}
