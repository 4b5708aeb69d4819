//! Finds references to objects that do not exist.

use super::{Check, Finding, ObjectName};
use crate::{
    Action, NameMatch, Peer, Peers, Pods, Policy, Rule, Tier, World,
    world::{Lookup as _, group_title},
};
use policy_objects::{Group, GroupSpec, Kind, Meta, Named, Read, Service, Severity};

pub(super) fn look(world: &World, findings: &mut Vec<Finding>) {
    for policy in world.policies() {
        tier(world, policy, findings);
        for rule in &policy.rules {
            subjects(world, policy, rule, findings);
            peers(world, policy, rule, findings);
        }
    }
    for group in world.groups() {
        let name = Named { namespace: group.meta.namespace.clone(), name: group.meta.name.clone() };
        let mut say = |severity, text| findings.push(of_group(&group.meta, severity, text));
        match (&group.spec, world.members(&name)) {
            // The notes of reading the object report it already.
            (Read::Unknown(_) | Read::Known(GroupSpec::External), _) => {}
            (Read::Known(_), Err(why)) => {
                let becomes = match world.subjects(&name).doubt {
                    None => "",
                    Some(_) => ", and as a subject it selects all pods that it may mean",
                };
                say(
                    Severity::Error,
                    format!(
                        "it cannot be used: {why}; rules with it allow nothing or deny all{becomes}"
                    ),
                );
            }
            (Read::Known(spec), Ok(_)) => {
                if let Some(text) = why_empty(world, &name.namespace, spec) {
                    say(Severity::Warning, text);
                }
            }
        }
    }
}

fn of_group(meta: &Meta, severity: Severity, text: String) -> Finding {
    let kind = match meta.namespace.as_str() {
        "" => Kind::AntreaClusterGroup,
        _ => Kind::AntreaGroup,
    };
    let object = ObjectName::new(kind, meta);
    Finding { severity, check: Check::Missing, object, field: "spec".to_owned(), text }
}

fn why_empty(world: &World, own: &str, spec: &GroupSpec) -> Option<String> {
    if matches!(spec, GroupSpec::Empty) {
        return Some(
            "it is empty, so it has no members: give it a selector or ipBlocks".to_owned(),
        );
    }
    if let GroupSpec::Children(children) = spec {
        let child = |name: &String| Named { namespace: own.to_owned(), name: name.clone() };
        let missing = children.iter().map(child).find(|name| world.group(name).is_none())?;
        return Some(format!(
            "{} does not exist, so this child has no members: create it or remove the child",
            group_title(&missing)
        ));
    }
    let GroupSpec::Service(name) = spec else { return None };
    let service = format!("Service {}/{}", name.namespace, name.name);
    match world.service(name) {
        None => Some(format!("{service} does not exist, so the group has no members: create it")),
        Some(Service { selector: Read::Known(None), .. }) => Some(format!(
            "{service} has no selector, so the group has no members: select pods instead"
        )),
        Some(_) => None,
    }
}

fn tier(world: &World, policy: &Policy, findings: &mut Vec<Finding>) {
    let Tier::Antrea(name) = &policy.place.tier else { return };
    if !world.has_tier(name) {
        let text = format!(
            "there is no Tier {name}, so it counts as of `application`: create the Tier or name another"
        );
        let finding = Finding::of(policy, Severity::Error, Check::Missing, text);
        findings.push(Finding { field: "spec.tier".to_owned(), ..finding });
    }
}

fn subjects(world: &World, policy: &Policy, rule: &Rule, findings: &mut Vec<Finding>) {
    for pods in &rule.subject {
        let found = match pods {
            Pods::Group(name) => subject_group(world, policy, rule, name),
            Pods::Service(name) => subject_service(world, rule, name),
            Pods::Labeled { .. } | Pods::ServiceAccount(_) => None,
        };
        let Some((severity, text)) = found else { continue };
        let text = format!("appliedTo: {text}");
        let finding = Finding::of_rule(policy, rule, Check::Missing, text);
        findings.push(Finding { severity, ..finding });
    }
}

/// Effect of a rule whose subject is not understood.
fn wider(rule: &Rule) -> &'static str {
    match rule.action {
        Action::Allow => "the rule allows nothing",
        Action::Pass => "the rule denies all of its direction for all pods that it may select",
        Action::Drop | Action::Reject => "the rule denies for all pods that it may select",
    }
}

