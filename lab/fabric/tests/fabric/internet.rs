//! The internet gateway knows primary addresses alone.

use crate::{
    Test,
    lab::{TestLab, eni_id, ip},
};
use lab_fabric::{DropReason, INTERNET_HOST, probe::Reason, public_address_of};
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
};

pub(crate) const TESTS: &[Test] = &[
    ("a_primary_address_reaches_the_internet", a_primary_address_reaches_the_internet),
    ("a_secondary_address_does_not_and_is_counted", a_secondary_address_does_not),
    (
        "a_full_packet_gets_an_error_with_the_gateways_mtu",
        a_full_packet_gets_an_error_with_the_gateways_mtu,
    ),
    ("the_echo_service_lives_on_the_internets_host", the_echo_service),
];

fn a_primary_address_reaches_the_internet() {
    let lab = TestLab::two_nodes();
    let host = INTERNET_HOST.to_string();
    lab.reaches("a", "10.0.1.10", &host, 1500);
    lab.reaches("b", "10.0.2.10", &host, 1500);
}

fn a_secondary_address_does_not() {
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &["10.0.1.21"]);
    lab.apply();
    lab.route_eni("a", 1);
    lab.wire_pod("a", "web", "10.0.1.21", 1);
    let once = || {
        let patience = std::time::Duration::from_millis(500);
        lab_fabric::probe::echo_once(ip("10.0.1.21"), INTERNET_HOST, 100, patience).unwrap()
    };
    assert_eq!(lab.node("a").inside_pod("web", once).unwrap(), Err(Reason::NoReply));
    lab.has_dropped(DropReason::NoPublicAddress, 1);
    let counters = lab.fabric.counters().unwrap();
    assert_eq!(counters.enis[&eni_id("a", 1)].no_public_address[&ip("10.0.1.21")].packets, 1);
    assert_eq!(counters.enis[&eni_id("a", 1)].sources[&ip("10.0.1.21")].packets, 1);
    assert_eq!(counters.dropped(DropReason::SourceCheck), 0);
}

fn a_full_packet_gets_an_error_with_the_gateways_mtu() {
    let lab = TestLab::two_nodes();
    let refused = lab.echo_sized("a", "10.0.1.10", &INTERNET_HOST.to_string(), 9001);
    assert!(matches!(refused, Err(Reason::FragmentationNeeded { mtu: 1500, .. })), "{refused:?}");
}

fn the_echo_service() {
    let lab = TestLab::two_nodes();
    let host = lab.fabric.serve_internet().unwrap();
    let connect = || TcpStream::connect((INTERNET_HOST, 7)).unwrap();
    let mut stream = lab.node("a").inside(connect).unwrap();
    stream.write_all(b"over the gateway and back").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "over the gateway and back");
    drop(host);
    let again = || TcpStream::connect((INTERNET_HOST, 7));
    assert!(lab.node("a").inside(again).unwrap().is_err());
    assert_eq!(public_address_of(ip("10.0.1.10")), ip("198.18.1.10"));
}
