//! The agents' pods: who may call, and from which node.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The agents' service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
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
    /// Empty as long as it is bound to none.
    pub(crate) node: String,
}

/// The agents' pods, as the watch of pods tells them.
#[derive(Debug)]
pub(crate) struct Agents {
    pub(crate) account: Account,
    pods: Mutex<BTreeMap<String, Agent>>,
}

impl Agents {
    pub(crate) fn new(account: Account) -> Self {
        Self { account, pods: Mutex::default() }
    }

    /// A pod is there; if it is an agent's it is kept.
    pub(crate) fn saw(
        &self,
        namespace: &str,
        account: &str,
        name: &str,
        agent: impl FnOnce() -> Agent,
    ) {
        if namespace != self.account.namespace {
            return;
        }
        if account == self.account.name {
            self.pods().insert(name.to_owned(), agent());
        } else {
            self.pods().remove(name);
        }
    }

    /// A pod is gone.
    pub(crate) fn gone(&self, namespace: &str, name: &str, uid: &str) {
        if namespace != self.account.namespace {
            return;
        }
        let mut pods = self.pods();
        if pods.get(name).is_some_and(|agent| agent.uid == uid || uid.is_empty()) {
            pods.remove(name);
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Agent> {
        self.pods().get(name).cloned()
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Agent>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
