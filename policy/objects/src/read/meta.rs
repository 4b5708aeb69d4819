//! An object's identity.

use super::tree::{At, Doubt, Notes};
use crate::{Kind, LOGGING, Labels, Meta};

/// `None` if there is no name.
pub(super) fn meta(at: &At<'_>, kind: Kind, notes: &mut Notes) -> Option<Meta> {
    let name = at.get("name")?.word().ok()?.to_owned();
    Some(Meta {
        namespace: namespace(at, kind.is_namespaced(), notes),
        name,
        uid: text(at, "uid", notes),
        labels: at.get("labels").map(|labels| all(&labels, notes)).unwrap_or_default(),
        annotations: if kind == Kind::Namespace { chosen(at) } else { Labels::new() },
        created: text(at, "creationTimestamp", notes),
        generation: at.get("generation").and_then(|at| at.value.as_i64()).unwrap_or_default(),
    })
}

fn namespace(at: &At<'_>, namespaced: bool, notes: &mut Notes) -> String {
    let written = text(at, "namespace", notes);
    match (namespaced, written.is_empty()) {
        (true, true) => {
            notes.warn(at, "no namespace is given: it is read as one of `default`");
            "default".to_owned()
        }
        (true, false) => written,
        (false, true) => written,
        (false, false) => {
            notes.warn(at, format!("the kind has no namespace: `{written}` is not read"));
            String::new()
        }
    }
}

/// A text, empty where there is none.
pub(super) fn text(at: &At<'_>, key: &str, notes: &mut Notes) -> String {
    match at.get(key).map(|field| field.text().map(str::to_owned)) {
        None => String::new(),
        Some(Ok(text)) => text,
        Some(Err(doubt)) => {
            notes.fail(&doubt, "it is not read");
            String::new()
        }
    }
}

fn all(at: &At<'_>, notes: &mut Notes) -> Labels {
    let mut labels = Labels::new();
    let read = at.entries().and_then(|entries| {
        let mut first = Ok(());
        for (key, value) in entries {
            match value.text() {
                Ok(text) => {
                    labels.insert(key.to_owned(), text.to_owned());
                }
                Err(doubt) => first = first.and(Err(doubt)),
            }
        }
        first
    });
    tell(read, notes);
    labels
}

fn tell(read: Result<(), Doubt>, notes: &mut Notes) {
    if let Err(doubt) = read {
        notes.fail(&doubt, "the object is read without it; labels are texts: put it in quotes");
    }
}

fn chosen(at: &At<'_>) -> Labels {
    let all = at.value.get("annotations");
    let value = all.and_then(|all| all.get(LOGGING)).and_then(|value| value.as_str());
    value.map(|value| (LOGGING.to_owned(), value.to_owned())).into_iter().collect()
}
