//! The power is cut after every step of the file, and whatever was not synced by then is there, half there, blank or
//! absent, in every combination.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::Ledger;
use control_wire::{
    encode,
    proto::{Change, Part, change},
};
use datapath_node::{
    LocalPod, PodId,
    store::{Record, Replayed, image, replay},
};
use prost::Message as _;
use runtime_journal::power::{Disk, Lie, State, Step, left};
use std::collections::BTreeSet;

fn pod(uid: &str) -> LocalPod {
    let pod = PodId { uid: uid.to_owned(), namespace: "shop".to_owned(), name: uid.to_owned() };
    LocalPod { pod, container: "c-0".to_owned(), addresses: ["10.0.0.9".parse().unwrap()].into() }
}

fn part(generation: u64, last: bool, changes: Vec<Change>) -> Record {
    Record::Part(Part { generation, changes, last }.encode_to_vec())
}

fn entry(uid: &str) -> Change {
    let pod = control_wire::proto::Pod {
        uid: uid.to_owned(),
        namespace: "shop".to_owned(),
        name: uid.to_owned(),
        ..Default::default()
    };
    Change { of: Some(change::Of::Pod(pod)) }
}

/// What an agent does to its file, a write at a time; nothing stands for writing it anew.
fn life() -> Vec<Vec<Record>> {
    let node = encode::node(&["10.0.0.1".parse().unwrap()]);
    vec![
        vec![Record::Begun { epoch: vec![1; 16] }],
        vec![part(1, false, vec![entry("a")]), part(1, true, vec![node])],
        vec![Record::Started(pod("a"))],
        vec![],
        vec![part(2, true, vec![entry("b")])],
        vec![Record::Started(pod("b")), Record::Ended { uid: "a".to_owned() }],
        vec![Record::Begun { epoch: vec![2; 16] }],
        vec![],
        vec![part(1, true, vec![entry("c")])],
    ]
}

/// What a start makes of the disk, in the words of a file that is written anew.
type Back = Vec<Record>;

fn back(replayed: &Replayed) -> Back {
    image(&replayed.held, &replayed.local)
}

/// Also whether something was kept aside: a power cut leaves no file that somebody would have to look at.
fn open(disk: &Disk) -> (Ledger<Disk>, Back, bool) {
    let (mut ledger, found) = Ledger::open(disk.clone()).unwrap();
    ledger.write(&found.replayed.held, &found.replayed.local).unwrap();
    let aside = found.damage.is_some_and(|(_, aside)| aside.is_some());
    (ledger, back(&found.replayed), aside)
}

/// Runs a life on a disk, and marks what was handed over and what is to be kept.
fn live(disk: &Disk) -> Vec<Back> {
    let (mut ledger, ..) = open(disk);
    let mut all = Vec::new();
    let mut states = vec![back(&replay(all.clone()))];
    for batch in life() {
        all.extend(batch.iter().cloned());
        let now = replay(all.clone());
        states.push(back(&now));
        disk.mark(Step::Handed(states.len() - 1));
        if batch.is_empty() {
            ledger.write(&now.held, &now.local).unwrap();
        } else {
            ledger.append(&batch).unwrap();
        }
        disk.mark(Step::Told(states.len() - 1));
    }
    states
}

/// A batch is one write: of its records the first may be there without the rest.
fn allowed(states: &[Back], told: usize, handed: usize) -> Vec<Back> {
    let mut allowed = states[told..=handed].to_vec();
    let before: Vec<Record> = life()[..told].concat();
    for batch in &life()[told..handed] {
        for many in 0..batch.len() {
            let records = before.iter().chain(&batch[..many]).cloned();
            allowed.push(back(&replay(records)));
        }
    }
    allowed
}

/// The first power cut after which the file comes back otherwise than it may.
fn first_loss(lie: Lie) -> Option<String> {
    let disk = Disk::new(lie);
    let states = live(&disk);
    let steps = disk.steps();
    let (mut cuts, mut put_right) = (0, BTreeSet::new());
    for cut in 0..=steps.len() {
        let marked = |found: fn(&Step) -> Option<usize>| {
            steps[..cut].iter().filter_map(found).next_back().unwrap_or(0)
        };
        let handed = marked(|step| if let Step::Handed(n) = step { Some(*n) } else { None });
        let told = marked(|step| if let Step::Told(n) = step { Some(*n) } else { None });
        let allowed = allowed(&states, told, handed);
        for state in left(&State::default(), &steps[..cut]) {
            cuts += 1;
            let found = Disk::holding(&state);
            let (_, back, aside) = open(&found);
            if aside || !allowed.contains(&back) {
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
    assert!(cuts > 80, "only {cuts} states were tried");
    None
}

/// The power is cut again while the file is put right.
fn second_loss(before: &State, steps: &[Step], back: &Back) -> Option<String> {
    (0..=steps.len()).find_map(|cut| {
        left(before, &steps[..cut]).into_iter().find_map(|state| {
            let (_, again, aside) = open(&Disk::holding(&state));
            (aside || again != *back)
                .then(|| format!("after step {cut}: {again:?} is not {back:?}"))
        })
    })
}

#[test]
fn whatever_a_power_cut_leaves_nothing_that_was_kept_is_lost() {
    assert_eq!(first_loss(Lie::None), None);
}

#[test]
fn a_disk_that_does_not_sync_is_found_out() {
    for lie in [Lie::FilesNotSynced, Lie::NamesNotSynced] {
        assert!(first_loss(lie).is_some(), "{lie:?}: the test above could not fail");
    }
}

#[test]
fn after_a_write_that_failed_nothing_is_appended_before_the_file_is_whole_again() {
    let disk = Disk::new(Lie::None);
    let (mut ledger, ..) = open(&disk);
    ledger.append(&life()[0]).unwrap();
    disk.refuse(true);
    ledger.append(&life()[1]).unwrap_err();
    disk.refuse(false);
    ledger.append(&life()[2]).unwrap_err();
    let now = replay(life()[..3].concat());
    ledger.write(&now.held, &now.local).unwrap();
    ledger.append(&life()[4]).unwrap();
    let (_, found) = Ledger::open(disk).unwrap();
    assert!(found.damage.is_none());
    assert_eq!(back(&found.replayed), back(&replay(life()[..5].concat())));
}
