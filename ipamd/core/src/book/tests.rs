#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use super::*;
use crate::{BlockSource, HeldAddress};
use config_model::{CardIndex, DeviceIndex, Mac};

fn eni(name: &str, device: u16) -> Eni {
    let mut eni = Eni::new(
        EniFacts {
            id: EniId::from(name),
            mac: Mac([2, 0, 0, 0, 0, 1]),
            card: CardIndex(0),
            device: DeviceIndex(device),
            subnet: "subnet-1".into(),
            subnet_cidr: Some("10.0.0.0/16".parse().unwrap()),
            subnet_cidr_v6: None,
            primary_address: Some("10.0.200.1".parse().unwrap()),
            primary_v6: None,
            kind: None,
            groups: None,
            attachment: None,
            is_primary: device == 0,
            managed: true,
            excluded: false,
            ours: device != 0,
            untagged: false,
            kept: true,
        },
        Time(0),
    );
    eni.readiness = Readiness::Ready;
    eni
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn key(pod: u32) -> PodKey {
    PodKey::new("aws-cni", format!("sandbox{pod}"), "eth0").unwrap()
}

/// Two ENIs with four addresses each, and an observation of an empty kernel.
fn book() -> AddressBook {
    let mut book = AddressBook::default();
    for (name, device, base) in [("eni-a", 0, 0), ("eni-b", 1, 10)] {
        book.add_eni(eni(name, device));
        for last in base..base + 4 {
            assert!(book.add_block(&EniId::from(name), single(address(last)), Time(0)));
        }
    }
    book.kernel_seen(Time(0), BTreeSet::new(), Time(0));
    book
}

fn hold(book: &mut AddressBook, pod: u32, address: IpAddr) {
    let holder = Assignment {
        pod: PodName { namespace: "default".into(), name: format!("web-{pod}") },
        what: AssignedResource::Addresses(vec![HeldAddress {
            address,
            source: book
                .block_of(address)
                .map_or(BlockSource::Eni("eni-x".into()), |(source, _)| source.clone()),
            card: CardIndex(0),
            device: DeviceIndex(0),
        }]),
        since: Time(0),
        lapses: None,
        host_interface: None,
        adopted: false,
    };
    book.hold(key(pod), holder);
}

fn picked(book: &AddressBook) -> Option<IpAddr> {
    book.pick(CardIndex(0)).map(|held| held.address)
}

#[test]
fn the_lowest_address_of_the_fullest_eni_is_used_first() {
    let mut book = book();
    assert_eq!(picked(&book), Some(address(0)));
    hold(&mut book, 1, address(12));
    assert_eq!(picked(&book), Some(address(10)));
    for (pod, last) in [(2, 10), (3, 11), (4, 13)] {
        hold(&mut book, pod, address(last));
    }
    assert_eq!(picked(&book), Some(address(0)));
}

#[test]
fn an_eni_that_is_not_ready_or_missing_gives_no_address_and_none_does_before_an_observation() {
    let mut book = book();
    let not_ready = Readiness::NotReady { since: Time(0), why: None, reported: false };
    book.eni_mut(&"eni-a".into()).unwrap().readiness = not_ready;
    assert_eq!(picked(&book), Some(address(10)));
    book.eni_mut(&"eni-b".into()).unwrap().missing = true;
    assert_eq!(picked(&book), None);
    let mut unseen = AddressBook::default();
    unseen.add_eni(eni("eni-a", 0));
    unseen.add_block(&"eni-a".into(), single(address(1)), Time(0));
    assert_eq!(picked(&unseen), None);
}

#[test]
fn an_address_is_free_after_its_cooldown_and_a_clean_observation() {
    let mut book = book();
    hold(&mut book, 1, address(0));
    book.release(&key(1), Time(10), Time(40)).unwrap();
    // This observation started with the release, so it does not count.
    book.kernel_seen(Time(10), BTreeSet::new(), Time(11));
    assert_eq!(book.free_ripe(Time(100)), None);
    book.kernel_seen(Time(11), BTreeSet::from([address(0)]), Time(12));
    assert_eq!(book.free_ripe(Time(100)), None);
    book.kernel_seen(Time(13), BTreeSet::new(), Time(14));
    assert_eq!(book.free_ripe(Time(39)), None);
    assert_eq!(book.free_ripe(Time(40)), Some(address(0)));
    assert_eq!(book.eni(&"eni-a".into()).unwrap().blocks.free(), 4);
}

#[test]
fn a_route_that_returns_during_the_cooldown_holds_the_address() {
    let mut book = book();
    hold(&mut book, 1, address(0));
    book.release(&key(1), Time(10), Time(40)).unwrap();
    book.kernel_seen(Time(11), BTreeSet::new(), Time(12));
    book.kernel_seen(Time(20), BTreeSet::from([address(0)]), Time(21));
    assert_eq!(book.free_ripe(Time(100)), None);
}

#[test]
fn a_free_address_in_the_kernel_is_not_assigned() {
    let mut book = book();
    book.kernel_seen(Time(5), BTreeSet::from([address(0)]), Time(6));
    assert_eq!(picked(&book), Some(address(1)));
    book.remove_block(single(address(0)));
    book.add_block(&"eni-a".into(), single(address(0)), Time(7));
    assert_eq!(picked(&book), Some(address(1)));
    book.kernel_seen(Time(8), BTreeSet::new(), Time(9));
    assert_eq!(book.free_ripe(Time(9)), Some(address(0)));
    assert_eq!(picked(&book), Some(address(0)));
}

#[test]
fn an_old_observation_does_not_undo_a_newer_one() {
    let mut book = book();
    assert!(book.kernel_seen(Time(9), BTreeSet::new(), Time(9)));
    assert!(!book.kernel_seen(Time(8), BTreeSet::from([address(0)]), Time(10)));
    assert_eq!(picked(&book), Some(address(0)));
}

#[test]
fn an_assigned_address_stays_assigned_while_its_eni_is_removed_and_added() {
    let mut book = AddressBook::default();
    book.kernel_seen(Time(0), BTreeSet::new(), Time(0));
    hold(&mut book, 1, address(0));
    book.add_eni(eni("eni-a", 0));
    book.add_block(&"eni-a".into(), single(address(0)), Time(1));
    book.add_block(&"eni-a".into(), single(address(1)), Time(1));
    assert_eq!(book.eni(&"eni-a".into()).unwrap().blocks.held(), 1);
    assert_eq!(picked(&book), Some(address(1)));
    book.remove_eni(&"eni-a".into()).unwrap();
    assert_eq!(book.holder(&key(1)).unwrap().what.addresses()[0].address, address(0));
    book.add_eni(eni("eni-a", 0));
    book.add_block(&"eni-a".into(), single(address(0)), Time(2));
    assert_eq!(picked(&book), None);
}

#[test]
fn leaving_blocks_do_not_count_and_are_not_assigned() {
    let mut book = book();
    book.set_block_state(single(address(0)), BlockState::Leaving);
    let eni = book.eni(&"eni-a".into()).unwrap();
    assert_eq!((eni.blocks.total(), eni.blocks.free(), eni.room(5)), (3, 3, 1));
    assert_eq!(picked(&book), Some(address(1)));
    book.set_block_state(single(address(0)), BlockState::Stays);
    assert_eq!(picked(&book), Some(address(0)));
}

#[test]
fn the_fuller_prefix_is_used_first() {
    let mut book = AddressBook::default();
    book.kernel_seen(Time(0), BTreeSet::new(), Time(0));
    book.add_eni(eni("eni-a", 0));
    for prefix in ["10.0.0.0/28", "10.0.0.16/28"] {
        book.add_block(&"eni-a".into(), prefix.parse().unwrap(), Time(0));
    }
    assert_eq!(book.eni(&"eni-a".into()).unwrap().blocks.free(), 32);
    hold(&mut book, 1, address(17));
    assert_eq!(picked(&book), Some(address(16)));
    hold(&mut book, 2, address(16));
    assert_eq!(picked(&book), Some(address(18)));
}

#[test]
fn the_counts_agree_with_the_uses() {
    let mut book = book();
    let mut held = Vec::new();
    for step in 0..200_u32 {
        let now = Time(u64::from(step) * 10);
        if step % 3 == 2 && !held.is_empty() {
            let pod = held.remove(usize::try_from(step).unwrap() % held.len());
            book.release(&key(pod), now, now + config_model::Span(35)).unwrap();
        } else if let Some(address) = picked(&book) {
            hold(&mut book, step, address);
            held.push(step);
        }
        book.kernel_seen(now + config_model::Span(1), BTreeSet::new(), now);
        while book.free_ripe(now).is_some() {}
        let sums = book.enis().fold((0, 0, 0), |sum, eni| {
            (
                sum.0 + eni.blocks.held(),
                sum.1 + eni.blocks.cooling(),
                sum.2 + u32::try_from(eni.blocks.free()).unwrap(),
            )
        });
        let cooling = u32::try_from(book.cooling().count()).unwrap();
        let holders = u32::try_from(book.holders().count()).unwrap();
        assert_eq!(sums, (holders, cooling, 8 - holders - cooling), "step {step}");
    }
}

#[test]
fn pods_get_the_lowest_addresses_of_a_huge_block_in_constant_memory() {
    let mut book = AddressBook::of(Unit::Ipv6Prefix);
    book.kernel_seen(Time(0), BTreeSet::new(), Time(0));
    book.add_eni(eni("eni-a", 0));
    let block: IpNet = "fd00:0:0:1:2::/80".parse().unwrap();
    book.add_block(&"eni-a".into(), block, Time(0));
    for pod in 0..1000_u32 {
        let expected = IpAddr::from(
            u128::from(pod)
                .wrapping_add(match block.addr() {
                    IpAddr::V6(first) => u128::from(first),
                    IpAddr::V4(_) => 0,
                })
                .to_be_bytes(),
        );
        assert_eq!(picked(&book), Some(expected));
        hold(&mut book, pod, expected);
    }
    let eni = book.eni(&"eni-a".into()).unwrap();
    assert_eq!(eni.blocks.runs_of(block), 1, "one run of unused addresses, however many are used");
    for pod in (0..1000).step_by(2) {
        book.release(&key(pod), Time(1), Time(2)).unwrap();
    }
    book.kernel_seen(Time(3), BTreeSet::new(), Time(3));
    while book.free_ripe(Time(3)).is_some() {}
    assert_eq!(picked(&book), Some(block.addr()));
    assert_eq!(book.eni(&"eni-a".into()).unwrap().blocks.free(), (1 << 48) - 500);
}

#[test]
fn blocks_of_the_other_family_or_larger_than_a_prefix_are_not_for_pods() {
    for (unit, other) in [
        (Unit::Address, "fd00:0:0:1:2::/80"),
        (Unit::Ipv6Prefix, "10.0.0.9/32"),
        (Unit::Prefix, "10.0.0.0/24"),
        (Unit::Ipv6Prefix, "fd00:0:0:1::/64"),
    ] {
        let mut book = AddressBook::of(unit);
        book.kernel_seen(Time(0), BTreeSet::new(), Time(0));
        book.add_eni(eni("eni-a", 0));
        assert!(!book.add_block(&"eni-a".into(), other.parse().unwrap(), Time(0)));
        assert_eq!(picked(&book), None);
    }
}
