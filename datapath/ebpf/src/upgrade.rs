//! The maps of a release that has other layouts than the release before.
//!
//! Maps of policies are new, and the first state fills them. Maps of Services stay in use if their layouts are the same. The
//! programs of both releases read the same rows, so a client keeps its backend. Connections are copied, because a row has the
//! generation of its release's policies.

use crate::{
    LoadError, Programs,
    grow::{first_rows, share},
    maps::{Layout, layout_name, layouts, newest, of_services},
    pins::{BEGUN, folders_of_maps, removed},
};
use config_model::causes;
use config_settings::Connections;
use std::{
    fs::remove_dir_all,
    path::{Path, PathBuf},
};

/// The programs with their maps, and the folders of other maps.
pub(crate) struct Opened {
    pub(crate) programs: Programs,
    /// The folder of the maps in use.
    pub(crate) folder: PathBuf,
    /// They are not needed once the programs are attached.
    pub(crate) others: Vec<PathBuf>,
    /// Folders of `others` with connections that are copied.
    pub(crate) earlier: Vec<PathBuf>,
    /// True if links may have programs with a smaller map of the same release.
    pub(crate) has_smaller: bool,
}

/// Loads the programs with the maps of this release, and copies the connections of others.
pub(crate) fn open(
    object: &Path,
    pins: &Path,
    connections: &Connections,
) -> Result<Opened, LoadError> {
    let folder = newest(pins, connections.services);
    let is_new = !folder.exists();
    let is_other = |found: &PathBuf| *found != folder && !(is_new && found.ends_with(BEGUN));
    let mut others = folders_of_maps(pins);
    others.retain(is_other);
    let mut programs = match is_new && !others.is_empty() {
        true => load_beside(object, &folder, &others, connections)?,
        false => Programs::load_with(object, Some(&folder), connections, None)?,
    };
    // A process that ended while a map grew has left the earlier one, and filters with it.
    let layout = layout_name(connections.services);
    let is_smaller = |folder: &&PathBuf| folder.to_string_lossy().contains(&layout);
    let has_smaller = others.iter().any(|folder| is_smaller(&folder));
    let earlier = others.iter().filter(|folder| is_new || is_smaller(folder)).cloned().collect();
    let earlier = copy_flows(&mut programs, earlier);
    Ok(Opened { programs, folder, others, earlier, has_smaller })
}

/// Copies the connections that the programs do not have. Returns the folders whose connections can be copied again.
pub(crate) fn copy_flows(programs: &mut Programs, mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.retain(|folder| match programs.copy_flows(folder) {
        Ok(Some((0, 0))) => true,
        Ok(Some((flows, 0))) => {
            tracing::info!(flows, "copied connections of another release");
            true
        }
        Ok(Some((flows, left))) => {
            tracing::warn!(
                flows,
                left,
                "the map of connections is full: the other connections of another release are judged again"
            );
            false
        }
        Ok(None) => {
            tracing::warn!(
                "another release has other connections: the packets of each are judged again"
            );
            false
        }
        Err(error) => {
            tracing::warn!(why = causes(&error), "cannot copy connections of another release");
            false
        }
    });
    folders
}

/// Loads the programs with new maps, and with the maps of Services of another release if they have the same layouts. A
/// folder with the final name is complete.
fn load_beside(
    object: &Path,
    folder: &Path,
    others: &[PathBuf],
    connections: &Connections,
) -> Result<Programs, LoadError> {
    let begun = folder.with_file_name(BEGUN);
    let larger = ("flows", first_rows(others.iter(), connections));
    let of_release = layouts(connections);
    let has_services = |other: &&PathBuf| {
        let is_same = |layout: &Layout| layout.check(&other.join(layout.name)).is_ok();
        connections.services && of_services(&of_release).all(is_same)
    };
    match latest(others).filter(has_services) {
        Some(other) => {
            let names = of_services(&of_release).map(|layout| layout.name);
            share(other, &begun, names)?;
        }
        None => removed(remove_dir_all(&begun), &begun)?,
    }
    let mut programs = Programs::load_with(object, Some(&begun), connections, Some(larger))?;
    programs.rename_maps(&begun, folder)?;
    Ok(programs)
}

/// The folder that changed last. Programs of its release are attached.
fn latest(folders: &[PathBuf]) -> Option<&PathBuf> {
    folders.iter().max_by_key(|folder| folder.metadata().and_then(|of| of.modified()).ok())
}
