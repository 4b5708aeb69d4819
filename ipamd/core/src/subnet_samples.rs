//! The last counts of free addresses of each subnet of the zone, from answers to calls that the planner needs anyway.

use crate::SeenSubnet;
use config_model::{Span, SubnetId, Time};
use std::collections::BTreeMap;

/// The most samples of one subnet.
const MOST: usize = 64;
/// Older samples are dropped: three days show a daily rhythm.
const WINDOW: Span = Span::seconds(3 * 86_400);

/// EC2's count of a subnet's free addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubnetSample {
    /// The start of the call.
    pub at: Time,
    pub available: u32,
}

/// Bounded samples by subnet.
#[derive(Debug, Default)]
pub(crate) struct SubnetSamples {
    by_subnet: BTreeMap<SubnetId, Vec<SubnetSample>>,
}

impl SubnetSamples {
    /// Takes over an answer about the whole zone. Subnets that it lacks are forgotten.
    pub(crate) fn take(&mut self, subnets: &[SeenSubnet], at: Time) {
        self.by_subnet.retain(|id, _| subnets.iter().any(|subnet| subnet.id == *id));
        for subnet in subnets.iter().filter(|subnet| subnet.cidr.is_some()) {
            let samples = self.by_subnet.entry(subnet.id.clone()).or_default();
            add(samples, SubnetSample { at, available: subnet.free_addresses });
        }
    }

    /// Oldest first.
    pub(crate) fn of(&self, subnet: &SubnetId) -> &[SubnetSample] {
        self.by_subnet.get(subnet).map_or(&[], Vec::as_slice)
    }
}

fn add(samples: &mut Vec<SubnetSample>, new: SubnetSample) {
    // Only the ends of a flat part are kept.
    if let [.., before, last] = samples.as_mut_slice()
        && before.available == last.available
        && last.available == new.available
    {
        last.at = new.at;
    } else {
        samples.push(new);
    }
    samples.retain(|sample| new.at.since(sample.at) <= WINDOW);
    if samples.len() > MOST {
        thin(samples);
    }
}

/// Removes the inner sample whose neighbors are closest in time, so that the others keep the whole window.
fn thin(samples: &mut Vec<SubnetSample>) {
    let gap = |(_, near): &(usize, &[SubnetSample])| match near {
        [before, _, after] => after.at.since(before.at),
        _ => Span(u64::MAX),
    };
    if let Some((before, _)) = samples.windows(3).enumerate().min_by_key(gap) {
        samples.remove(before + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(counts: impl IntoIterator<Item = (u64, u32)>) -> Vec<(u64, u32)> {
        let mut kept = Vec::new();
        for (seconds, available) in counts {
            add(&mut kept, SubnetSample { at: Time(seconds * 1000), available });
        }
        kept.iter().map(|sample| (sample.at.0 / 1000, sample.available)).collect()
    }

    #[test]
    fn a_flat_part_keeps_its_ends() {
        let kept = samples([(0, 9), (30, 7), (60, 7), (90, 7), (120, 7), (150, 8)]);
        assert_eq!(kept, [(0, 9), (30, 7), (120, 7), (150, 8)]);
    }

    #[test]
    fn the_number_of_samples_is_bounded_and_they_cover_the_window() {
        let busy = (0..20_000_u64).map(|n| (n * 30, 5000 - u32::try_from(n % 3000).unwrap_or(0)));
        let kept = samples(busy);
        let newest = 19_999 * 30;
        assert!(kept.len() <= MOST && kept.len() > MOST / 2, "{}", kept.len());
        assert_eq!(kept.last().map(|it| it.0), Some(newest));
        let oldest = kept.first().map_or(newest, |it| it.0);
        assert!(newest - oldest <= 3 * 86_400 && newest - oldest > 2 * 86_400, "{oldest}");
        let widest = kept.windows(2).map(|it| it[1].0 - it[0].0).max();
        assert!(widest < Some(4 * 3600), "{kept:?}");
    }

    #[test]
    fn a_subnet_that_an_answer_lacks_is_forgotten() {
        let subnet = |id: &str, free_addresses| SeenSubnet {
            id: id.into(),
            cidr: "10.0.0.0/24".parse().ok(),
            cidr_v6: None,
            free_addresses,
            tags: BTreeMap::new(),
        };
        let mut all = SubnetSamples::default();
        all.take(&[subnet("a", 5), subnet("b", 6)], Time(0));
        all.take(&[subnet("b", 4)], Time(1000));
        assert!(all.of(&"a".into()).is_empty());
        let of_b: Vec<u32> = all.of(&"b".into()).iter().map(|it| it.available).collect();
        assert_eq!(of_b, [6, 4]);
    }
}
