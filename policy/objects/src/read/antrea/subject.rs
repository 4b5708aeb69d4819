//! `appliedTo`.

use super::{Scope, named};
use crate::read::selector::wide;
use crate::read::tree::{At, Doubt, Notes};
use crate::{AntreaAppliedTo, Selector, Subject};

/// The items of a policy's or a rule's `appliedTo`. Where there are none, what is odd beside it may
/// have been meant as it.
pub(super) fn all(
    at: &At<'_>,
    scope: Scope,
    odd: Option<&Doubt>,
    notes: &mut Notes,
) -> Vec<Subject<AntreaAppliedTo>> {
    match (at.items("appliedTo"), odd) {
        (Ok(items), Some(doubt)) if items.len() == 0 => vec![everybody(scope, doubt, notes)],
        (Ok(items), _) => items.map(|item| one(&item, scope, notes)).collect(),
        (Err(doubt), _) => vec![everybody(scope, &doubt, notes)],
    }
}

fn one(at: &At<'_>, scope: Scope, notes: &mut Notes) -> Subject<AntreaAppliedTo> {
    let read = known(at, scope).and_then(|()| alone(at, scope, notes));
    match read {
        Ok(Some(selects)) => Subject { selects, doubt: None },
        Ok(None) => by_selectors(at, scope, notes),
        Err(doubt) => everybody(scope, &doubt, notes),
    }
}

fn known(at: &At<'_>, scope: Scope) -> Result<(), Doubt> {
    for key in ["service", "nodeSelector", "externalEntitySelector"] {
        if at.get(key).is_some() {
            return Err(at.doubt(format!("`{key}` in appliedTo is not supported")));
        }
    }
    at.only(match scope {
        Scope::Cluster => &["podSelector", "namespaceSelector", "group", "serviceAccount"],
        Scope::Namespace => &["podSelector", "group"],
    })
}

/// What goes with nothing else in an item.
fn alone(at: &At<'_>, scope: Scope, notes: &mut Notes) -> Result<Option<AntreaAppliedTo>, Doubt> {
    let keys = ["podSelector", "namespaceSelector", "group", "serviceAccount"];
    let count = keys.iter().filter(|key| at.get(key).is_some()).count();
    let mut group = at.get("group");
    if let Some(empty) = group.filter(|at| count > 1 && at.value.as_str() == Some("")) {
        notes.warn(&empty, "it is empty, and read as if it were not there");
        group = None;
    }
    let account = at.get("serviceAccount").filter(|_| scope == Scope::Cluster);
    let read = match (group, account) {
        (None, None) => return Ok(None),
        (Some(at), _) => AntreaAppliedTo::Group(at.word()?.to_owned()),
        (None, Some(at)) => {
            at.only(&["name", "namespace"])?;
            AntreaAppliedTo::ServiceAccount(named(&at, None)?)
        }
    };
    if count > 1 {
        return Err(at.doubt("`group` and `serviceAccount` are alone in an item: make two of it"));
    }
    Ok(Some(read))
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
                        Scope::Cluster => "an empty item selects nobody",
                        Scope::Namespace => "an empty item selects every pod of the namespace",
                    },
                );
            }
            Subject { selects, doubt: None }
        }
    }
}

/// All that a policy or a rule can be about, as nobody can say whom it means.
pub(super) fn everybody(
    scope: Scope,
    doubt: &Doubt,
    notes: &mut Notes,
) -> Subject<AntreaAppliedTo> {
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
    notes.fail(doubt, "rules of it allow nothing, and deny to all whom it may have meant");
    Subject { selects, doubt: Some(doubt.why()) }
}
