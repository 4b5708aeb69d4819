//! `from` and `to`.

use super::{Scope, in_this_cluster, named};
use crate::read::address::block;
use crate::read::names::{fqdn, is_label_key};
use crate::read::selector::selector;
use crate::read::tree::{At, Doubt, Notes};
use crate::{AntreaPeer, NamespaceMatch, PolicyType, Selector};

pub(super) fn peer(
    at: &At<'_>,
    scope: Scope,
    direction: PolicyType,
    notes: &mut Notes,
) -> Result<AntreaPeer, Doubt> {
    known(at, scope, direction)?;
    in_this_cluster(at)?;
    let present: Vec<&str> = FIELDS.into_iter().filter(|key| at.get(key).is_some()).collect();
    let several = present.len() > 1;
    let first = present.first().copied().unwrap_or_default();
    if several && present.iter().any(|key| ALONE.contains(key)) {
        return Err(
            at.doubt(format!("{} cannot be combined: use separate items", present.join(", ")))
        );
    }
    if several && ["ipBlock", "fqdn"].contains(&first) {
        notes.warn(at, format!("`{first}` is read; {} are not", present[1..].join(", ")));
    }
    let field = at.get(first);
    Ok(match (first, field) {
        ("ipBlock", Some(at)) => AntreaPeer::Block(block(&at, notes)?),
        ("fqdn", Some(at)) => AntreaPeer::Fqdn(fqdn(&at)?),
        ("group", Some(at)) => AntreaPeer::Group(at.word()?.to_owned()),
        ("serviceAccount", Some(at)) => {
            at.only(&["name", "namespace"])?;
            AntreaPeer::ServiceAccount(named(&at, None)?)
        }
        ("nodeSelector", Some(at)) => AntreaPeer::Nodes(selector(&at, notes)?),
        ("namespaces", Some(field)) => {
            if present.contains(&"namespaceSelector") {
                return Err(at.doubt("`namespaces` and `namespaceSelector` do not go together"));
            }
            let pods = pods(at, notes)?;
            AntreaPeer::Matching { namespaces: matching(&field)?, pods }
        }
        _ => {
            if present.is_empty() {
                notes.warn(
                    at,
                    match scope {
                        Scope::Cluster => {
                            "an empty item selects no peer; a rule without items matches every address"
                        }
                        Scope::Namespace => "an empty item is every pod of the namespace",
                    },
                );
            }
            let namespaces = at.get("namespaceSelector");
            let namespaces = namespaces.map(|at| selector(&at, notes)).transpose()?;
            AntreaPeer::Pods { namespaces, pods: pods(at, notes)? }
        }
    })
}

fn known(at: &At<'_>, scope: Scope, direction: PolicyType) -> Result<(), Doubt> {
    if at.get("externalEntitySelector").is_some() {
        return Err(at.doubt("`externalEntitySelector` is not supported"));
    }
    let mut known = vec!["ipBlock", "group", "nodeSelector", "namespaceSelector", "podSelector"];
    match direction {
        PolicyType::Ingress => known.push("scope"),
        PolicyType::Egress => known.push("fqdn"),
    }
    if scope == Scope::Cluster {
        known.extend(["serviceAccount", "namespaces"]);
    }
    at.only(&known)
}

fn pods(at: &At<'_>, notes: &mut Notes) -> Result<Option<Selector>, Doubt> {
    at.get("podSelector").map(|at| selector(&at, notes)).transpose()
}

fn matching(at: &At<'_>) -> Result<NamespaceMatch, Doubt> {
    at.only(&["match", "sameLabels"])?;
    let labels = at.items("sameLabels")?.map(|item| label_key(&item));
    let mut labels = labels.collect::<Result<Vec<_>, _>>()?;
    labels.sort_unstable();
    labels.dedup();
    match (at.get("match"), labels.is_empty()) {
        (Some(at), true) if at.text()? == "Self" => Ok(NamespaceMatch::Same),
        (None, false) => Ok(NamespaceMatch::SameLabels(labels)),
        _ => Err(at.doubt("it is one of `match: Self` and `sameLabels` with at least one label")),
    }
}

fn label_key(at: &At<'_>) -> Result<String, Doubt> {
    let key = at.word()?;
    if is_label_key(key) {
        Ok(key.to_owned())
    } else {
        Err(at.doubt(format!("`{key}` is no label key")))
    }
}

/// If several are present, the first one in this order is read.
const FIELDS: [&str; 8] = [
    "ipBlock",
    "group",
    "fqdn",
    "serviceAccount",
    "nodeSelector",
    "namespaces",
    "namespaceSelector",
    "podSelector",
];

const ALONE: [&str; 3] = ["group", "serviceAccount", "nodeSelector"];
