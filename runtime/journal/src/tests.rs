#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

mod cuts;

use super::*;
use crate::power::{Disk, Lie, State};
use runtime_frame::encode;
use std::{fs, path::PathBuf, time::Duration};

/// A record; `AFTER` is whether it counts after a damaged one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Number<const AFTER: bool>(u32);

impl<const AFTER: bool> Record for Number<AFTER> {
    const HEADER: &'static [u8] = b"numbers 1\n";
    const LONGEST: usize = 16;
    const COUNTS_AFTER_DAMAGE: bool = AFTER;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.to_string().as_bytes());
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        std::str::from_utf8(payload).ok()?.parse().ok().map(Self)
    }
}

fn numbers<const AFTER: bool>(all: &[u32]) -> Vec<Number<AFTER>> {
    all.iter().copied().map(Number).collect()
}

fn image<R: Record>(records: &[R]) -> Vec<u8> {
    runtime_frame::image(records).unwrap()
}

const LAYOUT: Layout = Layout { name: "numbers", short: 256 };

fn open<const AFTER: bool, F: Folder>(folder: F) -> Opened<Number<AFTER>, F> {
    Journal::open(folder, LAYOUT).unwrap()
}

fn on_disk(bytes: &[u8]) -> Disk {
    Disk::holding(&State([("numbers.log".to_owned(), bytes.to_vec())].into()))
}

#[test]
fn appended_records_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskFolder::open(folder.path()).unwrap();
    let mut opened = open::<true, _>(disk.clone());
    assert!(!opened.found && opened.records.is_empty() && opened.damage.is_none());
    assert_eq!(opened.journal.rewrite(&numbers(&[1, 2])).unwrap(), None);
    opened.journal.append(&numbers(&[3]), true).unwrap();
    opened.journal.append(&numbers(&[4]), false).unwrap();
    assert_eq!(opened.journal.path(), folder.path().join("numbers.log"));
    let again = open::<true, _>(disk);
    assert!(again.found && again.damage.is_none());
    assert_eq!(again.records, numbers(&[1, 2, 3, 4]));
}

#[test]
fn a_second_process_does_not_get_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = DiskFolder::open(folder.path()).unwrap();
    assert!(matches!(DiskFolder::open(folder.path()), Err(OpenError::InUse { .. })));
    drop(first);
    DiskFolder::open(folder.path()).unwrap();
}

#[test]
fn nothing_is_appended_before_the_first_rewrite() {
    let disk = on_disk(&image(&numbers::<true>(&[1])));
    let mut opened = open::<true, _>(disk.clone());
    opened.journal.append(&numbers(&[2]), true).unwrap_err();
    assert_eq!(open::<true, _>(disk).records, numbers(&[1]));
}

#[test]
fn nothing_is_appended_after_a_failed_write_until_a_rewrite_succeeds() {
    let disk = Disk::new(Lie::None);
    let mut journal = open::<false, _>(disk.clone()).journal;
    journal.rewrite(&numbers(&[1])).unwrap();
    disk.refuse(true);
    journal.append(&numbers(&[2]), true).unwrap_err();
    journal.rewrite(&numbers(&[1, 2])).unwrap_err();
    disk.refuse(false);
    journal.append(&numbers(&[3]), true).unwrap_err();
    journal.rewrite(&numbers(&[1, 2, 3])).unwrap();
    journal.append(&numbers(&[4]), true).unwrap();
    let again = open::<false, _>(disk);
    assert_eq!((again.records, again.damage), (numbers(&[1, 2, 3, 4]), None));
}

/// A record of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(String);

impl Record for Text {
    const HEADER: &'static [u8] = b"texts 1\n";
    const LONGEST: usize = 16;
    const COUNTS_AFTER_DAMAGE: bool = false;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        String::from_utf8(payload.to_vec()).ok().map(Self)
    }
}

#[test]
fn a_record_that_is_too_long_changes_neither_the_file_nor_the_journal() {
    let text = |length| Text("x".repeat(length));
    let disk = Disk::new(Lie::None);
    let mut journal = Journal::<Text, _>::open(disk.clone(), LAYOUT).unwrap().journal;
    journal.rewrite(&[text(1)]).unwrap();
    for fault in [
        journal.append(&[text(2), text(17)], true).unwrap_err(),
        journal.rewrite(&[text(17)]).unwrap_err(),
    ] {
        assert_eq!(fault.kind(), std::io::ErrorKind::InvalidInput);
        assert!(fault.to_string().contains("17 bytes, and the limit is 16"), "{fault}");
    }
    journal.append(&[text(16)], true).unwrap();
    let again = Journal::<Text, _>::open(disk, LAYOUT).unwrap();
    assert_eq!((again.records, again.damage), (vec![text(1), text(16)], None));
}

