//! Lookups as the kernel makes them.

use crate::{
    class,
    rules::Verdict,
    tables::{SetId, Tables},
    traffic::TrafficKey,
};
use policy_core::{Direction, Segment};
use std::net::IpAddr;

/// A packet from the view of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side<'a> {
    /// The UID of the pod.
    pub pod: &'a str,
    pub direction: Direction,
    /// The address of the other end; of a destination, behind any translation.
    pub other: IpAddr,
    /// The address that was asked for, before translation.
    pub service: Option<IpAddr>,
    /// True if a Service leads the packet back to its sender.
    pub is_hairpin: bool,
    pub segment: Segment,
}

/// The result of a lookup: the verdict, or `None` for a pod that the tables do not have.
pub type Half = Option<Verdict>;

impl Tables {
    /// Looks up the verdict of a pod's policies about a packet that is not exempt.
    pub fn judge(&self, side: &Side<'_>) -> Half {
        let sets = self.pods.get(side.pod)?;
        let set = match (side.direction, side.is_hairpin) {
            (Direction::Ingress, false) => sets.ingress,
            (Direction::Egress, false) => sets.egress,
            (Direction::Ingress, true) => sets.hairpin_ingress,
            (Direction::Egress, true) => sets.hairpin_egress,
        };
        let class = class::lookup(&self.addresses, &self.prefixes, side.other.into());
        let service = side.service.and_then(|vip| self.services.get(&vip.into()));
        if set == SetId(0) {
            return Some(Verdict::DEFAULT);
        }
        let rows = self.sets.get(&set)?;
        let table = rows.table(class, service.copied().unwrap_or(0));
        let (key, source) = TrafficKey::of(side.segment);
        Some(self.tables.get(&table)?.verdict(key, source))
    }
}
