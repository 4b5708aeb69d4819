#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;

/// Any bytes; `AFTER` is whether a record counts after a damaged one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line<const AFTER: bool>(Vec<u8>);

impl<const AFTER: bool> Record for Line<AFTER> {
    const HEADER: &'static [u8] = b"lines 1\n";
    const LONGEST: usize = 64;
    const COUNTS_AFTER_DAMAGE: bool = AFTER;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        (!payload.is_empty()).then(|| Self(payload.to_vec()))
    }
}

fn lines<const AFTER: bool>() -> Vec<Line<AFTER>> {
    [&b"one"[..], b"two\n00000003 ", &[0, 1, 2, 255, b'\n'], b"four"]
        .map(|bytes| Line(bytes.to_vec()))
        .into()
}

fn image<R: Record>(records: &[R]) -> Vec<u8> {
    super::image(records).unwrap()
}

/// The number of records that are whole in the first `length` bytes.
fn whole<R: Record>(records: &[R], length: usize) -> usize {
    (0..=records.len()).rev().find(|n| image(&records[..*n]).len() <= length).unwrap_or(0)
}

fn a_cut_loses_the_last_record<const AFTER: bool>() {
    let (records, bytes) = (lines::<AFTER>(), image(&lines::<AFTER>()));
    for cut in Line::<AFTER>::HEADER.len()..=bytes.len() {
        let read = decode::<Line<AFTER>>(&bytes[..cut]);
        let whole = whole(&records, cut);
        assert_eq!(read.records, records[..whole], "cut {cut}");
        let at = image(&records[..whole]).len();
        let torn = Damage::TornTail { at, bytes: cut - at };
        assert_eq!(read.damage, (cut > at).then_some(torn), "cut {cut}");
    }
}

#[test]
fn a_truncated_file_yields_its_whole_records() {
    a_cut_loses_the_last_record::<true>();
    a_cut_loses_the_last_record::<false>();
}

#[test]
fn a_changed_byte_costs_one_record_if_later_ones_count() {
    let records = lines::<true>();
    let bytes = image(&records);
    for at in Line::<true>::HEADER.len()..image(&records[..records.len() - 1]).len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        let hurt = whole(&records, at);
        let mut rest = records.clone();
        rest.remove(hurt);
        let read = decode::<Line<true>>(&bad);
        assert_eq!(read.records, rest, "byte {at}");
        let start = image(&records[..hurt]).len();
        let bytes = image(&records[..=hurt]).len() - start;
        assert_eq!(read.damage, Some(Damage::Corrupt { at: start, bytes }), "byte {at}");
    }
}

#[test]
fn a_changed_byte_ends_a_file_whose_later_records_do_not_count() {
    let records = lines::<false>();
    let bytes = image(&records);
    for at in Line::<false>::HEADER.len()..image(&records[..records.len() - 1]).len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        let hurt = whole(&records, at);
        let read = decode::<Line<false>>(&bad);
        assert_eq!(read.records, records[..hurt], "byte {at}");
        let start = image(&records[..hurt]).len();
        let damage = Damage::Corrupt { at: start, bytes: bytes.len() - start };
        assert_eq!(read.damage, Some(damage), "byte {at}");
    }
}

#[test]
fn bytes_that_a_power_cut_left_blank_are_a_torn_tail() {
    let records = lines::<false>();
    let mut bytes = image(&records[..2]);
    let at = bytes.len();
    bytes.resize(at + 40, 0);
    let read = decode::<Line<false>>(&bytes);
    assert_eq!(read.records, records[..2]);
    assert_eq!(read.damage, Some(Damage::TornTail { at, bytes: 40 }));
}

/// The frame of a payload that [`encode`] refuses.
fn foreign_frame(payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{:08x} {:08x} ", payload.len(), crc32(payload)).into_bytes();
    bytes.extend_from_slice(payload);
    bytes.push(b'\n');
    bytes
}

#[test]
fn a_payload_that_is_too_long_or_no_record_is_damage() {
    for payload in [vec![b'x'; 65], Vec::new()] {
        let mut bytes = [Line::<true>::HEADER, &foreign_frame(&payload)].concat();
        encode(&Line::<true>(b"next".to_vec()), &mut bytes).unwrap();
        let read = decode::<Line<true>>(&bytes);
        assert_eq!(read.records, [Line(b"next".to_vec())]);
        assert!(matches!(read.damage, Some(Damage::Corrupt { at: 8, .. })), "{:?}", read.damage);
    }
}

#[test]
fn a_record_that_a_reader_would_refuse_is_not_encoded() {
    let line = |length| Line::<false>(vec![b'x'; length]);
    let mut bytes = image(&[line(64)]);
    let before = bytes.clone();
    let fault = encode(&line(65), &mut bytes).unwrap_err();
    assert_eq!((fault, &bytes), (TooLong { bytes: 65, limit: 64 }, &before));
    assert_eq!(super::image(&[line(1), line(65)]), Err(fault));
    for word in ["65 bytes", "limit is 64", "restart"] {
        assert!(fault.to_string().contains(word), "{fault}");
    }
    encode(&line(1), &mut bytes).unwrap();
    assert_eq!(decode::<Line<false>>(&bytes).records, [line(64), line(1)]);
}

#[test]
fn a_file_of_another_version_yields_nothing() {
    for file in [&b""[..], b"lines", b"lines 2\n", b"{}"] {
        let read = decode::<Line<true>>(file);
        assert_eq!((read.records.len(), read.damage), (0, Some(Damage::Foreign)));
    }
}
