//! The reasons why the planner waits, and the refusals for requests that time out.

use crate::{
    Action, Cards, Core, Obstacle, Refusal, RefusalReason, Waiting, book::Eni,
    placement::NoPlacement,
};
use config_model::{CardIndex, EniId, SubnetId, Time};
use std::sync::Arc;

/// An obstacle to the plan. Kept small because it is recomputed at every event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    NothingSeenYet,
    Paused {
        action: Action,
        until: Time,
        /// EC2's last fault, if there is one.
        fault: Option<Arc<str>>,
    },
    Busy {
        eni: EniId,
    },
    NotReady {
        eni: EniId,
        why: String,
    },
    /// `until` is unknown while a request for one address is under way.
    SubnetFull {
        subnet: SubnetId,
        until: Option<Time>,
        /// The number of free addresses in EC2's last answer.
        counted: Option<u32>,
    },
    NoPlace {
        max: u32,
    },
    MaxPods {
        max: u32,
    },
    AttachesStick {
        until: Time,
    },
    /// No pod waits, and the next round of top-ups is not due.
    TopUp {
        until: Time,
    },
    NoPlacement(NoPlacement),
    /// EC2 reports that the subnet or a security group does not exist.
    PlaceMissing {
        subnet: SubnetId,
        fault: Arc<str>,
        until: Time,
        /// The ENIConfig that names it, if there is one.
        config: Option<String>,
    },
    /// The limits of the instance type are unknown.
    LimitsUnknown {
        reason: String,
        next_step: &'static str,
    },
    Unschedulable,
    /// The settings leave ENIs and addresses to another program.
    NotOurs,
}

