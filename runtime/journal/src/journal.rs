//! A file of framed records: read once at the start, appended to, and replaced by a shorter one from time to time.

use crate::{Folder, OpenError, Written as _};
use runtime_frame::{Damage, Record, Recovered, TooLong, decode, encode, image};
use std::{fmt, io, marker::PhantomData, path::PathBuf};

/// The name of a journal and its compaction.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The file is `NAME.log`. `NAME.new` is a replacement that is being written.
    pub name: &'static str,
    /// A file of this many bytes is not worth compaction.
    pub short: usize,
}

/// A journal as it was found. The file is unchanged until the first [`Journal::rewrite`].
#[derive(Debug)]
pub struct Opened<R, F: Folder> {
    /// The journal. It accepts records after a first rewrite.
    pub journal: Journal<R, F>,
    /// The records that count, oldest first.
    pub records: Vec<R>,
    /// True if there was a file.
    pub found: bool,
    /// Except for a torn tail, the next rewrite keeps the damaged file aside.
    pub damage: Option<Damage>,
}

/// An open journal.
pub struct Journal<R, F: Folder> {
    folder: F,
    layout: Layout,
    /// `None` before the first rewrite and after a failed append: later records would follow damage.
    file: Option<F::File>,
    size: usize,
    /// The size after the last rewrite.
    compacted: usize,
    /// The present file is damaged and not yet kept aside.
    distrusted: bool,
    /// The path of a damaged file that was kept aside by a rewrite that then failed.
    aside: Option<PathBuf>,
    record: PhantomData<fn(R)>,
}

impl<R: Record, F: Folder> Journal<R, F> {
    /// Reads the file, if there is one. Damage is not an error.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn open(folder: F, layout: Layout) -> Result<Opened<R, F>, OpenError> {
        let mut journal = Self {
            folder,
            layout,
            file: None,
            size: 0,
            compacted: 0,
            distrusted: false,
            aside: None,
            record: PhantomData,
        };
        let (Recovered { records, damage }, found) = match journal.folder.read(&journal.name()) {
            Ok(bytes) => (decode(&bytes), true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                (Recovered { records: Vec::new(), damage: None }, false)
            }
            Err(cause) => {
                return Err(OpenError::Disk { attempt: "read", path: journal.path(), cause });
            }
        };
        journal.distrusted = damage.is_some_and(|damage| !damage.is_torn_tail());
        Ok(Opened { journal, records, found, damage })
    }

    /// The next rewrite keeps the present file aside, for a reader that found its records to be inconsistent.
    pub fn distrust(&mut self) {
        self.distrusted = true;
    }

    /// Replaces the file by one with these records. After a crash either the old or the new one is there. Returns the
    /// path of a damaged file that was kept aside.
    ///
    /// # Errors
    /// If a record is too long; the journal is then unchanged. If the new file may not be durable; the journal then
    /// accepts no records until a rewrite succeeds.
    pub fn rewrite(&mut self, records: &[R]) -> io::Result<Option<PathBuf>> {
        let bytes = image(records).map_err(too_long)?;
        self.file = None;
        if self.distrusted {
            self.aside = Some(self.keep_aside()?);
            self.distrusted = false;
        }
        let replaced = self.replace(&bytes);
        if replaced.is_err() {
            // On a full disk the next attempt may need its space.
            let _ = self.folder.remove(&self.new_name());
        }
        self.file = Some(replaced?);
        (self.size, self.compacted) = (bytes.len(), bytes.len());
        Ok(self.aside.take())
    }

    /// Appends records in one write. On return they outlive this process; with `sync` they and all records before
    /// them also outlive a power cut.
    ///
    /// # Errors
    /// If a record is too long; no record is then appended. If a record may be missing, or a rewrite must come first.
    /// The end of the file is unknown after a failed write or sync, so a rewrite must come next.
    pub fn append(&mut self, records: &[R], sync: bool) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        records.iter().try_for_each(|record| encode(record, &mut bytes)).map_err(too_long)?;
        let Some(mut file) = self.file.take() else {
            return Err(io::Error::other("the journal must be rewritten first"));
        };
        file.append(&bytes)?;
        if sync {
            file.sync()?;
        }
        self.size += bytes.len();
        self.file = Some(file);
        Ok(())
    }

    /// Returns true if a rewrite is due. The file has then grown so far beyond its shortest form that a rewrite costs
    /// each record since the last one only a constant.
    pub fn is_long(&self) -> bool {
        self.size > self.layout.short.max(self.compacted.saturating_mul(COMPACTION_FACTOR))
    }

    /// For messages to people.
    pub fn path(&self) -> PathBuf {
        self.folder.path(&self.name())
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<F::File> {
        let mut file = self.folder.create(&self.new_name())?;
        file.append(bytes)?;
        file.sync()?;
        self.folder.rename(&self.new_name(), &self.name())?;
        self.folder.sync()?;
        Ok(file)
    }

    /// Gives the damaged file a second name, which needs no room on the disk. The oldest ones are kept, and the newest.
    fn keep_aside(&self) -> io::Result<PathBuf> {
        for number in 1..=DAMAGED_MOST {
            let aside = format!("{}.damaged-{number}", self.name());
            if number == DAMAGED_MOST {
                match self.folder.remove(&aside) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    Ok(()) | Err(_) => {}
                }
            }
            match self.folder.link(&self.name(), &aside) {
                Ok(()) => {
                    self.folder.sync()?;
                    return Ok(self.folder.path(&aside));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn name(&self) -> String {
        format!("{}.log", self.layout.name)
    }

    fn new_name(&self) -> String {
        format!("{}.new", self.layout.name)
    }
}

impl<R, F: Folder> fmt::Debug for Journal<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("layout", &self.layout)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

fn too_long(record: TooLong) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, record)
}

const COMPACTION_FACTOR: usize = 4;
/// The number of damaged files that are kept.
const DAMAGED_MOST: u32 = 8;
