//! What `policy-core` and the naive evaluator say, beside what is written.

use crate::{
    given::Given,
    table::{Asked, Expect, Found, Vector},
};
use anyhow::{Context as _, Result, bail};
use policy_core::{
    Aside, Decision, Exemption, Finding, Half, Origin, Packet, Reason, RuleName, Segment, State,
    World, lint, verdict,
};
use policy_objects::{Kind, Named, Protocol};
use serde_json::Value;
use std::net::IpAddr;
use tests_policy::naive;

/// Everything in which a vector is answered otherwise than it is written.
pub(crate) fn vector(standard: &[Value], vector: &Vector) -> Result<Vec<String>> {
    let mut given = Given::new(standard)?;
    let mut faults = Vec::new();
    for step in vector.steps() {
        let mut found = given.step(&step)?;
        found.extend(linted(&given.fresh(), &step.lint));
        for asked in &step.packets {
            found.extend(packet(&given, asked).with_context(|| format!("{asked:?}"))?);
        }
        let when = if step.title.is_empty() { String::new() } else { format!("{}: ", step.title) };
        faults.extend(found.into_iter().map(|fault| format!("{when}{fault}")));
    }
    Ok(faults)
}

fn packet(given: &Given, asked: &Asked) -> Result<Vec<String>> {
    let fresh = given.fresh();
    let packet = made(&fresh, asked)?;
    let (answer, lived) = (verdict(&fresh, &packet), verdict(&given.lived, &packet));
    let mut faults = Vec::new();
    let by = combined(answer.halves().map(|half| (half.decision, by(half))));
    let wanted = format!("{}: expected {:?} by {}", shown(asked), asked.expect, asked.by);
    if (decision(answer.decision), &by) != (asked.expect, &asked.by) {
        let got = decision(answer.decision);
        faults.push(format!("{wanted}, got {got:?} by {by}\n{answer}"));
    }
    if let Some(said) = asked.says.as_ref().filter(|said| !answer.to_string().contains(*said)) {
        faults.push(format!("{wanted}, which says `{said}`, but it says\n{answer}"));
    }
    if answer != lived {
        faults.push(format!(
            "{}: a world made anew and one that lived through the steps differ\n{answer}{lived}",
            shown(asked)
        ));
    }
    let plain =
        naive::Naive { objects: &given.objects, names: &given.names }.answer(&plain(&packet));
    let (got, by) = (plain_decision(plain.decision), plain_by(&plain, &asked.by));
    if got != asked.expect || by.is_some_and(|by| by != asked.by) {
        faults.push(format!("{wanted}, the naive evaluator has {got:?}: {plain:?}"));
    }
    Ok(faults)
}

/// What lint should find and does not.
fn linted(world: &World, wanted: &[Found]) -> Vec<String> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let findings = lint(world, &Aside::default());
    let is = |want: &Found, finding: &Finding| {
        serde_json::to_value(finding.check).is_ok_and(|check| check == want.check.as_str())
            && finding.object.to_string() == want.object
            && finding.text.contains(&want.text)
    };
    let missing = wanted.iter().filter(|want| !findings.iter().any(|finding| is(want, finding)));
    missing.map(|want| format!("lint does not find {want:?}; it finds {findings:#?}")).collect()
}

fn shown(asked: &Asked) -> String {
    let Asked { from, to, port, protocol, icmp, via_service, state, .. } = asked;
    let mut text = format!("{from} to {to}");
    port.iter().for_each(|port| text.push_str(&format!(":{port}")));
    protocol.iter().for_each(|protocol| text.push_str(&format!(" {protocol}")));
    icmp.iter().for_each(|(kind, code)| text.push_str(&format!(" ICMP {kind}/{code}")));
    via_service.iter().for_each(|service| text.push_str(&format!(" via {service}")));
    state.iter().for_each(|state| text.push_str(&format!(" {state}")));
    text
}

