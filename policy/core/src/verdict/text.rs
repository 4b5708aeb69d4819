//! A verdict in words.

use super::{
    Decision, Earlier, Exemption, Half, Reason, RuleName, Unasked, Verdict, WhyNot, Wider,
};
use crate::{Action, Direction, PolicyKey, text::joined};
use std::fmt;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.decision)?;
        for (direction, half) in [("egress", &self.egress), ("ingress", &self.ingress)] {
            match half {
                Some(half) => write!(f, "{half}")?,
                None => writeln!(f, "{direction}: no pod that policy knows is at this end")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pod, reason) = (&self.pod, &self.reason);
        let direction = self.direction;
        writeln!(f, "{direction} of {}/{}: {}, {reason}", pod.namespace, pod.name, self.decision)?;
        self.wider.iter().try_for_each(|wider| writeln!(f, "  {wider}"))?;
        self.unasked.iter().try_for_each(|unasked| writeln!(f, "  {unasked}"))?;
        self.earlier.iter().try_for_each(|earlier| writeln!(f, "  {earlier}"))
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Drop => "drop",
            Self::Reject => "reject",
        })
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "Allow",
            Self::Drop => "Drop",
            Self::Reject => "Reject",
            Self::Pass => "Pass",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { rule } => write!(f, "by {rule}"),
            Self::NotUnderstood { rule, why } => {
                write!(f, "by {rule}, which is not understood and denies all: {why}")
            }
            Self::Isolation { policies } => {
                let policies = joined(policies.iter().map(PolicyKey::to_string), ", ");
                write!(f, "isolated by {policies}, of which no rule matches")
            }
            Self::Exemption { exemption } => write!(f, "exempt: {exemption}"),
            Self::Default => f.write_str("nothing speaks against it"),
        }
    }
}

impl fmt::Display for Wider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, why } = self;
        write!(f, "{policy} may be about more pods than were meant: {why}")
    }
}

impl fmt::Display for Unasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = joined(self.policies.iter().map(PolicyKey::to_string), ", ");
        write!(f, "isolated by {policies}, but not from this: {}", self.exemption)
    }
}

impl fmt::Display for Exemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FollowsItsFlow => "it follows its flow",
            Self::FromOwnNode => "it is from the pod's own node",
            Self::OwnAddress => "it is from the pod to an address of its own",
            Self::ToOwnNode => "it is to the pod's own node, of which NetworkPolicies say nothing",
            Self::Hairpin => {
                "it is from the pod to itself through a Service, of which NetworkPolicies say nothing, and \
                 of Antrea's rules only those about that Service"
            }
        })
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, direction, index, name, action } = self;
        write!(f, "{policy} {direction}[{index}]")?;
        name.as_ref().map_or(Ok(()), |name| write!(f, " {name:?}"))?;
        write!(f, " ({action})")
    }
}

impl fmt::Display for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.why)
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject => f.write_str("not about this pod"),
            Self::Peer { peers } if peers.is_empty() => f.write_str("it has no peer"),
            Self::Peer { peers } => {
                let miss = |miss: &super::PeerMiss| format!("not {}: {}", miss.peer, miss.why);
                f.write_str(&joined(peers.iter().map(miss), "; "))
            }
            Self::Protocol { wanted } => write!(f, "other protocols: {}", wanted.join(" or ")),
            Self::Port { wanted } => write!(f, "other ports: {}", wanted.join(" or ")),
            Self::NotUnderstood { cause } => {
                write!(f, "not understood, so it allows nothing: {cause}")
            }
            Self::PassesOn => f.write_str("it matches and passes on"),
            Self::Skipped { by } => write!(f, "skipped: {by} passed on"),
            Self::Exempt { exemption } => write!(f, "exempt: {exemption}"),
        }
    }
}
