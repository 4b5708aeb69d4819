//! A compressed tar file that appears only when it is complete.

use anyhow::{Context as _, Result};
use flate2::{Compression, write::GzEncoder};
use std::{
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};
use tar::{Builder, Header};
use view_cluster::{Bounds, Index};
use view_text::counted;

pub(super) struct Archive {
    tar: Builder<GzEncoder<File>>,
    index: Index,
    half: PathBuf,
    file: PathBuf,
}

impl Archive {
    /// Creates a temporary file beside the target. Only the owner can read it.
    pub(super) fn create(file: &Path) -> Result<Self> {
        let mut half = file.as_os_str().to_owned();
        half.push(".part");
        let half = PathBuf::from(half);
        // An existing file is removed, because another user may own it.
        if let Err(error) = fs::remove_file(&half)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("remove {}", half.display()));
        }
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half);
        let opened = opened.with_context(|| format!("cannot write {}", half.display()))?;
        let tar = Builder::new(GzEncoder::new(opened, Compression::default()));
        let index = Index { version: env!("CARGO_PKG_VERSION").to_owned(), ..Index::default() };
        Ok(Self { tar, index, half, file: file.to_owned() })
    }

    /// Adds a file, within the bounds.
    pub(super) fn put(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let Some(kept) = self.index.take(path, bytes, BOUNDS) else { return Ok(()) };
        append(&mut self.tar, path, kept)
    }

    /// Returns true if the bounds are reached.
    pub(super) fn is_full(&self) -> bool {
        self.index.is_full(BOUNDS)
    }

    /// Records a file that could not be read.
    pub(super) fn miss(&mut self, path: &str, why: impl Into<String>) {
        self.index.miss(path, why);
    }

    /// Writes the index and renames the file. Returns the number of files and a summary.
    pub(super) fn finish(
        mut self,
        interrupted: bool,
        failed: Option<String>,
    ) -> Result<(usize, String)> {
        self.index.interrupted = interrupted;
        if let Some(why) = failed {
            self.index.miss("the rest", why);
        }
        append(&mut self.tar, "index.json", &serde_json::to_vec_pretty(&self.index)?)?;
        let written = self.tar.into_inner().and_then(GzEncoder::finish);
        let written = written.and_then(|file| file.sync_all());
        written.with_context(|| format!("cannot write {}", self.half.display()))?;
        fs::rename(&self.half, &self.file)
            .with_context(|| format!("name it {}", self.file.display()))?;
        let (files, missing) = (self.index.files.len(), self.index.missing.len());
        let word = if interrupted { "interrupted; " } else { "" };
        let of_files = counted(files, "file", "files");
        let said = format!("{word}{of_files}, {missing} could not be collected (see index.json)");
        Ok((files, said))
    }
}

fn append(tar: &mut Builder<GzEncoder<File>>, path: &str, bytes: &[u8]) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(u64::try_from(bytes.len())?);
    header.set_mode(0o600);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    header.set_mtime(now.as_secs());
    let path = format!("ferrule-bundle/{path}");
    tar.append_data(&mut header, &path, bytes).with_context(|| format!("cannot write {path}"))
}

/// Small enough for e-mail.
pub(super) const BOUNDS: Bounds = Bounds { file: 8 << 20, all: 256 << 20 };

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use flate2::read::GzDecoder;
    use std::{io::Read as _, os::unix::fs::PermissionsExt as _};

    #[test]
    fn an_interrupted_archive_is_complete_and_reports_the_interruption() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("b.tar.gz");
        let mut archive = Archive::create(&file).unwrap();
        archive.put("cluster/nodes.json", b"{}").unwrap();
        archive.miss("logs/x.log", "no right");
        assert!(!file.exists());
        archive.finish(true, None).unwrap();
        let mut read = tar::Archive::new(GzDecoder::new(File::open(&file).unwrap()));
        let mut found = Vec::new();
        for entry in read.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push((entry.path().unwrap().display().to_string(), text));
        }
        assert_eq!(found[0], ("ferrule-bundle/cluster/nodes.json".to_owned(), "{}".to_owned()));
        let index: serde_json::Value = serde_json::from_str(&found[1].1).unwrap();
        assert_eq!(index["interrupted"], true);
        assert_eq!(index["missing"][0]["why"], "no right");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no half is left");
    }

    #[test]
    fn an_archive_belongs_to_its_owner_also_if_a_file_or_a_link_existed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, theirs) = (folder.path().join("b.tar.gz"), folder.path().join("theirs"));
        fs::write(&theirs, "stays").unwrap();
        std::os::unix::fs::symlink(&theirs, folder.path().join("b.tar.gz.part")).unwrap();
        let (files, _) = Archive::create(&file).unwrap().finish(false, None).unwrap();
        assert_eq!(files, 0);
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "stays");
        let found = fs::symlink_metadata(&file).unwrap();
        assert!(found.is_file());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    }
}
