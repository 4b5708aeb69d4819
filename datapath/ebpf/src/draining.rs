//! Open connections to Services that an earlier process has translated, in a process without Services.
//!
//! The programs look for the row of a connection before they look for its frontend. So without frontends they translate open
//! TCP connections only. Other packets continue to the host's stack, where kube-proxy translates them.

use crate::{LoadError, existing::monotonic, pins::folders_of_maps};
use aya::maps::{HashMap, Map, MapData};
use config_model::causes;
use std::path::Path;

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
    let rows = HashMap::<_, [u8; 40], [u8; 32]>::try_from(Map::LruHashMap(map)).map_err(fault)?;
    let now = ticks(monotonic());
    for row in rows.iter() {
        let (_, row) = row.map_err(fault)?;
        let seen = row.last_chunk().map_or(0, |seen| u32::from_ne_bytes(*seen));
        if is_open(seen, now) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `CHOICE_TICK` in `datapath/bpf/service.h`. Ticks start again after 52 days.
fn ticks(nanoseconds: u64) -> u32 {
    u32::try_from(nanoseconds >> 20 & u64::from(u32::MAX)).unwrap_or_default()
}

/// True if the tick of the last packet is within a day. A program can have noted it after `now` was read.
fn is_open(seen: u32, now: u32) -> bool {
    now.wrapping_sub(seen).wrapping_add(LEAD) < OPEN + LEAD
}

/// The maps with the choices for connections of pods and of clients outside. The time of the last packet is at the end of a row.
const CHOICES: [&str; 2] = ["choices", "outside_choices"];
/// The time for which kube-proxy keeps an established connection without packets: a day, in ticks.
const OPEN: u32 = 82_397_460;
/// A minute.
const LEAD: u32 = 57_220;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_open_for_a_day_after_its_last_packet() {
        let day = OPEN;
        for now in [day * 3, day / 2, 0] {
            assert!(is_open(now, now) && is_open(now.wrapping_sub(day - 1), now));
            assert!(!is_open(now.wrapping_sub(day), now));
            // A packet that came meanwhile, and a row of a month ago.
            assert!(is_open(now.wrapping_add(1), now));
            assert!(!is_open(now.wrapping_sub(day * 30), now));
        }
        assert_eq!([60, 86_400].map(|seconds| ticks(seconds * 1_000_000_000)), [LEAD, OPEN]);
        assert_eq!(ticks(u64::from(u32::MAX) << 20 | 1 << 52 | 5), u32::MAX);
    }
}
