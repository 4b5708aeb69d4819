//! The answer for one packet.

mod end;
mod matching;
mod text;
mod walk;

#[cfg(test)]
mod tests;

use crate::{Action, Direction, Packet, Policy, PolicyKey, Rule, World};
use policy_objects::Named;
use serde::Serialize;

/// Decision about a packet, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The packet passes only if both halves allow it. Otherwise the first half that does not, in the packet's
    /// direction, determines the decision.
    pub decision: Decision,
    /// At the source; `None` where no pod that policy knows sends it.
    pub egress: Option<Half>,
    /// At the destination; `None` where no pod that policy knows gets it.
    pub ingress: Option<Half>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    Allow,
    /// The packet is dropped silently.
    Drop,
    /// The packet is dropped and its sender is informed: a TCP reset, or ICMP's "prohibited".
    Reject,
}

/// Result of one pod's policies for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Half {
    /// From the view of the pod.
    pub direction: Direction,
    pub pod: Named,
    /// Decision of this half about the packet.
    pub decision: Decision,
    pub reason: Reason,
    /// Of the policies that decided those whose subject is not understood, so that they are about more
    /// pods than were meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wider: Vec<Wider>,
    /// NetworkPolicies that isolate the pod and have no rule for this packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unasked: Option<Unasked>,
    /// Every rule of this direction that was before it in the one order, in that order. Where nothing
    /// but the default decided, these are all.
    pub earlier: Vec<Earlier>,
}

/// A policy that is about more pods than were meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wider {
    pub policy: PolicyKey,
    /// Part of its subject that is not understood.
    pub why: String,
}

/// NetworkPolicies that would drop what none of their rules allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unasked {
    pub exemption: Exemption,
    /// These.
    pub policies: Vec<PolicyKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "camelCase")]
pub enum Reason {
    Rule {
        rule: RuleName,
    },
    /// A rule that would deny, or pass on, something that is not understood; so it denies all.
    NotUnderstood {
        rule: RuleName,
        why: String,
    },
    /// NetworkPolicies isolate the pod, and no rule of theirs matches.
    Isolation {
        /// These.
        policies: Vec<PolicyKey>,
    },
    /// The packet is none that is to be judged here.
    Exemption {
        exemption: Exemption,
    },
    /// No rule matches.
    Default,
}

/// Reason why a packet is not judged, or not by all kinds of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Exemption {
    /// The packet follows its flow: a reply, or an error about it.
    FollowsItsFlow,
    /// A process of the pod's own node sends it.
    FromOwnNode,
    /// A pod sends it to an address of its own, loopback too. Such a packet does not leave the pod.
    OwnAddress,
    /// The destination is the pod's own node, to which NetworkPolicies do not apply.
    ToOwnNode,
    /// A pod used a Service and was directed back to itself. NetworkPolicies do not apply, and of Antrea's rules only
    /// those of egress whose peers are Services, or that are not understood.
    Hairpin,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RuleName {
    pub policy: PolicyKey,
    pub direction: Direction,
    /// Its number among the policy's of that direction, from 0.
    pub index: usize,
    /// As people or Antrea named it.
    pub name: Option<String>,
    /// Action for packets that match.
    pub action: Action,
}

/// A rule that did not decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Earlier {
    pub rule: RuleName,
    pub why: WhyNot,
}

/// Reason why a rule did not decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "camelCase")]
pub enum WhyNot {
    /// The pod is none that it is about.
    Subject,
    /// The other end is none of its peers.
    Peer {
        /// Each of them, and why it is not that.
        peers: Vec<PeerMiss>,
    },
    Protocol {
        /// These.
        wanted: Vec<String>,
    },
    /// The rule is about other ports, or ICMP types and codes.
    Port {
        /// Ports, or types and codes, that the rule matches for the packet's protocol.
        wanted: Vec<String>,
    },
    /// The rule would allow a part that is not understood, so it matches nothing.
    NotUnderstood { cause: String },
    /// The rule matches and passes to the rules that follow its family's rules before NetworkPolicies, or
    /// its tier.
    PassesOn,
    /// A Pass of its family, or in a baseline of its tier, was before it.
    Skipped {
        /// The rule that passed on.
        by: RuleName,
    },
    /// Its kind does not judge such packets.
    Exempt { exemption: Exemption },
}

/// A peer that the other end is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PeerMiss {
    pub peer: String,
    /// Reason why the other end does not match.
    pub why: String,
}

/// Decides about a packet in a world, with the reason.
///
/// - The policies of the pod that sends it (by its origin) judge its egress. The policies of the pod that has
///   its destination judge its ingress. A pod with its node's network, or one that has ended, has none.
/// - The other end is known only by its address. Labels of pods match only the pod that has the address now:
///   origin decides exemptions, addresses decide peers.
/// - Rules are tried in one order ([`World::policies`]); the first that matches decides. Of Antrea policies with equal
///   tiers and priorities, a rule's position in its list decides before the policies' order.
/// - A Pass ends its family's walk before NetworkPolicies; in a baseline, its tier's. Where NetworkPolicies isolate
///   the pod they decide, and baselines are skipped. They do not decide about a packet that is exempt from them,
///   so baselines judge it.
pub fn verdict(world: &World, packet: &Packet) -> Verdict {
    walk::verdict(world, packet, true)
}

/// Returns only the decision of [`verdict`], for callers with very many packets.
pub fn decide(world: &World, packet: &Packet) -> Decision {
    walk::verdict(world, packet, false).decision
}

impl Verdict {
    /// The halves that exist, in the packet's direction.
    pub fn halves(&self) -> impl Iterator<Item = &Half> {
        self.egress.iter().chain(&self.ingress)
    }

    /// The half that decides: the first that denies, or the last that there is.
    pub fn deciding(&self) -> Option<&Half> {
        self.halves().find(|half| half.decision != Decision::Allow).or(self.halves().last())
    }
}

impl RuleName {
    pub(crate) fn of(policy: &Policy, rule: &Rule) -> Self {
        Self {
            policy: policy.key.clone(),
            direction: rule.direction,
            index: rule.index,
            name: rule.name.clone(),
            action: rule.action,
        }
    }
}
