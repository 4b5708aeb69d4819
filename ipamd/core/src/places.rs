//! The places on network cards: those in use, and those that a new ENI can get.

use crate::{book::Eni, ctx::Ctx};
use config_model::{CardIndex, DeviceIndex};

/// Places that ENIs outside the book occupy: ENIs that are being freed, and attached ENIs that are not adopted yet.
#[derive(Debug, Default)]
pub(crate) struct OccupiedPlaces(Vec<OccupiedPlace>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct OccupiedPlace {
    /// `None` if unknown: the ENI may be on any card.
    pub(crate) card: Option<CardIndex>,
    /// `None` if unknown.
    pub(crate) device: Option<DeviceIndex>,
}

impl OccupiedPlaces {
    pub(crate) fn new(places: impl Iterator<Item = OccupiedPlace>) -> Self {
        Self(places.collect())
    }

    /// The number of places on the card that an attached ENI occupies, those of the book included.
    pub(crate) fn attached(&self, ctx: &Ctx, card: CardIndex) -> u32 {
        let here = |eni: &&Eni| eni.facts.card == card && !eni.missing;
        let attached = ctx.book.enis().filter(here).count();
        let others = self.0.iter().filter(|place| place.card.is_none_or(|of| of == card)).count();
        u32::try_from(attached + others).unwrap_or(u32::MAX)
    }

    /// The known device numbers on the card.
    pub(crate) fn devices(&self, card: CardIndex) -> impl Iterator<Item = DeviceIndex> {
        self.0.iter().filter(move |place| place.card == Some(card)).filter_map(|place| place.device)
    }
}
