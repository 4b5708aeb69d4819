//! The log of source ports that are exhausted.

use std::collections::BTreeMap;

/// The packets of clients outside that were dropped because no source port was free.
#[derive(Debug, Default)]
pub(crate) struct Exhaustion {
    /// The count of the last observation; `None` before the first one.
    dropped: Option<u64>,
    /// True if the last observation had more of them than the one before.
    grows: bool,
}

impl Exhaustion {
    /// Compares the counters of an observation with those of the last one. Logs the first drops, and the first observation
    /// without drops. Counters that could not be read are empty, and change nothing.
    pub(crate) fn note(&mut self, packets: &BTreeMap<&'static str, u64>) {
        let Some(&count) = packets.get(NO_SOURCE_PORT) else { return };
        let dropped = self.dropped.map_or(0, |before| count.saturating_sub(before));
        self.dropped = Some(count);
        match (self.grows, dropped > 0) {
            (false, true) => tracing::warn!(
                dropped,
                "cannot connect clients outside to a backend on another node: all source ports toward this backend are in \
                 use; use more nodes or backends, or externalTrafficPolicy Local"
            ),
            (true, false) => tracing::info!("source ports toward backends are free again"),
            (false, false) | (true, true) => {}
        }
        self.grows = dropped > 0;
    }
}

/// The reason of the counter.
const NO_SOURCE_PORT: &str = "no_source_port";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_before_the_start_of_the_agent_are_not_logged() {
        let mut exhaustion = Exhaustion::default();
        let mut grows_at = |count| {
            exhaustion.note(&BTreeMap::from([(NO_SOURCE_PORT, count)]));
            exhaustion.grows
        };
        assert_eq!([7, 7, 8, 9, 9, 9].map(&mut grows_at), [false, false, true, true, false, false]);
        // The counters cannot be read, and then can again.
        exhaustion.note(&BTreeMap::new());
        let mut grows_at = |count| {
            exhaustion.note(&BTreeMap::from([(NO_SOURCE_PORT, count)]));
            exhaustion.grows
        };
        assert!(!grows_at(9));
        // The counters of a new map start at 0.
        assert!(!grows_at(0) && grows_at(1));
    }
}