impl Blocker {
    /// Returns whether time alone cannot remove the obstacle.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::SubnetFull { .. } | Self::NoPlace { .. } | Self::MaxPods { .. } => true,
            Self::NothingSeenYet
            | Self::Paused { .. }
            | Self::Busy { .. }
            | Self::NotReady { .. }
            | Self::AttachesStick { .. }
            | Self::TopUp { .. }
            | Self::NoPlacement(_)
            | Self::PlaceMissing { .. }
            | Self::LimitsUnknown { .. }
            | Self::Unschedulable
            | Self::NotOurs => false,
        }
    }

    fn waiting(&self) -> Waiting {
        let what = match self {
            Self::NothingSeenYet => "any change".to_owned(),
            Self::Paused { action, .. } => action.to_string(),
            Self::Busy { eni } => format!("more addresses on {eni}"),
            Self::NotReady { eni, .. } => format!("addresses of {eni}"),
            Self::SubnetFull { subnet, .. } => format!("more addresses of {subnet}"),
            Self::NoPlace { .. }
            | Self::AttachesStick { .. }
            | Self::NoPlacement(_)
            | Self::PlaceMissing { .. } => "another ENI".to_owned(),
            Self::MaxPods { .. }
            | Self::TopUp { .. }
            | Self::LimitsUnknown { .. }
            | Self::Unschedulable
            | Self::NotOurs => "more addresses".to_owned(),
        };
        Waiting {
            obstacle: self.obstacle(),
            what,
            why: self.reason(),
            until: self.until(),
            next_step: self.next_step(),
        }
    }

    fn obstacle(&self) -> Obstacle {
        match self {
            Self::SubnetFull { .. } => Obstacle::SubnetFull,
            Self::NoPlace { .. } => Obstacle::EniLimit,
            Self::MaxPods { .. } => Obstacle::MaxPods,
            // These facts are about to arrive.
            Self::NoPlacement(NoPlacement::EniConfigUnknown | NoPlacement::SubnetsUnknown) => {
                Obstacle::Time
            }
            Self::NoPlacement(NoPlacement::EniConfigMissing { .. } | NoPlacement::AllForbidden)
            | Self::PlaceMissing { .. } => Obstacle::NoPlace,
            Self::LimitsUnknown { .. } => Obstacle::LimitsUnknown,
            Self::Unschedulable => Obstacle::Unschedulable,
            Self::NotOurs => Obstacle::NotOurs,
            Self::AttachesStick { .. } => Obstacle::AttachStuck,
            Self::NothingSeenYet
            | Self::Paused { .. }
            | Self::Busy { .. }
            | Self::NotReady { .. }
            | Self::TopUp { .. } => Obstacle::Time,
        }
    }

    fn reason(&self) -> String {
        match self {
            Self::NothingSeenYet => "EC2 has not shown the node's ENIs yet".to_owned(),
            Self::Paused { action, fault: Some(fault), .. } => {
                format!("{action} failed and is paused: {fault}")
            }
            Self::Paused { action, .. } => format!("{action} waits for its budget"),
            Self::Busy { eni } => format!("a call for {eni} is under way"),
            Self::NotReady { eni, why } => format!("{eni} is not ready: {why}"),
            Self::SubnetFull { subnet, counted: Some(free @ 1..), .. } => format!(
                "subnet {subnet} has no assignable addresses, though EC2 counted {free} free ones"
            ),
            Self::SubnetFull { subnet, .. } => format!("subnet {subnet} has no free addresses"),
            Self::NoPlace { max } => {
                format!("all ENIs are full, and the node has the {max} that it may have")
            }
            Self::MaxPods { max } => format!("the node runs {max} pods at most"),
            Self::AttachesStick { .. } => "attached ENIs did not become ready lately".to_owned(),
            Self::TopUp { .. } => "no pod waits; top-ups are made in rounds".to_owned(),
            Self::NoPlacement(no_placement) => no_placement.reason(),
            Self::PlaceMissing { subnet, fault, config: Some(name), .. } => {
                format!("ENIConfig {name}, subnet {subnet}: {fault}")
            }
            Self::PlaceMissing { subnet, fault, .. } => format!("subnet {subnet}: {fault}"),
            Self::LimitsUnknown { reason, .. } => reason.clone(),
            Self::Unschedulable => "the node is unschedulable: its pool stays as it is".to_owned(),
            Self::NotOurs => "the settings leave ENIs and addresses to another program".to_owned(),
        }
    }

    fn next_step(&self) -> String {
        let step = match self {
            Self::SubnetFull { .. } => {
                "free addresses in the subnet, or give the nodes a larger one"
            }
            Self::NoPlace { .. } => {
                "use a larger instance type, a higher MAX_ENI, or fewer pods per node"
            }
            Self::MaxPods { .. } => "raise the kubelet's maxPods, or delete pods",
            Self::Paused { action, fault: Some(fault), .. } if is_denial(fault) => {
                return format!("allow ec2:{action} to the node's role");
            }
            Self::Paused { fault: Some(_), .. } => {
                "fix the cause in EC2's message; the daemon retries"
            }
            Self::Paused { .. } => "the kubelet retries",
            Self::NotReady { .. } | Self::AttachesStick { .. } => {
                "check the ENI's attachment in EC2 and the node's kernel log"
            }
            Self::NothingSeenYet => "check that the daemon reaches EC2 and may describe ENIs",
            Self::Busy { .. } | Self::TopUp { .. } => "the kubelet retries",
            Self::NoPlacement(no_placement) => return no_placement.next_step(),
            Self::PlaceMissing { config: Some(name), .. } => {
                return format!("put an existing subnet and groups into ENIConfig {name}");
            }
            Self::PlaceMissing { .. } => {
                "check that the subnet and the security groups of the node exist"
            }
            Self::LimitsUnknown { next_step, .. } => next_step,
            Self::Unschedulable => "uncordon the node, or set AWS_MANAGE_ENIS_NON_SCHEDULABLE=true",
            Self::NotOurs => {
                "add addresses to the node's ENIs, or unset DISABLE_NETWORK_RESOURCE_PROVISIONING \
                 and ENABLE_IMDS_ONLY_MODE"
            }
        };
        step.to_owned()
    }

    fn until(&self) -> Option<Time> {
        match self {
            Self::Paused { until, .. }
            | Self::AttachesStick { until }
            | Self::TopUp { until }
            | Self::PlaceMissing { until, .. } => Some(*until),
            Self::SubnetFull { until, .. } => *until,
            Self::NothingSeenYet
            | Self::Busy { .. }
            | Self::NotReady { .. }
            | Self::NoPlace { .. }
            | Self::MaxPods { .. }
            | Self::NoPlacement(_)
            | Self::LimitsUnknown { .. }
            | Self::Unschedulable
            | Self::NotOurs => None,
        }
    }
}

impl Core {
    pub(crate) fn explain(&self, now: Time) -> Vec<Waiting> {
        let mut waiting: Vec<Waiting> = Vec::new();
        for why in self.ctx.blockers().iter().map(Blocker::waiting) {
            if !waiting.contains(&why) {
                waiting.push(why);
            }
        }
        let kept = self.ctx.book.cooling().filter(|(_, c)| c.until <= now && !c.kernel_clean);
        waiting.extend(kept.map(|(address, cooling)| Waiting {
            obstacle: Obstacle::Time,
            what: address.to_string(),
            why: "its cooldown is over, but no observation of the kernel lacks it yet".to_owned(),
            until: (cooling.until > now).then_some(cooling.until),
            next_step: "look for its routes and rules on the node (ip rule)".to_owned(),
        }));
        waiting
    }

