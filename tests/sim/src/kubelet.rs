//! Pods and their sandboxes, as kubelet and container runtime have them.

use config_model::{PodKey, PodName, Span, Time, VethName};
use ipamd_core::Ticket;
use routing_plan::pod::PodNet;
use std::{collections::BTreeMap, net::IpAddr};

use crate::plan::Death;

/// A sandbox's number.
pub(crate) type SandboxId = u32;

/// A pod by name.
#[derive(Debug, Default)]
pub(crate) struct Pod {
    /// It is to run.
    pub(crate) wanted: bool,
    /// Its newest sandbox.
    pub(crate) sandbox: Option<SandboxId>,
    /// ADDs that failed in a row.
    pub(crate) failures: u32,
}

/// How far an ADD is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It looks for the daemon.
    Dialing,
    /// It waits for an address.
    Waiting,
    /// It builds.
    Building,
    /// It waits for the confirmation.
    Confirming,
    /// It looks for the daemon, to confirm.
    Redialing,
    /// The ADD has succeeded.
    Running,
    /// The ADD has failed, or a DEL has come.
    Ended,
}

/// A sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) pod: u16,
    pub(crate) key: PodKey,
    pub(crate) name: PodName,
    /// The uid of a pod that wants a branch.
    pub(crate) uid: Option<String>,
    pub(crate) veth: VethName,
    pub(crate) stage: Stage,
    /// Until when the plugin waits.
    pub(crate) deadline: Time,
    /// Until when it builds.
    pub(crate) finish: Time,
    pub(crate) nets: Vec<PodNet>,
    pub(crate) dies: Option<Death>,
    pub(crate) ticket: Option<Ticket>,
    /// The result that the runtime remembers.
    pub(crate) result: Vec<IpAddr>,
    /// Its network namespace exists.
    pub(crate) namespace: bool,
}

impl Sandbox {
    /// Its host ends: of all that were built, or of the first.
    pub(crate) fn interfaces(&self) -> Vec<(PodKey, VethName)> {
        let built = self.nets.iter().map(|net| (net.key.clone(), net.veth.clone()));
        let first = self.nets.is_empty().then(|| (self.key.clone(), self.veth.clone()));
        built.chain(first).collect()
    }
}

/// A DEL under way.
#[derive(Debug)]
pub(crate) struct Del {
    pub(crate) sandbox: SandboxId,
    /// The daemon is asked, or looked for.
    pub(crate) asking: bool,
    pub(crate) ticket: Option<Ticket>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Kubelet {
    pub(crate) pods: BTreeMap<u16, Pod>,
    pub(crate) sandboxes: BTreeMap<SandboxId, Sandbox>,
    pub(crate) dels: BTreeMap<u32, Del>,
    sandboxes_made: u32,
    dels_made: u32,
}

/// A pod's name.
pub(crate) fn pod_name(pod: u16) -> PodName {
    PodName { namespace: "default".into(), name: format!("web-{pod}") }
}

/// `FERRULE_ADD_WAIT`.
pub(crate) const ADD_WAIT: Span = Span::seconds(45);

impl Kubelet {
    pub(crate) fn new_sandbox(
        &mut self,
        pod: u16,
        dies: Option<Death>,
        now: Time,
    ) -> Option<SandboxId> {
        self.sandboxes_made += 1;
        let id = self.sandboxes_made;
        let key = PodKey::new("aws-cni", format!("sandbox{id}"), "eth0").ok()?;
        let name = pod_name(pod);
        let sandbox = Sandbox {
            pod,
            key,
            veth: VethName::of("eni", &name, 0),
            name,
            uid: None,
            stage: Stage::Dialing,
            deadline: now + ADD_WAIT,
            finish: now + ADD_WAIT,
            nets: Vec::new(),
            dies,
            ticket: None,
            result: Vec::new(),
            namespace: true,
        };
        self.sandboxes.insert(id, sandbox);
        self.pods.entry(pod).or_default().sandbox = Some(id);
        Some(id)
    }

    pub(crate) fn new_del(&mut self, sandbox: SandboxId) -> u32 {
        self.dels_made += 1;
        self.dels.insert(self.dels_made, Del { sandbox, asking: true, ticket: None });
        self.dels_made
    }

    /// The sandbox that bears the pod's name now, whatever DEL is late.
    pub(crate) fn newest_of(&self, sandbox: SandboxId) -> Option<&Sandbox> {
        let pod = self.sandboxes.get(&sandbox)?.pod;
        self.sandboxes.get(&self.pods.get(&pod)?.sandbox?)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Sandbox> {
        self.sandboxes.values().filter(|sandbox| sandbox.stage == Stage::Running)
    }
}
