//! Events of Ferrule's own objects.

use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Kind and name of Ferrule's objects in its namespace.
#[derive(Clone, Debug, Default)]
pub struct OwnObjects(BTreeSet<(String, String)>);

impl OwnObjects {
    /// Adds the objects of a list, whose items have no kind of their own.
    pub fn add(&mut self, list: &Value) {
        let kind = list["kind"].as_str().unwrap_or_default();
        let kind = kind.strip_suffix("List").unwrap_or_default();
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        self.0.extend(names.map(|name| (kind.to_owned(), name.to_owned())));
    }

    /// Removes all events of other objects from a list of events. A namespace such as `kube-system` has many.
    pub fn keep_events(&self, list: &mut Value) {
        let kept = match list["items"].take() {
            Value::Array(events) => events.into_iter().filter(|event| self.has(event)).collect(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => Vec::new(),
        };
        list["items"] = json!(kept);
    }

    fn has(&self, event: &Value) -> bool {
        let of = &event["involvedObject"];
        let (kind, name) = (of["kind"].as_str(), of["name"].as_str());
        let (Some(kind), Some(name)) = (kind, name) else { return false };
        self.0.contains(&(kind.to_owned(), name.to_owned())) || self.is_made_by(kind, name)
    }

    /// Returns true for the name of a pod or ReplicaSet that one of the objects creates. Such a pod may have been deleted.
    fn is_made_by(&self, kind: &str, name: &str) -> bool {
        let made = |owner: &str, parts: usize| {
            let rest = name.strip_prefix(owner).and_then(|rest| rest.strip_prefix('-'));
            let is_part = |part: &str| {
                !part.is_empty()
                    && part.len() <= SUFFIX
                    && part.bytes().all(|it| it.is_ascii_alphanumeric())
            };
            rest.is_some_and(|rest| {
                rest.split('-').count() == parts && rest.split('-').all(is_part)
            })
        };
        self.0.iter().any(|(of, owner)| match (of.as_str(), kind) {
            ("DaemonSet", "Pod") | ("Deployment", "ReplicaSet") => made(owner, 1),
            ("Deployment", "Pod") => made(owner, 2),
            // The controller's Lease has the name of its Deployment.
            ("Deployment", "Lease") => owner == name,
            _other => false,
        })
    }
}

/// The longest part that Kubernetes appends to a name: the hash of a ReplicaSet's template.
const SUFFIX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_ferrules_objects_stay_and_no_others() {
        let mut own = OwnObjects::default();
        let item = |name: &str| json!({ "metadata": { "name": name } });
        own.add(&json!({ "kind": "DaemonSetList", "items": [item("ferrule")] }));
        own.add(&json!({ "kind": "DeploymentList", "items": [item("ferrule-controller")] }));
        own.add(&json!({ "kind": "PodList", "items": [item("renamed-pod")] }));
        own.add(&json!({ "kind": "Status", "message": "forbidden" }));
        let event = |(kind, name): &(&str, &str)| json!({ "involvedObject": { "kind": kind, "name": name } });
        let ours = [
            ("Pod", "ferrule-x7k2p"),
            ("Pod", "renamed-pod"),
            ("DaemonSet", "ferrule"),
            ("Deployment", "ferrule-controller"),
            ("ReplicaSet", "ferrule-controller-5d4f8c9b7d"),
            ("Pod", "ferrule-controller-5d4f8c9b7d-abcde"),
            ("Lease", "ferrule-controller"),
        ];
        let others = [
            ("Pod", "coredns-5d4f8c9b7d-abcde"),
            ("Pod", "ferrule"),
            ("Pod", "ferrule-tenant-of-another-name"),
            ("Pod", "ferrulex-x7k2p"),
            ("Secret", "ferrule"),
            ("Deployment", "coredns"),
            ("Service", "ferrule-x7k2p"),
        ];
        let mut list = json!({ "kind": "EventList", "items":
            ours.iter().chain(&others).map(event).chain([json!({})]).collect::<Vec<_>>() });
        own.keep_events(&mut list);
        assert_eq!(list["items"], json!(ours.iter().map(event).collect::<Vec<_>>()));
        OwnObjects::default().keep_events(&mut list);
        assert_eq!(list["items"], json!([]));
    }
}