    /// The refusal for a Reserve that timed out.
    pub(crate) fn refusal(&self, cards: Cards) -> Refusal {
        let limit = self.ctx.blockers().iter().find(|why| why.is_final());
        if let Some(why) = limit.filter(|_| self.nothing_is_coming(cards)) {
            let message = if cards == Cards::First && self.ctx.book.node_cidrs().total() > 0 {
                format!("{}; the node's pod CIDRs have no free address either", why.reason())
            } else {
                why.reason()
            };
            let (reason, next_step) = (RefusalReason::Exhausted, why.next_step());
            return Refusal { reason, message, next_step };
        }
        // The pod has waited, so the pause between top-ups is not its reason.
        let hopeful = |why: &&Blocker| !why.is_final() && !matches!(why, Blocker::TopUp { .. });
        let hopeful = self.ctx.blockers().iter().find(hopeful).or(limit);
        let message =
            hopeful.map_or_else(|| "no address became free in time".to_owned(), Blocker::reason);
        let next_step =
            hopeful.map_or_else(|| "the kubelet retries".to_owned(), Blocker::next_step);
        let reason = RefusalReason::TryAgain;
        Refusal { reason, message, next_step }
    }

    /// The earliest time at which a waiting pod of card 0 may get an address, if no event can come before. The outer
    /// `None` means "possibly at any moment", the inner one "never".
    pub(crate) fn next_help(&self, now: Time) -> Option<Option<Time>> {
        let stuck =
            !self.ctx.blockers().is_empty() && self.ctx.blockers().iter().all(Blocker::is_final);
        if !stuck || !self.nothing_is_coming(Cards::First) {
            return None;
        }
        let mut help = Vec::new();
        // The request under way may bring an address.
        let asking = self
            .ctx
            .blockers()
            .iter()
            .any(|why| matches!(why, Blocker::SubnetFull { until: None, .. }));
        if asking || self.zone.is_counting() {
            return None;
        }
        help.extend(self.ctx.blockers().iter().filter_map(Blocker::until));
        help.extend(self.ctx.book.enis().filter_map(|eni| eni.full_until.filter(|at| *at > now)));
        // An assigned address may be released, and then it cools.
        if self.ctx.book.holders().next().is_some() {
            help.push(now + self.ctx.config.cooldown);
        }
        Some(help.into_iter().min())
    }

    /// Returns whether no address can become free without a release. No address cools, no ENI is being created or
    /// removed, and one of the cards has no ENI with free addresses.
    fn nothing_is_coming(&self, cards: Cards) -> bool {
        let used_up = |card: &CardIndex| {
            let of_card = |eni: &&Eni| eni.facts.card == *card && eni.counts();
            let mut enis = self.ctx.book.enis().filter(of_card);
            let unknown = self.unadopted().any(|place| place.card == Some(*card))
                || self.has_refused_place(*card);
            !unknown && enis.all(|eni| eni.coming.is_none() && eni.blocks.free() == 0)
        };
        // They become usable with the first observation of the kernel.
        if cards == Cards::First && self.ctx.book.node_cidrs().free() > 0 {
            return false;
        }
        let waited_for = match cards {
            Cards::First => vec![CardIndex(0)],
            Cards::All => self.ctx.pool_cards(),
        };
        self.ctx.schedule.ec2_seen()
            && !self.ctx.book.cools_anything()
            && self.growth.is_idle()
            && self.shrink.is_idle()
            && waited_for.iter().any(used_up)
    }
}

/// Returns whether EC2 or STS reports a missing permission, by the code at the start of the text.
pub fn is_denial(said: &str) -> bool {
    ["UnauthorizedOperation", "AccessDenied", "AuthFailure", "OptInRequired"]
        .iter()
        .any(|code| said.starts_with(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_missing_permission() {
        let of = |fault: &str| {
            let (action, until) = (Action::Assign, Time(0));
            Blocker::Paused { action, until, fault: Some(fault.into()) }.next_step()
        };
        let denied = of("UnauthorizedOperation: no");
        assert_eq!(denied, "allow ec2:AssignPrivateIpAddresses to the node's role");
        assert!(of("InvalidParameterValue: odd").contains("fix the cause in EC2's message"));
    }
}
