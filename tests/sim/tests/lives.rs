//! A fixed set of lives, and every one that once broke a law.

use tests_sim::{CORPUS, Mode, Plan, RunOptions, read_corpus, run};

/// The number of lives per mode. `cargo xtask sim` runs thousands.
const EACH: u64 = 12;

fn lives(mode: Mode, seeds: impl IntoIterator<Item = u64>) -> Vec<String> {
    let judged = seeds.into_iter().filter_map(|seed| {
        let violation = run(&Plan::of(seed, Some(mode)), RunOptions::default()).violation?;
        Some(format!("{mode} {seed} # {violation}"))
    });
    judged.collect()
}

#[test]
fn no_life_of_the_fixed_set_breaks_a_law() {
    let broken: Vec<String> = Mode::ALL.iter().flat_map(|mode| lives(*mode, 1..=EACH)).collect();
    assert!(broken.is_empty(), "see `cargo xtask sim`:\n{}", broken.join("\n"));
}

#[test]
fn pods_use_addresses_of_the_pod_cidr_in_most_lives_of_its_mode() {
    let watching = RunOptions { keep: 100_000, ..RunOptions::default() };
    let uses_cidr = |seed: &u64| {
        let lines = run(&Plan::of(*seed, Some(Mode::NodeCidr)), watching).trace;
        lines.iter().any(|line| line.contains("reserved 100.64.7."))
    };
    let lives = (1..=EACH).filter(uses_cidr).count() as u64;
    assert!(2 * lives > EACH, "only {lives} of {EACH} lives use the pod CIDR");
}

#[test]
fn no_life_of_the_corpus_breaks_a_law() {
    let corpus = read_corpus(CORPUS).expect("the corpus can be read");
    let broken: Vec<String> =
        corpus.into_iter().flat_map(|(mode, seed)| lives(mode, [seed])).collect();
    assert!(broken.is_empty(), "see `cargo xtask sim`:\n{}", broken.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_life() {
    let watching = RunOptions { keep: 100_000, ..RunOptions::default() };
    for mode in Mode::ALL {
        let plan = Plan::of(7, Some(*mode));
        let (one, two) = (run(&plan, watching), run(&plan, watching));
        assert!(one.trace == two.trace, "{mode}: two runs of seed 7 differ");
        assert!(one.trace.len() > 100, "{mode}: seed 7 has hardly any events");
    }
}
