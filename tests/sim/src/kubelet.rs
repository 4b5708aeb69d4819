//! Pods and their sandboxes in the kubelet and the container runtime.

use config_model::{PodKey, PodName, Span, Time, VethName};
use ipamd_core::Ticket;
use routing_plan::pod::PodNet;
use std::{collections::BTreeMap, net::IpAddr};

use crate::plan::Death;

/// A sandbox's number.
pub(crate) type SandboxId = u32;

/// A pod, which keeps its name over several sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Pod {
    /// True if the pod should run.
    pub(crate) wanted: bool,
    /// Its newest sandbox.
    pub(crate) sandbox: Option<SandboxId>,
    /// ADDs that failed in a row.
    pub(crate) failures: u32,
}

/// The state of an ADD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Connects to the daemon.
    Dialing,
    /// Waits for an address.
    Waiting,
    /// Builds the interface.
    Building,
    /// Waits for the confirmation.
    Confirming,
    /// Connects again to confirm.
    Redialing,
    /// The ADD has succeeded.
    Running,
    /// The ADD has failed, or a DEL has started.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) pod: u16,
    pub(crate) key: PodKey,
    pub(crate) name: PodName,
    /// The UID of a pod that needs a branch.
    pub(crate) uid: Option<String>,
    pub(crate) veth: VethName,
    pub(crate) stage: Stage,
    /// The plugin's deadline.
    pub(crate) deadline: Time,
    /// The deadline for building.
    pub(crate) finish: Time,
    pub(crate) nets: Vec<PodNet>,
    pub(crate) dies: Option<Death>,
    pub(crate) ticket: Option<Ticket>,
    /// The result that the runtime keeps.
    pub(crate) result: Vec<IpAddr>,
    /// The addresses of its branch ENI, whose links the simulated kernel does not contain.
    pub(crate) of_branch: Vec<IpAddr>,
    /// Its network namespace exists.
    pub(crate) namespace: bool,
}

impl Sandbox {
    /// The host ends: all that were built, or the first one.
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
    /// The daemon is being connected or asked.
    pub(crate) asking: bool,
    pub(crate) ticket: Option<Ticket>,
}

#[derive(Debug, Default)]
pub(crate) struct Kubelet {
    pub(crate) pods: BTreeMap<u16, Pod>,
    pub(crate) sandboxes: BTreeMap<SandboxId, Sandbox>,
    pub(crate) dels: BTreeMap<u32, Del>,
    sandboxes_made: u32,
    dels_made: u32,
}

/// Two pods whose host veths have one name.
pub(crate) const COLLIDING: [u16; 2] = [12, 27];

pub(crate) fn pod_name(pod: u16) -> PodName {
    let [first, second] = COLLIDING;
    let (namespace, name) = match pod {
        _ if pod == first => ("shop", "web-282697".to_owned()),
        _ if pod == second => ("tenant", "x-5499148".to_owned()),
        _ => ("default", format!("web-{pod}")),
    };
    PodName { namespace: namespace.into(), name }
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
            of_branch: Vec::new(),
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

    /// The sandbox that currently has the pod's name.
    pub(crate) fn newest_of(&self, sandbox: SandboxId) -> Option<&Sandbox> {
        let pod = self.sandboxes.get(&sandbox)?.pod;
        self.sandboxes.get(&self.pods.get(&pod)?.sandbox?)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Sandbox> {
        self.sandboxes.values().filter(|sandbox| sandbox.stage == Stage::Running)
    }
}