/// One reason for a packet: that of the end that denies; else those of both, without defaults.
fn combined(halves: impl Iterator<Item = (Decision, String)>) -> String {
    let halves: Vec<_> = halves.collect();
    if let Some((_, by)) = halves.iter().find(|(decision, _)| *decision != Decision::Allow) {
        return by.clone();
    }
    let mut said: Vec<String> =
        halves.into_iter().map(|(_, by)| by).filter(|by| by != DEFAULT).collect();
    said.dedup();
    if said.is_empty() { DEFAULT.to_owned() } else { said.join(" + ") }
}

fn by(half: &Half) -> String {
    match &half.reason {
        Reason::Rule { rule } | Reason::NotUnderstood { rule, .. } => {
            let RuleName { policy, direction, index, .. } = rule;
            rule_text(policy.kind, &policy.namespace, &policy.name, &direction.to_string(), *index)
        }
        Reason::Isolation { .. } => format!("{} isolation", half.direction),
        Reason::Exemption { exemption } => match exemption {
            Exemption::FollowsItsFlow => "exempt (follows its flow)",
            Exemption::FromOwnNode => "exempt (from own node)",
            Exemption::OwnAddress => "exempt (own address)",
            Exemption::ToOwnNode => "exempt (to own node)",
            Exemption::Hairpin => "exempt (hairpin)",
        }
        .to_owned(),
        Reason::Default => DEFAULT.to_owned(),
    }
}

fn rule_text(kind: Kind, namespace: &str, name: &str, direction: &str, index: usize) -> String {
    let short = match kind {
        Kind::NetworkPolicy => "np",
        Kind::ClusterNetworkPolicy => "cnp",
        Kind::AwsClusterNetworkPolicy => "ecnp",
        Kind::AwsApplicationNetworkPolicy => "eanp",
        Kind::AntreaClusterNetworkPolicy => "acnp",
        Kind::AntreaNetworkPolicy => "annp",
        Kind::Pod
        | Kind::Namespace
        | Kind::Node
        | Kind::Service
        | Kind::AntreaTier
        | Kind::AntreaClusterGroup
        | Kind::AntreaGroup => "?",
    };
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{short} {namespace}{slash}{name} {direction} {index}")
}

/// The naive evaluator's reason, as `by`; `None` where it only says that something is exempt.
fn plain_by(answer: &naive::Answer, wanted: &str) -> Option<String> {
    let ends = [("egress", &answer.out), ("ingress", &answer.into)];
    let mut halves = Vec::new();
    for (direction, half) in ends {
        let Some(half) = half else { continue };
        let by = match &half.by {
            naive::By::Exemption => return None,
            naive::By::Isolation => format!("{direction} isolation"),
            naive::By::Default => DEFAULT.to_owned(),
            naive::By::Rules(rules) => {
                let texts: Vec<_> = rules
                    .iter()
                    .map(|r| rule_text(r.kind, &r.namespace, &r.name, direction, r.index))
                    .collect();
                let same = texts.iter().find(|text| wanted.contains(text.as_str()));
                same.or(texts.first())?.clone()
            }
        };
        let decision = match half.decision {
            naive::Decision::Allow => Decision::Allow,
            naive::Decision::Drop => Decision::Drop,
            naive::Decision::Reject => Decision::Reject,
        };
        halves.push((decision, by));
    }
    (!wanted.starts_with("exempt")).then(|| combined(halves.into_iter()))
}

fn made(world: &World, asked: &Asked) -> Result<Packet> {
    let six = asked.family == Some(6) || [&asked.from, &asked.to].iter().any(|end| is_six(end));
    let source = match asked.source {
        Some(source) => source,
        None => address(world, &asked.from, six)?,
    };
    let service = asked.via_service.as_ref().map(|name| virtual_address(world, name, six));
    Ok(Packet {
        origin: origin(&asked.from),
        source,
        destination: address(world, &asked.to, six)?,
        service: service.transpose()?,
        segment: segment(asked)?,
        state: match asked.state.as_deref() {
            None => State::New,
            Some("established") => State::Established,
            Some("reply") => State::Reply,
            Some("related") => State::Related,
            Some(other) => bail!("`{other}` is no state"),
        },
    })
}

