//! Worlds in YAML with packets, their expected decisions and reasons: `vectors/*.yaml`.
//!
//! Each vector runs against `policy-core` in a new world, against `policy-core` in a world that went through
//! the vector's steps, and against the naive evaluator. `rows.yaml` lists the cases that must have a vector.

mod judge;
mod table;
mod world;

use anyhow::{Context as _, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};
use table::Vector;

#[test]
fn network_policies_answer_as_written() -> Result<()> {
    run("network_policy")
}

#[test]
fn cluster_network_policies_answer_as_written() -> Result<()> {
    run("cluster_network_policy")
}

#[test]
fn antrea_policies_answer_as_written() -> Result<()> {
    run("antrea")
}

#[test]
fn groups_answer_as_written() -> Result<()> {
    run("groups")
}

#[test]
fn aws_policies_answer_as_written() -> Result<()> {
    run("aws")
}

#[test]
fn all_kinds_together_answer_as_written() -> Result<()> {
    run("all_kinds")
}

#[test]
fn bad_input_fails_closed_as_written() -> Result<()> {
    run("bad_input")
}

#[test]
fn reading_reports_notes_as_written() -> Result<()> {
    run("reading")
}

#[test]
fn every_file_of_vectors_is_run() -> Result<()> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|end| end == "yaml")
            && !OTHER_FILES.contains(&stem.as_str())
        {
            found.insert(stem);
        }
    }
    let run: BTreeSet<String> = FILES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, run);
    Ok(())
}

#[test]
fn every_row_has_a_vector_and_every_vector_has_a_row() -> Result<()> {
    let rows: BTreeMap<String, String> = table::read(&path("rows"))?;
    let (mut ids, mut covered) = (BTreeSet::new(), BTreeSet::new());
    let mut faults = Vec::new();
    for file in FILES {
        for vector in table::read::<Vec<Vector>>(&path(file))? {
            faults.extend(vector.rows.is_empty().then(|| format!("{} has no row", vector.id)));
            for row in vector.rows {
                let unknown = !rows.contains_key(&row);
                faults
                    .extend(unknown.then(|| format!("{}: rows.yaml has no row {row}", vector.id)));
                covered.insert(row);
            }
            let twice = !ids.insert(vector.id.clone());
            faults.extend(twice.then(|| format!("{} exists twice", vector.id)));
        }
    }
    let bare = rows.keys().filter(|row| !covered.contains(*row));
    faults.extend(bare.map(|row| format!("{row} has no vector")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn run(file: &str) -> Result<()> {
    let standard: Vec<serde_json::Value> = table::read(&path("world"))?;
    let vectors: Vec<Vector> = table::read(&path(file))?;
    let mut faults = Vec::new();
    for vector in &vectors {
        let (id, title) = (&vector.id, &vector.title);
        let found = judge::vector(&standard, vector).with_context(|| format!("{id}: {title}"))?;
        faults.extend(found.into_iter().map(|fault| format!("{id}, {title}: {fault}")));
    }
    let (count, of) = (faults.len(), vectors.len());
    assert!(faults.is_empty(), "{count} faults in {of} vectors of {file}\n\n{}", faults.join("\n"));
    Ok(())
}

fn path(stem: &str) -> PathBuf {
    folder().join(format!("{stem}.yaml"))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

const FILES: [&str; 8] = [
    "network_policy",
    "cluster_network_policy",
    "antrea",
    "groups",
    "aws",
    "all_kinds",
    "bad_input",
    "reading",
];
/// Files in the folder that contain no vectors.
const OTHER_FILES: [&str; 2] = ["rows", "world"];
