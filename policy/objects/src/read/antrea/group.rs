//! ClusterGroup and Group.

use super::{Scope, named};
use crate::read::address::block;
use crate::read::selector::selector;
use crate::read::tree::{At, Doubt, Notes};
use crate::{Group, GroupSpec, Meta, Read, Unknown};

pub(crate) fn group(meta: Meta, scope: Scope, spec: &At<'_>, notes: &mut Notes) -> Group {
    let spec = match members(spec, scope, &meta.namespace, notes) {
        Ok(spec) => Read::Known(spec),
        Err(doubt) => {
            notes.fail(&doubt, "the group is read as one that is missing");
            Read::Unknown(Unknown { why: doubt.why(), name: None, action: None })
        }
    };
    Group { meta, spec }
}

fn members(
    spec: &At<'_>,
    scope: Scope,
    namespace: &str,
    notes: &mut Notes,
) -> Result<GroupSpec, Doubt> {
    if spec.get("externalEntitySelector").is_some() {
        return Err(spec.doubt("`externalEntitySelector` is not supported"));
    }
    spec.only(match scope {
        Scope::Cluster => &FIELDS,
        Scope::Namespace => &FIELDS[..5],
    })?;
    let own = (scope == Scope::Namespace).then_some(namespace);
    let blocks = spec.items("ipBlocks")?.map(|item| block(&item, notes));
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    let children = spec.items("childGroups")?.map(|item| item.word().map(str::to_owned));
    let children = children.collect::<Result<Vec<_>, _>>()?;
    let mut found = Vec::new();
    if !blocks.is_empty() {
        found.push(GroupSpec::Blocks(blocks));
    }
    if !children.is_empty() {
        found.push(GroupSpec::Children(children));
    }
    if let Some(at) = spec.get("serviceReference") {
        at.only(&["name", "namespace"])?;
        found.push(GroupSpec::Service(named(&at, own)?));
    }
    if let Some(at) = spec.get("nodeSelector") {
        found.push(GroupSpec::Nodes(selector(&at, notes)?));
    }
    let (namespaces, pods) = (spec.get("namespaceSelector"), spec.get("podSelector"));
    if namespaces.is_some() || pods.is_some() {
        let mut read = |at: Option<At<'_>>| at.map(|at| selector(&at, notes)).transpose();
        found.push(GroupSpec::Pods { namespaces: read(namespaces)?, pods: read(pods)? });
    }
    match found.len() {
        0 => Ok(GroupSpec::Empty),
        1 => Ok(found.remove(0)),
        _ => Err(spec
            .doubt("a group has one kind of members: make several and join them by childGroups")),
    }
}

/// The last one is ClusterGroup's alone.
const FIELDS: [&str; 6] = [
    "podSelector",
    "namespaceSelector",
    "ipBlocks",
    "serviceReference",
    "childGroups",
    "nodeSelector",
];
