//! The records of the policy journal.

use super::{entry, part, policy};
use crate::{
    LocalPod, PodId,
    store::{Damage, HEADER, Record, decode, encode, image, replay},
};
use prost::Message as _;

fn started() -> LocalPod {
    let pod = PodId { uid: "u-9".into(), namespace: "shop".into(), name: "web-9".into() };
    let addresses = ["10.0.0.9", "fd00::9"].map(|text| text.parse().unwrap());
    LocalPod { pod, container: "c-9".into(), addresses: addresses.into() }
}

fn records() -> Vec<Record> {
    let told = |generation, changes| Record::Part(part(generation, changes).encode_to_vec());
    vec![
        Record::Begun { epoch: vec![1; 16] },
        told(1, policy(1, &[0, 1])),
        told(2, vec![entry(0), entry(1)]),
        Record::Started(started()),
        Record::Ended { uid: "u-8".into() },
    ]
}

fn file(records: &[Record]) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    records.iter().for_each(|record| encode(record, &mut bytes).unwrap());
    bytes
}

#[test]
fn every_kind_of_record_is_read_back() {
    let mut all = records();
    all.push(Record::Bookmark(vec![8, 2]));
    let recovered = decode::<Record>(&file(&all));
    assert_eq!((recovered.records, recovered.damage), (all, None));
}

#[test]
fn a_record_of_an_unknown_kind_or_with_a_bad_body_is_damage() {
    for payload in [&[9_u8, 1][..], &[4, 255], &[5, 255], &[]] {
        assert!(<Record as runtime_frame::Record>::decode(payload).is_none(), "{payload:?}");
    }
    assert_eq!(decode::<Record>(b"ferrule-policy 1\n").damage, Some(Damage::Foreign));
}

#[test]
fn a_rewritten_file_holds_the_same_state() {
    let first = replay(records());
    assert_eq!(first.stopped, None);
    assert_eq!((first.held.pods.len(), first.held.policies.len(), first.local.len()), (2, 1, 1));
    let again = replay(decode(&file(&image(&first.held, &first.local))).records);
    assert_eq!((again.held, again.local), (first.held, first.local));
}

#[test]
fn replay_stops_at_a_record_that_does_not_fit() {
    let mut all = records();
    all.push(Record::Part(part(2, vec![entry(2)]).encode_to_vec()));
    all.push(Record::Ended { uid: "u-9".into() });
    let replayed = replay(all);
    assert!(replayed.stopped.is_some_and(|why| why.contains("generation 2")));
    assert_eq!((replayed.held.pods.len(), replayed.local.len()), (2, 1));
}
