//! Results as text.

use super::{args::VerdictArgs, objects::Objects};
use policy_core::{
    Decision, Direction, Earlier, Finding, Half, Packet, Policy, PolicyKey, Reason, Segment,
    Verdict, WhyNot, World, show::Changes,
};
use policy_objects::Pod;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt};
use view_text::counted;

/// The verdict on a packet.
pub(super) struct Answer<'a> {
    pub(super) objects: &'a Objects,
    pub(super) args: &'a VerdictArgs,
    pub(super) packet: &'a Packet,
    pub(super) verdict: &'a Verdict,
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packet, verdict, args, .. } = self;
        let end = |word: &str, address: std::net::IpAddr| match word.parse::<std::net::IpAddr>() {
            Ok(_) => word.to_owned(),
            Err(_) => format!("{} ({address})", word.split(':').next().unwrap_or(word)),
        };
        let from = end(&args.from, packet.source);
        let to = match args.to.parse::<std::net::SocketAddr>() {
            Ok(_) => packet.destination.to_string(),
            Err(_) => end(&args.to, packet.destination),
        };
        write!(f, "{}: {} from {from} to {to}", outcome(verdict.decision), what(packet.segment))?;
        match (&args.via_service, packet.service) {
            (Some(name), Some(address)) => writeln!(f, ", through Service {name} ({address})")?,
            _ => writeln!(f)?,
        }
        if let Some(half) = verdict.deciding() {
            writeln!(f, "  decided at {}", self.reason(half))?;
        }
        for (direction, half) in [("egress", &verdict.egress), ("ingress", &verdict.ingress)] {
            writeln!(f)?;
            match half {
                Some(half) => self.half(f, half)?,
                None => writeln!(
                    f,
                    "{direction}: no policy applies: this end is not a pod that policies know"
                )?,
            }
        }
        Ok(())
    }
}

impl Answer<'_> {
    fn half(&self, f: &mut fmt::Formatter<'_>, half: &Half) -> fmt::Result {
        let Half { direction, pod, decision, earlier, .. } = half;
        writeln!(f, "{direction} of {}/{}: {}", pod.namespace, pod.name, outcome(*decision))?;
        writeln!(f, "  {}", self.why(half))?;
        half.wider.iter().try_for_each(|wider| writeln!(f, "  {wider}"))?;
        half.unasked.iter().try_for_each(|unasked| writeln!(f, "  {unasked}"))?;
        let about = |earlier: &&Earlier| self.args.verbose || earlier.why != WhyNot::Subject;
        for earlier in earlier.iter().filter(about) {
            let rule = &earlier.rule;
            let place = self.place(&rule.policy);
            writeln!(f, "  earlier: {rule}{place}")?;
            writeln!(f, "    {}", earlier.why)?;
        }
        match earlier.len() - earlier.iter().filter(about).count() {
            0 => Ok(()),
            1 => writeln!(f, "  1 earlier rule is about other pods (-v shows it)"),
            others => {
                writeln!(f, "  {others} earlier rules are about other pods (-v shows them)")
            }
        }
    }

    fn reason(&self, half: &Half) -> String {
        format!("{}: {}", half.direction, self.why(half))
    }

    fn why(&self, half: &Half) -> String {
        match &half.reason {
            Reason::Rule { rule } => format!("{rule}{}", self.place(&rule.policy)),
            Reason::NotUnderstood { rule, why } => format!(
                "{rule}{}, which is not understood and so denies all: {why}",
                self.place(&rule.policy)
            ),
            Reason::Isolation { policies } => {
                let name = |key: &PolicyKey| format!("{key}{}", self.place(key));
                let policies: Vec<String> = policies.iter().map(name).collect();
                format!("isolated by {}, and no rule allows it", policies.join(" and by "))
            }
            reason @ (Reason::Exemption { .. } | Reason::Default) => reason.to_string(),
        }
    }

    fn place(&self, key: &PolicyKey) -> String {
        place(self.objects, key)
    }
}

/// Returns the files of the policies in a verdict.
pub(super) fn places(objects: &Objects, verdict: &Verdict) -> BTreeMap<String, String> {
    let deciding = verdict.halves().flat_map(|half| match &half.reason {
        Reason::Rule { rule } | Reason::NotUnderstood { rule, .. } => vec![&rule.policy],
        Reason::Isolation { policies } => policies.iter().collect(),
        Reason::Exemption { .. } | Reason::Default => Vec::new(),
    });
    let earlier = verdict.halves().flat_map(|half| &half.earlier);
    let all = deciding.chain(earlier.map(|earlier| &earlier.rule.policy));
    let place = |key: &PolicyKey| Some((key.to_string(), objects.place(key)?.to_string()));
    all.filter_map(place).collect()
}

fn place(objects: &Objects, key: &PolicyKey) -> String {
    objects.place(key).map_or(String::new(), |place| format!(" [{place}]"))
}

fn outcome(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "ALLOWED",
        Decision::Drop => "DENIED (dropped)",
        Decision::Reject => "DENIED (rejected)",
    }
}

