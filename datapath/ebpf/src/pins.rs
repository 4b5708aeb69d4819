//! The pins of maps and programs: each is compared with the object in use, and recreated if it differs.

use crate::{LoadError, maps::Layout};
use aya::{
    maps::{MapData, MapInfo},
    pin::PinError,
    programs::ProgramInfo,
};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// The maps in use, each with its name and the kernel's id.
pub(crate) struct PinnedMaps(Vec<(&'static str, MapData, u32)>);

impl PinnedMaps {
    /// Opens the pins of the folder.
    pub(crate) fn open(folder: &Path, layouts: &[Layout]) -> Result<Self, LoadError> {
        let one = |layout: &Layout| {
            let fault = |cause| LoadError::Map { name: layout.name, cause };
            let map = MapData::from_pin(folder.join(layout.name)).map_err(fault)?;
            let id = map.info().map_err(fault)?.id();
            Ok((layout.name, map, id))
        };
        layouts.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Recreates the pins that lead to no map or to another one. Returns their names.
    pub(crate) fn repair(&self, folder: &Path) -> Result<Vec<&'static str>, LoadError> {
        let mut repaired = Vec::new();
        for (name, map, id) in &self.0 {
            let pin = folder.join(name);
            if MapInfo::from_pin(&pin).is_ok_and(|found| found.id() == *id) {
                continue;
            }
            replace(folder, &pin)?;
            map.pin(&pin).map_err(|cause| LoadError::Pin { name, cause })?;
            repaired.push(*name);
        }
        Ok(repaired)
    }
}

/// Recreates the pin of a program if it leads to no program or to another one. Returns true if it did.
pub(crate) fn repair_program(
    folder: &Path,
    name: &'static str,
    id: u32,
    pin_at: impl FnOnce(&Path) -> Result<(), PinError>,
) -> Result<bool, LoadError> {
    let pin = folder.join(name);
    if ProgramInfo::from_pin(&pin).is_ok_and(|found| found.id() == id) {
        return Ok(false);
    }
    replace(folder, &pin)?;
    pin_at(&pin).map_err(|cause| LoadError::Pin { name, cause })?;
    Ok(true)
}

/// The result of a removal of a pin or a folder of pins: one that does not exist is removed.
pub(crate) fn removed(removed: std::io::Result<()>, path: &Path) -> Result<(), LoadError> {
    match removed {
        Err(cause) if cause.kind() != ErrorKind::NotFound => {
            Err(LoadError::Unpin { path: path.to_owned(), cause })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The folder of a growth that is not complete.
pub(crate) const BEGUN: &str = "begun";

/// The folders of maps of all releases, and of a growth that is not complete.
pub(crate) fn folders_of_maps(pins: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(pins).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path());
    let is_of_maps = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        folder.is_dir() && (name.starts_with("maps-") || name == BEGUN)
    };
    folders.filter(is_of_maps).collect()
}

/// Makes place for a pin.
fn replace(folder: &Path, pin: &Path) -> Result<(), LoadError> {
    let fault = |cause| LoadError::Folder { folder: folder.to_owned(), cause };
    std::fs::create_dir_all(folder).map_err(fault)?;
    match std::fs::remove_file(pin) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(fault(cause)),
        Ok(()) | Err(_) => Ok(()),
    }
}
