//! The room that a frontend needs, before any of it is taken.

use super::Mirror;
use crate::{Refused, SourceRange, TableSize};
use service_core::{Choice, Frontend, MOST_BACKENDS, Place};
use std::{collections::BTreeSet, net::SocketAddr};

impl Mirror {
    /// # Errors
    /// A map has no room for the frontend.
    pub(super) fn check_room(
        &self,
        place: Place,
        frontend: &Frontend,
        sources: Option<&BTreeSet<SourceRange>>,
    ) -> Result<(), Refused> {
        let limits = &self.held.limits;
        let is_known = self.held.frontends.contains_key(&place);
        if !is_known && self.held.frontends.len() >= limits.frontends as usize {
            return Err(Refused::Full { map: "frontends", limit: limits.frontends });
        }
        if self.needs_pair(place, sources) {
            if self.free_pairs.len() == 0 {
                return Err(Refused::Full { map: "service_words", limit: limits.words });
            }
            let rows = self.source_rows + sources.map_or(0, BTreeSet::len);
            if sources.is_some_and(|ranges| !ranges.is_empty()) && rows > limits.sources as usize {
                return Err(Refused::Full { map: "source_ranges", limit: limits.sources });
            }
        }
        let mut missing: BTreeSet<SocketAddr> = BTreeSet::new();
        let mut new_tables = [0; 3];
        let outside = Some(&frontend.outside).filter(|outside| **outside != frontend.inside);
        for choice in [&frontend.inside].into_iter().chain(outside) {
            let Choice::Backends(backends) = choice else { continue };
            let size = TableSize::of(backends.len());
            let size = size.ok_or(Refused::Full {
                map: TableSize::Large.map(),
                limit: u32::try_from(MOST_BACKENDS).unwrap_or(u32::MAX),
            })?;
            missing.extend(backends.iter().filter(|at| !self.has_backend(**at)));
            if !self.has_table(backends) {
                new_tables[size as usize] += 1;
            }
        }
        if missing.len() > self.free_backends.len() {
            return Err(Refused::Full { map: "backends", limit: limits.backends });
        }
        for size in TableSize::ALL {
            if new_tables[size as usize] > self.free_tables[size as usize].len() {
                return Err(Refused::Full { map: size.map(), limit: limits.tables(size) });
            }
        }
        Ok(())
    }

    fn has_table(&self, backends: &[SocketAddr]) -> bool {
        let numbers = backends.iter().map(|at| self.numbers.get(*at));
        let Some(mut numbers) = numbers.collect::<Option<Vec<u32>>>() else { return false };
        numbers.sort_unstable();
        numbers.dedup();
        self.slots.contains_key(numbers.as_slice())
    }
}
