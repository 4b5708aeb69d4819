#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use config_model::{CardIndex, DeviceIndex, EniId, PodKey, PodName, Time};
use ipamd_core::{Checkpoint, RECORD_FORMAT, Record};
use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

fn boot() -> Record {
    Record::Boot { format: RECORD_FORMAT, boot_id: "b00t".to_owned() }
}

fn reserved(n: u8) -> Record {
    Record::Reserved {
        key: PodKey::new("aws-cni", format!("c{n}"), "eth0").unwrap(),
        pod: PodName { namespace: "default".to_owned(), name: format!("web-{n}") },
        address: Ipv4Addr::new(10, 0, 0, n),
        eni: EniId::new("eni-1"),
        card: CardIndex(0),
        device: DeviceIndex(1),
        more: Vec::new(),
        lapses: Time(60_000),
    }
}

fn cooling(n: u8) -> Record {
    Record::Cooling {
        address: Ipv4Addr::new(10, 0, 0, n),
        eni: EniId::new("eni-1"),
        since: Time(1),
        until: Time(30_001),
    }
}

fn records() -> Vec<Record> {
    vec![boot(), reserved(1), reserved(2), cooling(1), reserved(3)]
}

fn lines(records: &[Record]) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    records.iter().for_each(|record| encode(record, &mut bytes));
    bytes
}

/// How many of the records are whole in the first `length` bytes.
fn whole(records: &[Record], length: usize) -> usize {
    (0..=records.len()).rev().find(|n| lines(&records[..*n]).len() <= length).unwrap_or(0)
}

/// What a start finds, and the journal with which it goes on.
struct Begun {
    journal: FileJournal,
    checkpoint: Checkpoint,
    found: bool,
    damage: Option<(Damage, Option<PathBuf>)>,
}

fn open(folder: &Path) -> Begun {
    let opened = Opened::at(folder).unwrap();
    let (journal, aside) = opened.begin(&opened.checkpoint).unwrap();
    let Opened { checkpoint, found, damage, .. } = opened;
    Begun { journal, checkpoint, found, damage: damage.map(|damage| (damage, aside)) }
}

#[test]
fn a_power_cut_at_any_byte_loses_only_what_was_not_whole() {
    let (records, bytes) = (records(), lines(&records()));
    for cut in HEADER.len()..=bytes.len() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("checkpoint.log"), &bytes[..cut]).unwrap();
        let Begun { checkpoint, damage, found, .. } = open(folder.path());
        let whole = whole(&records, cut);
        assert_eq!(checkpoint, Checkpoint::replay(records[..whole].iter().cloned()), "cut {cut}");
        assert!(found);
        let torn = lines(&records[..whole]).len() != cut;
        assert_eq!(matches!(damage, Some((Damage::TornTail { .. }, None))), torn, "cut {cut}");
        // What was read is the same when it is read again: the file was put right.
        let again = open(folder.path());
        assert_eq!((again.checkpoint, again.damage), (checkpoint, None), "cut {cut}");
    }
}

#[test]
fn a_flipped_bit_anywhere_costs_one_record_and_the_file_is_kept() {
    let (records, bytes) = (records(), lines(&records()));
    let last = lines(&records[..records.len() - 1]).len();
    for at in HEADER.len()..last {
        let folder = tempfile::tempdir().unwrap();
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(folder.path().join("checkpoint.log"), &damaged).unwrap();
        let Begun { checkpoint, damage, .. } = open(folder.path());
        let hurt = whole(&records, at);
        let rest = records.iter().enumerate().filter(|(n, _)| *n != hurt);
        assert_eq!(checkpoint, Checkpoint::replay(rest.map(|(_, r)| r.clone())), "bit at {at}");
        let Some((Damage::Corrupt { .. }, Some(aside))) = damage else {
            panic!("bit at {at}: {damage:?}");
        };
        assert_eq!(fs::read(aside).unwrap(), damaged, "kept as it was");
    }
}

#[test]
fn a_file_that_is_something_else_is_kept_aside_and_told() {
    let folder = tempfile::tempdir().unwrap();
    for (number, content) in
        ["{\"version\":\"vpc-cni-ipam/1\"}", "ferrule-ipam 2\n", ""].iter().enumerate()
    {
        fs::write(folder.path().join("checkpoint.log"), content).unwrap();
        let Begun { checkpoint, damage, found, .. } = open(folder.path());
        assert!(found);
        assert_eq!(checkpoint, Checkpoint::default());
        let Some((Damage::Foreign, Some(aside))) = damage else { panic!("{damage:?}") };
        assert!(aside.ends_with(format!("checkpoint.log.damaged-{}", number + 1)), "{aside:?}");
        assert_eq!(fs::read(aside).unwrap(), content.as_bytes());
    }
}

#[test]
fn what_is_not_trusted_stays_as_it_is_until_there_is_something_better() {
    let torn = lines(&records());
    let torn = std::str::from_utf8(&torn[..torn.len() - 1]).unwrap();
    for content in [None, Some(""), Some("ferrule-i"), Some("rubbish"), Some(torn)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.log");
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        for _ in 0..2 {
            // A start that ends before it has found the pods elsewhere.
            assert!(!Opened::at(folder.path()).unwrap().is_trusted());
        }
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), content);
        let found = Checkpoint::replay(records());
        let opened = Opened::at(folder.path()).unwrap();
        opened.begin(&found).unwrap();
        drop(opened);
        let again = Opened::at(folder.path()).unwrap();
        assert_eq!((again.is_trusted(), again.checkpoint), (true, found));
    }
}

