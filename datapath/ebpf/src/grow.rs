//! Larger maps: a map that would be full is replaced by one with more rows.
//!
//! The kernel cannot enlarge a map. So the programs are loaded again, with a larger map and the same others. The larger map
//! gets the rows of the earlier one, and the programs replace those at the links. No row of policies is written meanwhile.

use crate::{
    LoadError, Programs,
    grace::GRACE,
    maps::{Layout, folder_of, layouts, open_flows},
    pins::BEGUN,
};
use config_settings::Connections;
use datapath_abi::Held;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The size of a map for this number of rows: a power of two times its present size.
pub(crate) fn enlarged(rows: u32, needed: u32) -> u32 {
    let mut larger = rows.max(1);
    while larger < needed {
        larger = larger.saturating_mul(2);
    }
    larger
}

/// A map with its later number of rows, of which the next state uses `needed`.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) map: &'static str,
    pub(crate) rows: u32,
    pub(crate) needed: u32,
}

/// Fails if the maps need more memory than the budget. `used` are the rows of policies by map.
pub(crate) fn check_memory(
    layouts: &[Layout],
    used: impl IntoIterator<Item = (&'static str, usize)>,
    budget: u64,
) -> Result<(), LoadError> {
    let needed = memory(layouts, &by_map(used));
    if needed <= budget {
        return Ok(());
    }
    Err(LoadError::NoMemory { needed: needed.div_ceil(MIB), budget: budget / MIB })
}

/// Fails if the growth of a map needs more memory than the budget. Until the programs are replaced the earlier map exists
/// too. The map of connections leaves a part of the budget to policies.
pub(crate) fn check_growth(
    layouts: &[Layout],
    used: &[(&'static str, usize)],
    growth: Growth,
    budget: u64,
) -> Result<(), LoadError> {
    let Growth { map, rows, needed } = growth;
    let present = by_map(used.iter().copied());
    let grown = layouts.iter().find(|layout| layout.name == map);
    let meanwhile = grown.map_or(0, |layout| layout.with(rows).memory(&present));
    let meanwhile = memory(layouts, &present) + meanwhile;
    let mut later = present;
    later.insert(map, u64::from(needed));
    let larger = layouts.iter().map(|layout| match layout.name == map {
        true => layout.with(rows),
        false => *layout,
    });
    let reserve = if map == FLOWS { budget / RESERVE } else { 0 };
    let after = memory(&larger.collect::<Vec<_>>(), &later) + reserve;
    let needed = meanwhile.max(after);
    if needed <= budget {
        return Ok(());
    }
    Err(LoadError::Memory { map, needed: needed.div_ceil(MIB), budget: budget / MIB })
}

fn memory(layouts: &[Layout], used: &BTreeMap<&str, u64>) -> u64 {
    layouts.iter().map(|layout| layout.memory(used)).sum()
}

fn by_map(used: impl IntoIterator<Item = (&'static str, usize)>) -> BTreeMap<&'static str, u64> {
    let used = used.into_iter();
    used.map(|(map, rows)| (map, u64::try_from(rows).unwrap_or(u64::MAX))).collect()
}

/// Rows of a new map of connections. It has room for those of other releases, within the setting and the memory.
pub(crate) fn first_rows<'a>(
    others: impl Iterator<Item = &'a PathBuf>,
    connections: &Connections,
) -> u32 {
    // A map that is not readable is reported where it is copied.
    let open = others.filter_map(|other| open_flows(other).ok()).sum::<u32>();
    rows_for(open, connections)
}

/// The rows of a map with this number of open connections. It is not nearly full.
fn rows_for(open: u32, connections: &Connections) -> u32 {
    let layouts = layouts(connections);
    let Some(flows) = layouts.iter().find(|layout| layout.name == FLOWS) else { return 0 };
    let mut rows = enlarged(flows.rows, (open / 3).saturating_mul(4).saturating_add(4));
    let budget = connections.map_memory;
    let fits = |rows: u32| {
        let others = layouts.iter().filter(|layout| layout.name != FLOWS);
        let others: u64 = others.map(|layout| layout.memory(&BTreeMap::new())).sum();
        others + flows.with(rows).memory(&BTreeMap::new()) + budget / RESERVE <= budget
    };
    while rows > flows.rows && !fits(rows) {
        rows /= 2;
    }
    rows.clamp(flows.rows, connections.limit.max(flows.rows))
}

/// The part of the budget that fits into the memory limit of the container. Maps count against it, and the agent needs
/// memory of its own.
pub(crate) fn budget(wanted: u64) -> u64 {
    let limit = std::fs::read_to_string(CGROUP_LIMIT).ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    let Some(left) = limit
        .map(|limit| limit.saturating_sub(Connections::AGENT_MEMORY))
        .filter(|left| *left < wanted)
    else {
        return wanted;
    };
    tracing::warn!(
        wanted = wanted / MIB,
        left = left / MIB,
        "the memory limit of the container leaves less memory for maps than FERRULE_AGENT_MAP_MEMORY; raise the limit, \
         as nodeAgent.resources.limits.memory of the chart"
    );
    left
}

/// Creates a folder with hard links to pins of maps.
pub(crate) fn share<'a>(
    from: &Path,
    to: &Path,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), LoadError> {
    let fault = |cause| LoadError::Folder { folder: to.to_owned(), cause };
    if to.exists() {
        std::fs::remove_dir_all(to).map_err(fault)?;
    }
    std::fs::create_dir_all(to).map_err(fault)?;
    for name in names {
        std::fs::hard_link(from.join(name), to.join(name)).map_err(fault)?;
    }
    Ok(())
}

impl Programs {
    /// Programs with a larger map, in a folder of their own. The map has the rows of the present one.
    ///
    /// # Errors
    /// If these programs have no pins, or the kernel refuses a map or a program: nothing changes.
    pub(crate) fn with_larger(
        &mut self,
        map: &'static str,
        rows: u32,
        held: &Held,
    ) -> Result<Self, LoadError> {
        self.repair()?;
        let from = self.maps_folder().ok_or(LoadError::NoPins)?.to_owned();
        // A folder with the final name is complete.
        let begun = from.with_file_name(BEGUN);
        let names = self.layouts().iter().map(|layout| layout.name);
        share(&from, &begun, names.filter(|name| *name != map))?;
        let mut larger = self.load_beside(&begun, (map, rows))?;
        if map == FLOWS {
            larger.hold_half_open(true)?;
            std::thread::sleep(GRACE);
            if let Err(error) = larger.add_flows_of(self) {
                // Both have the same settings.
                larger.hold_half_open(false)?;
                return Err(error);
            }
        } else {
            larger.add_rows(map, held)?;
        }
        self.effect()?;
        larger.rename_maps(&begun, &folder_of(&from))?;
        Ok(larger)
    }
}

/// The map of open connections.
const FLOWS: &str = "flows";
/// The map of connections leaves this part of the budget to the rows of policies: a quarter.
const RESERVE: u64 = 4;
const MIB: u64 = 1 << 20;
/// The limit of the own control group, where cgroups have version 2.
const CGROUP_LIMIT: &str = "/sys/fs/cgroup/memory.max";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_grows_by_doubling() {
        assert_eq!(enlarged(65_536, 65_537), 131_072);
        assert_eq!(enlarged(65_536, 300_000), 524_288);
        assert_eq!(enlarged(u32::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn a_budget_refuses_a_map_by_name() {
        let layouts = layouts(&Connections { limit: 131_072, ..Connections::default() });
        assert!(check_memory(&layouts, [("classes", 131_072)], 128 * MIB).is_ok());
        assert!(check_memory(&layouts, [("classes", 131_072)], 24 * MIB).is_err());
        let larger = Growth { map: FLOWS, rows: 16_777_216, needed: 131_073 };
        let why = check_growth(&layouts, &[], larger, 128 * MIB).map_err(|why| why.to_string());
        let why = why.err().unwrap_or_default();
        assert!(why.contains("flows") && why.contains("FERRULE_AGENT_MAP_MEMORY"), "{why}");
    }

    #[test]
    fn the_reference_of_settings_has_the_memory_of_services() {
        let with = |services| {
            let connections = Connections { services, ..Connections::default() };
            memory(&layouts(&connections), &BTreeMap::new())
        };
        let needed = (with(true) - with(false)).div_ceil(MIB);
        let setting = config_settings::table().find(|setting| setting.name == "FERRULE_SERVICES");
        let meaning = setting.map(|setting| setting.meaning).unwrap_or_default();
        assert!(meaning.contains(&format!(" {needed} MiB of ")), "{needed} MiB: {meaning}");
    }

    #[test]
    fn a_growth_needs_the_memory_of_both_maps() {
        let layouts = layouts(&Connections { limit: 131_072, ..Connections::default() });
        let used = [("classes", 131_072)];
        let growth = Growth { map: "classes", rows: 262_144, needed: 131_073 };
        let with = |rows: u32| {
            let larger = layouts.map(|layout| match layout.name {
                "classes" => layout.with(rows),
                _ => layout,
            });
            memory(&larger, &by_map([("classes", 131_073)]))
        };
        let (before, after) = (with(131_072), with(262_144));
        assert!(check_growth(&layouts, &used, growth, after).is_err());
        assert!(check_growth(&layouts, &used, growth, before + after).is_ok());
    }

    #[test]
    fn connections_leave_memory_to_policies() {
        let layouts = layouts(&Connections { limit: 131_072, ..Connections::default() });
        let growth = Growth { map: FLOWS, rows: 262_144, needed: 131_073 };
        let grown = layouts.map(|layout| match layout.name {
            FLOWS => layout.with(262_144),
            _ => layout,
        });
        let (before, after) = (memory(&layouts, &by_map([])), memory(&grown, &by_map([])));
        let of_larger = after - before / 2;
        assert!(check_growth(&layouts, &[], growth, after + MIB).is_err());
        assert!(check_growth(&layouts, &[], growth, before + of_larger + after).is_ok());
    }

    #[test]
    fn a_new_map_of_connections_has_room_for_those_that_are_copied() {
        let connections =
            |limit, map_memory| Connections { limit, map_memory, ..Connections::default() };
        let large = connections(1_048_576, 1024 * MIB);
        assert_eq!(rows_for(0, &large), 131_072);
        assert_eq!(rows_for(90_000, &large), 131_072);
        // It would be three quarters full at once.
        assert_eq!(rows_for(100_000, &large), 262_144);
        assert_eq!(rows_for(400_000, &large), 1_048_576);
        assert_eq!(rows_for(4_000_000_000, &large), 1_048_576);
        assert_eq!(rows_for(500, &connections(256, 1024 * MIB)), 256);
        // Without the memory for them some are judged again.
        assert_eq!(rows_for(400_000, &connections(1_048_576, 128 * MIB)), 262_144);
    }
}
