//! A call of the plugins: the pod and its sandbox.

use lab_fabric::Node;
use std::collections::BTreeMap;

/// One call of the whole chain of plugins.
pub(super) struct Call<'a> {
    pub(super) node: &'a Node,
    pub(super) container_id: &'a str,
    /// The namespace's path as the node sees it; empty when it is gone.
    pub(super) netns: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The pod's annotations.
    pub(super) annotations: &'a BTreeMap<String, String>,
}

impl Call<'_> {
    /// The value of `CNI_ARGS`.
    pub(super) fn args(&self) -> String {
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};\
             K8S_POD_UID={}",
            self.namespace,
            self.name,
            self.container_id,
            self.uid()
        )
    }

    /// In the shape of a pod's UID; a pod of the lab has one sandbox all its life.
    pub(super) fn uid(&self) -> String {
        let part = |from: usize, to: usize| self.container_id.get(from..to).unwrap_or_default();
        let (first, second, last) = (part(0, 8), part(8, 12), part(18, 30));
        format!("{first}-{second}-4{}-8{}-{last}", part(12, 15), part(15, 18))
    }
}