fn is_six(end: &str) -> bool {
    end == "EXT6" || matches!(end.parse(), Ok(IpAddr::V6(_)))
}

fn origin(from: &str) -> Origin {
    match from.split_once('/') {
        Some((namespace, name)) => {
            Origin::Pod(Named { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        None if outside(from).is_some() => Origin::Forwarded,
        None => Origin::Node(from.to_owned()),
    }
}

/// An address that is neither a pod's nor a node's by name.
fn outside(end: &str) -> Option<IpAddr> {
    match end {
        "EXT" => "198.51.100.7",
        "EXT6" => "2001:db8::7",
        other => other,
    }
    .parse()
    .ok()
}

fn address(world: &World, end: &str, six: bool) -> Result<IpAddr> {
    if let Some(address) = outside(end) {
        return Ok(address);
    }
    let addresses = match end.split_once('/') {
        Some((namespace, name)) => {
            let name = Named { namespace: namespace.to_owned(), name: name.to_owned() };
            world.pod(&name).map(|pod| pod.addresses.clone())
        }
        None => world.node(end).map(|node| node.addresses.clone()),
    };
    let addresses = addresses.with_context(|| format!("there is no {end}"))?;
    let address = addresses.into_iter().find(|address| address.is_ipv6() == six);
    address.with_context(|| format!("{end} has no address of that family"))
}

fn virtual_address(world: &World, name: &str, six: bool) -> Result<IpAddr> {
    let (namespace, name) = name.split_once('/').context("namespace/name")?;
    let named = Named { namespace: namespace.to_owned(), name: name.to_owned() };
    let service = world.service(&named).with_context(|| format!("there is no Service {name}"))?;
    let address =
        service.cluster_ips.known().into_iter().flatten().find(|address| address.is_ipv6() == six);
    address.copied().with_context(|| format!("Service {name} has no such address"))
}

fn segment(asked: &Asked) -> Result<Segment> {
    if let Some((kind, code)) = asked.icmp {
        return Ok(Segment::Icmp { kind, code });
    }
    let protocol = match asked.protocol.as_ref() {
        None => Protocol::Tcp,
        Some(Value::String(text)) => serde_json::from_value(Value::String(text.clone()))?,
        Some(number) => return Ok(Segment::Other(serde_json::from_value(number.clone())?)),
    };
    let destination = asked.port.context("a port")?;
    Ok(Segment::Ports { protocol, source: asked.source_port.unwrap_or(40_000), destination })
}

fn decision(decision: Decision) -> Expect {
    match decision {
        Decision::Allow => Expect::A,
        Decision::Drop => Expect::D,
        Decision::Reject => Expect::R,
    }
}

fn plain_decision(decision: naive::Decision) -> Expect {
    match decision {
        naive::Decision::Allow => Expect::A,
        naive::Decision::Drop => Expect::D,
        naive::Decision::Reject => Expect::R,
    }
}

fn plain(packet: &Packet) -> naive::Packet {
    naive::Packet {
        origin: match &packet.origin {
            Origin::Pod(pod) => naive::Origin::Pod(pod.namespace.clone(), pod.name.clone()),
            Origin::Node(node) => naive::Origin::Node(node.clone()),
            Origin::Forwarded => naive::Origin::Forwarded,
        },
        // It has no word for IPv4 within IPv6.
        source: packet.source.to_canonical(),
        destination: packet.destination.to_canonical(),
        service: packet.service.map(|address| address.to_canonical()),
        segment: match packet.segment {
            Segment::Ports { protocol, source, destination } => {
                naive::Segment::Ports(protocol, source, destination)
            }
            Segment::Icmp { kind, code } => naive::Segment::Icmp(kind, code),
            Segment::Other(number) => naive::Segment::Other(number),
        },
        state: match packet.state {
            State::New => naive::State::New,
            State::Established => naive::State::Established,
            State::Reply => naive::State::Reply,
            State::Related => naive::State::Related,
        },
    }
}

const DEFAULT: &str = "default";
