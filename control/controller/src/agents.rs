//! Agents' pods with their nodes. They decide about clients.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

/// The agents' service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

impl std::str::FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("write namespace/name".to_owned()),
        }
    }
}

/// An agent's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agent {
    pub(crate) uid: String,
    /// Empty until the pod is bound.
    pub(crate) node: String,
}

/// Agents' pods by name, from the watch of pods.
#[derive(Debug)]
pub(crate) struct Agents {
    pub(crate) account: Account,
    pods: Mutex<BTreeMap<String, Agent>>,
}

impl Agents {
    pub(crate) fn new(account: Account) -> Self {
        Self { account, pods: Mutex::default() }
    }

    /// Records a pod if it is an agent's. Returns the previous agent of its name if that differs.
    pub(crate) fn saw(
        &self,
        namespace: &str,
        account: &str,
        name: &str,
        agent: impl FnOnce() -> Agent,
    ) -> Option<Agent> {
        if namespace != self.account.namespace {
            return None;
        }
        let mut pods = self.pods();
        if account != self.account.name {
            return pods.remove(name);
        }
        let agent = agent();
        match pods.get_mut(name) {
            Some(known) if *known == agent => None,
            Some(known) => Some(std::mem::replace(known, agent)),
            None => {
                pods.insert(name.to_owned(), agent);
                None
            }
        }
    }

    /// Removes a pod. With a non-empty UID, only if the pod has it. Returns the pod if it was an agent's.
    pub(crate) fn gone(&self, namespace: &str, name: &str, uid: &str) -> Option<Agent> {
        if namespace != self.account.namespace {
            return None;
        }
        let mut pods = self.pods();
        let is_it = pods.get(name).is_some_and(|agent| agent.uid == uid || uid.is_empty());
        if is_it { pods.remove(name) } else { None }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Agent> {
        self.pods().get(name).cloned()
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Agent>> {
        runtime_lock::lock(&self.pods)
    }
}
