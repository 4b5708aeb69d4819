//! Tables of backends.

use service_core::MOST_BACKENDS;

/// The size of a table of backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableSize {
    Small,
    Medium,
    Large,
}

impl TableSize {
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The number of places of a table.
    pub fn places(self) -> usize {
        match self {
            Self::Small => 16,
            Self::Medium => 512,
            Self::Large => 8192,
        }
    }

    /// The smallest size with room for this many backends. More than [`MOST_BACKENDS`] have none: a word has no larger count.
    pub(crate) fn of(backends: usize) -> Option<Self> {
        let has_room = |size: &Self| backends <= size.places();
        Self::ALL.into_iter().find(has_room).filter(|_| backends <= MOST_BACKENDS)
    }

    /// The name of the map.
    pub fn map(self) -> &'static str {
        match self {
            Self::Small => "backends_small",
            Self::Medium => "backends_medium",
            Self::Large => "backends_large",
        }
    }
}

/// A table's place in the map of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableSlot {
    pub size: TableSize,
    pub number: u32,
}
