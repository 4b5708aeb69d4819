//! Larger maps: a map that would be full is replaced by one with more rows.
//!
//! The kernel cannot enlarge a map. So the programs are loaded again, with a larger map and the same others. The larger map
//! gets the rows of the earlier one, and the programs replace those at the links. No row of policies is written meanwhile.

use crate::{
    LoadError, Programs,
    maps::{Layout, folder_of},
    programs::GRACE,
};
use datapath_abi::Held;
use std::{collections::BTreeMap, path::Path};

/// The size of a map for this number of rows: a power of two times its present size.
pub(crate) fn enlarged(rows: u32, needed: u32) -> u32 {
    let mut larger = rows.max(1);
    while larger < needed {
        larger = larger.saturating_mul(2);
    }
    larger
}

/// Fails if the maps need more memory than the budget. `used` are the rows of policies by map.
pub(crate) fn check_memory(
    layouts: &[Layout],
    used: impl IntoIterator<Item = (&'static str, usize)>,
    grown: Option<(&'static str, u32)>,
    budget: u64,
) -> Result<(), LoadError> {
    let used = used.into_iter().map(|(map, rows)| (map, u64::try_from(rows).unwrap_or(u64::MAX)));
    let used: BTreeMap<&str, u64> = used.collect();
    let size = |layout: &Layout| match grown {
        Some((name, rows)) if name == layout.name => layout.with(rows).memory(&used),
        _ => layout.memory(&used),
    };
    let needed: u64 = layouts.iter().map(size).sum();
    if needed <= budget {
        return Ok(());
    }
    let (needed, budget) = (needed.div_ceil(MIB), budget / MIB);
    match grown {
        Some((map, _)) => Err(LoadError::Memory { map, needed, budget }),
        None => Err(LoadError::NoMemory { needed, budget }),
    }
}

/// The part of the budget that fits into the memory limit of the container. Maps count against it, and the agent needs
/// memory of its own.
pub(crate) fn budget(wanted: u64) -> u64 {
    let limit = std::fs::read_to_string(CGROUP_LIMIT).ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    let Some(left) =
        limit.map(|limit| limit.saturating_sub(OF_AGENT)).filter(|left| *left < wanted)
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

/// Hard links to the pins of all maps but one.
pub(crate) fn share(
    from: &Path,
    to: &Path,
    layouts: &[Layout],
    grown: &str,
) -> Result<(), LoadError> {
    let fault = |cause| LoadError::Folder { folder: to.to_owned(), cause };
    if to.exists() {
        std::fs::remove_dir_all(to).map_err(fault)?;
    }
    std::fs::create_dir_all(to).map_err(fault)?;
    for layout in layouts.iter().filter(|layout| layout.name != grown) {
        std::fs::hard_link(from.join(layout.name), to.join(layout.name)).map_err(fault)?;
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
        let from = self.maps_folder().ok_or(LoadError::Absent("pins"))?.to_owned();
        // A folder with the final name is complete.
        let begun = from.with_file_name(BEGUN);
        share(&from, &begun, self.layouts(), map)?;
        let mut larger = self.load_beside(&begun, (map, rows))?;
        if map == "flows" {
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
        let folder = folder_of(&from);
        let fault = |cause| LoadError::Folder { folder: folder.clone(), cause };
        self.effect()?;
        std::fs::rename(&begun, &folder).map_err(fault)?;
        larger.moved(&folder);
        Ok(larger)
    }
}

/// The folder of a growth that is not complete.
pub(crate) const BEGUN: &str = "begun";
const MIB: u64 = 1 << 20;
/// The memory of the agent without maps.
const OF_AGENT: u64 = 48 * MIB;
/// The limit of the own control group, where cgroups have version 2.
const CGROUP_LIMIT: &str = "/sys/fs/cgroup/memory.max";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::layouts;

    #[test]
    fn a_map_grows_by_doubling() {
        assert_eq!(enlarged(65_536, 65_537), 131_072);
        assert_eq!(enlarged(65_536, 300_000), 524_288);
        assert_eq!(enlarged(u32::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn a_budget_refuses_a_map_by_name() {
        let layouts = layouts(131_072);
        assert!(check_memory(&layouts, [("classes", 131_072)], None, 128 * MIB).is_ok());
        assert!(check_memory(&layouts, [("classes", 131_072)], None, 48 * MIB).is_err());
        let larger = Some(("flows", 16_777_216));
        let why = check_memory(&layouts, [], larger, 128 * MIB).map_err(|why| why.to_string());
        let why = why.err().unwrap_or_default();
        assert!(why.contains("flows") && why.contains("FERRULE_AGENT_MAP_MEMORY"), "{why}");
    }
}
