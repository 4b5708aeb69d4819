//! The power is cut after every step of a journal. Bytes and names that were not synced by then are there, half there,
//! blank or absent, in every combination.

use super::*;
use crate::power::{Step, left};
use std::collections::BTreeSet;

/// One write to the journal.
enum Write {
    Append(&'static [u32], bool),
    Rewrite,
}

/// Some appends wait for a sync and some do not, as in the checkpoint of ferrule-ipamd.
const MIXED: &[Write] = &[
    Write::Append(&[1], true),
    Write::Append(&[2], false),
    Write::Append(&[3, 4], true),
    Write::Append(&[5], false),
    Write::Append(&[6, 7], false),
    Write::Append(&[8], true),
    Write::Append(&[9], false),
    Write::Rewrite,
    Write::Append(&[10], false),
    Write::Append(&[11, 12], true),
    Write::Append(&[13], false),
];

/// Every append is synced, as in the journal of ferrule-agent.
const SYNCED: &[Write] = &[
    Write::Append(&[1], true),
    Write::Append(&[2, 3], true),
    Write::Append(&[4], true),
    Write::Rewrite,
    Write::Append(&[5, 6, 7], true),
    Write::Rewrite,
    Write::Append(&[8], true),
];

/// Reads the journal and rewrites it, as each start does. Also returns whether a file was kept aside.
fn restart<const AFTER: bool>(disk: &Disk) -> (Journal<Number<AFTER>, Disk>, Vec<u32>, bool) {
    let Opened { mut journal, records, .. } = open::<AFTER, _>(disk.clone());
    let aside = journal.rewrite(&records).unwrap();
    (journal, records.into_iter().map(|number| number.0).collect(), aside.is_some())
}

/// Performs the writes and marks the records handed over and the records reported as durable, by count.
fn live<const AFTER: bool>(disk: &Disk, writes: &[Write]) -> Vec<u32> {
    let (mut journal, mut all, _) = restart::<AFTER>(disk);
    let mut durable = 0;
    for write in writes {
        match write {
            Write::Append(batch, sync) => {
                all.extend_from_slice(batch);
                disk.mark(Step::HandedOver(all.len()));
                journal.append(&numbers(batch), *sync).unwrap();
                durable = if *sync { all.len() } else { durable };
            }
            Write::Rewrite => {
                journal.rewrite(&numbers(&all)).unwrap();
                durable = all.len();
            }
        }
        disk.mark(Step::Durable(durable));
    }
    all
}

/// The durable records, then any of the rest; only the first ones of the rest if a damaged record ends the file.
fn is_allowed<const AFTER: bool>(back: &[u32], handed_over: &[u32], durable: usize) -> bool {
    let (durable, rest) = handed_over.split_at(durable);
    let Some(more) = back.strip_prefix(durable) else { return false };
    if AFTER {
        let mut rest = rest.iter();
        more.iter().all(|number| rest.any(|candidate| candidate == number))
    } else {
        rest.starts_with(more)
    }
}

/// The first power cut after which the journal yields records that it must not yield, and the number of states tried.
fn first_loss<const AFTER: bool>(lie: Lie, writes: &[Write]) -> (Option<String>, usize) {
    let disk = Disk::new(lie);
    let all = live::<AFTER>(&disk, writes);
    let steps = disk.steps();
    let (mut tried, mut restarted) = (0, BTreeSet::new());
    for cut in 0..=steps.len() {
        let marked = |found: fn(&Step) -> Option<usize>| {
            steps[..cut].iter().filter_map(found).next_back().unwrap_or(0)
        };
        let handed = marked(|step| if let Step::HandedOver(n) = step { Some(*n) } else { None });
        let durable = marked(|step| if let Step::Durable(n) = step { Some(*n) } else { None });
        for state in left(&State::default(), &steps[..cut]) {
            tried += 1;
            let found = Disk::holding(&state);
            let (_, back, aside) = restart::<AFTER>(&found);
            // A power cut never damages a synced file, so no file is put aside.
            if aside && !AFTER || !is_allowed::<AFTER>(&back, &all[..handed], durable) {
                let loss = format!("cut after step {cut}: {state:?} yields {back:?}");
                return (Some(loss), tried);
            }
            // A start depends on the disk alone.
            if restarted.insert(state.clone())
                && let Some(loss) = second_loss::<AFTER>(&state, &found.steps(), &back)
            {
                return (Some(format!("cut after step {cut} and again, {loss}")), tried);
            }
        }
    }
    (None, tried)
}

/// The power is cut again during the rewrite of the next start.
fn second_loss<const AFTER: bool>(before: &State, steps: &[Step], back: &[u32]) -> Option<String> {
    (0..=steps.len()).find_map(|cut| {
        left(before, &steps[..cut]).into_iter().find_map(|state| {
            let (_, again, aside) = restart::<AFTER>(&Disk::holding(&state));
            (aside && !AFTER || again != back)
                .then(|| format!("after step {cut}: {again:?} is not {back:?}"))
        })
    })
}

#[test]
fn a_power_cut_loses_no_durable_record() {
    let (loss, tried) = first_loss::<true>(Lie::None, MIXED);
    assert_eq!(loss, None);
    assert!(tried > 200, "only {tried} states were tried");
    let (loss, tried) = first_loss::<false>(Lie::None, SYNCED);
    assert_eq!(loss, None);
    assert!(tried > 60, "only {tried} states were tried");
}

#[test]
fn the_test_above_detects_a_disk_that_does_not_sync() {
    for lie in [Lie::FilesNotSynced, Lie::NamesNotSynced] {
        assert!(first_loss::<true>(lie, MIXED).0.is_some(), "{lie:?}");
        assert!(first_loss::<false>(lie, SYNCED).0.is_some(), "{lie:?}");
    }
}
