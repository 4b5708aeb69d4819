//! The pool's targets: how many addresses a card lacks, and how many are surplus.
//!
//! The targets are those of amazon-vpc-cni, with three differences. A cooling address is not available. A waiting Reserve
//! counts as demand like a pod, and so does a pod that is bound to the node. Single addresses and prefixes count alike;
//! unused blocks of a kind that the mode does not request are replaced.
//!
//! The planner uses them in this order, for each card of [`Targets::cards`]:
//! - `Growth::pool` returns the card's [`Pool`]; requests under way count as present.
//! - [`Targets::ask`] returns the number of addresses to request next, and [`Unit::want`] turns it into one call.
//!   [`Targets::unit`] is the preferred kind; the planner may request another one if EC2 has none of it.
//! - [`Targets::over`] returns how many idle blocks of each kind may be returned, and [`Targets::hold_without`] whether a
//!   whole ENI may.

use crate::{Family, Limits, PoolConfig, Want};
use config_model::CardIndex;

/// The kind of requested blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    Address,
    Prefix,
    Ipv6Prefix,
}

impl Unit {
    /// The number of addresses of one block.
    pub(crate) fn size(self) -> u64 {
        self.want(1).addresses()
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::Address | Self::Prefix => Family::V4,
            Self::Ipv6Prefix => Family::V6,
        }
    }

    pub(crate) fn want(self, blocks: u16) -> Want {
        match self {
            Self::Address => Want::Addresses(blocks),
            Self::Prefix => Want::Prefixes(blocks),
            Self::Ipv6Prefix => Want::Ipv6Prefixes(blocks),
        }
    }

    /// The number of blocks for that many addresses.
    pub(crate) fn blocks(self, addresses: u64) -> u32 {
        u32::try_from(addresses.div_ceil(self.size())).unwrap_or(u32::MAX)
    }
}

/// The pool of one card in numbers, requests under way included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    /// Addresses that are present or requested.
    pub(crate) total: u64,
    pub(crate) held: u32,
    pub(crate) cooling: u32,
    /// Reserves that wait.
    pub(crate) waiting: u32,
    /// Pods that are bound to the node and have not asked yet.
    pub(crate) expected: u32,
    /// Free addresses on ENIs that do not become ready.
    pub(crate) stuck: u64,
    /// Free addresses in blocks of a kind that is being replaced. Pods get them only if there are no others.
    pub(crate) stale: u64,
    /// Unused single addresses and prefixes.
    pub(crate) idle_singles: u32,
    pub(crate) idle_prefixes: u32,
}

impl Pool {
    /// Addresses for future pods; negative if more pods wait than there are addresses.
    pub(crate) fn available(self) -> i64 {
        let used = [self.held, self.cooling, self.waiting, self.expected];
        let used: i64 = used.into_iter().map(i64::from).sum();
        signed(self.total) - signed(self.stuck) - used
    }

    /// The same without blocks that are being replaced.
    fn lasting(self) -> i64 {
        self.available() - signed(self.stale)
    }

    /// Pods that have an address or need one.
    fn pods(self) -> u32 {
        self.held.saturating_add(self.waiting).saturating_add(self.expected)
    }

    /// The pool without an unused ENI.
    pub(crate) fn without(self, eni: Self) -> Self {
        Self {
            total: self.total.saturating_sub(eni.total),
            stuck: self.stuck.saturating_sub(eni.stuck),
            stale: self.stale.saturating_sub(eni.stale),
            idle_singles: self.idle_singles.saturating_sub(eni.idle_singles),
            idle_prefixes: self.idle_prefixes.saturating_sub(eni.idle_prefixes),
            ..self
        }
    }
}

/// Idle blocks that may be returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surplus {
    pub(crate) singles: u32,
    pub(crate) prefixes: u32,
}

/// The resolved targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    mode: Mode,
    unit: Unit,
    cards: Vec<CardIndex>,
    per_eni: u32,
    /// The most pods that the kubelet runs.
    pub(crate) max_pods: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// `WARM_IP_TARGET`, `MINIMUM_IP_TARGET`.
    Addresses { warm: u32, minimum: u32 },
    /// `WARM_ENI_TARGET`.
    Enis { warm: u32 },
    /// `WARM_PREFIX_TARGET`.
    Prefixes { warm: u32 },
    /// One /80 has more addresses than there are pods.
    OnePrefix,
}

/// The pools of the other cards have no settings.
const OTHER_CARDS: Mode = Mode::Addresses { warm: 1, minimum: 1 };

impl Targets {
    pub(crate) fn new(config: &PoolConfig, limits: &Limits) -> Self {
        let unit = match config.family {
            Family::V6 => Unit::Ipv6Prefix,
            Family::V4 if config.prefixes && limits.prefixes => Unit::Prefix,
            Family::V4 => Unit::Address,
        };
        let warm = config.warm_ip_target.unwrap_or(0);
        let minimum = config.minimum_ip_target.unwrap_or(0);
        let mode = match unit {
            Unit::Ipv6Prefix => Mode::OnePrefix,
            _ if warm > 0 || minimum > 0 => Mode::Addresses { warm, minimum },
            Unit::Prefix => Mode::Prefixes { warm: config.warm_prefix_target.unwrap_or(1) },
            Unit::Address => Mode::Enis { warm: config.warm_eni_target },
        };
        let mut cards: Vec<CardIndex> = limits.cards.iter().map(|of| of.card).collect();
        cards.retain(|card| config.multi_nic || *card == CardIndex(0));
        cards.sort();
        let per_eni = match unit {
            Unit::Ipv6Prefix => 1,
            Unit::Address | Unit::Prefix => limits.secondary_per_eni(),
        };
        Self { mode, unit, cards, per_eni, max_pods: config.max_pods }
    }

