//! amazon-vpc-cni's decisions: the distance of the pool from its targets.

use super::store::{PREFIX_SIZE, Remainder, Stats};

/// Settings of the pool with amazon-vpc-cni's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Targets {
    /// `ENABLE_PREFIX_DELEGATION`.
    pub(super) prefixes: bool,
    /// `WARM_ENI_TARGET`.
    pub(super) warm_eni: u32,
    /// `WARM_IP_TARGET`; 0 is off.
    pub(super) warm_ip: u32,
    /// `MINIMUM_IP_TARGET`; 0 is off.
    pub(super) minimum_ip: u32,
    /// `WARM_PREFIX_TARGET`.
    pub(super) warm_prefix: u32,
    /// Addresses or prefixes that one ENI holds besides its primary address.
    pub(super) slots_per_eni: u32,
    pub(super) max_pods: u32,
}

impl Targets {
    /// True if the address targets apply.
    pub(super) fn warm_defined(self) -> bool {
        self.warm_ip != 0 || self.minimum_ip != 0
    }

    /// Addresses that one ENI holds.
    pub(super) fn addresses_per_eni(self) -> u32 {
        self.slots_per_eni * if self.prefixes { PREFIX_SIZE } else { 1 }
    }

    /// Distance below and above the address targets, in addresses or, with prefixes, in prefixes.
    pub(super) fn short_and_over(self, stats: Stats) -> (u32, u32) {
        let available = stats.available();
        let short = self.warm_ip.saturating_sub(available);
        let short = short.max(self.minimum_ip.saturating_sub(stats.total));
        if !self.prefixes {
            let over = available.saturating_sub(self.warm_ip);
            return (short, over.min(stats.total.saturating_sub(self.minimum_ip)));
        }
        let needed = (stats.assigned + self.warm_ip).div_ceil(PREFIX_SIZE);
        let over = stats.free_prefixes.min(stats.prefixes.saturating_sub(needed));
        let floor = self.minimum_ip.div_ceil(PREFIX_SIZE);
        (short.div_ceil(PREFIX_SIZE), over.min(stats.prefixes.saturating_sub(floor)))
    }

    pub(super) fn too_low(self, stats: Stats) -> bool {
        if stats.total >= self.max_pods {
            return false;
        }
        if self.warm_defined() {
            return self.short_and_over(stats).0 > 0;
        }
        let (per, target) = if self.prefixes {
            (PREFIX_SIZE, self.warm_prefix)
        } else {
            (self.addresses_per_eni(), self.warm_eni)
        };
        let available = stats.available();
        available < per * target || (target == 0 && available == 0)
    }

    /// Number of blocks that may be freed.
    pub(super) fn too_high_by(self, stats: Stats) -> u32 {
        if self.warm_defined() {
            self.short_and_over(stats).1
        } else if self.prefixes {
            stats.free_prefixes.saturating_sub(self.warm_prefix)
        } else {
            0
        }
    }

    /// Number of blocks to request on an attached ENI with room. `None` if nothing is needed.
    pub(super) fn ask_of_eni(self, stats: Stats) -> Option<u32> {
        let (short, _) = self.short_and_over(stats);
        match (self.prefixes, self.warm_defined()) {
            (false, true) => (short > 0).then_some(short),
            (false, false) => Some(self.slots_per_eni),
            (true, true) => Some(short.max(1)),
            (true, false) => {
                let needed = self.warm_prefix.saturating_sub(stats.free_prefixes);
                Some(needed.max(1))
            }
        }
    }

    /// Number of blocks of a new ENI. 0 creates none.
    pub(super) fn ask_of_new_eni(self, stats: Stats) -> u32 {
        let most = self.slots_per_eni;
        if self.prefixes || self.warm_defined() {
            self.ask_of_eni(stats).map_or(0, |ask| ask.min(most))
        } else {
            most
        }
    }

    /// True if an ENI may be freed.
    pub(super) fn should_remove_enis(self, stats: Stats, some_eni_without_pods: bool) -> bool {
        let target = if self.prefixes { self.warm_prefix } else { self.warm_eni };
        self.warm_defined()
            || stats.available() >= (target + 1) * self.addresses_per_eni()
            || (self.prefixes && some_eni_without_pods)
    }

    /// The minimum that the other ENIs must keep.
    pub(super) fn keep(self) -> Remainder {
        let whole =
            |count: u32| if self.prefixes { count.next_multiple_of(PREFIX_SIZE) } else { count };
        Remainder {
            free: whole(self.warm_ip),
            total: whole(self.minimum_ip),
            free_prefixes: if self.prefixes { self.warm_prefix } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(prefixes: bool, warm_ip: u32, minimum_ip: u32) -> Targets {
        Targets {
            prefixes,
            warm_eni: 1,
            warm_ip,
            minimum_ip,
            warm_prefix: 1,
            slots_per_eni: 14,
            max_pods: 110,
        }
    }

    fn singles(total: u32, assigned: u32) -> Stats {
        Stats { total, assigned, ..Stats::default() }
    }

    #[test]
    fn the_published_vectors() {
        assert_eq!(targets(false, 2, 5).short_and_over(singles(5, 0)), (0, 0));
        // Four of these cool; they count as available.
        assert_eq!(targets(false, 2, 23).short_and_over(singles(23, 19)), (0, 0));
        let stats = Stats { total: 48, assigned: 3, prefixes: 3, free_prefixes: 2 };
        assert_eq!(targets(true, 1, 0).short_and_over(stats), (0, 2));
    }

    #[test]
    fn at_max_pods_the_pool_is_never_low() {
        let targets = targets(false, 5, 0);
        assert!(targets.too_low(singles(109, 109)));
        assert!(!targets.too_low(singles(110, 110)));
    }

    #[test]
    fn without_address_targets_whole_enis_and_prefixes_are_kept() {
        let enis = targets(false, 0, 0);
        assert!(!enis.too_low(singles(14, 0)));
        assert!(enis.too_low(singles(14, 1)));
        assert_eq!((enis.too_high_by(singles(42, 0)), enis.ask_of_new_eni(singles(0, 0))), (0, 14));
        let prefixes = targets(true, 0, 0);
        let stats = Stats { total: 48, assigned: 3, prefixes: 3, free_prefixes: 2 };
        assert!(!prefixes.too_low(stats));
        assert_eq!(prefixes.too_high_by(stats), 1);
    }

    #[test]
    fn with_no_warm_eni_the_pool_grows_when_it_is_empty() {
        let none = Targets { warm_eni: 0, ..targets(false, 0, 0) };
        assert!(!none.too_low(singles(14, 13)));
        assert!(none.too_low(singles(14, 14)));
    }
}
