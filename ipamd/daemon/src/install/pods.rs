//! Reads from the files of both daemons whether pods run on the node. It decides nothing, and an unreadable file
//! is an error.

use config_model::Migration;
use config_settings::Settings;
use install_disk::InstallError;
use install_plan::{CONFLIST, Pods};
use ipamd_core::{Checkpoint, Record, frame};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub(super) fn look(settings: &Settings) -> Result<Pods, InstallError> {
    let state = &settings.state_dir;
    let conflist = settings.host_conf_dir.join(CONFLIST);
    // An invisible folder proves nothing about its contents. Without our conflist there may be none yet.
    if conflist.exists() && !state.is_dir() {
        let (path, setting) = (state.clone(), "FERRULE_STATE_DIR");
        return Err(InstallError::NoState { path, conflist, setting });
    }
    let ours = read(&state.join(CHECKPOINT))?;
    let journal = state.join(Migration::FILE);
    let migration = match read(&journal)? {
        Some(bytes) => Some(
            serde_json::from_slice(&bytes)
                .map_err(|error| InstallError::Unread { path: journal, cause: error.into() })?,
        ),
        None => None,
    };
    let mut vpc_cni = false;
    for path in checkpoints(&settings.backing_store)? {
        vpc_cni |= read(&path)?.is_some_and(|bytes| lists_pods(&bytes));
    }
    Ok(Pods { ours: ours.is_some_and(|bytes| holds_pods(&bytes)), vpc_cni, migration })
}

/// A damaged checkpoint counts as one with pods, because a pod may be missing from it.
fn holds_pods(checkpoint: &[u8]) -> bool {
    let decoded = frame::decode(checkpoint);
    let sum = Checkpoint::replay(decoded.records).compact();
    let is_pod = |record: &Record| {
        matches!(
            record,
            Record::Reserved { .. }
                | Record::ReservedV6 { .. }
                | Record::ReservedCidr { .. }
                | Record::ReservedBranch { .. }
        )
    };
    decoded.damage.is_some() || sum.iter().any(is_pod)
}

/// A truncated checkpoint counts as one with pods.
fn lists_pods(checkpoint: &[u8]) -> bool {
    let whole: Option<serde_json::Value> = serde_json::from_slice(checkpoint).ok();
    whole.is_none_or(|whole| whole["allocations"].as_array().is_some_and(|list| !list.is_empty()))
}

/// The checkpoints of amazon-vpc-cni: one for network card 0, and one for each other card.
fn checkpoints(store: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let folder = store.parent().unwrap_or_else(|| Path::new("/"));
    let unread = |cause| InstallError::Unread { path: folder.to_owned(), cause };
    let entries = match fs::read_dir(folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unread)?,
    };
    let mut found = vec![store.to_owned()];
    for entry in entries {
        let path = entry.map_err(unread)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("ipam-nic-") && name.ends_with(".json") {
            found.push(path);
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(InstallError::Unread { path: path.to_owned(), cause }),
    }
}

const CHECKPOINT: &str = "ipam/checkpoint.log";
