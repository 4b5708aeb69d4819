//! A write to the maps.

use crate::{BackendRow, FrontendRow, Place, TableSlot, Word};

/// A write of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Backend(u32, BackendRow),
    Table(TableSlot, Vec<u32>),
    Word(u32, Word),
    Frontend(Place, FrontendRow),
    RemoveFrontend(Place),
}
