//! The power is cut after every step of the checkpoint, and whatever was not synced by then is
//! there, half there, blank or absent, in every combination.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::{
    FileJournal, Journal as _, Opened,
    ledger::{Ledger, needs_sync},
};
use config_model::{CardIndex, DeviceIndex, EniId, PodKey, PodName, Time};
use ipamd_core::{Checkpoint, RECORD_FORMAT, Record};
use runtime_journal::power::{Disk, Lie, State, Step, left};
use std::{collections::BTreeSet, net::Ipv4Addr};

fn key(n: u16) -> PodKey {
    PodKey::new("aws-cni", format!("c{n}"), "eth0").unwrap()
}

fn address(n: u16) -> Ipv4Addr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

fn reserved(n: u16) -> Record {
    Record::Reserved {
        key: key(n),
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
    Record::Confirmed { key: key(n), host_interface: format!("eni{n}") }
}

fn cooling(n: u16) -> Record {
    Record::Cooling {
        address: address(n),
        eni: EniId::new("eni-1"),
        since: Time(1),
        until: Time(30_001),
    }
}

fn boot() -> Record {
    Record::Boot { format: RECORD_FORMAT, boot_id: "b00t".to_owned() }
}

/// What a daemon does to its checkpoint; nothing stands for writing it anew.
fn life() -> Vec<Vec<Record>> {
    let asked = Record::EniAsked {
        token: "t".to_owned(),
        count: 5,
        want: None,
        subnet: None,
        groups: None,
        card: CardIndex(0),
    };
    let made = Record::EniMade { token: "t".to_owned(), eni: EniId::new("eni-2") };
    vec![
        vec![boot()],
        vec![reserved(1)],
        vec![confirmed(1)],
        vec![reserved(2), reserved(3)],
        vec![cooling(1)],
        vec![confirmed(2), confirmed(3)],
        vec![asked],
        vec![cooling(2)],
        vec![],
        vec![confirmed(3)],
        vec![made, reserved(1)],
        vec![cooling(3)],
        vec![reserved(2)],
    ]
}

/// All records of a life, how many of them had been told when the power was cut, and how many
/// must be there.
struct Told {
    records: Vec<Record>,
    handed: usize,
    kept: usize,
}

impl Told {
    /// What came back is what had to be kept, with any of the rest.
    fn allows(&self, back: &Checkpoint) -> bool {
        let (kept, rest) = self.records[..self.handed].split_at(self.kept);
        (0..1_u32 << rest.len()).any(|choice| {
            let chosen = rest.iter().enumerate().filter(|(n, _)| choice & (1 << n) != 0);
            let records = kept.iter().chain(chosen.map(|(_, record)| record));
            Checkpoint::replay(records.cloned()) == *back
        })
    }
}

/// Reads the checkpoint and puts it right, as each start does.
fn open(disk: &Disk) -> (FileJournal<Disk>, Checkpoint) {
    let opened = Opened::within(disk.clone()).unwrap();
    let (journal, _) = opened.begin(&opened.checkpoint).unwrap();
    (journal, opened.checkpoint)
}

/// Runs a life on a disk, and marks what was handed over and what was told.
fn live(disk: &Disk) -> Vec<Record> {
    let (journal, checkpoint) = open(disk);
    let mut ledger = Ledger::new(journal, checkpoint);
    let (mut all, mut kept) = (Vec::new(), 0);
    for batch in life() {
        all.extend(batch.iter().cloned());
        disk.mark(Step::Handed(all.len()));
        if batch.is_empty() {
            ledger.rewrite().unwrap();
            kept = all.len();
        } else {
            ledger.append(&batch).unwrap();
            if needs_sync(&batch) {
                kept = all.len();
            }
        }
        disk.mark(Step::Told(kept));
    }
    all
}

/// The first power cut after which the checkpoint comes back otherwise than it may.
fn first_loss(lie: Lie) -> Option<String> {
    let disk = Disk::new(lie);
    let records = live(&disk);
    let steps = disk.steps();
    let (mut cuts, mut put_right) = (0, BTreeSet::new());
    for cut in 0..=steps.len() {
        let marked = |found: fn(&Step) -> Option<usize>| {
            steps[..cut].iter().filter_map(found).next_back().unwrap_or(0)
        };
        let told = Told {
            records: records.clone(),
            handed: marked(|step| if let Step::Handed(n) = step { Some(*n) } else { None }),
            kept: marked(|step| if let Step::Told(n) = step { Some(*n) } else { None }),
        };
        for state in left(&State::default(), &steps[..cut]) {
            cuts += 1;
            let found = Disk::holding(&state);
            let (_, back) = open(&found);
            if !told.allows(&back) {
                return Some(format!("cut after step {cut}: {state:?} came back as {back:?}"));
            }
            // What a start does depends on the disk alone.
            if put_right.insert(state.clone())
                && let Some(loss) = second_loss(&state, &found.steps(), &back)
            {
                return Some(format!("cut after step {cut} and again, {loss}"));
            }
        }
    }
    assert!(cuts > 200, "only {cuts} states were tried");
    None
}

/// The power is cut again while the checkpoint is put right.
fn second_loss(before: &State, steps: &[Step], back: &Checkpoint) -> Option<String> {
    (0..=steps.len()).find_map(|cut| {
        left(before, &steps[..cut]).into_iter().find_map(|state| {
            let (_, again) = open(&Disk::holding(&state));
            (again != *back).then(|| format!("after step {cut}: {again:?} is not {back:?}"))
        })
    })
}

#[test]
fn whatever_a_power_cut_leaves_nothing_that_was_told_is_lost() {
    assert_eq!(first_loss(Lie::None), None);
}

#[test]
fn a_disk_that_does_not_sync_is_found_out() {
    for lie in [Lie::FilesNotSynced, Lie::NamesNotSynced] {
        assert!(first_loss(lie).is_some(), "{lie:?}: the test above could not fail");
    }
}

#[test]
fn a_record_costs_the_same_however_many_pods_there_are() {
    const OPERATIONS: u16 = 8_000;
    let cost = |pods: u16| {
        let disk = Disk::new(Lie::None);
        let (journal, checkpoint) = open(&disk);
        let mut ledger = Ledger::new(journal, checkpoint);
        for n in 0..pods {
            ledger.append(&[reserved(n), confirmed(n)]).unwrap();
        }
        let before = disk.written();
        for operation in 0..OPERATIONS {
            let n = operation % pods;
            for record in [cooling(n), reserved(n), confirmed(n)] {
                ledger.append(&[record]).unwrap();
                if ledger.is_long() {
                    ledger.rewrite().unwrap();
                }
            }
        }
        (disk.written() - before) / usize::from(OPERATIONS)
    };
    let costs = [10, 110, 1000].map(cost);
    let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
    assert!(most * 2 <= least * 3, "bytes per pod replaced at 10, 110 and 1000 pods: {costs:?}");
}

#[test]
fn the_size_is_what_was_written() {
    let disk = Disk::new(Lie::None);
    let (mut journal, _) = open(&disk);
    journal.append(b"four", true).unwrap();
    assert_eq!(journal.size(), disk.written());
}
