//! The checkpoint's file: whole, torn, or something else.

use ipamd_core::{
    Checkpoint, Record,
    frame::{Damage, HEADER, decode, encode},
};

/// A file; or, if it does not begin as one, records in JSON, one a line, to be made a file of.
pub fn run(data: &[u8]) {
    if data.starts_with(HEADER) {
        return whole(&decode::<Record>(data).records, data.len());
    }
    let lines = data.split(|byte| *byte == b'\n');
    let records: Vec<Record> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    whole(&records, data.len());
    let foreign = decode::<Record>(data);
    assert!(foreign.records.is_empty(), "records from no checkpoint");
    assert_eq!(foreign.damage, Some(Damage::Foreign));
}

/// Records are the same from a file; from a file that was cut off come the first of them, and the
/// damage is told; their sum is the same from the shortest list of that meaning.
fn whole(records: &[Record], hint: usize) {
    let mut file = HEADER.to_vec();
    records.iter().for_each(|record| encode(record, &mut file));
    let read = decode::<Record>(&file);
    assert_eq!((read.records.as_slice(), read.damage), (records, None));
    let cut = file.len() - hint.wrapping_mul(31) % file.len();
    let torn = decode::<Record>(&file[..cut]);
    assert!(records.starts_with(&torn.records), "a torn file tells what was never written");
    if cut >= HEADER.len() {
        let told: Vec<u8> = torn.records.iter().fold(HEADER.to_vec(), |mut bytes, record| {
            encode(record, &mut bytes);
            bytes
        });
        let tail = Damage::TornTail { at: told.len(), bytes: cut - told.len() };
        assert_eq!(torn.damage, (cut > told.len()).then_some(tail));
    }
    let sum = Checkpoint::replay(records.iter().cloned());
    assert_eq!(Checkpoint::replay(sum.compact()), sum, "the shortest list means something else");
}
