//! Search for the cheapest address targets within a bound of failures and calls.

use super::{
    comparison::{DaemonKind, run},
    meter::Tally,
    setting::PoolSetting,
    trace::Trace,
};
use anyhow::{Context as _, Result};

/// Limits that a setting should keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Allowed failed ADDs. Settings with fewer are not preferred.
    pub failed_adds: u64,
    /// Allowed EC2 calls. Settings with fewer are not preferred.
    pub calls: u64,
}

/// A setting and the results of the trace with it.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// `WARM_IP_TARGET` and `MINIMUM_IP_TARGET`; the other settings have their defaults.
    pub setting: PoolSetting,
    pub tally: Tally,
}

/// A search for one daemon's settings in one trace.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    pub who: DaemonKind,
    pub trace: &'a Trace,
    /// True for prefixes, false for single addresses.
    pub prefixes: bool,
    /// Seed of all random choices.
    pub seed: u64,
    pub effort: SearchEffort,
}

/// Resolution of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEffort {
    /// A grid of doublings, then refined.
    Much,
    /// Zero, half and all.
    Little,
}

impl Search<'_> {
    /// Tries address targets up to the node's capacity. Among the settings that exceed the bound the least,
    /// the one with the fewest idle address-hours is returned. The search starts on a grid and refines it
    /// below the best point.
    ///
    /// # Errors
    /// If the cloud refuses the trace's specification.
    pub fn cheapest(&self, bound: Bound) -> Result<Tuned> {
        let grid = self.grid()?;
        let mut best = cheapest(&grid, bound).cloned().context("a grid without settings")?;
        let mut step = match self.effort {
            SearchEffort::Much => self.trace.most_addresses(self.prefixes) / 4,
            SearchEffort::Little => 0,
        };
        while step > 0 {
            let at = best.setting;
            let fewer_warm = PoolSetting { warm_ip: at.warm_ip.saturating_sub(step).max(1), ..at };
            let smaller = PoolSetting { minimum_ip: at.minimum_ip.saturating_sub(step), ..at };
            let nearby = [best.clone(), self.with(fewer_warm)?, self.with(smaller)?];
            best = cheapest(&nearby, bound).cloned().unwrap_or(best);
            if best.setting == at {
                step /= 2;
            }
        }
        Ok(best)
    }

    /// The results of each setting of the grid.
    ///
    /// # Errors
    /// If the cloud refuses the trace's specification.
    pub fn grid(&self) -> Result<Vec<Tuned>> {
        let most = self.trace.most_addresses(self.prefixes);
        self.effort.grid(self.prefixes, most).map(|setting| self.with(setting)).collect()
    }

    fn with(&self, setting: PoolSetting) -> Result<Tuned> {
        Ok(Tuned { setting, tally: run(self.who, self.trace, setting, self.seed)? })
    }
}

/// The setting with the fewest idle address-hours among those that exceed the bound the least. The first one
/// of equals.
pub fn cheapest(tried: &[Tuned], bound: Bound) -> Option<&Tuned> {
    tried.iter().min_by_key(|tuned| {
        let tally = &tuned.tally;
        let failed = tally.failed_adds.saturating_sub(bound.failed_adds) + tally.unserved;
        (failed, tally.all_calls().saturating_sub(bound.calls), tally.idle)
    })
}

impl SearchEffort {
    fn grid(self, prefixes: bool, most: u32) -> impl Iterator<Item = PoolSetting> {
        let (warm, minima) = self.steps(most);
        warm.into_iter().flat_map(move |warm| {
            let setting = move |minimum| PoolSetting::addresses(prefixes, warm, minimum);
            minima.clone().into_iter().map(setting)
        })
    }

    /// The steps of `WARM_IP_TARGET` and of `MINIMUM_IP_TARGET`.
    fn steps(self, most: u32) -> (Vec<u32>, Vec<u32>) {
        match self {
            Self::Much => {
                let doubled = std::iter::successors(Some(1), |step| Some(step * 2));
                let warm: Vec<u32> =
                    doubled.take_while(|step| *step < most).chain([most]).collect();
                let minima = warm.iter().copied().filter(|step| *step >= 8);
                let minima = std::iter::once(0).chain(minima).collect();
                (warm, minima)
            }
            Self::Little => {
                let thirds = |first| vec![first, most / 2, most];
                (thirds(1), thirds(0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Scale;

    #[test]
    fn the_grid_goes_from_one_to_all_that_the_node_holds() {
        let all: Vec<PoolSetting> = SearchEffort::Much.grid(false, 27).collect();
        assert_eq!(all.len(), 6 * 4);
        assert_eq!(all.first(), Some(&PoolSetting::addresses(false, 1, 0)));
        assert_eq!(all.last(), Some(&PoolSetting::addresses(false, 27, 27)));
    }

    #[test]
    fn what_is_found_keeps_the_bound_and_one_less_would_not() {
        let trace = Trace::all(Scale::Small, false).swap_remove(0);
        let search = Search {
            who: DaemonKind::Rival,
            trace: &trace,
            prefixes: false,
            seed: 1,
            effort: SearchEffort::Much,
        };
        let bound = Bound { failed_adds: 0, calls: u64::MAX };
        let found = search.cheapest(bound).expect("a cloud for the trace");
        assert_eq!((found.tally.failed_adds, found.setting.minimum_ip), (0, 0));
        let less = PoolSetting { warm_ip: found.setting.warm_ip - 1, ..found.setting };
        let with_less = run(DaemonKind::Rival, &trace, less, 1).expect("a cloud for the trace");
        assert!(with_less.failed_adds > 0, "{less:?}");
    }
}
