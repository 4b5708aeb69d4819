//! An object's identity.

use super::tree::{At, Doubt, Notes};
use crate::{Kind, LOGGING, Labels, MIRROR, Meta};

/// `None` if there is no name.
pub(super) fn meta(at: &At<'_>, kind: Kind, notes: &mut Notes) -> Option<Meta> {
    let name = at.get("name")?.word().ok()?.to_owned();
    Some(Meta {
        namespace: namespace(at, kind.is_namespaced(), notes),
        name,
        uid: text(at, "uid", notes),
        labels: at.get("labels").map(|labels| all(&labels, notes)).unwrap_or_default(),
        annotations: match kind {
            Kind::Namespace => chosen(at, LOGGING, notes),
            Kind::Pod => chosen(at, MIRROR, notes),
            Kind::Node
            | Kind::Service
            | Kind::NetworkPolicy
            | Kind::ClusterNetworkPolicy
            | Kind::AntreaTier
            | Kind::AntreaClusterGroup
            | Kind::AntreaGroup
            | Kind::AntreaClusterNetworkPolicy
            | Kind::AntreaNetworkPolicy
            | Kind::AwsClusterNetworkPolicy
            | Kind::AwsApplicationNetworkPolicy => Labels::new(),
        },
        created: text(at, "creationTimestamp", notes),
        generation: generation(at, notes),
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

fn generation(at: &At<'_>, notes: &mut Notes) -> i64 {
    match at.get("generation").map(|at| at.integer()) {
        None => 0,
        Some(Ok(number)) => number,
        Some(Err(doubt)) => {
            notes.fail(&doubt, "it is not read");
            0
        }
    }
}

fn all(at: &At<'_>, notes: &mut Notes) -> Labels {
    let mut labels = Labels::new();
    let mut tell = |doubt: &Doubt| {
        notes.fail(doubt, "the object is read without it; labels are texts: put it in quotes");
    };
    match at.entries() {
        Err(doubt) => tell(&doubt),
        Ok(entries) => {
            for (key, value) in entries {
                match value.text() {
                    Ok(text) => {
                        labels.insert(key.to_owned(), text.to_owned());
                    }
                    Err(doubt) => tell(&doubt),
                }
            }
        }
    }
    labels
}

fn chosen(at: &At<'_>, wanted: &str, notes: &mut Notes) -> Labels {
    let Some(all) = at.get("annotations") else { return Labels::new() };
    if let Err(doubt) = all.entries().map(drop) {
        notes.fail(&doubt, "it is not read");
    }
    let value = text(&all, wanted, notes);
    let present = all.get(wanted).is_some_and(|at| at.value.is_string());
    present.then(|| (wanted.to_owned(), value)).into_iter().collect()
}
