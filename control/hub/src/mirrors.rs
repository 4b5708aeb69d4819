//! Mirror pods: the API's objects for static pods, which their nodes know by another UID.

use std::collections::BTreeMap;

/// By namespace and name: the UID of the API's object, and the one that the kubelet gave the pod.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    pods: BTreeMap<String, BTreeMap<String, (String, String)>>,
}

impl Mirrors {
    /// A pod is new or has changed.
    pub(crate) fn hear(
        &mut self,
        (namespace, name, uid): (&str, &str, &str),
        runtime: Option<&str>,
    ) {
        match runtime.filter(|runtime| !runtime.is_empty()) {
            Some(runtime) => {
                let pods = self.pods.entry(namespace.to_owned()).or_default();
                pods.insert(name.to_owned(), (uid.to_owned(), runtime.to_owned()));
            }
            None => self.gone(namespace, name, ""),
        }
    }

    /// A pod is gone; with a UID, if it is that one.
    pub(crate) fn gone(&mut self, namespace: &str, name: &str, uid: &str) {
        let Some(pods) = self.pods.get_mut(namespace) else { return };
        if pods.get(name).is_some_and(|(found, _)| uid.is_empty() || found == uid) {
            pods.remove(name);
        }
        if pods.is_empty() {
            self.pods.remove(namespace);
        }
    }

    /// By which UID the node knows a pod, if that is another than the API's.
    pub(crate) fn runtime_uid(&self, namespace: &str, name: &str, uid: &str) -> Option<&str> {
        let (found, runtime) = self.pods.get(namespace)?.get(name)?;
        (found == uid).then_some(runtime)
    }
}
