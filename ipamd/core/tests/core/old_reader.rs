//! The first readers of the checkpoint, frozen as they were: what they make of today's file.

use crate::world::{Cloud, World, key, pod, uid};
use config_model::{CardIndex, DeviceIndex, EniId, Mac, PodKey, PodName, Span, Time};
use ipamd_core::{
    BranchEni, CardLimits, Cards, Checkpoint, ClusterFact, Event, Family, Limits, PoolConfig,
    RECORD_FORMAT, Record,
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

#[derive(Debug, Deserialize)]
#[serde(tag = "r", rename_all = "snake_case")]
enum OldRecord {
    Boot {
        format: u32,
    },
    Reserved {
        key: PodKey,
        pod: PodName,
        address: Ipv4Addr,
        eni: EniId,
        #[serde(default)]
        card: CardIndex,
        device: DeviceIndex,
        lapses: Time,
    },
    Confirmed {
        key: PodKey,
        host_interface: String,
    },
    Cooling {
        address: Ipv4Addr,
        eni: EniId,
        since: Time,
        until: Time,
    },
    Leaving {
        eni: EniId,
        addresses: Vec<Ipv4Addr>,
    },
    Settled {
        addresses: Vec<Ipv4Addr>,
    },
    EniAsked {
        token: String,
        count: u16,
    },
    EniMade {
        token: String,
        eni: EniId,
    },
    EniSettled {
        token: String,
    },
    EniLeaving {
        eni: EniId,
    },
    EniLeft {
        eni: EniId,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug)]
struct OldHeld {
    pod: PodName,
    address: Ipv4Addr,
    eni: EniId,
    card: CardIndex,
    device: DeviceIndex,
    host_interface: Option<String>,
}

/// The sum of the records as the first readers compute it.
#[derive(Debug, Default)]
struct OldCheckpoint {
    held: BTreeMap<PodKey, OldHeld>,
    cooling: BTreeSet<Ipv4Addr>,
    leaving: BTreeSet<Ipv4Addr>,
    making: BTreeMap<String, u16>,
    formats: Vec<u32>,
}

impl OldCheckpoint {
    fn apply(&mut self, record: OldRecord) {
        match record {
            OldRecord::Boot { format } => self.formats.push(format),
            OldRecord::Reserved { key, pod, address, eni, card, device, lapses } => {
                assert!(lapses > Time(0));
                self.cooling.remove(&address);
                self.leaving.remove(&address);
                self.held.retain(|_, held| held.address != address);
                let host_interface = None;
                let held = OldHeld { pod, address, eni, card, device, host_interface };
                self.held.insert(key, held);
            }
            OldRecord::Confirmed { key, host_interface } => {
                if let Some(held) = self.held.get_mut(&key) {
                    held.host_interface = Some(host_interface);
                }
            }
            OldRecord::Cooling { address, eni, since, until } => {
                assert!(until >= since && !eni.as_str().is_empty());
                self.held.retain(|_, held| held.address != address);
                self.cooling.insert(address);
            }
            OldRecord::Leaving { eni, addresses } => {
                assert!(!eni.as_str().is_empty());
                self.leaving.extend(addresses);
            }
            OldRecord::Settled { addresses } => {
                for address in addresses {
                    self.leaving.remove(&address);
                    self.cooling.remove(&address);
                }
            }
            OldRecord::EniAsked { token, count } => {
                self.making.insert(token, count);
            }
            OldRecord::EniSettled { token } => {
                self.making.remove(&token);
            }
            OldRecord::EniMade { token, eni } => assert!(self.making.contains_key(&token), "{eni}"),
            OldRecord::EniLeaving { eni } | OldRecord::EniLeft { eni } => {
                assert!(!eni.as_str().is_empty());
            }
            OldRecord::Unknown => {}
        }
    }
}

/// Both the file as it was appended and as it is after compaction.
fn as_they_read_it(world: &mut World) -> [OldCheckpoint; 2] {
    world.sync();
    let compact = world.core.checkpoint().compact();
    [world.file.clone(), compact].map(|records| {
        let mut sum = OldCheckpoint::default();
        for record in records {
            let line = serde_json::to_string(&record).unwrap();
            let read = serde_json::from_str(&line);
            sum.apply(read.unwrap_or_else(|error| panic!("{error}: {line}")));
        }
        sum
    })
}

fn assert_finds_every_ipv4_pod(world: &mut World) {
    for read in as_they_read_it(world) {
        assert!(read.formats.iter().all(|format| *format == RECORD_FORMAT));
        let pods = world.snapshot().pods;
        let of_v4 = pods.iter().filter_map(|pod| Some((pod, pod.addresses.first()?)));
        let mut found = 0;
        for (pod, first) in of_v4 {
            let IpAddr::V4(address) = first.address else { continue };
            let held = read.held[&pod.key].clone();
            let eni = first.source.eni().unwrap();
            assert_eq!((&held.pod, held.address, &held.eni), (&pod.pod, address, eni));
            assert_eq!((held.card, held.device), (first.card, first.device));
            assert_eq!(held.host_interface, pod.host_interface);
            found += 1;
        }
        assert_eq!(read.held.len(), found, "they find pods that are gone");
    }
}

#[test]
fn every_ipv4_pod_is_found_beside_prefixes_cards_and_branches() {
    let mut limits = Limits::one_card(3, 5);
    limits.cards.push(CardLimits { card: CardIndex(1), enis: 2 });
    let mut cloud = Cloud::new(3, 5, 4);
    cloud.other_cards = 2;
    let node = World::node(&cloud);
    let config = PoolConfig {
        multi_nic: true,
        prefixes: true,
        warm_ip_target: Some(2),
        ..PoolConfig::default()
    };
    let mut world = World::start(config, limits, node, cloud);
    world.pass(Span::seconds(60));
    let branch = BranchEni {
        eni: "eni-b".into(),
        mac: Mac([6; 6]),
        address: Some(Ipv4Addr::new(10, 0, 9, 9)),
        address_v6: None,
        vlan: 3,
        subnet_cidr: None,
        subnet_cidr_v6: None,
    };
    let wait = Span::seconds(45);
    world.send(Event::Cluster(ClusterFact::Branch {
        pod: pod(50),
        uid: uid(50),
        branch: Some(branch),
    }));
    world.reserve_from(50, Cards::First, true, wait);
    for number in 0..30 {
        let cards = if number % 3 == 0 { Cards::All } else { Cards::First };
        world.reserve_from(number, cards, false, wait);
        world.pass(Span::seconds(5));
        assert!(world.core.inspect(&key(number)).is_some());
    }
    assert_finds_every_ipv4_pod(&mut world);
    for number in (0..30).step_by(2) {
        world.release(number);
    }
    assert_finds_every_ipv4_pod(&mut world);
    world.pass(Span::seconds(300));
    assert_finds_every_ipv4_pod(&mut world);
    world.reboot();
    assert_finds_every_ipv4_pod(&mut world);
    assert!(as_they_read_it(&mut world).iter().all(|read| read.held.is_empty()));
}

#[test]
fn the_first_readers_read_the_file_of_an_ipv6_node_as_empty() {
    let config = PoolConfig { family: Family::V6, ..PoolConfig::default() };
    let mut world = World::new(config, 2, 5, 0);
    world.pass(Span::seconds(30));
    world.reserve_all(0..5);
    world.pass(Span::seconds(5));
    world.release(1);
    assert_finds_every_ipv4_pod(&mut world);
    assert!(as_they_read_it(&mut world).iter().all(|read| read.held.is_empty()));
}

#[test]
fn records_of_the_first_format_are_read_and_written_unchanged() {
    for line in [
        r#"{"r":"boot","format":1,"boot_id":"b"}"#,
        r#"{"r":"reserved","key":{"network":"aws-cni","container_id":"c","ifname":"eth0"},"pod":{"namespace":"default","name":"web"},"address":"10.0.0.7","eni":"eni-1","card":0,"device":1,"lapses":9}"#,
        r#"{"r":"cooling","address":"10.0.0.7","eni":"eni-1","since":1,"until":2}"#,
        r#"{"r":"leaving","eni":"eni-1","addresses":["10.0.0.7"]}"#,
        r#"{"r":"settled","addresses":["10.0.0.7"]}"#,
        r#"{"r":"eni_asked","token":"t","count":3}"#,
        r#"{"r":"eni_made","token":"t","eni":"eni-2"}"#,
    ] {
        let record: Record = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), line);
        // Its compacted sum is the same record.
        let compact = Checkpoint::replay([record.clone()]).compact();
        let ends = matches!(record, Record::Settled { .. });
        let made = matches!(record, Record::EniMade { .. });
        assert!(ends || made || compact == [record], "{line}: {compact:?}");
    }
}
