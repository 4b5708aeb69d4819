//! Mirror pods: the API's objects for static pods, which their nodes know by another UID.

use std::collections::BTreeMap;

/// Mirror pods by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    /// The UID of the API's object, and the kubelet's UID of the pod.
    pods: BTreeMap<String, BTreeMap<String, (String, String)>>,
}

impl Mirrors {
    /// Records a new or changed pod; `runtime` is the kubelet's UID if the pod is a mirror pod.
    pub(crate) fn put(
        &mut self,
        (namespace, name, uid): (&str, &str, &str),
        runtime: Option<&str>,
    ) {
        match runtime.filter(|runtime| !runtime.is_empty()) {
            Some(runtime) => {
                let pods = self.pods.entry(namespace.to_owned()).or_default();
                pods.insert(name.to_owned(), (uid.to_owned(), runtime.to_owned()));
            }
            None => self.remove(namespace, name, ""),
        }
    }

    /// Removes a pod. With a non-empty UID, only if the pod has it.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str, uid: &str) {
        let Some(pods) = self.pods.get_mut(namespace) else { return };
        if pods.get(name).is_some_and(|(found, _)| uid.is_empty() || found == uid) {
            pods.remove(name);
        }
        if pods.is_empty() {
            self.pods.remove(namespace);
        }
    }

    /// Returns the kubelet's UID of a mirror pod; `None` for other pods.
    pub(crate) fn runtime_uid(&self, namespace: &str, name: &str, uid: &str) -> Option<&str> {
        let (found, runtime) = self.pods.get(namespace)?.get(name)?;
        (found == uid).then_some(runtime)
    }
}
