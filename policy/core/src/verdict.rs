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

/// What becomes of a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The packet passes only if both halves let it; else the first that does not, in the packet's
    /// way, says what becomes of it.
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
    /// It is gone without a word.
    Drop,
    /// It is gone and its sender is told: a TCP reset, or ICMP's "prohibited".
    Reject,
}

/// What one pod's policies say of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Half {
    /// Which way, seen from the pod.
    pub direction: Direction,
    pub pod: Named,
    /// What becomes of the packet here.
    pub decision: Decision,
    pub reason: Reason,
    /// Of the policies that decided those whose subject is not understood, so that they are about more
    /// pods than were meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wider: Vec<Wider>,
    /// NetworkPolicies that isolate the pod and say nothing of this packet.
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
    /// What of its subject is not understood.
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
    /// Nothing speaks against it.
    Default,
}

/// Why a packet is not judged, or not by all kinds of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Exemption {
    /// It follows its flow: a reply, or an error about it.
    FollowsItsFlow,
    /// A process of the pod's own node sends it.
    FromOwnNode,
    /// A pod sends it to an address of its own, loopback too, which nobody can see.
    OwnAddress,
    /// It goes to the pod's own node, of which NetworkPolicies say nothing.
    ToOwnNode,
    /// A pod asked for a Service and was led back to itself, of which NetworkPolicies and Antrea's say
    /// nothing.
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
    /// What it does with what matches.
    pub action: Action,
}

/// A rule that did not decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Earlier {
    pub rule: RuleName,
    pub why: WhyNot,
}

/// Why a rule did not decide.
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
    /// It is about other ports, or ICMP types and codes.
    Port {
        /// What it wants of the packet's protocol.
        wanted: Vec<String>,
    },
    /// It would allow something that is not understood, so it matches nothing.
    NotUnderstood { cause: String },
    /// It matches and passes on to what comes after its family's rules before NetworkPolicies, or
    /// after its tier.
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
    /// Why the other end is not it.
    pub why: String,
}

/// What becomes of a packet in a world, and why.
///
/// - The policies of the pod that sends it (by its origin) judge its egress, those of the pod that has
///   its destination its ingress. A pod with its node's network, or one that has ended, has none.
/// - The other end is known by its address alone, and only the pod that has it now is meant by pods'
///   labels: origin decides what is exempt, addresses decide who a peer is.
/// - Rules are tried in one order ([`World::policies`]); the first that matches decides. A Pass ends
///   its family's walk before NetworkPolicies; in a baseline, its tier's. Where NetworkPolicies isolate
///   the pod they decide and no baseline is asked. Of a packet that is exempt from them they say
///   nothing, so baselines judge it.
pub fn verdict(world: &World, packet: &Packet) -> Verdict {
    walk::verdict(world, packet, true)
}

/// The decision of [`verdict`] alone, for who asks of very many packets.
pub fn decide(world: &World, packet: &Packet) -> Decision {
    walk::verdict(world, packet, false).decision
}

impl Verdict {
    /// What there is of halves, in the packet's way.
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
