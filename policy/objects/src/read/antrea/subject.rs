//! `appliedTo`.

use super::{Scope, named};
use crate::read::selector::wide;
use crate::read::tree::{At, Doubt, Notes};
use crate::{AntreaAppliedTo, Selector, Subject};

/// Place of an `appliedTo`: not every place has all fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Policy,
    Ingress,
    Egress,
}

/// The items of a policy's or a rule's `appliedTo`. Where there are none, what is odd beside it may
/// have been meant as it.
pub(super) fn all(
    at: &At<'_>,
    scope: Scope,
    level: Level,
    odd: Option<&Doubt>,
    notes: &mut Notes,
) -> Vec<Subject<AntreaAppliedTo>> {
    match (at.items("appliedTo"), odd) {
        (Ok(items), Some(doubt)) if items.len() == 0 => vec![all_pods(scope, doubt, notes)],
        (Ok(items), _) => items.map(|item| one(&item, scope, level, notes)).collect(),
        (Err(doubt), _) => vec![all_pods(scope, &doubt, notes)],
    }
}

fn one(at: &At<'_>, scope: Scope, level: Level, notes: &mut Notes) -> Subject<AntreaAppliedTo> {
    let read = at.only(fields(scope, level)).and_then(|()| alone(at, notes));
    match read {
        Ok(Some(selects)) => Subject { selects, doubt: None },
        Ok(None) => by_selectors(at, scope, notes),
        Err(doubt) if at.get("service").is_some() => {
            notes.fail(
                &doubt,
                "rules of it allow nothing, and deny all of their direction to all pods",
            );
            Subject { selects: AntreaAppliedTo::Service(None), doubt: Some(doubt.why()) }
        }
        Err(doubt) => all_pods(scope, &doubt, notes),
    }
}

fn fields(scope: Scope, level: Level) -> &'static [&'static str] {
    match (scope, level) {
        (Scope::Cluster, Level::Policy) => &CLUSTER,
        (Scope::Cluster, Level::Ingress) => &CLUSTER[..5],
        (Scope::Cluster, Level::Egress) => &CLUSTER[..4],
        (Scope::Namespace, Level::Policy) => &NAMESPACED,
        (Scope::Namespace, Level::Ingress | Level::Egress) => &NAMESPACED[..2],
    }
}

/// Fields that exclude all others in an item.
fn alone(at: &At<'_>, notes: &mut Notes) -> Result<Option<AntreaAppliedTo>, Doubt> {
    let present = |key: &&str| at.get(key).is_some();
    let count = CLUSTER.iter().chain(&NAMESPACED[2..]).filter(|key| present(key)).count();
    let mut group = at.get("group");
    if let Some(empty) = group.filter(|at| count > 1 && at.value.as_str() == Some("")) {
        notes.warn(&empty, "it is empty, and read as if it were not there");
        group = None;
    }
    let whole = group
        .map(|at| ("group", at))
        .or_else(|| ALONE.iter().find_map(|key| at.get(key).map(|at| (*key, at))));
    let Some((key, field)) = whole else { return Ok(None) };
    if count > 1 {
        return Err(at.doubt(format!("`{key}` must be alone in its item: use separate items")));
    }
    let named = |field: &At<'_>| {
        field.only(&["name", "namespace"])?;
        named(field, None)
    };
    let unsupported = || field.doubt(format!("`{key}` in appliedTo is not supported"));
    Ok(Some(match key {
        "group" => AntreaAppliedTo::Group(field.word()?.to_owned()),
        "serviceAccount" => AntreaAppliedTo::ServiceAccount(named(&field)?),
        "service" => {
            let service = named(&field)?;
            notes.fail(
                &unsupported(),
                "rules of it allow nothing, and deny all of their direction to the Service's pods",
            );
            AntreaAppliedTo::Service(Some(service))
        }
        _ => {
            field.only(&["matchLabels", "matchExpressions"])?;
            let (what, selects) = match key {
                "nodeSelector" => ("nodes", AntreaAppliedTo::Nodes),
                _ => ("external entities", AntreaAppliedTo::External),
            };
            let becomes = format!("the policy protects no {what} and applies to no pods");
            notes.fail(&unsupported(), &becomes);
            selects
        }
    }))
}

fn by_selectors(at: &At<'_>, scope: Scope, notes: &mut Notes) -> Subject<AntreaAppliedTo> {
    let mut doubt = None;
    let mut side = |key| {
        let (selector, why) = wide(&at.get(key)?, notes);
        doubt = doubt.take().or(why);
        Some(selector)
    };
    let selects =
        AntreaAppliedTo::Pods { namespaces: side("namespaceSelector"), pods: side("podSelector") };
    match doubt {
        Some(doubt) => doubtful(selects, &doubt, notes),
        None => {
            if at.value.as_object().is_some_and(|map| map.values().all(|value| value.is_null())) {
                notes.warn(
                    at,
                    match scope {
                        Scope::Cluster => "an empty item selects no pod",
                        Scope::Namespace => "an empty item selects every pod of the namespace",
                    },
                );
            }
            Subject { selects, doubt: None }
        }
    }
}

/// All pods that a policy or a rule can apply to, because the intended ones are unknown.
pub(super) fn all_pods(scope: Scope, doubt: &Doubt, notes: &mut Notes) -> Subject<AntreaAppliedTo> {
    let namespaces = match scope {
        Scope::Cluster => Some(Selector::default()),
        Scope::Namespace => None,
    };
    let all = AntreaAppliedTo::Pods { namespaces, pods: Some(Selector::default()) };
    doubtful(all, doubt, notes)
}

fn doubtful(
    selects: AntreaAppliedTo,
    doubt: &Doubt,
    notes: &mut Notes,
) -> Subject<AntreaAppliedTo> {
    notes.fail(doubt, "its rules allow nothing, and deny traffic of all pods that it may select");
    Subject { selects, doubt: Some(doubt.why()) }
}

/// The last one is not in a rule's, the one before only in that of ingress.
const CLUSTER: [&str; 6] =
    ["podSelector", "namespaceSelector", "group", "serviceAccount", "service", "nodeSelector"];

/// The last one is not in a rule's.
const NAMESPACED: [&str; 3] = ["podSelector", "group", "externalEntitySelector"];

/// Fields that exclude all others, besides groups.
const ALONE: [&str; 4] = ["serviceAccount", "service", "nodeSelector", "externalEntitySelector"];
