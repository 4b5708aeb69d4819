#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::{writer::JournalState, *};
use config_model::{CardIndex, DeviceIndex, EniId, PodKey, PodName, Time};
use ipamd_core::{Checkpoint, RECORD_FORMAT, Record};
use runtime_journal::power::{Disk, Lie, Step};
use std::{fs, net::Ipv4Addr};

fn boot() -> Record {
    Record::Boot { format: RECORD_FORMAT, boot_id: "b00t".to_owned() }
}

fn address(n: u16) -> Ipv4Addr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

fn reserved(n: u16) -> Record {
    Record::Reserved {
        key: PodKey::new("aws-cni", format!("c{n}"), "eth0").unwrap(),
        pod: PodName { namespace: "default".to_owned(), name: format!("web-{n}") },
        address: address(n),
        eni: EniId::new("eni-1"),
        card: CardIndex(0),
        device: DeviceIndex(1),
        more: Vec::new(),
        lapses: Time(60_000),
    }
}

fn confirmed(n: u16) -> Record {
    let key = PodKey::new("aws-cni", format!("c{n}"), "eth0").unwrap();
    Record::Confirmed { key, host_interface: format!("eni{n}"), marked: true }
}

fn cooling(n: u16) -> Record {
    Record::Cooling {
        address: address(n),
        eni: EniId::new("eni-1"),
        since: Time(1),
        until: Time(30_001),
    }
}

fn records() -> Vec<Record> {
    vec![boot(), reserved(1), reserved(2), cooling(1), reserved(3)]
}

/// An empty checkpoint on a disk in memory, and the disk.
fn new_state() -> (JournalState<Disk>, Disk) {
    let disk = Disk::new(Lie::None);
    let mut opened = Opened::within(disk.clone()).unwrap();
    opened.rewrite(&Checkpoint::default()).unwrap();
    (JournalState { journal: opened.journal, sum: Checkpoint::default() }, disk)
}

#[test]
fn the_first_format_of_the_file_is_still_written_and_read() {
    let file = "ferrule-ipam 1\n\
                00000028 dbbe6059 {\"r\":\"boot\",\"format\":1,\"boot_id\":\"b00t\"}\n";
    assert_eq!(decode::<Record>(file.as_bytes()).records, [boot()]);
    assert_eq!(ipamd_core::frame::image(&[boot()]).unwrap(), file.as_bytes());
}

#[test]
fn a_damaged_checkpoint_is_not_trusted_though_its_other_records_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut damaged = ipamd_core::frame::image(&records()).unwrap();
    let first = ipamd_core::frame::image(&records()[..1]).unwrap().len();
    damaged[first + 30] ^= 1;
    fs::write(folder.path().join("checkpoint.log"), &damaged).unwrap();
    let mut opened = Opened::at(folder.path()).unwrap();
    assert!(opened.found && !opened.is_trusted());
    assert!(matches!(opened.damage, Some(Damage::Corrupt { .. })), "{:?}", opened.damage);
    let rest = [boot(), reserved(2), cooling(1), reserved(3)];
    assert_eq!(opened.checkpoint, Checkpoint::replay(rest));
    let aside = opened.rewrite(&Checkpoint::default()).unwrap();
    assert_eq!(aside, Some(folder.path().join("checkpoint.log.damaged-1")));
    assert_eq!(fs::read(aside.unwrap()).unwrap(), damaged);
}

#[test]
fn an_untrusted_file_is_unchanged_until_the_rewrite() {
    let torn = ipamd_core::frame::image(&records()).unwrap();
    let torn = std::str::from_utf8(&torn[..torn.len() - 1]).unwrap();
    for content in [None, Some(""), Some("ferrule-i"), Some("rubbish"), Some(torn)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.log");
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        for _ in 0..2 {
            // A start that crashes before it has found the pods elsewhere.
            assert!(!Opened::at(folder.path()).unwrap().is_trusted());
        }
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), content);
        let found = Checkpoint::replay(records());
        let mut opened = Opened::at(folder.path()).unwrap();
        opened.rewrite(&found).unwrap();
        drop(opened);
        let again = Opened::at(folder.path()).unwrap();
        assert_eq!((again.is_trusted(), again.checkpoint), (true, found));
    }
}

