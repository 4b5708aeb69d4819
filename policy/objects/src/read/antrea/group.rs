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
            notes.fail(
                &doubt,
                "rules with it allow nothing or deny all, and a rule about it denies for all pods \
                 that it may select",
            );
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
    spec.only(match scope {
        Scope::Cluster => &FIELDS,
        Scope::Namespace => &FIELDS[..6],
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
    let external = spec.get("externalEntitySelector");
    let namespaces = spec.get("namespaceSelector");
    if let Some(at) = &external {
        // Of which ones is no matter.
        at.only(&["matchLabels", "matchExpressions"])?;
        namespaces.as_ref().map_or(Ok(()), |at| at.only(&["matchLabels", "matchExpressions"]))?;
        found.push(GroupSpec::External);
    }
    let (namespaces, pods) = (namespaces.filter(|_| external.is_none()), spec.get("podSelector"));
    if namespaces.is_some() || pods.is_some() {
        let mut read = |at: Option<At<'_>>| at.map(|at| selector(&at, notes)).transpose();
        found.push(GroupSpec::Pods { namespaces: read(namespaces)?, pods: read(pods)? });
    }
    match (found.len(), external) {
        (0, _) => Ok(GroupSpec::Empty),
        (1, external) => {
            if let Some(at) = external {
                let doubt = at.doubt("`externalEntitySelector` is not supported");
                notes.fail(&doubt, "rules with it allow nothing or deny all, and no pod is in it");
            }
            Ok(found.remove(0))
        }
        _ => Err(spec.doubt(
            "a group has one kind of members: use several groups and join them by childGroups",
        )),
    }
}

/// The last one is ClusterGroup's alone.
const FIELDS: [&str; 7] = [
    "podSelector",
    "externalEntitySelector",
    "namespaceSelector",
    "ipBlocks",
    "serviceReference",
    "childGroups",
    "nodeSelector",
];
