//! Writes to the maps.

use crate::{BackendRow, FrontendRow, SourceRange, TableSlot, Word};
use service_core::Place;
use std::{collections::BTreeMap, sync::Arc};

/// A write of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Backend(u32, BackendRow),
    /// The numbers of the backends, sorted.
    Table(TableSlot, Arc<[u32]>),
    Word(u32, Word),
    Frontend(Place, FrontendRow),
    RemoveFrontend(Place),
    /// A range of the frontend with this word.
    Source(u32, SourceRange),
    RemoveSource(u32, SourceRange),
}

/// The writes in their order: the rows to which a word refers are in place before the word. A frontend's words and source
/// ranges are in place before the frontend. A backend is removed after the words that refer to it have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub writes: Vec<Write>,
    /// The frontends that are not in force as they should be. They have their earlier choices, or none. A frontend never
    /// keeps an earlier row that could serve clients outside its source ranges.
    pub refused: BTreeMap<Place, Refused>,
}

impl Plan {
    /// True if backends are removed. Sockets may be connected to them.
    pub fn removes_backends(&self) -> bool {
        let is_removal = |write: &Write| matches!(write, Write::Backend(_, row) if !row.is_present);
        self.writes.iter().any(is_removal)
    }
}

/// The cause for which a frontend is not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The next [`Mirror::release`](crate::Mirror::release) can make room.
    #[error(
        "the map {map} is full: it has {limit} rows; remove Services, endpoints or source ranges"
    )]
    Full { map: &'static str, limit: u32 },
}
