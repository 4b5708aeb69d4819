//! Membership of pods in subjects, peers and groups.

use super::{groups::GroupScope, is_known};
use crate::{Pods, Policy, Scope, World};
use policy_objects::{Pod, Selector};

impl World {
    /// True if a policy, or a rule of it, is about a pod. A subject that is not understood, with the current objects,
    /// covers more pods than intended.
    ///
    /// A policy of a namespace is only about pods of that namespace, even if a Group of it selects
    /// others. Write access to one namespace must not affect another.
    pub fn is_subject(&self, pod: &Pod, policy: &Policy, subject: &[Pods]) -> bool {
        let own = &policy.key.namespace;
        is_known(pod)
            && (own.is_empty() || *own == pod.meta.namespace)
            && subject.iter().any(|pods| self.is_named(pod, pods))
    }

    /// True if pods of a subject include a pod.
    pub(crate) fn is_named(&self, pod: &Pod, pods: &Pods) -> bool {
        match pods {
            Pods::Group(name) => self.is_in(pod, &self.subjects(name).pods),
            Pods::Labeled { .. } | Pods::Service(_) | Pods::ServiceAccount(_) => {
                self.is_meant(pod, pods, pod)
            }
        }
    }

    /// True if peers of a rule include a pod; `subject` is the pod that the rule judges.
    pub(crate) fn is_meant(&self, pod: &Pod, pods: &Pods, subject: &Pod) -> bool {
        match pods {
            Pods::Labeled { scope, pods } => {
                is_known(pod)
                    && pods.matches(&pod.meta.labels)
                    && self.in_scope(&pod.meta.namespace, scope, &subject.meta.namespace)
            }
            Pods::Group(name) => is_known(pod) && self.is_member(pod, name),
            Pods::Service(name) => self.is_in(pod, &self.behind(name).pods),
            Pods::ServiceAccount(account) => {
                is_known(pod)
                    && pod.meta.namespace == account.namespace
                    && pod.service_account == account.name
            }
        }
    }

    /// True if a pod is in a group; false for a group that is not usable.
    pub fn is_member(&self, pod: &Pod, group: &policy_objects::Named) -> bool {
        self.members(group).is_ok_and(|members| self.is_in(pod, &members.pods))
    }

    fn is_in(&self, pod: &Pod, all: &[(GroupScope, Selector)]) -> bool {
        all.iter().any(|(scope, pods)| {
            let in_scope = match scope {
                GroupScope::Namespace(name) => pod.meta.namespace == *name,
                GroupScope::Namespaces(selector) => {
                    selector.matches(&self.namespace_labels(&pod.meta.namespace))
                }
            };
            is_known(pod) && in_scope && pods.matches(&pod.meta.labels)
        })
    }

    fn in_scope(&self, namespace: &str, scope: &Scope, subject: &str) -> bool {
        match scope {
            Scope::Namespace(name) => namespace == name,
            Scope::Namespaces(selector) if selector.requirements.is_empty() => true,
            Scope::Namespaces(selector) => selector.matches(&self.namespace_labels(namespace)),
            Scope::SameNamespace => namespace == subject,
            Scope::SameLabels(keys) => {
                let (theirs, ours) =
                    (self.namespace_labels(namespace), self.namespace_labels(subject));
                let same = |key| ours.contains_key(key) && ours.get(key) == theirs.get(key);
                !keys.is_empty() && keys.iter().all(same)
            }
        }
    }
}
