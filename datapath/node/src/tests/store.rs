//! What lies on the disk.

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
    records.iter().for_each(|record| encode(record, &mut bytes));
    bytes
}

#[test]
fn a_file_cut_off_anywhere_tells_its_whole_records() {
    let all = records();
    let ends: Vec<usize> = (0..=all.len()).map(|many| file(&all[..many]).len()).collect();
    let bytes = file(&all);
    for end in HEADER.len()..=bytes.len() {
        let recovered = decode(&bytes[..end]);
        let whole = ends.iter().filter(|is| **is <= end).count() - 1;
        assert_eq!(recovered.records, all[..whole]);
        match recovered.damage {
            None => assert!(ends.contains(&end)),
            damage => assert!(matches!(damage, Some(Damage::TornTail { .. })), "{end}: {damage:?}"),
        }
    }
    assert_eq!(decode(b"another file").damage, Some(Damage::Foreign));
}

#[test]
fn a_byte_that_is_another_is_found_and_nothing_behind_it_counts() {
    let all = records();
    let bytes = file(&all);
    for at in HEADER.len()..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x20;
        let recovered = decode(&bad);
        assert!(recovered.damage.is_some(), "byte {at}");
        assert!(all.starts_with(&recovered.records) && recovered.records.len() < all.len());
    }
}

#[test]
fn what_is_written_anew_is_what_was_held() {
    let first = replay(records());
    assert_eq!(first.stopped, None);
    assert_eq!((first.held.pods.len(), first.held.policies.len(), first.local.len()), (2, 1, 1));
    let again = replay(decode(&file(&image(&first.held, &first.local))).records);
    assert_eq!((again.held, again.local), (first.held, first.local));
}

#[test]
fn records_that_make_no_sense_stop_at_what_did() {
    let mut all = records();
    all.push(Record::Part(part(2, vec![entry(2)]).encode_to_vec()));
    all.push(Record::Ended { uid: "u-9".into() });
    let replayed = replay(all);
    assert!(replayed.stopped.is_some_and(|why| why.contains("generation 2")));
    assert_eq!((replayed.held.pods.len(), replayed.local.len()), (2, 1));
}
