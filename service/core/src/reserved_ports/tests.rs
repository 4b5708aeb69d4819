#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn ports(text: &str) -> PortSet {
    text.parse().unwrap()
}

#[test]
fn a_list_of_the_kernel_is_read_and_written() {
    for (text, written) in [
        ("\n", ""),
        ("8080\n", "8080"),
        ("8080,9000-9010\n", "8080,9000-9010"),
        ("0,65535", "0,65535"),
        ("0-65535", "0-65535"),
        // No kernel writes these forms.
        ("9000-9010,8080", "8080,9000-9010"),
        ("1-3,2-5,6,6", "1-6"),
        ("65535,65534", "65534-65535"),
        ("10-65535,20-30", "10-65535"),
    ] {
        assert_eq!(ports(text).to_string(), written, "{text:?}");
    }
}

#[test]
fn a_list_with_a_bad_part_is_refused_by_this_part() {
    for (text, part) in [
        ("8080,", ""),
        (",8080", ""),
        ("8080,x", "x"),
        ("8080,65536", "65536"),
        ("9-8", "9-8"),
        ("1-2-3", "1-2-3"),
        ("-5", "-5"),
        ("8080 9000", "8080 9000"),
        ("8080, 9000", " 9000"),
    ] {
        assert_eq!(text.parse::<PortSet>(), Err(BadPorts(part.to_owned())), "{text:?}");
    }
}

#[test]
fn a_range_of_local_ports_is_two_numbers() {
    assert_eq!(PortSet::of_local_range("32768\t60999\n"), Ok(ports("32768-60999")));
    for text in ["", "32768", "60999 32768", "1 2 3", "1 65536", "a b"] {
        assert!(PortSet::of_local_range(text).is_err(), "{text:?}");
    }
}

#[test]
fn missing_ports_are_added_and_other_entries_stay() {
    let (wanted, local) = (ports("61000-65535"), ports("32768-60999"));
    for (reserved, value, added) in [
        ("", "61000-65535", "61000-65535"),
        ("8080,9000-9010", "8080,9000-9010,61000-65535", "61000-65535"),
        // Common ports, at each end and inside.
        ("60000-61999", "60000-65535", "62000-65535"),
        ("65000-65535", "61000-65535", "61000-64999"),
        ("62000,63000-63010", "61000-65535", "61000-61999,62001-62999,63011-65535"),
        // Adjacent ports.
        ("60999", "60999-65535", "61000-65535"),
    ] {
        let (value, added) = (ports(value), ports(added));
        let planned = plan_reservation(&wanted, &ports(reserved), &local);
        assert_eq!(planned, Reservation::Write { value: value.clone(), added }, "{reserved:?}");
        assert_eq!(plan_reservation(&wanted, &value, &local), Reservation::Complete);
    }
    for wider in ["61000-65535", "1024-65535", "8080,60000-65535"] {
        assert_eq!(plan_reservation(&wanted, &ports(wider), &local), Reservation::Complete);
    }
}

#[test]
fn a_node_keeps_a_port_for_processes() {
    let wanted = ports("61000-65535");
    for (reserved, local, is_written) in [
        ("", "32768-65535", true),
        ("", "60999-65535", true),
        ("", "61000-65535", false),
        ("", "62000-63000", false),
        ("50000-60999", "50000-65000", false),
    ] {
        let local = ports(local);
        let expected = Reservation::NoLocalPort { local: local.clone() };
        let planned = plan_reservation(&wanted, &ports(reserved), &local);
        assert_eq!(planned != expected, is_written, "{reserved:?} {local}");
    }
}

#[test]
fn only_ports_that_were_added_since_the_boot_are_released() {
    let added = AddedPorts::after(None, "b1", &ports("62000-65535"));
    assert_eq!(added.release("b1", &ports("8080,61000-65535")), Some(ports("8080,61000-61999")));
    assert_eq!(added.release("b1", &ports("8080")), None);
    assert_eq!(added.release("b2", &ports("61000-65535")), None);
    // A part was removed by another program, and added again.
    let more = AddedPorts::after(Some(&added), "b1", &ports("61000-63000"));
    assert_eq!(more.ports, ports("61000-65535"));
    assert_eq!(more.release("b1", &ports("61000-65535")), Some(PortSet::default()));
    let rebooted = AddedPorts::after(Some(&added), "b2", &ports("61000"));
    assert_eq!(rebooted.ports, ports("61000"));
}

#[test]
fn the_record_of_added_ports_is_read_back() {
    let added = AddedPorts::after(None, "6c1b-2", &ports("61000-61999,62001"));
    assert_eq!(added.to_string(), "6c1b-2 61000-61999,62001\n");
    assert_eq!(added.to_string().parse(), Ok(added));
    for torn in ["", "6c1b-2", "6c1b-2 61000-"] {
        assert!(torn.parse::<AddedPorts>().is_err(), "{torn:?}");
    }
}

/// Each port apart.
fn each(set: &PortSet) -> BTreeSet<u16> {
    (0..=u16::MAX).filter(|port| set.contains(*port)).collect()
}

fn sets() -> impl Strategy<Value = PortSet> {
    let bound = prop_oneof![0..40_u16, (u16::MAX - 40)..=u16::MAX];
    let range = (bound.clone(), bound).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop::collection::vec(range, 0..6).prop_map(PortSet::of)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn operations_on_ranges_are_those_on_ports((a, b) in (sets(), sets())) {
        let (ports_of_a, ports_of_b) = (each(&a), each(&b));
        prop_assert_eq!(a.count(), ports_of_a.len());
        prop_assert_eq!(a.is_empty(), ports_of_a.is_empty());
        prop_assert_eq!(each(&a.union(&b)), &ports_of_a | &ports_of_b);
        prop_assert_eq!(each(&a.without(&b)), &ports_of_a - &ports_of_b);
        prop_assert_eq!(each(&a.intersection(&b)), &ports_of_a & &ports_of_b);
        for set in [a.union(&b), a.without(&b)] {
            prop_assert_eq!(set.to_string().parse(), Ok(set));
        }
    }
}