#[test]
fn a_damaged_file_stays_until_the_rewrite_and_is_then_kept_aside() {
    let mut corrupt = image(&numbers::<true>(&[1, 2, 3]));
    corrupt[LONG_ENOUGH] ^= 1;
    for bad in [&b"something else"[..], b"", &corrupt] {
        let folder = tempfile::tempdir().unwrap();
        let (file, aside) =
            (folder.path().join("numbers.log"), folder.path().join("numbers.log.damaged-1"));
        fs::write(&file, bad).unwrap();
        let disk = DiskFolder::open(folder.path()).unwrap();
        let mut opened = open::<true, _>(disk.clone());
        assert!(opened.damage.is_some_and(|damage| !damage.is_torn_tail()));
        assert_eq!(fs::read(&file).unwrap(), bad);
        assert_eq!(opened.journal.rewrite(&numbers(&[9])).unwrap(), Some(aside.clone()));
        assert_eq!(fs::read(&aside).unwrap(), bad);
        assert_eq!(opened.journal.rewrite(&numbers(&[9])).unwrap(), None);
        let again = open::<true, _>(disk);
        assert_eq!((again.records, again.damage), (numbers(&[9]), None));
    }
}

#[test]
fn a_torn_tail_is_not_kept_aside() {
    let bytes = image(&numbers::<true>(&[1, 2]));
    let mut opened = open::<true, _>(on_disk(&bytes[..bytes.len() - 1]));
    assert!(opened.damage.is_some_and(Damage::is_torn_tail));
    assert_eq!(opened.journal.rewrite(&opened.records).unwrap(), None);
}

#[test]
fn a_whole_file_that_its_reader_distrusts_is_kept_aside() {
    let disk = on_disk(&image(&numbers::<true>(&[1])));
    let mut opened = open::<true, _>(disk.clone());
    opened.journal.distrust();
    let aside = opened.journal.rewrite(&[]).unwrap();
    assert_eq!(aside, Some(PathBuf::from("numbers.log.damaged-1")));
    assert_eq!(disk.read("numbers.log.damaged-1").unwrap(), image(&numbers::<true>(&[1])));
}

#[test]
fn of_damaged_files_the_oldest_and_the_newest_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for n in 1..=10_u32 {
        fs::write(folder.path().join("numbers.log"), format!("bad {n}")).unwrap();
        let mut opened = open::<true, _>(DiskFolder::open(folder.path()).unwrap());
        opened.journal.rewrite(&[]).unwrap();
    }
    let kept = |n: u32| {
        let file = folder.path().join(format!("numbers.log.damaged-{n}"));
        fs::read_to_string(file).ok()
    };
    let expected = (1..=7).map(|n| Some(format!("bad {n}")));
    assert!((1..=7).map(kept).eq(expected));
    assert_eq!((kept(8), kept(9)), (Some("bad 10".to_owned()), None));
}

#[test]
fn a_kept_aside_file_is_reported_even_if_the_rewrite_fails_first() {
    let disk = on_disk(b"bad");
    let mut journal = open::<true, _>(disk.clone()).journal;
    disk.refuse(true);
    journal.rewrite(&numbers(&[1])).unwrap_err();
    disk.refuse(false);
    let aside = journal.rewrite(&numbers(&[1])).unwrap();
    assert_eq!(aside, Some(PathBuf::from("numbers.log.damaged-1")));
}

#[test]
fn a_long_file_is_due_for_a_rewrite_and_a_short_one_is_not() {
    let disk = Disk::new(Lie::None);
    let mut journal = open::<true, _>(disk).journal;
    let all: Vec<u32> = (0..100).collect();
    journal.rewrite(&numbers(&all[..1])).unwrap();
    let (mut frames, mut size) = (Vec::new(), image(&numbers::<true>(&all[..1])).len());
    while size <= LAYOUT.short {
        assert!(!journal.is_long(), "{size} bytes");
        journal.append(&numbers(&[7]), false).unwrap();
        frames.clear();
        encode(&Number::<true>(7), &mut frames).unwrap();
        size += frames.len();
    }
    assert!(journal.is_long());
    // A rewrite that is itself long leaves room for three times as much.
    journal.rewrite(&numbers(&all)).unwrap();
    let size = image(&numbers::<true>(&all)).len();
    for _ in 0..(3 * size) / frames.len() {
        assert!(!journal.is_long());
        journal.append(&numbers(&[7]), false).unwrap();
    }
    journal.append(&numbers(&[7]), false).unwrap();
    assert!(journal.is_long());
}

#[test]
fn pauses_double_up_to_the_longest() {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(300));
    let pauses = [(); 5].map(|()| backoff.pause().as_millis());
    assert_eq!(pauses, [50, 100, 200, 300, 300]);
}

/// An offset in the first record.
const LONG_ENOUGH: usize = 20;
