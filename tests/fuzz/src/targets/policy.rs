//! Policy objects, pages of them, and objects of old versions.

mod pages;

pub use pages::page;

use policy_objects::convert::{ConvertError, convert};
use policy_objects::{
    AntreaAppliedTo, AntreaEntry, ClusterRule, Kind, NamespacedPods, Note, Object, Parsed, Read,
    Requirement, Selector, Severity, Subject,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A part that is not understood never widens the allowed traffic, wherever it is. An absent field and `null`
/// are the same.
pub fn object(data: &[u8]) {
    for read in Object::read_all(data) {
        if let Err(error) = read {
            assert!(!error.to_string().is_empty());
        }
    }
    let Some(value) = without_new(data) else { return };
    let Ok(before) = Object::read_value(&value) else { return };
    if !before.object.kind().is_policy() {
        return;
    }
    let all = places(&value["spec"], "/spec");
    for place in all.iter().step_by(all.len() / PLACES + 1) {
        let mut changed = value.clone();
        match changed.pointer_mut(place) {
            Some(Value::Object(map)) => {
                map.insert(NEW.to_owned(), Value::Null);
                assert_eq!(before, read(&changed), "null in {place}");
                let map = changed.pointer_mut(place).and_then(Value::as_object_mut);
                map.expect("an object").insert(NEW.to_owned(), json!(1));
                let after = read(&changed);
                narrows(&before.object, &after.object, place);
                let failed = after.notes.iter().any(|note| note.severity == Severity::Error);
                let tier = after.object.kind() == Kind::AntreaTier;
                let must_fail = !tier && !excused(&before.notes, place);
                assert!(!must_fail || failed, "a new field at {place} is not reported");
            }
            Some(scalar) if scalar.is_string() || scalar.is_number() || scalar.is_boolean() => {
                *scalar = json!({NEW: 1});
                narrows(&before.object, &read(&changed).object, place);
            }
            _ => {}
        }
    }
}

/// True if a part was not understood before, or if the place is in a part that the reader reports as ignored.
fn excused(notes: &[Note], place: &str) -> bool {
    let step = |step: &str| match step.parse::<usize>() {
        Ok(index) => format!("[{index}]"),
        Err(_) => format!(".{step}"),
    };
    let field: String = place.split('/').skip(1).map(step).collect();
    let covers =
        |note: &Note| note.field != "spec" && field.starts_with(&format!(".{}", note.field));
    notes.iter().any(|note| note.severity == Severity::Error || covers(note))
}

/// The document, unless it contains the new field.
fn without_new(data: &[u8]) -> Option<Value> {
    serde_json::from_slice(data).ok().filter(|value: &Value| !value.to_string().contains(NEW))
}

fn read(value: &Value) -> Parsed {
    Object::read_value(value).expect("the identity is unchanged")
}

/// The JSON pointers of a value and of all values in it. Label maps are left out, because any key is valid
/// there.
fn places(value: &Value, place: &str) -> Vec<String> {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    let within: Vec<String> = match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| places(value, &format!("{place}/{}", escaped(key))))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, value)| places(value, &format!("{place}/{index}")))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let own = (!place.ends_with("/matchLabels")).then(|| place.to_owned());
    own.into_iter().chain(within).collect()
}

/// `after` allows no more than `before`, as far as the objects show it: rules and selectors are the same, or
/// no longer understood.
fn narrows(before: &Object, after: &Object, at: &str) {
    let holds = match (before, after) {
        (Object::NetworkPolicy(before), Object::NetworkPolicy(after)) => {
            before.types.iter().all(|direction| after.types.contains(direction))
                && subject(&before.subject, &after.subject, within)
                && rules(&before.ingress, &after.ingress)
                && rules(&before.egress, &after.egress)
                && (at != SPEC || after.types.len() == 2)
        }
        (Object::ClusterPolicy(before), Object::ClusterPolicy(after)) => {
            let known =
                after.ingress.iter().chain(&after.egress).any(|rule| rule.known().is_some());
            let place = (before.tier, before.priority) == (after.tier, after.priority);
            (place || !known)
                && subject(&before.subject, &after.subject, pods_within)
                && rules(&before.ingress, &after.ingress)
                && rules(&before.egress, &after.egress)
                && (at != SPEC
                    || [&after.ingress, &after.egress].into_iter().all(|rules| denies(rules)))
        }
        (Object::AntreaPolicy(before), Object::AntreaPolicy(after)) => {
            let mut entries = after.ingress.iter().chain(&after.egress);
            let known = entries.any(|entry| entry.rule.known().is_some());
            let place =
                before.tier == after.tier && before.priority.total_cmp(&after.priority).is_eq();
            (place || !known)
                && subjects(&before.applied_to, &after.applied_to)
                && entries_narrow(&before.ingress, &after.ingress)
                && entries_narrow(&before.egress, &after.egress)
                && (at != SPEC
                    || [&after.ingress, &after.egress]
                        .into_iter()
                        .all(|entries| ends_with_deny(entries)))
        }
        (Object::Group(before), Object::Group(after)) => {
            after.spec.known().is_none() || before.spec == after.spec
        }
        (Object::Tier(before), Object::Tier(after)) => {
            after.priority.known().is_none() || before.priority == after.priority
        }
        _ => false,
    };
    assert!(holds, "a field that is not understood at {at} widens\n{before:?}\nto\n{after:?}");
}

