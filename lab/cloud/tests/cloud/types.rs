//! The table of instance types, held against a second source.

use lab_cloud::{Hypervisor, InstanceType};

#[test]
fn the_table_agrees_with_amazon_vpc_cni_on_every_type_that_both_know() {
    let mut compared = 0;
    for line in include_str!("../data/vpc-cni-limits.tsv").lines() {
        if line.starts_with('#') {
            continue;
        }
        let cells: Vec<&str> = line.split('\t').collect();
        let [name, enis, ipv4, cards, hypervisor, metal] = cells[..] else { panic!("{line}") };
        let Some(ours) = InstanceType::named(name) else { continue };
        let our_cards: Vec<String> =
            ours.cards.iter().map(|card| card.maximum_network_interfaces.to_string()).collect();
        assert_eq!(our_cards.join(","), cards, "{name}");
        assert_eq!(ours.cards[0].maximum_network_interfaces.to_string(), enis, "{name}");
        assert_eq!(ours.ipv4_per_interface.to_string(), ipv4, "{name}");
        assert_eq!(ours.bare_metal, metal == "metal", "{name}");
        // Sources differ in what they call the hypervisor of bare metal; it has none.
        if !ours.bare_metal {
            assert_eq!(ours.hypervisor.as_str(), Some(hypervisor), "{name}");
        }
        compared += 1;
    }
    assert_eq!(compared, InstanceType::all().len(), "a type of ours is not in the second source");
    assert!(compared >= 60, "{compared}");
}

#[test]
fn the_table_is_plausible_and_knows_what_people_run() {
    for kind in InstanceType::all() {
        assert!(kind.ipv4_per_interface >= 2 && !kind.cards.is_empty(), "{kind:?}");
        assert_eq!(kind.hypervisor == Hypervisor::None, kind.bare_metal, "{kind:?}");
        for (at, card) in kind.cards.iter().enumerate() {
            assert_eq!(usize::from(card.index), at, "{kind:?}");
        }
    }
    for name in [
        "t2.micro",
        "t3.medium",
        "t4g.small",
        "m4.large",
        "m5.large",
        "m5.metal",
        "m6i.large",
        "m6g.medium",
        "m7i.large",
        "m7g.large",
        "m8g.large",
        "c5.xlarge",
        "c5n.18xlarge",
        "c6i.large",
        "c7g.large",
        "r5.large",
        "r6i.large",
        "i3.large",
        "p3dn.24xlarge",
        "p4d.24xlarge",
        "p5.48xlarge",
        "trn1.32xlarge",
        "inf2.xlarge",
        "g5.xlarge",
    ] {
        assert!(InstanceType::named(name).is_some(), "{name}");
    }
    let p5 = InstanceType::named("p5.48xlarge").unwrap();
    assert_eq!((p5.cards.len(), p5.maximum_network_interfaces()), (32, 64));
    assert_eq!(InstanceType::named("z9.huge"), None);
}
