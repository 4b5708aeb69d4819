//! Snapshots and pods for tests.

use config_model::{EniId, HostEnd, HostLink, Mac, TableId};
use control_wire::{
    NodeSnapshot, Progress, encode,
    model::{Isolation, Pod, Policy, Position},
    proto::{Change, Part},
};
use datapath_node::{Changed, Desired, Endpoint, Endpoints, LocalPod, PodId, ServiceChanges};
use policy_core::{Family, PolicyKey, Priority, Stage, index::GroupId};
use policy_objects::Kind;
use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

/// The UID of a pod.
pub fn uid(pod: u8) -> String {
    format!("u-{pod}")
}

/// The pod's name.
pub fn id(pod: u8) -> PodId {
    PodId { uid: uid(pod), namespace: "shop".to_owned(), name: format!("web-{pod}") }
}

/// The pod as the plugin reports it.
pub fn local(pod: u8) -> LocalPod {
    let address = Ipv4Addr::new(10, 0, 0, pod).into();
    LocalPod { pod: id(pod), container: format!("c-{pod}"), addresses: [address].into() }
}

/// The pod's host end.
pub fn link(pod: u8) -> HostLink {
    HostLink {
        name: format!("eni{pod}"),
        ifindex: 10 + u32::from(pod),
        mac: Some(Mac([2, 0, 0, 0, 0, pod])),
        addresses: local(pod).addresses,
        number: 0,
        table: Some(TableId(2)),
        mark: None,
        eni: Some(EniId::new("eni-1")),
        host_end: HostEnd::Routed,
    }
}

/// The pods with their links.
pub fn endpoints(pods: &[u8]) -> Endpoints {
    let one =
        |pod: &u8| (uid(*pod), Arc::new(Endpoint { pod: local(*pod), links: vec![link(*pod)] }));
    pods.iter().map(one).collect()
}

/// A pod's entry.
pub fn entry(pod: u8) -> Change {
    let PodId { uid, namespace, name } = id(pod);
    (&Pod { uid, namespace, name, ..Pod::default() }).into()
}

/// A policy that isolates these pods, with its group.
pub fn policy(of: u8, pods: &[u8]) -> Vec<Change> {
    let place = Position {
        stage: Stage::NetworkPolicies,
        number: 0,
        family: Family::NetworkPolicy,
        priority: Priority::new(0.0),
    };
    let group = GroupId([of; 16]);
    let isolation = Isolation { applied: vec![group], doubt: None, ingress: true, egress: false };
    let key = PolicyKey {
        kind: Kind::NetworkPolicy,
        namespace: "shop".to_owned(),
        name: format!("p-{of}"),
    };
    let policy = Policy {
        uid: format!("policy-{of}"),
        key,
        generation: 1,
        place,
        isolation: Some(isolation),
        rules: Vec::new(),
    };
    let members = pods.iter().copied().map(uid).collect();
    vec![(&policy).into(), encode::applied_group(group, &members)]
}

/// A part that is a whole generation.
pub fn part(generation: u64, changes: Vec<Change>) -> Part {
    Part { generation, changes, last: true }
}

/// A series of states. Each state contains the set of changes since the previous one.
#[derive(Debug)]
pub struct Series {
    state: NodeSnapshot,
    generation: u64,
    endpoints: Endpoints,
    revision: u64,
}

impl Series {
    /// Without any object.
    pub fn new() -> Self {
        let mut state = NodeSnapshot::default();
        state.start_stream(&[1; 16]);
        Self { state, generation: 0, endpoints: Endpoints::new(), revision: 0 }
    }

    /// The next state: the snapshot after these changes, with these pods.
    ///
    /// # Panics
    /// If the changes do not fit the snapshot.
    pub fn next(&mut self, changes: Vec<Change>, pods: &[u8]) -> Desired {
        self.generation += 1;
        let taken = self.state.receive(part(self.generation, changes)).expect("the changes fit");
        let Progress::Applied(changed) = taken else { panic!("a generation of one part") };
        let objects = changed;
        let now = endpoints(pods);
        let uids: BTreeSet<&String> = self.endpoints.keys().chain(now.keys()).collect();
        let differs = |uid: &&String| self.endpoints.get(*uid) != now.get(*uid);
        let changed = uids.into_iter().filter(differs).cloned().collect();
        let (since, services) = (self.revision, ServiceChanges::default());
        let changed = Changed { since, objects, endpoints: changed, services };
        self.endpoints = now;
        self.revision += 1;
        Desired {
            revision: self.revision,
            state: Arc::new(self.state.clone()),
            node: Arc::default(),
            endpoints: Arc::new(self.endpoints.clone()),
            services: Arc::default(),
            changed: (self.revision > 1).then_some(changed),
        }
    }
}

impl Default for Series {
    fn default() -> Self {
        Self::new()
    }
}

/// The same state without a set of changes, which requires a full pass.
pub fn whole(desired: &Desired) -> Desired {
    Desired { changed: None, ..desired.clone() }
}
