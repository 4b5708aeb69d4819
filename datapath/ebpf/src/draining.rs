//! Open connections to Services that an earlier process has translated, in a process without Services.
//!
//! The programs look for the row of a connection before they look for its frontend. So without frontends they translate open
//! TCP connections only. Other packets continue to the host's stack, where kube-proxy translates them.

use crate::{LoadError, existing::monotonic, pins::folders_of_maps};
use aya::maps::{HashMap, Map, MapData};
use config_model::causes;
use std::{path::Path, time::Duration};

/// Returns true if a process with Services has left a connection with a packet within a day. `pins` is the folder of all pins.
pub(crate) fn has_open(pins: &Path) -> bool {
    let folders = folders_of_maps(pins);
    let maps = folders.iter().flat_map(|folder| CHOICES.map(|name| (folder, name)));
    let mut maps = maps.filter(|(folder, name)| folder.join(name).exists());
    maps.any(|(folder, name)| {
        is_used(folder, name).unwrap_or_else(|error| {
            let why = causes(&error);
            tracing::warn!(why, "cannot read the connections to Services: they are not translated");
            false
        })
    })
}

fn is_used(folder: &Path, name: &'static str) -> Result<bool, LoadError> {
    let fault = |cause| LoadError::Map { name, cause };
    let map = MapData::from_pin(folder.join(name)).map_err(fault)?;
    let rows = HashMap::<_, [u8; 40], [u8; 40]>::try_from(Map::LruHashMap(map)).map_err(fault)?;
    let now = monotonic();
    for row in rows.iter() {
        let (_, row) = row.map_err(fault)?;
        let seen = row.last_chunk().map_or(0, |seen| u64::from_ne_bytes(*seen));
        if Duration::from_nanos(now.saturating_sub(seen)) < OPEN {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The maps with the choices for connections of pods and of clients outside. The time of the last packet is at the end of a row.
const CHOICES: [&str; 2] = ["choices", "outside_choices"];
/// The time for which kube-proxy keeps an established connection without packets.
const OPEN: Duration = Duration::from_secs(24 * 60 * 60);
