//! A folder in memory that writes down what is done to it, and what a power cut may leave of that.

use crate::store::folder::{Folder, Written};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Create {
        name: String,
        file: usize,
    },
    Append {
        file: usize,
        bytes: Vec<u8>,
    },
    SyncFile(usize),
    Rename {
        from: String,
        to: String,
        file: usize,
    },
    Remove {
        name: String,
    },
    SyncNames,
    /// So many writes were handed over.
    Handed(usize),
    /// So many are to be kept.
    Told(usize),
}

/// What the disk only pretends to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    None,
    FilesNotSynced,
    NamesNotSynced,
}

/// What is on the disk: names, and bytes behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State(BTreeMap<String, Vec<u8>>);

/// The folder. Clones are the same one.
#[derive(Clone)]
pub(super) struct Disk {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    lie: Lie,
    full: bool,
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
    steps: Vec<Step>,
}

impl Disk {
    pub(super) fn new(lie: Lie) -> Self {
        let (names, files) = (BTreeMap::new(), Vec::new());
        let inner = Inner { lie, full: false, names, files, steps: Vec::new() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// One that holds this, durably.
    pub(super) fn holding(state: &State) -> Self {
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

    /// From now on half of each write has no room; or all have again.
    pub(super) fn refuse(&self, full: bool) {
        self.lock().full = full;
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        self.lock().steps.clone()
    }

    pub(super) fn mark(&self, step: Step) {
        self.lock().steps.push(step);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

/// A file of it.
pub(super) struct Open {
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

/// Everything that a power cut after these steps may leave of a disk that held `before`.
pub(super) fn left(before: &State, steps: &[Step]) -> BTreeSet<State> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut files: BTreeMap<usize, (Vec<u8>, Vec<&[u8]>)> = BTreeMap::new();
    for (file, (name, bytes)) in before.0.iter().enumerate() {
        names.insert(name.clone(), file);
        files.insert(file, (bytes.clone(), Vec::new()));
    }
    let mut unsynced: Vec<&Step> = Vec::new();
    for step in steps {
        match step {
            Step::Create { file, .. } => {
                files.insert(*file, Default::default());
                unsynced.push(step);
            }
            Step::Rename { .. } | Step::Remove { .. } => unsynced.push(step),
            Step::Append { file, bytes } => files.get_mut(file).unwrap().1.push(bytes),
            Step::SyncFile(file) => {
                let (durable, pending) = files.get_mut(file).unwrap();
                pending.drain(..).for_each(|bytes| durable.extend_from_slice(bytes));
            }
            Step::SyncNames => unsynced.drain(..).for_each(|step| name(&mut names, step)),
            Step::Handed(_) | Step::Told(_) => {}
        }
    }
    let mut states = BTreeSet::new();
    for choice in 0..1_u32 << unsynced.len() {
        let mut names = names.clone();
        let chosen = unsynced.iter().enumerate().filter(|(n, _)| choice & (1 << n) != 0);
        chosen.for_each(|(_, step)| name(&mut names, step));
        let mut so_far = vec![State::default()];
        for (name, file) in names {
            let (durable, pending) = &files[&file];
            let variants = contents(durable, pending);
            let with = |state: &State, bytes: &Vec<u8>| {
                let mut state = state.clone();
                state.0.insert(name.clone(), bytes.clone());
                state
            };
            so_far = so_far
                .iter()
                .flat_map(|state| variants.iter().map(|bytes| with(state, bytes)))
                .collect();
        }
        states.extend(so_far);
    }
    states
}

fn name(names: &mut BTreeMap<String, usize>, step: &Step) {
    match step {
        Step::Create { name, file } => {
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
        | Step::Handed(_)
        | Step::Told(_) => unreachable!("it changes no name"),
    }
}

/// Each append that was not synced may be there, half there, blank or absent, whatever became of the others.
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
