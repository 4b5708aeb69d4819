//! The file of the checkpoint: whole, torn or foreign.

use ipamd_core::{
    Checkpoint, Record,
    frame::{Damage, HEADER, decode, image},
};

/// The input is a checkpoint file. If it has no header, it is a list of records in JSON, one per line, from
/// which a file is made.
pub fn run(data: &[u8]) {
    if data.starts_with(HEADER) {
        return whole(&decode::<Record>(data).records, data.len());
    }
    let lines = data.split(|byte| *byte == b'\n');
    let records: Vec<Record> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    whole(&records, data.len());
    let foreign = decode::<Record>(data);
    assert!(foreign.records.is_empty(), "a foreign file returns records");
    assert_eq!(foreign.damage, Some(Damage::Foreign));
}

/// A file returns its records. A torn file returns a prefix of them and reports the damage. A compaction of
/// the records has the same sum.
fn whole(records: &[Record], hint: usize) {
    let file = image(records).expect("a record of an input is short");
    let read = decode::<Record>(&file);
    assert_eq!((read.records.as_slice(), read.damage), (records, None));
    let cut = file.len() - hint.wrapping_mul(31) % file.len();
    let torn = decode::<Record>(&file[..cut]);
    assert!(
        records.starts_with(&torn.records),
        "a torn file returns records that were never written"
    );
    if cut >= HEADER.len() {
        let intact = image(&torn.records).expect("the same records are short");
        let tail = Damage::TornTail { at: intact.len(), bytes: cut - intact.len() };
        assert_eq!(torn.damage, (cut > intact.len()).then_some(tail));
    }
    let sum = Checkpoint::replay(records.iter().cloned());
    assert_eq!(Checkpoint::replay(sum.compact()), sum, "the compaction has another sum");
}
