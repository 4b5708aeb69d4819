#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use config_model::{CardIndex, DeviceIndex, SubnetId};

fn eni(node: &str, device: u16, last: u8, secondary: &[u8]) -> EniSpec {
    let address = |last| Ipv4Addr::new(10, 0, 1, last);
    EniSpec {
        node: node.into(),
        card: CardIndex(0),
        device: DeviceIndex(device),
        mac: Mac([2, 0, 0, 0, 1, last]),
        subnet: SubnetId::new("subnet-1"),
        primary: address(last),
        public: None,
        secondary: secondary.iter().copied().map(address).collect(),
        prefixes: BTreeSet::new(),
        ipv6: Vec::new(),
        prefixes_v6: BTreeSet::new(),
        groups: BTreeSet::new(),
        source_dest_check: true,
    }
}

/// Does what `ip` would do with a plan.
fn carry_out(plan: &Plan, enis: &BTreeMap<&EniId, &EniSpec>, seen: &mut ObservedLinks) {
    for port in &plan.remove {
        seen.ports.remove(port);
        seen.routes.retain(|_, on| on != port);
        seen.neighbors.retain(|_, (on, _)| on != port);
    }
    for id in &plan.attach {
        seen.ports.insert(port_name(enis[id].mac), port_alias(id, enis[id]));
    }
    for line in plan.mapping.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let address: Ipv4Addr = words[2].trim_end_matches("/32").parse().unwrap();
        match (words[0], words[1]) {
            ("route", "replace") => {
                seen.routes.insert(address, words[4].to_owned());
            }
            ("route", "del") => {
                seen.routes.remove(&address).unwrap();
            }
            ("neighbor", "replace") => {
                let mac = words[4].parse().unwrap();
                seen.neighbors.insert(address, (words[6].to_owned(), mac));
            }
            ("neighbor", "del") => {
                seen.neighbors.retain(|at, (port, _)| *at != address || port != words[4])
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_step_between_desired_states_converges_and_rests() {
    let (a, b) = (EniId::new("eni-a"), EniId::new("eni-b"));
    let states = [
        vec![(&a, eni("n1", 0, 10, &[11, 12]))],
        vec![(&a, eni("n1", 0, 10, &[11])), (&b, eni("n1", 1, 20, &[12]))],
        // The address 11 moves to another ENI, which is attached elsewhere.
        vec![(&a, eni("n1", 0, 10, &[])), (&b, eni("n2", 1, 20, &[11, 12]))],
        vec![(&b, eni("n2", 1, 20, &[]))],
        vec![],
    ];
    let mut seen = ObservedLinks::default();
    for desired in &states {
        let enis: BTreeMap<&EniId, &EniSpec> = desired.iter().map(|(id, eni)| (*id, eni)).collect();
        let step = plan(&enis, &seen);
        assert_ne!(step, Plan::default());
        carry_out(&step, &enis, &mut seen);
        assert_eq!(plan(&enis, &seen), Plan::default(), "{desired:?}");
        let addresses: BTreeSet<Ipv4Addr> = enis.values().flat_map(|e| e.addresses()).collect();
        assert_eq!(seen.routes.keys().copied().collect::<BTreeSet<_>>(), addresses);
        assert_eq!(seen.neighbors.keys().copied().collect::<BTreeSet<_>>(), addresses);
    }
}

#[test]
fn an_eni_that_moves_to_another_node_is_plugged_again() {
    let id = EniId::new("eni-a");
    let (before, after) = (eni("n1", 1, 10, &[]), eni("n2", 1, 10, &[]));
    let mut seen = ObservedLinks::default();
    let enis = BTreeMap::from([(&id, &before)]);
    carry_out(&plan(&enis, &seen), &enis, &mut seen);
    let step = plan(&BTreeMap::from([(&id, &after)]), &seen);
    assert_eq!((step.remove.len(), step.attach.len(), step.unplugged.len()), (1, 1, 1));
}

#[test]
fn links_have_the_names_of_the_profile() {
    let names = |device, profile| link_names(&eni("n", device, 9, &[]), profile);
    let pair = |first: &str, last: &str| (first.to_owned(), last.to_owned());
    assert_eq!(names(0, NicProfile::EthN), pair("eth0", "eth0"));
    assert_eq!(names(2, NicProfile::NetworkManager), pair("eth2", "eth2"));
    assert_eq!(names(0, NicProfile::EnsLateRename), pair("ens5", "ens5"));
    assert_eq!(names(1, NicProfile::EnsLateRename), pair("eth1", "ens6"));
}