fn subject_group(
    world: &World,
    policy: &Policy,
    rule: &Rule,
    name: &Named,
) -> Option<(Severity, String)> {
    let (title, next) = (group_title(name), next(world, name));
    match (world.subjects(name).doubt, world.members(name)) {
        (Some(why), _) => {
            let text = format!("{why}; {} until that is fixed: {next} {title}", wider(rule));
            Some((Severity::Error, text))
        }
        (None, Err(why)) => Some((
            Severity::Error,
            format!("{why}; as a subject it selects no pod: {next} {title}"),
        )),
        (None, Ok(members)) if members.pods.is_empty() && !members.is_empty() => {
            let text = format!(
                "{title} holds addresses or nodes alone, which are no subjects: select pods"
            );
            Some((Severity::Warning, text))
        }
        (None, Ok(members)) if members.is_beyond(&policy.key.namespace) => {
            let text = format!(
                "{title} selects pods of other namespaces too, about which a policy of a namespace \
                 cannot be: use a ClusterNetworkPolicy"
            );
            Some((Severity::Warning, text))
        }
        (None, Ok(_)) => None,
    }
}

/// Next step for a group that is not usable.
fn next(world: &World, name: &Named) -> &'static str {
    let is =
        |group: &Group| (&group.meta.namespace, &group.meta.name) == (&name.namespace, &name.name);
    if world.groups().any(is) { "fix" } else { "create" }
}

fn subject_service(world: &World, rule: &Rule, name: &Named) -> Option<(Severity, String)> {
    if let Some(why) = world.behind(name).doubt {
        return Some((Severity::Error, format!("{why}; {} until that is fixed", wider(rule))));
    }
    let Named { namespace, name: of } = name;
    match world.service(name).map(|service| &service.selector) {
        None => Some((
            Severity::Warning,
            format!("Service {namespace}/{of} does not exist, so it selects no pod: create it"),
        )),
        Some(Read::Known(None)) => Some((
            Severity::Warning,
            format!("Service {namespace}/{of} has no selector, so it selects no pod: select pods"),
        )),
        Some(_) => None,
    }
}

fn peers(world: &World, policy: &Policy, rule: &Rule, findings: &mut Vec<Finding>) {
    let Peers::Of(peers) = &rule.peers else { return };
    let becomes = match rule.action {
        Action::Allow => "the rule allows nothing",
        Action::Drop | Action::Reject | Action::Pass => "the rule denies all of its direction",
    };
    for peer in peers {
        let (severity, text) = match peer {
            Peer::Pods(Pods::Group(name)) => match world.members(name) {
                Ok(_) => continue,
                Err(why) => (
                    Severity::Error,
                    format!(
                        "{why}; {becomes} until that is fixed: {} {}",
                        next(world, name),
                        group_title(name)
                    ),
                ),
            },
            Peer::Service(name) => match world.service(name).map(|service| &service.cluster_ips) {
                Some(Read::Known(addresses)) if !addresses.is_empty() => continue,
                Some(Read::Unknown(unknown)) => (
                    Severity::Error,
                    format!(
                        "Service {}/{} is not understood: {}; {becomes} until that is fixed",
                        name.namespace, name.name, unknown.why
                    ),
                ),
                Some(Read::Known(_)) => (
                    Severity::Warning,
                    format!(
                        "Service {}/{} has no address of its own and matches nothing: select its \
                         pods instead",
                        name.namespace, name.name
                    ),
                ),
                None => (
                    Severity::Warning,
                    format!(
                        "Service {}/{} does not exist and matches nothing: create it",
                        name.namespace, name.name
                    ),
                ),
            },
            Peer::Name(NameMatch::Pattern(pattern)) if pattern.0.ends_with('.') => (
                Severity::Warning,
                format!(
                    "{} matches nothing, for names are compared without the dot at their end: \
                     write it without",
                    pattern.0
                ),
            ),
            Peer::Pods(_) | Peer::Block(_) | Peer::Nodes(_) | Peer::Name(_) => continue,
        };
        let finding = Finding::of_rule(policy, rule, Check::Missing, text);
        findings.push(Finding { severity, ..finding });
    }
}
