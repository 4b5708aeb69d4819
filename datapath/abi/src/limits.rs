//! The rows that maps can have.

/// The limits of the maps that can grow. The defaults are the first ones, those of `datapath/bpf/tables.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub rules: u32,
    pub set_rows: u32,
    pub classes: u32,
    pub prefixes: u32,
    pub services: u32,
    pub small_tables: u32,
    pub large_tables: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rules: 8192,
            set_rows: 32_768,
            classes: 16_384,
            prefixes: 65_536,
            services: 4096,
            small_tables: 2048,
            large_tables: 64,
        }
    }
}

impl Limits {
    /// The limit of a map. `None` if it cannot grow.
    pub fn of(&mut self, map: &str) -> Option<&mut u32> {
        Some(match map {
            "rules" => &mut self.rules,
            "set_rows" => &mut self.set_rows,
            "classes" => &mut self.classes,
            "prefixes" => &mut self.prefixes,
            "services" => &mut self.services,
            "small_tables" => &mut self.small_tables,
            "large_tables" => &mut self.large_tables,
            _ => return None,
        })
    }
}

/// A map with its number of rows and its limit.
pub(crate) fn check(map: &'static str, rows: usize, limit: u32) -> Result<(), Full> {
    let needed = u32::try_from(rows).unwrap_or(u32::MAX);
    if needed <= limit { Ok(()) } else { Err(Full { map, limit, needed }) }
}

/// A map has no room for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot add a row to the map {map}: it has {limit} rows; use fewer policies on this node")]
pub struct Full {
    pub map: &'static str,
    pub limit: u32,
    /// The rows that the state needs at least.
    pub needed: u32,
}
