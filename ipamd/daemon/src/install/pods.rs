//! Whose pods run on the node, as both sides' files tell. Decides nothing; what cannot be seen is an error.

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
    // Not to see a folder is no word of what is in it: without our network there may be none yet.
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
    let mut theirs = false;
    for path in checkpoints(&settings.backing_store)? {
        theirs |= read(&path)?.is_some_and(|bytes| lists_pods(&bytes));
    }
    Ok(Pods { ours: ours.is_some_and(|bytes| holds_pods(&bytes)), theirs, migration })
}

/// Also if it is damaged: a pod that is missing from it would be missed.
fn holds_pods(checkpoint: &[u8]) -> bool {
    let told = frame::decode(checkpoint);
    let sum = Checkpoint::replay(told.records).compact();
    let is_pod = |record: &Record| {
        matches!(
            record,
            Record::Reserved { .. } | Record::ReservedV6 { .. } | Record::ReservedBranch { .. }
        )
    };
    told.damage.is_some() || sum.iter().any(is_pod)
}

/// Also if it is cut off.
fn lists_pods(checkpoint: &[u8]) -> bool {
    let whole: Option<serde_json::Value> = serde_json::from_slice(checkpoint).ok();
    whole.is_none_or(|whole| whole["allocations"].as_array().is_some_and(|list| !list.is_empty()))
}

/// amazon-vpc-cni's: that of network card 0, and those of others beside it.
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
