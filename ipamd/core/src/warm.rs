//! How many addresses is the pool short, or over?
//!
//! The targets are amazon-vpc-cni's. The difference: an address that cools is not available, and
//! a Reserve that waits is demand like a pod.

use crate::{Limits, PoolConfig};

/// The pool in numbers, what is on its way included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    /// Addresses that are there or asked for.
    pub(crate) total: u32,
    pub(crate) held: u32,
    pub(crate) cooling: u32,
    /// Reserves that wait.
    pub(crate) waiting: u32,
    /// Free, but on ENIs that do not get ready.
    pub(crate) stuck: u32,
}

impl Pool {
    /// Addresses for pods to come; negative if more wait than there are.
    pub(crate) fn available(self) -> i64 {
        let used = [self.held, self.cooling, self.waiting, self.stuck];
        i64::from(self.total) - used.into_iter().map(i64::from).sum::<i64>()
    }
}

/// The targets, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    mode: Mode,
    /// Addresses that one ENI holds.
    pub(crate) per_eni: u32,
    max_pods: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// `WARM_IP_TARGET`, `MINIMUM_IP_TARGET`.
    Addresses { warm: u32, minimum: u32 },
    /// `WARM_ENI_TARGET`.
    Enis { warm: u32 },
}

impl Targets {
    pub(crate) fn new(config: &PoolConfig, limits: Limits) -> Self {
        let warm = config.warm_ip_target.unwrap_or(0);
        let minimum = config.minimum_ip_target.unwrap_or(0);
        let mode = if warm == 0 && minimum == 0 {
            Mode::Enis { warm: config.warm_eni_target }
        } else {
            Mode::Addresses { warm, minimum }
        };
        Self { mode, per_eni: limits.secondary_per_eni(), max_pods: config.max_pods }
    }

    /// How many addresses to ask for next; 0 if the pool is high enough. Ask, count the answer as
    /// coming, and ask again.
    pub(crate) fn ask(self, pool: Pool) -> u32 {
        if pool.total < self.max_pods {
            return self.short(pool);
        }
        // The pool is as large as it may be; pods that wait while others' addresses cool are
        // still served, as long as there are no more of them than the kubelet runs.
        if pool.held + pool.waiting > self.max_pods { 0 } else { to_u32(-pool.available()) }
    }

    /// What the targets lack, whatever the node's pods could use.
    pub(crate) fn short(self, pool: Pool) -> u32 {
        let available = pool.available();
        match self.mode {
            Mode::Addresses { warm, minimum } => {
                let floor = i64::from(minimum) - i64::from(pool.total);
                to_u32((i64::from(warm) - available).max(floor))
            }
            Mode::Enis { warm } => {
                let target = i64::from(warm) * i64::from(self.per_eni);
                let low = available < target || (warm == 0 && available <= 0);
                if low { self.per_eni } else { 0 }
            }
        }
    }

    /// Single addresses that may be given back. Whole ENIs only in the mode of whole ENIs.
    pub(crate) fn over(self, pool: Pool) -> u32 {
        match self.mode {
            Mode::Addresses { warm, minimum } => {
                let over = pool.available() - i64::from(warm);
                to_u32(over.min(i64::from(pool.total) - i64::from(minimum)))
            }
            Mode::Enis { .. } => 0,
        }
    }

    /// Whether the targets hold without an ENI of `total` addresses, `free` of them free.
    pub(crate) fn hold_without(self, pool: Pool, total: u32) -> bool {
        let rest = Pool { total: pool.total.saturating_sub(total), ..pool };
        let enough = match self.mode {
            Mode::Addresses { .. } => true,
            Mode::Enis { warm } => {
                pool.available() >= (i64::from(warm) + 1) * i64::from(self.per_eni)
            }
        };
        enough && rest.available() >= 0 && self.short(rest) == 0
    }
}

fn to_u32(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(warm: u32, minimum: u32, enis: u32) -> Targets {
        let config = PoolConfig {
            warm_eni_target: enis,
            warm_ip_target: Some(warm),
            minimum_ip_target: Some(minimum),
            ..PoolConfig::default()
        };
        Targets::new(&config, Limits { enis: 4, ipv4_per_eni: 15 })
    }

    fn pool(total: u32, held: u32, cooling: u32) -> Pool {
        Pool { total, held, cooling, ..Pool::default() }
    }

    #[test]
    fn a_pool_at_its_minimum_is_neither_short_nor_over() {
        let targets = targets(2, 5, 0);
        assert_eq!((targets.ask(pool(5, 0, 0)), targets.over(pool(5, 0, 0))), (0, 0));
    }

    #[test]
    fn addresses_that_cool_are_not_available() {
        assert_eq!(targets(2, 23, 0).ask(pool(23, 19, 4)), 2);
    }

    #[test]
    fn reserves_that_wait_are_demand() {
        let waiting = Pool { waiting: 3, ..pool(5, 5, 0) };
        assert_eq!(targets(1, 0, 0).ask(waiting), 4);
    }

    #[test]
    fn without_address_targets_whole_enis_are_asked_for_and_kept() {
        let targets = targets(0, 0, 1);
        assert_eq!([targets.ask(pool(14, 0, 0)), targets.ask(pool(14, 1, 0))], [0, 14]);
        assert_eq!(targets.over(pool(42, 0, 0)), 0);
        assert!(targets.hold_without(pool(28, 0, 0), 14));
        assert!(!targets.hold_without(pool(28, 1, 0), 14));
    }

    #[test]
    fn with_no_warm_eni_the_pool_never_frees_its_last_address() {
        let targets = targets(0, 0, 0);
        assert_eq!([targets.ask(pool(14, 13, 0)), targets.ask(pool(14, 14, 0))], [0, 14]);
        assert!(!targets.hold_without(pool(28, 14, 0), 14));
        assert!(targets.hold_without(pool(28, 13, 0), 14));
    }

    #[test]
    fn a_pool_of_max_pods_grows_only_for_those_who_wait_beside_cooling_addresses() {
        let targets = targets(5, 0, 0);
        assert_eq!(targets.ask(pool(110, 108, 0)), 0);
        let rolling = Pool { waiting: 2, ..pool(110, 100, 10) };
        assert_eq!(targets.ask(rolling), 2);
        let beyond = Pool { waiting: 2, ..pool(110, 110, 0) };
        assert_eq!(targets.ask(beyond), 0);
    }

    #[test]
    fn over_keeps_the_warm_and_the_minimum() {
        assert_eq!(targets(2, 5, 0).over(pool(12, 4, 1)), 5);
        assert_eq!(targets(2, 10, 0).over(pool(12, 4, 1)), 2);
        assert_eq!(targets(2, 0, 0).over(pool(12, 4, 8)), 0);
    }
}
