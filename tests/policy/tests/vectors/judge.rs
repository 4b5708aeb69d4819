//! Comparison of `policy-core` and the naive evaluator with the expected answers.

use crate::{
    table::{Expect, ExpectedFinding, PacketCase, Vector},
    world::VectorWorld,
};
use anyhow::{Context as _, Result, bail};
use policy_core::{
    Aside, Decision, Exemption, Finding, Half, Origin, Packet, Reason, RuleName, Segment, State,
    World, lint, verdict,
};
use policy_objects::{Kind, Named, Object, Protocol};
use serde_json::Value;
use std::{collections::BTreeSet, net::IpAddr};
use tests_policy::{
    compiled::{CompiledNode, is_same},
    naive,
    node_client::{NodeClient, fresh},
    scenario::{Scenario, id},
};

/// All differences between the expected and the actual answers of a vector.
pub(crate) fn vector(standard: &[Value], vector: &Vector) -> Result<Vec<String>> {
    let mut given = VectorWorld::new(standard)?;
    let mut faults = Vec::new();
    for step in vector.steps() {
        let mut found = given.step(&step)?;
        found.extend(linted(&given.fresh(), &step.lint));
        let nodes = nodes(&given);
        for case in &step.packets {
            found.extend(packet(&given, &nodes, case).with_context(|| format!("{case:?}"))?);
        }
        let when = if step.title.is_empty() { String::new() } else { format!("{}: ", step.title) };
        faults.extend(found.into_iter().map(|fault| format!("{when}{fault}")));
    }
    Ok(faults)
}

/// The nodes, each with the snapshot that a replica sends it.
fn nodes(given: &VectorWorld) -> Vec<(String, NodeClient)> {
    let objects = given.objects.iter().cloned().map(with_uid).collect();
    let scenario = Scenario { objects, names: given.names.clone() };
    let mut nodes: BTreeSet<&str> = BTreeSet::new();
    for object in &given.objects {
        if let Object::Pod(pod) = object {
            nodes.insert(pod.node.as_str());
        }
    }
    nodes.remove("");
    nodes.into_iter().map(|node| (node.to_owned(), fresh(&scenario, node))).collect()
}

/// The object with a UID, as an API server gives it.
fn with_uid(mut object: Object) -> Object {
    let (kind, namespace, name) = id(&object);
    let meta = match &mut object {
        Object::Pod(pod) => &mut pod.meta,
        Object::NetworkPolicy(policy) => &mut policy.meta,
        Object::ClusterPolicy(policy) => &mut policy.meta,
        Object::AntreaPolicy(policy) => &mut policy.meta,
        Object::Namespace(_)
        | Object::Node(_)
        | Object::Service(_)
        | Object::Tier(_)
        | Object::Group(_) => return object,
    };
    if meta.uid.is_empty() {
        meta.uid = format!("{kind:?}/{namespace}/{name}");
    }
    object
}

/// The answers that the nodes look up in their compiled tables, if they differ from the naive evaluator's.
fn compiled(
    given: &VectorWorld,
    nodes: &[(String, NodeClient)],
    packet: &naive::Packet,
    answer: &naive::Answer,
) -> Option<String> {
    let naive = naive::Naive { objects: &given.objects, names: &given.names };
    let (sender, receiver) = naive.ends(packet);
    let packet = naive.with_host_origin(packet);
    for (name, client) in nodes {
        let found = CompiledNode::new(name, &client.snapshot, &given.names).answer(&packet);
        let ends = [(sender, &answer.out), (receiver, &answer.into)];
        for (found, (pod, expected)) in found.iter().zip(ends) {
            let is_here = pod.is_some_and(|pod| pod.node == *name);
            let expected = expected.as_ref().filter(|_| is_here);
            if !is_same(found.as_ref(), expected) {
                return Some(format!("node {name} looks up {found:?}, not {expected:?}"));
            }
        }
    }
    None
}

fn packet(
    given: &VectorWorld,
    nodes: &[(String, NodeClient)],
    case: &PacketCase,
) -> Result<Vec<String>> {
    let fresh = given.fresh();
    let packet = build_packet(&fresh, case)?;
    let (answer, live) = (verdict(&fresh, &packet), verdict(&given.live, &packet));
    let mut faults = Vec::new();
    let by = combined(answer.halves().map(|half| (half.decision, by(half))));
    let wanted = format!("{}: expected {:?} by {}", shown(case), case.expect, case.by);
    if (decision(answer.decision), &by) != (case.expect, &case.by) {
        let got = decision(answer.decision);
        faults.push(format!("{wanted}, got {got:?} by {by}\n{answer}"));
    }
    if let Some(reported) =
        case.text.as_ref().filter(|reported| !answer.to_string().contains(*reported))
    {
        faults.push(format!("{wanted}, with the text `{reported}`, but the verdict is\n{answer}"));
    }
    if answer != live {
        faults.push(format!(
            "{}: a new world and the world after all steps have different verdicts\n{answer}{live}",
            shown(case)
        ));
    }
    let naive_packet = self::plain(&packet);
    let plain = naive::Naive { objects: &given.objects, names: &given.names }.answer(&naive_packet);
    if let Some(fault) = compiled(given, nodes, &naive_packet, &plain) {
        faults.push(format!("{wanted}; {fault}"));
    }
    let (got, by) = (plain_decision(plain.decision), plain_by(&plain, &case.by));
    if got != case.expect || by.is_some_and(|by| by != case.by) {
        faults.push(format!("{wanted}, the naive evaluator returns {got:?}: {plain:?}"));
    }
    Ok(faults)
}

