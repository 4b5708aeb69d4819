//! Tombstones: DELs that the daemon carries out later.

use crate::fault::{Code, Fault};
use config_model::{Tombstone, registry};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Writes the tombstone durably. Fields of an earlier tombstone of the same interface are kept: a repeated DEL knows
/// less.
///
/// # Errors
/// With code 5: the runtime must repeat the DEL, or the address would stay taken.
pub fn leave(state_dir: &Path, tombstone: &Tombstone) -> Result<(), Fault> {
    let path = state_dir.join(registry::TOMBSTONE_DIR).join(Tombstone::file_name(&tombstone.key));
    write(state_dir, &merged(tombstone, earlier(&path))).map_err(|error| {
        Fault::new(
            Code::Io,
            format!(
                "the daemon does not answer, and the tombstone of {} cannot be written to {}: \
                 {error}",
                tombstone.key,
                state_dir.display()
            ),
            "start ferrule-ipamd or make the folder writable; the runtime will repeat the DEL",
        )
    })
}

/// The earlier tombstone; `None` also if it cannot be read.
fn earlier(path: &Path) -> Option<Tombstone> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn merged(tombstone: &Tombstone, earlier: Option<Tombstone>) -> Tombstone {
    let mut merged = tombstone.clone();
    if let Some(earlier) = earlier.filter(|earlier| earlier.key == tombstone.key) {
        merged.pod = merged.pod.or(earlier.pod);
        merged.addresses.extend(earlier.addresses);
        merged.addresses.sort();
        merged.addresses.dedup();
    }
    merged
}

fn write(state_dir: &Path, tombstone: &Tombstone) -> io::Result<()> {
    let folder = state_dir.join(registry::TOMBSTONE_DIR);
    if !folder.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        sync_folder(state_dir)?;
    }
    let name = Tombstone::file_name(&tombstone.key);
    // Two DELs of one key at once must not write into one file; a name that starts with a dot is
    // no tombstone yet.
    let unfinished = folder.join(format!(".{name}.{}", std::process::id()));
    let written = write_durably(&unfinished, tombstone)
        .and_then(|()| fs::rename(&unfinished, folder.join(name)));
    if written.is_err() {
        // The first error is returned.
        let _ = fs::remove_file(&unfinished);
    }
    written.and_then(|()| sync_folder(&folder))
}

fn write_durably(path: &Path, tombstone: &Tombstone) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&serde_json::to_vec(tombstone)?)?;
    file.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use config_model::{PodKey, PodName};

    #[test]
    fn a_tombstone_can_be_read_back_and_leaves_nothing_else() {
        let folder =
            std::env::temp_dir().join(format!("ferrule-cni-tombstone-{}", std::process::id()));
        let key = PodKey::new("aws-cni", "a1", "eth0").unwrap();
        let pod = PodName { namespace: "default".into(), name: "web-0".into() };
        let tombstone = Tombstone::new(key, Some(pod), vec!["10.0.0.7".parse().unwrap()]);
        leave(&folder, &tombstone).unwrap();
        // A later DEL knows neither pod nor address; both stay.
        leave(&folder, &Tombstone::new(tombstone.key.clone(), None, Vec::new())).unwrap();
        let entries: Vec<_> = fs::read_dir(folder.join("tombstones")).unwrap().collect();
        assert_eq!(entries.len(), 1);
        let path = folder.join("tombstones").join(Tombstone::file_name(&tombstone.key));
        let read: Tombstone = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(read, tombstone);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_tombstone_that_cannot_be_written_fails_the_del() {
        let key = PodKey::new("aws-cni", "a1", "eth0").unwrap();
        let tombstone = Tombstone::new(key, None, Vec::new());
        let fault = leave(Path::new("/proc/no-such"), &tombstone).unwrap_err();
        assert_eq!(fault.code, Code::Io);
        assert!(
            fault.message.contains("aws-cni/a1/eth0") && fault.message.contains("/proc/no-such")
        );
    }
}