#[test]
fn written_records_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut opened = Opened::at(folder.path()).unwrap();
    assert!(!opened.found);
    opened.rewrite(&opened.checkpoint.clone()).unwrap();
    let writer = Writer::start(opened.journal, opened.checkpoint).unwrap();
    writer.write(records());
    writer.finish();
    assert_eq!(Opened::at(folder.path()).unwrap().checkpoint, Checkpoint::replay(records()));
}

#[test]
fn a_checkpoint_does_not_grow_without_bound() {
    let folder = tempfile::tempdir().unwrap();
    let mut opened = Opened::at(folder.path()).unwrap();
    opened.rewrite(&opened.checkpoint.clone()).unwrap();
    let writer = Writer::start(opened.journal, opened.checkpoint).unwrap();
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
    let written = 40 * ipamd_core::frame::image(&batch).unwrap().len();
    assert!(size < 512 * 1024 && written > 2_000_000, "{size} of {written} bytes");
    let expected = Checkpoint::replay(batch);
    assert_eq!(Opened::at(folder.path()).unwrap().checkpoint, expected);
}

#[test]
fn a_full_disk_is_reported_and_written_when_there_is_room() {
    let (JournalState { journal, sum }, disk) = new_state();
    let writer = Writer::start(journal, sum).unwrap();
    let mut progress = writer.progress();
    disk.refuse(true);
    writer.write(records());
    let wait = tokio::runtime::Builder::new_current_thread().build().unwrap();
    wait.block_on(async {
        let trouble = progress.wait_for(|progress| progress.trouble.is_some()).await.unwrap();
        assert_eq!(trouble.durable, Durable(0), "reported as durable on a full disk");
    });
    disk.refuse(false);
    wait.block_on(progress.wait_for(|progress| progress.durable == Durable(5))).unwrap();
    assert_eq!(progress.borrow().trouble, None);
    writer.finish();
    let opened = Opened::within(disk).unwrap();
    assert_eq!(opened.damage, None, "half a write is left in the file");
    assert_eq!(opened.checkpoint, Checkpoint::replay(records()));
}

#[test]
fn only_records_that_outlive_the_boot_wait_for_the_disk() {
    let (JournalState { journal, sum }, disk) = new_state();
    let before = disk.steps().len();
    let writer = Writer::start(journal, sum).unwrap();
    let mut progress = writer.progress();
    let wait = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let batches =
        [vec![reserved(1)], vec![confirmed(1)], vec![cooling(1)], vec![cooling(2), boot()]];
    let mut written = 0;
    for batch in batches {
        written += batch.len();
        writer.write(batch);
        let all = Durable(u64::try_from(written).unwrap());
        wait.block_on(progress.wait_for(|progress| progress.durable == all)).unwrap();
    }
    writer.finish();
    let steps = disk.steps().split_off(before);
    let is_sync = |step: &Step| matches!(step, Step::SyncFile(_));
    let synced: Vec<bool> = (0..steps.len())
        .filter(|n| !is_sync(&steps[*n]))
        .map(|n| steps.get(n + 1).is_some_and(is_sync))
        .collect();
    assert_eq!(synced, [true, false, false, true]);
}

#[test]
fn a_record_costs_the_same_however_many_pods_there_are() {
    const OPERATIONS: u16 = 8_000;
    let cost = |pods: u16| {
        let (mut state, disk) = new_state();
        for n in 0..pods {
            state.append(&[reserved(n), confirmed(n)]).unwrap();
        }
        let before = disk.written();
        for operation in 0..OPERATIONS {
            let n = operation % pods;
            for record in [cooling(n), reserved(n), confirmed(n)] {
                state.append(&[record]).unwrap();
                if state.journal.is_long() {
                    state.rewrite().unwrap();
                }
            }
        }
        (disk.written() - before) / usize::from(OPERATIONS)
    };
    let costs = [10, 110, 1000].map(cost);
    let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
    assert!(most * 2 <= least * 3, "bytes per pod replaced at 10, 110 and 1000 pods: {costs:?}");
}