    /// The cards that have pools, lowest first.
    pub(crate) fn cards(&self) -> &[CardIndex] {
        &self.cards
    }

    /// The kind of blocks that EC2 is asked for.
    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    /// The most blocks of one ENI, of either kind.
    pub(crate) fn per_eni(&self) -> u32 {
        self.per_eni
    }

    fn mode(&self, card: CardIndex) -> Mode {
        match self.mode {
            Mode::OnePrefix => Mode::OnePrefix,
            mode if card == CardIndex(0) => mode,
            Mode::Addresses { .. } | Mode::Enis { .. } | Mode::Prefixes { .. } => OTHER_CARDS,
        }
    }

    /// The number of addresses to request next; 0 if the pool has enough. Callers request, count the answer as coming,
    /// and call again.
    pub(crate) fn ask(&self, card: CardIndex, pool: Pool) -> u64 {
        if self.mode == Mode::OnePrefix || pool.total < u64::from(self.max_pods) {
            return self.short(card, pool);
        }
        // The pool has its largest size. Pods that wait while other addresses cool still get new ones, up to the
        // kubelet's number of pods.
        if pool.pods() > self.max_pods { 0 } else { count(-pool.available()) }
    }

    /// The number of addresses that the targets lack, without regard to the pod limit.
    pub(crate) fn short(&self, card: CardIndex, pool: Pool) -> u64 {
        self.lacks(card, pool, pool.cooling)
    }

    /// The same number; `soon` addresses are about to be free again and delay the request for a whole ENI or prefix.
    fn lacks(&self, card: CardIndex, pool: Pool, soon: u32) -> u64 {
        let available = pool.lasting();
        match self.mode(card) {
            Mode::Addresses { warm, minimum } => {
                let floor = i64::from(minimum) - signed(pool.total.saturating_sub(pool.stale));
                count((i64::from(warm) - available).max(floor))
            }
            Mode::Enis { warm } => {
                let per_eni = u64::from(self.per_eni) * self.unit.size();
                let target = i64::from(warm) * signed(per_eni);
                if is_low(available, soon, target) { per_eni } else { 0 }
            }
            Mode::Prefixes { warm } => {
                let target = i64::from(warm) * signed(Unit::Prefix.size());
                let low = is_low(available, soon, target);
                if low { count((target - available).max(1)) } else { 0 }
            }
            // A prefix on an ENI that does not become ready does not count.
            Mode::OnePrefix => u64::from(pool.total <= pool.stuck),
        }
    }

    /// The idle blocks that may be returned. In the mode of whole ENIs, only ENIs are.
    pub(crate) fn over(&self, card: CardIndex, pool: Pool) -> Surplus {
        let available = pool.available();
        match self.unit {
            Unit::Address => Surplus {
                singles: self.addresses_over(card, pool, pool.lasting()),
                prefixes: pool.idle_prefixes,
            },
            Unit::Prefix => Surplus {
                singles: if pool.stale > 0 {
                    pool.idle_singles
                } else {
                    self.addresses_over(card, pool, available).min(pool.idle_singles)
                },
                prefixes: self.prefixes_over(card, pool),
            },
            Unit::Ipv6Prefix => Surplus::default(),
        }
    }

    fn addresses_over(&self, card: CardIndex, pool: Pool, available: i64) -> u32 {
        match self.mode(card) {
            Mode::Addresses { warm, minimum } => {
                let over = available - i64::from(warm);
                let total = signed(pool.total.saturating_sub(pool.stale));
                narrow(count(over.min(total - i64::from(minimum))))
            }
            Mode::Enis { .. } | Mode::Prefixes { .. } | Mode::OnePrefix => 0,
        }
    }

    fn prefixes_over(&self, card: CardIndex, pool: Pool) -> u32 {
        let size = signed(Unit::Prefix.size());
        let available = pool.lasting();
        match self.mode(card) {
            Mode::Addresses { warm, minimum } => {
                let total = signed(pool.total.saturating_sub(pool.stale));
                let over = (available - i64::from(warm)).min(total - i64::from(minimum));
                narrow(count(over / size)).min(pool.idle_prefixes)
            }
            Mode::Prefixes { warm } => {
                // Without a target one free address is kept; otherwise it would be requested again.
                let kept = (i64::from(warm) * size).max(1);
                let over = narrow(count((available - kept) / size));
                over.min(pool.idle_prefixes.saturating_sub(warm))
            }
            Mode::Enis { .. } | Mode::OnePrefix => 0,
        }
    }

    /// Returns whether the targets hold without this unused ENI.
    pub(crate) fn hold_without(&self, card: CardIndex, pool: Pool, eni: Pool) -> bool {
        let rest = pool.without(eni);
        let enough = match self.mode(card) {
            Mode::Addresses { .. } | Mode::Prefixes { .. } | Mode::OnePrefix => true,
            Mode::Enis { warm } => {
                let per_eni = signed(u64::from(self.per_eni) * self.unit.size());
                pool.available() >= (i64::from(warm) + 1) * per_eni
            }
        };
        enough && rest.available() >= 0 && self.lacks(card, rest, 0) == 0
    }
}

/// Returns whether the pool is below its target; without a target, whether it is empty. Cooling addresses delay the
/// request until they are half of the target. Otherwise a node with short-lived pods would request a prefix whenever a
/// few addresses cool, and return it when they are free.
fn is_low(available: i64, soon: u32, target: i64) -> bool {
    let below = available + i64::from(soon) < target || 2 * available < target;
    below || (target == 0 && available <= 0)
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn count(number: i64) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(0)
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