fn rules<T: PartialEq>(before: &[Read<T>], after: &[Read<T>]) -> bool {
    let lost = matches!(after, [Read::Unknown(_)]);
    let same = |(before, after): (&Read<T>, &Read<T>)| after.known().is_none() || before == after;
    // Placeholders for lost rules may follow.
    let more = after.get(before.len()..);
    let more = more.is_some_and(|more| more.iter().all(|rule| rule.known().is_none()));
    lost || (more && before.iter().zip(after).all(same))
}

/// True if one rule denies all traffic.
fn denies(rules: &[Read<ClusterRule>]) -> bool {
    rules.iter().any(|rule| match rule {
        Read::Known(_) => false,
        Read::Unknown(unknown) => unknown.action.as_deref() != Some("Accept"),
    })
}

/// True if the last rule denies all traffic of the policy's subject.
fn ends_with_deny(entries: &[AntreaEntry]) -> bool {
    entries.last().is_some_and(|entry| match &entry.rule {
        Read::Known(_) => false,
        Read::Unknown(unknown) => unknown.action.is_none() && entry.applied_to.is_empty(),
    })
}

fn entries_narrow(before: &[AntreaEntry], after: &[AntreaEntry]) -> bool {
    if let [AntreaEntry { applied_to, rule: Read::Unknown(_) }] = after
        && applied_to.is_empty()
    {
        return true;
    }
    let more = after.get(before.len()..);
    more.is_some_and(|more| more.iter().all(|entry| entry.rule.known().is_none()))
        && before.iter().zip(after).all(|(before, after)| {
            (after.rule.known().is_none() || before.rule == after.rule)
                && subjects(&before.applied_to, &after.applied_to)
        })
}

fn subjects(before: &[Subject<AntreaAppliedTo>], after: &[Subject<AntreaAppliedTo>]) -> bool {
    let all = matches!(after, [one] if one.doubt.is_some() && selects_all(&one.selects));
    let wider = |before: &AntreaAppliedTo, after: &AntreaAppliedTo| match (before, after) {
        (
            AntreaAppliedTo::Pods { namespaces: Some(one), pods: Some(two) },
            AntreaAppliedTo::Pods { namespaces: Some(wide), pods: Some(wider) },
        ) => within(one, wide) && within(two, wider),
        (
            AntreaAppliedTo::Pods { namespaces: None, pods: Some(one) },
            AntreaAppliedTo::Pods { namespaces: None, pods: Some(wide) },
        )
        | (
            AntreaAppliedTo::Pods { namespaces: Some(one), pods: None },
            AntreaAppliedTo::Pods { namespaces: Some(wide), pods: None },
        ) => within(one, wide),
        // Traffic to a Service cannot be distinguished from other traffic, so a rule about a Service may not
        // be evaluated.
        (AntreaAppliedTo::Service(_), after) => *after == AntreaAppliedTo::Service(None),
        (_, AntreaAppliedTo::Service(None)) => true,
        _ => selects_all(after),
    };
    let mut pairs = before.iter().zip(after);
    all || (before.len() == after.len()
        && pairs.all(|(before, after)| subject(before, after, wider)))
}

/// All pods of the cluster or of the policy's namespace.
fn selects_all(selects: &AntreaAppliedTo) -> bool {
    let AntreaAppliedTo::Pods { namespaces, pods } = selects else { return false };
    let all = Selector::default();
    pods.as_ref() == Some(&all) && namespaces.as_ref().is_none_or(|selector| *selector == all)
}

fn subject<T: PartialEq>(
    before: &Subject<T>,
    after: &Subject<T>,
    wider: impl Fn(&T, &T) -> bool,
) -> bool {
    // A doubtful subject may have another reason for the doubt.
    (after.doubt.is_some() && wider(&before.selects, &after.selects))
        || (after.doubt == before.doubt && after.selects == before.selects)
}

fn within(before: &Selector, after: &Selector) -> bool {
    let asked: BTreeSet<&Requirement> = before.requirements.iter().collect();
    after.requirements.iter().all(|requirement| asked.contains(requirement))
}

fn pods_within(before: &NamespacedPods, after: &NamespacedPods) -> bool {
    within(&before.namespaces, &after.namespaces) && within(&before.pods, &after.pods)
}

/// A converted object has a current version, and no field of it was lost silently.
pub fn old(data: &[u8]) {
    let Some(value) = without_new(data) else { return };
    let Ok(converted) = convert(&value) else { return };
    let parsed = read(&converted.object);
    assert_eq!(parsed.object.kind().api_version(), converted.object["apiVersion"]);
    let again = convert(&converted.object);
    assert!(matches!(again, Err(ConvertError::NotOld { current: true, .. })), "{again:?}");
    let all = places(&value["spec"], "/spec");
    for place in all.iter().step_by(all.len() / PLACES + 1) {
        let mut changed = value.clone();
        if let Some(Value::Object(map)) = changed.pointer_mut(place) {
            Map::insert(map, NEW.to_owned(), json!(1));
            if let Ok(converted) = convert(&changed) {
                let text = converted.object.to_string();
                assert!(text.contains(NEW), "a field at {place} is lost: {text}");
            }
        }
    }
}

/// A field that no version has.
const NEW: &str = "zz-new";

/// Pointer of the part that contains the whole content of a policy.
const SPEC: &str = "/spec";

/// Number of places of an object that are tried.
const PLACES: usize = 128;