#[test]
fn a_crash_while_the_file_is_replaced_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("checkpoint.log"), lines(&records())).unwrap();
    fs::write(folder.path().join("checkpoint.new"), b"ferrule-i").unwrap();
    let opened = open(folder.path());
    assert_eq!(opened.checkpoint, Checkpoint::replay(records()));
    assert_eq!(opened.damage, None);
}

#[test]
fn a_second_daemon_does_not_get_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    assert!(matches!(Opened::at(folder.path()), Err(OpenError::InUse { .. })));
    drop(first);
    assert!(open(folder.path()).found);
}

#[test]
fn what_was_appended_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let Begun { journal, checkpoint, found, .. } = open(folder.path());
    assert!(!found);
    let writer = Writer::start(journal, checkpoint).unwrap();
    writer.write(records());
    writer.finish();
    assert_eq!(open(folder.path()).checkpoint, Checkpoint::replay(records()));
}

#[test]
fn a_checkpoint_does_not_grow_without_bound() {
    let folder = tempfile::tempdir().unwrap();
    let Begun { journal, checkpoint, .. } = open(folder.path());
    let writer = Writer::start(journal, checkpoint).unwrap();
    let mut progress = writer.progress();
    let batch: Vec<Record> = (0..200).flat_map(|n| [reserved(n), cooling(n)]).collect();
    let wait = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for round in 1..=40 {
        writer.write(batch.clone());
        let all = Durable(round * 400);
        wait.block_on(progress.wait_for(|progress| progress.durable >= all)).unwrap();
    }
    writer.finish();
    let size = fs::metadata(folder.path().join("checkpoint.log")).unwrap().len();
    let written = 40 * lines(&batch).len();
    assert!(size < 512 * 1024 && written > 2_000_000, "{size} of {written} bytes");
    let expected = Checkpoint::replay(batch);
    assert_eq!(open(folder.path()).checkpoint, expected);
}

/// A disk that refuses as often as it is told, and keeps what it was given.
#[derive(Clone, Default)]
struct Disk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    bytes: Vec<u8>,
    refuse: usize,
    appends: usize,
    synced: Vec<bool>,
    replaces: usize,
}

impl Disk {
    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap())
    }

    fn refused(inner: &mut Inner) -> io::Result<()> {
        if inner.refuse == 0 {
            return Ok(());
        }
        inner.refuse -= 1;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    }
}

impl Journal for Disk {
    fn append(&mut self, bytes: &[u8], sync: bool) -> io::Result<()> {
        self.with(|inner| {
            inner.appends += 1;
            inner.synced.push(sync);
            // A write that fails leaves some of its bytes.
            inner.bytes.extend_from_slice(&bytes[..bytes.len() / 2]);
            Self::refused(inner)?;
            inner.bytes.extend_from_slice(&bytes[bytes.len() / 2..]);
            Ok(())
        })
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(|inner| {
            inner.replaces += 1;
            Self::refused(inner)?;
            inner.bytes = bytes.to_vec();
            Ok(())
        })
    }

    fn size(&self) -> usize {
        self.with(|inner| inner.bytes.len())
    }
}

#[test]
fn a_full_disk_is_told_and_written_when_there_is_room() {
    let disk = Disk::default();
    disk.with(|inner| {
        inner.bytes = HEADER.to_vec();
        inner.refuse = 4;
    });
    let writer = Writer::start(disk.clone(), Checkpoint::default()).unwrap();
    let mut progress = writer.progress();
    writer.write(records());
    let wait = tokio::runtime::Builder::new_current_thread().build().unwrap();
    wait.block_on(async {
        let trouble = progress.wait_for(|progress| progress.trouble.is_some()).await.unwrap();
        assert_eq!(trouble.durable, Durable(0), "nothing is told to be durable that is not");
    });
    wait.block_on(progress.wait_for(|progress| progress.durable == Durable(5))).unwrap();
    assert_eq!(progress.borrow().trouble, None);
    writer.finish();
    let Recovered { records: read, damage } = disk.with(|inner| decode(&inner.bytes));
    assert_eq!(damage, None, "the half that was written is gone");
    assert_eq!(Checkpoint::replay(read), Checkpoint::replay(records()));
    disk.with(|inner| assert_eq!((inner.appends, inner.replaces), (1, 4)));
}

#[test]
fn only_what_must_outlive_the_boot_waits_for_the_disk() {
    let disk = Disk::default();
    let writer = Writer::start(disk.clone(), Checkpoint::default()).unwrap();
    let mut progress = writer.progress();
    let key = PodKey::new("aws-cni", "c1", "eth0").unwrap();
    let confirmed = Record::Confirmed { key, host_interface: "eni1".to_owned() };
    let wait = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let batches = [vec![reserved(1)], vec![confirmed], vec![cooling(1)], vec![cooling(2), boot()]];
    let mut written = 0;
    for batch in batches {
        written += batch.len();
        writer.write(batch);
        let all = Durable(u64::try_from(written).unwrap());
        wait.block_on(progress.wait_for(|progress| progress.durable == all)).unwrap();
    }
    writer.finish();
    disk.with(|inner| assert_eq!(inner.synced, [true, false, false, true]));
}
