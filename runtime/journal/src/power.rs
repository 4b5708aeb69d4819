//! A folder in memory that records each operation, and the states that a power cut may leave. For tests.

#![expect(
    clippy::unwrap_used,
    clippy::unreachable,
    reason = "a test stops where its premise fails"
)]

use crate::{Folder, Written};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A file was created. Files have numbers, because names change.
    Create { name: String, file: usize },
    /// Bytes were appended.
    Append { file: usize, bytes: Vec<u8> },
    /// The bytes of this file were made durable.
    SyncFile(usize),
    /// A file was renamed.
    Rename { from: String, to: String, file: usize },
    /// A file got a second name.
    Link { to: String, file: usize },
    /// A name was removed.
    Remove { name: String },
    /// The names were made durable.
    SyncNames,
    /// The test handed over this many records.
    HandedOver(usize),
    /// This many records were reported as durable.
    Durable(usize),
}

/// The syncs that the disk only pretends to perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    None,
    FilesNotSynced,
    NamesNotSynced,
}

/// The contents of a disk: names and their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct State(pub BTreeMap<String, Vec<u8>>);

/// A folder in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct Disk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    lie: Lie,
    full: bool,
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
    steps: Vec<Step>,
    written: usize,
}

impl Disk {
    /// An empty folder.
    pub fn new(lie: Lie) -> Self {
        let inner = Inner {
            lie,
            full: false,
            names: BTreeMap::new(),
            files: Vec::new(),
            steps: Vec::new(),
            written: 0,
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// A folder with these files, all durable.
    pub fn holding(state: &State) -> Self {
        let disk = Self::new(Lie::None);
        let mut inner = disk.lock();
        for (name, bytes) in &state.0 {
            let file = inner.files.len();
            inner.files.push(bytes.clone());
            inner.names.insert(name.clone(), file);
        }
        drop(inner);
        disk
    }

    /// The operations so far.
    pub fn steps(&self) -> Vec<Step> {
        self.lock().steps.clone()
    }

    /// Records a step of the test.
    pub fn mark(&self, step: Step) {
        self.lock().steps.push(step);
    }

    /// Sets the state of the disk. If it is full, half of each write fails.
    pub fn refuse(&self, full: bool) {
        self.lock().full = full;
    }

    /// The number of bytes ever written.
    pub fn written(&self) -> usize {
        self.lock().written
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

/// A file of the folder.
#[derive(Debug)]
pub struct Open {
    disk: Disk,
    file: usize,
}

impl Folder for Disk {
    type File = Open;

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let inner = self.lock();
        let file = inner.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(inner.files[*file].clone())
    }

    fn create(&self, name: &str) -> io::Result<Open> {
        let mut inner = self.lock();
        let file = inner.files.len();
        inner.files.push(Vec::new());
        inner.names.insert(name.to_owned(), file);
        inner.steps.push(Step::Create { name: name.to_owned(), file });
        Ok(Open { disk: self.clone(), file })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let file = inner.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inner.names.insert(to.to_owned(), file);
        inner.steps.push(Step::Rename { from: from.to_owned(), to: to.to_owned(), file });
        Ok(())
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let file = *inner.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        if inner.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        inner.names.insert(to.to_owned(), file);
        inner.steps.push(Step::Link { to: to.to_owned(), file });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.lock();
        inner.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        inner.steps.push(Step::Remove { name: name.to_owned() });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.lie != Lie::NamesNotSynced {
            inner.steps.push(Step::SyncNames);
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
}

impl Written for Open {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.lock();
        let full = inner.full;
        let bytes = if full { &bytes[..bytes.len() / 2] } else { bytes };
        inner.files[self.file].extend_from_slice(bytes);
        inner.written += bytes.len();
        inner.steps.push(Step::Append { file: self.file, bytes: bytes.to_vec() });
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.disk.lock();
        if inner.lie != Lie::FilesNotSynced {
            inner.steps.push(Step::SyncFile(self.file));
        }
        Ok(())
    }
}

/// All states that a power cut after these steps may leave of a disk that held `before`.
pub fn left(before: &State, steps: &[Step]) -> BTreeSet<State> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut files: BTreeMap<usize, (Vec<u8>, Vec<&[u8]>)> = BTreeMap::new();
    for (file, (name, bytes)) in before.0.iter().enumerate() {
        names.insert(name.clone(), file);
        files.insert(file, (bytes.clone(), Vec::new()));
    }
    let mut unsynced_names: Vec<&Step> = Vec::new();
    for step in steps {
        match step {
            Step::Create { file, .. } => {
                files.insert(*file, Default::default());
                unsynced_names.push(step);
            }
            Step::Rename { .. } | Step::Link { .. } | Step::Remove { .. } => {
                unsynced_names.push(step);
            }
            Step::Append { file, bytes } => files.get_mut(file).unwrap().1.push(bytes),
            Step::SyncFile(file) => {
                let (durable, pending) = files.get_mut(file).unwrap();
                pending.drain(..).for_each(|bytes| durable.extend_from_slice(bytes));
            }
            Step::SyncNames => {
                unsynced_names.drain(..).for_each(|step| rename(&mut names, step));
            }
            Step::HandedOver(_) | Step::Durable(_) => {}
        }
    }
    let mut states = BTreeSet::new();
    for choice in 0..1_u32 << unsynced_names.len() {
        let mut names = names.clone();
        let chosen = unsynced_names.iter().enumerate().filter(|(n, _)| choice & (1 << n) != 0);
        chosen.for_each(|(_, step)| rename(&mut names, step));
        let mut so_far = vec![State::default()];
        for (name, file) in names {
            let (durable, pending) = &files[&file];
            let variants = contents(durable, pending);
            so_far = so_far
                .iter()
                .flat_map(|state| variants.iter().map(|bytes| with(state, &name, bytes)))
                .collect();
        }
        states.extend(so_far);
    }
    states
}

fn with(state: &State, name: &str, bytes: &[u8]) -> State {
    let mut state = state.clone();
    state.0.insert(name.to_owned(), bytes.to_vec());
    state
}

fn rename(names: &mut BTreeMap<String, usize>, step: &Step) {
    match step {
        Step::Create { name, file } | Step::Link { to: name, file } => {
            names.insert(name.clone(), *file);
        }
        Step::Rename { from, to, file } => {
            names.remove(from);
            names.insert(to.clone(), *file);
        }
        Step::Remove { name } => {
            names.remove(name);
        }
        Step::Append { .. }
        | Step::SyncFile(_)
        | Step::SyncNames
        | Step::HandedOver(_)
        | Step::Durable(_) => unreachable!("it changes no name"),
    }
}

/// Each append that was not synced may be there, half there, blank or absent, independently of the others.
fn contents(durable: &[u8], pending: &[&[u8]]) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    for choice in 0..1_u32 << (2 * pending.len()) {
        let (mut bytes, mut at) = (durable.to_vec(), durable.len());
        for (n, piece) in pending.iter().enumerate() {
            let there = match choice >> (2 * n) & 3 {
                0 => 0,
                1 => piece.len() / 2,
                _ => piece.len(),
            };
            if there > 0 {
                bytes.resize(at, 0);
                bytes.extend_from_slice(&piece[..there]);
                if choice >> (2 * n) & 3 == 3 {
                    bytes[at..].fill(0);
                }
            }
            at += piece.len();
        }
        found.insert(bytes);
    }
    found
}