fn what(segment: Segment) -> String {
    match segment {
        Segment::Ports { protocol, destination, .. } => {
            format!("{} to port {destination}", format!("{protocol:?}").to_uppercase())
        }
        segment @ (Segment::Icmp { .. } | Segment::Other(_)) => segment.to_string(),
    }
}

/// Lists the policies of a pod.
pub(super) fn of(world: &World, objects: &Objects, pod: &Pod) -> String {
    let mut text = String::new();
    let name = format!("{}/{}", pod.meta.namespace, pod.meta.name);
    if let Some(why) = unknown(pod) {
        return format!("{name}: no policy applies: {why}\n");
    }
    for direction in [Direction::Ingress, Direction::Egress] {
        let closed = world.policies().any(|policy| world.isolates(policy, pod, direction));
        let rest = if closed {
            "traffic without a matching rule is dropped"
        } else {
            "traffic without a matching rule is allowed"
        };
        text.push_str(&format!("{direction} of {name}: {rest}\n"));
        let before = text.len();
        for (policy, rules) in world.policies_of(pod, direction) {
            let tier = tier(world.tier_number(policy));
            text.push_str(&format!("  {}, {tier}{}\n", policy.key, place(objects, &policy.key)));
            if let Some(why) = closes_more(policy) {
                text.push_str(&format!("    may apply to more pods than intended: {why}\n"));
            }
            for rule in rules {
                text.push_str(&format!("    {}\n", rule));
            }
        }
        if text.len() == before {
            text.push_str("  no policy\n");
        }
    }
    text
}

/// The same as JSON.
pub(super) fn of_json(world: &World, objects: &Objects, pod: &Pod) -> Value {
    let side = |direction: Direction| -> Value {
        let policies = world.policies_of(pod, direction).map(|(policy, rules)| {
            let rules: Vec<Value> = rules
                .iter()
                .map(|rule| {
                    json!({
                        "index": rule.index, "name": rule.name, "action": rule.action,
                        "text": rule.to_string(), "doubt": rule.doubt,
                    })
                })
                .collect();
            json!({
                "policy": policy.key, "tier": world.tier_number(policy),
                "priority": policy.place.priority.value(),
                "isolates": world.isolates(policy, pod, direction),
                "doubt": closes_more(policy),
                "at": objects.place(&policy.key).map(ToString::to_string), "rules": rules,
            })
        });
        policies.collect()
    };
    json!({
        "pod": format!("{}/{}", pod.meta.namespace, pod.meta.name), "unknown": unknown(pod),
        "ingress": side(Direction::Ingress), "egress": side(Direction::Egress),
    })
}

/// Returns the reason why a NetworkPolicy isolates more pods than intended.
fn closes_more(policy: &Policy) -> Option<&String> {
    policy.isolation.as_ref()?.doubt.as_ref()
}

/// Returns the reason why policies do not know a pod.
fn unknown(pod: &Pod) -> Option<&'static str> {
    match pod.phase {
        _ if pod.host_network => Some("it uses its node's network"),
        policy_objects::Phase::Ended => Some("it has terminated"),
        policy_objects::Phase::Live => None,
    }
}

fn tier(number: Option<u8>) -> String {
    match number {
        None => "a NetworkPolicy's place".to_owned(),
        Some(number) => format!("tier {number}"),
    }
}

/// The effects of a change.
pub(super) fn changes(changes: &Changes) -> String {
    let mut text = String::new();
    for change in &changes.pairs {
        let (from, to) = (&change.from, &change.to);
        text.push_str(&format!("{from} to {to}\n"));
        text.push_str(&format!("  passed: {}\n  passes: {}\n", change.before, change.after));
    }
    for (pods, word) in [(&changes.new, "new"), (&changes.gone, "gone")] {
        for pod in pods {
            text.push_str(&format!(
                "{}/{} is {word}; its own permissions do not count as a change\n",
                pod.namespace, pod.name
            ));
        }
    }
    match changes.count() {
        0 => text.push_str("no change between pods that exist before and after\n"),
        count => {
            let pairs = counted(count, "pair of pods changes", "pairs of pods change");
            text.push_str(&format!("{pairs}\n"));
        }
    }
    text
}

/// The findings of `lint`.
pub(super) fn findings(findings: &[Finding], objects: &Objects) -> String {
    let mut text = String::new();
    for finding in findings {
        let place = objects.place_of(&finding.object);
        let place = place.map_or(String::new(), |place| format!(" [{place}]"));
        text.push_str(&format!("{finding}{place}\n"));
    }
    text.push_str(&match findings.len() {
        0 => "no findings\n".to_owned(),
        count => counted(count, "finding", "findings") + "\n",
    });
    text
}

/// The same as JSON.
pub(super) fn findings_json(findings: &[Finding], objects: &Objects) -> Value {
    let with_place = |finding: &Finding| {
        let mut value = json!(finding);
        value["at"] = json!(objects.place_of(&finding.object).map(ToString::to_string));
        value
    };
    findings.iter().map(with_place).collect()
}
