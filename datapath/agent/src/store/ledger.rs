//! The file: read once at the start, appended to, and written anew beside itself.

use control_wire::NodeSnapshot;
use datapath_node::{
    LocalPod,
    store::{self, Damage, HEADER, Record, Replayed},
};
use runtime_journal::{Folder, OpenError, Written as _};
use std::{collections::BTreeMap, io, path::PathBuf};

/// What was found at the start.
#[derive(Debug)]
pub(crate) struct Found {
    /// What was held.
    pub(crate) replayed: Replayed,
    /// What was wrong with the file, and where it is kept aside if it is of no use any more.
    pub(crate) damage: Option<(String, Option<PathBuf>)>,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Ledger<F: Folder> {
    folder: F,
    /// None before it was written anew, and after a write that failed: what would come next would stand
    /// behind damage.
    file: Option<F::File>,
    size: usize,
    /// Its size when it was written anew.
    written: usize,
}

impl<F: Folder> Ledger<F> {
    /// Reads the file, if there is one. It is not appended to before it was written anew.
    pub(crate) fn open(folder: F) -> Result<(Self, Found), OpenError> {
        let disk = |attempt| {
            let path = folder.path(FILE);
            move |cause| OpenError::Disk { attempt, path, cause }
        };
        let found = match folder.read(FILE) {
            Ok(bytes) => {
                let recovered = store::decode(&bytes);
                let replayed = store::replay(recovered.records);
                let bad = match recovered.damage {
                    Some(damage @ (Damage::Corrupt { .. } | Damage::Foreign)) => {
                        Some(damage.to_string())
                    }
                    Some(Damage::TornTail { .. }) | None => replayed.stopped.clone(),
                };
                let damage = match (bad, recovered.damage) {
                    (Some(bad), _) => {
                        // The last one is kept: a person is to look at it, not at a hundred.
                        folder.rename(FILE, ASIDE).map_err(disk("keep aside"))?;
                        folder.sync().map_err(disk("keep aside"))?;
                        Some((bad, Some(folder.path(ASIDE))))
                    }
                    (None, Some(torn)) => Some((torn.to_string(), None)),
                    (None, None) => None,
                };
                Found { replayed, damage }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Found { replayed: Replayed::default(), damage: None }
            }
            Err(cause) => return Err(disk("read")(cause)),
        };
        // Of a write that did not come to its end.
        let _ = folder.remove(NEW);
        Ok((Self { folder, file: None, size: 0, written: 0 }, found))
    }

    /// Writes the file anew, with all that is held.
    pub(crate) fn write(
        &mut self,
        held: &NodeSnapshot,
        local: &BTreeMap<String, LocalPod>,
    ) -> io::Result<()> {
        let mut bytes = HEADER.to_vec();
        store::image(held, local).iter().for_each(|record| store::encode(record, &mut bytes));
        self.file = None;
        let written = self.replace(&bytes);
        if written.is_err() {
            // On a full disk its room may be what the next attempt lacks.
            let _ = self.folder.remove(NEW);
        }
        self.file = Some(written?);
        (self.size, self.written) = (bytes.len(), bytes.len());
        Ok(())
    }

    /// Appends records, durably.
    pub(crate) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        records.iter().for_each(|record| store::encode(record, &mut bytes));
        let Some(mut file) = self.file.take() else {
            return Err(io::Error::other("the file is to be written anew first"));
        };
        file.append(&bytes)?;
        file.sync()?;
        self.size += bytes.len();
        self.file = Some(file);
        Ok(())
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn written(&self) -> usize {
        self.written
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path(FILE)
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<F::File> {
        let mut file = self.folder.create(NEW)?;
        file.append(bytes)?;
        file.sync()?;
        self.folder.rename(NEW, FILE)?;
        self.folder.sync()?;
        Ok(file)
    }
}

const FILE: &str = "policy.log";
const NEW: &str = "policy.new";
const ASIDE: &str = "policy.damaged";