/// Expected findings of lint that are missing.
fn linted(world: &World, wanted: &[ExpectedFinding]) -> Vec<String> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let findings = lint(world, &Aside::default());
    let is = |want: &ExpectedFinding, finding: &Finding| {
        serde_json::to_value(finding.check).is_ok_and(|check| check == want.check.as_str())
            && finding.object.to_string() == want.object
            && finding.text.contains(&want.text)
    };
    let missing = wanted.iter().filter(|want| !findings.iter().any(|finding| is(want, finding)));
    missing.map(|want| format!("lint does not find {want:?}; it finds {findings:#?}")).collect()
}

fn shown(case: &PacketCase) -> String {
    let PacketCase { from, to, port, protocol, icmp, via_service, state, .. } = case;
    let mut text = format!("{from} to {to}");
    port.iter().for_each(|port| text.push_str(&format!(":{port}")));
    protocol.iter().for_each(|protocol| text.push_str(&format!(" {protocol}")));
    icmp.iter().for_each(|(kind, code)| text.push_str(&format!(" ICMP {kind}/{code}")));
    via_service.iter().for_each(|service| text.push_str(&format!(" via {service}")));
    state.iter().for_each(|state| text.push_str(&format!(" {state}")));
    text
}

/// The reason for a packet: that of the end that denies, or else those of both ends, without defaults.
fn combined(halves: impl Iterator<Item = (Decision, String)>) -> String {
    let halves: Vec<_> = halves.collect();
    if let Some((_, by)) = halves.iter().find(|(decision, _)| *decision != Decision::Allow) {
        return by.clone();
    }
    let mut reported: Vec<String> =
        halves.into_iter().map(|(_, by)| by).filter(|by| by != DEFAULT).collect();
    reported.dedup();
    if reported.is_empty() { DEFAULT.to_owned() } else { reported.join(" + ") }
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

/// The naive evaluator's reason in the form of `by`. `None` if the packet is exempt: it does not name the
/// exemption.
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

fn build_packet(world: &World, case: &PacketCase) -> Result<Packet> {
    let six = case.family == Some(6) || [&case.from, &case.to].iter().any(|end| is_six(end));
    let source = match case.source {
        Some(source) => source,
        None => address(world, &case.from, six)?,
    };
    let service = case.via_service.as_ref().map(|name| virtual_address(world, name, six));
    Ok(Packet {
        origin: origin(&case.from),
        source,
        destination: address(world, &case.to, six)?,
        service: service.transpose()?,
        segment: segment(case)?,
        state: match case.state.as_deref() {
            None => State::New,
            Some("established") => State::Established,
            Some("reply") => State::Reply,
            Some("related") => State::Related,
            Some(other) => bail!("`{other}` is not a state"),
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

/// An address in the text, which is not one of a named pod or node.
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
    let addresses = addresses.with_context(|| format!("no object is named {end}"))?;
    let address = addresses.into_iter().find(|address| address.is_ipv6() == six);
    address.with_context(|| format!("{end} has no address of that family"))
}

fn virtual_address(world: &World, name: &str, six: bool) -> Result<IpAddr> {
    let (namespace, name) =
        name.split_once('/').context("the Service is not written as namespace/name")?;
    let named = Named { namespace: namespace.to_owned(), name: name.to_owned() };
    let service = world.service(&named).with_context(|| format!("no Service is named {name}"))?;
    let address =
        service.cluster_ips.known().into_iter().flatten().find(|address| address.is_ipv6() == six);
    address.copied().with_context(|| format!("Service {name} has no such address"))
}

fn segment(case: &PacketCase) -> Result<Segment> {
    if let Some((kind, code)) = case.icmp {
        return Ok(Segment::Icmp { kind, code });
    }
    let protocol = match case.protocol.as_ref() {
        None => Protocol::Tcp,
        Some(Value::String(text)) => serde_json::from_value(Value::String(text.clone()))?,
        Some(number) => return Ok(Segment::Other(serde_json::from_value(number.clone())?)),
    };
    let destination = case.port.context("the packet has no port")?;
    Ok(Segment::Ports { protocol, source: case.source_port.unwrap_or(40_000), destination })
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
        // The naive evaluator does not know IPv4-mapped IPv6 addresses.
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
