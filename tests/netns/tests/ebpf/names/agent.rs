//! A thread that drives the backend as the agent does.

use crate::{
    connections,
    traffic::{PODS, snapshot, v6_of},
};
use config_model::{HostEnd, HostLink};
use config_settings::Connections;
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Method};
use datapath_node::{BackendEvent, Changed, Desired, Endpoint, LocalPod, PodId};
use nix::net::if_::if_nametoindex;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

enum Order {
    Apply(Box<Desired>, Sender<BTreeMap<String, String>>),
    Counters(Sender<BTreeMap<&'static str, u64>>),
}

/// The backend in a thread. A drop ends it as a regular end of the agent does.
pub(super) struct Agent {
    orders: Option<UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts the backend and puts the policies into force.
    pub(super) fn start(object: &Path, pins: &Path, policies: &[Value]) -> Self {
        Self::start_with(object, pins, policies, connections())
    }

    /// The same with other settings.
    pub(super) fn start_with(
        object: &Path,
        pins: &Path,
        policies: &[Value],
        connections: Connections,
    ) -> Self {
        let (orders, inbox) = unbounded_channel();
        let (object, pins) = (object.to_owned(), pins.to_owned());
        let thread = thread::spawn(move || run(object, pins, connections, inbox));
        let mut agent = Self { orders: Some(orders), thread: Some(thread) };
        assert_eq!(agent.apply(policies), BTreeMap::new());
        agent
    }

    /// Puts the policies into force, and returns those that are not.
    pub(super) fn apply(&mut self, policies: &[Value]) -> BTreeMap<String, String> {
        let (reply, applied) = channel();
        self.order(Order::Apply(Box::new(state(policies)), reply));
        applied.recv().unwrap()
    }

    pub(super) fn counters(&mut self) -> BTreeMap<&'static str, u64> {
        let (reply, counters) = channel();
        self.order(Order::Counters(reply));
        counters.recv().unwrap()
    }

    fn order(&self, order: Order) {
        assert!(self.orders.as_ref().unwrap().send(order).is_ok(), "the backend runs");
    }

    /// The policies that are not in force, each with the cause, for an agent without CAP_NET_RAW.
    pub(super) fn failing_without_net_raw(
        object: &Path,
        pins: &Path,
        policies: &[Value],
    ) -> BTreeMap<String, String> {
        let (object, pins, state) = (object.to_owned(), pins.to_owned(), state(policies));
        let thread = thread::spawn(move || {
            let right = caps::Capability::CAP_NET_RAW;
            caps::drop(None, caps::CapSet::Effective, right).unwrap();
            runtime().block_on(async {
                let mut backend =
                    EbpfBackend::open(&object, &pins, connections(), Method::Filters).unwrap();
                let applied = backend.apply(&state).await;
                assert_eq!(applied.in_force, Ok(()));
                applied.policies
            })
        });
        thread.join().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.orders = None;
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking(), "the backend has panicked");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn run(
    object: PathBuf,
    pins: PathBuf,
    connections: Connections,
    mut inbox: UnboundedReceiver<Order>,
) {
    runtime().block_on(async {
        let mut backend = EbpfBackend::open(&object, &pins, connections, Method::Filters).unwrap();
        let mut revision = 0;
        let mut current = None;
        loop {
            let order = tokio::select! {
                order = inbox.recv() => order,
                event = backend.event() => {
                    let again: Option<Desired> = current.clone();
                    if let (BackendEvent::Names, Some(state)) = (event, again) {
                        let changed = Some(Changed { since: revision, ..Changed::default() });
                        let applied = backend.apply(&Desired { revision, changed, ..state }).await;
                        assert_eq!(applied.in_force, Ok(()));
                    }
                    continue;
                }
            };
            match order {
                None => break,
                Some(Order::Counters(reply)) => reply.send(backend.figures().packets).unwrap(),
                Some(Order::Apply(state, reply)) => {
                    revision += 1;
                    let state = Desired { revision, ..*state };
                    let applied = backend.apply(&state).await;
                    assert_eq!(applied.in_force, Ok(()));
                    assert!(applied.endpoints.values().all(Result::is_ok), "{applied:?}");
                    let drift = backend.observe().await.unwrap().drift;
                    assert!(drift.is_empty(), "{drift:?}");
                    reply.send(applied.policies).unwrap();
                    current = Some(state);
                }
            }
        }
    });
}

/// The node's state with these policies, for a full pass.
pub(super) fn state(policies: &[Value]) -> Desired {
    let endpoints = PODS.map(|(pod, address)| {
        let addresses = [address.parse().unwrap(), IpAddr::from(v6_of(pod))];
        let link = HostLink {
            name: pod.to_owned(),
            ifindex: if_nametoindex(pod).unwrap(),
            mac: None,
            addresses: addresses.into(),
            number: 0,
            table: None,
            mark: None,
            eni: None,
            host_end: HostEnd::Routed,
        };
        let id = PodId { uid: pod.to_owned(), namespace: "x".to_owned(), name: pod.to_owned() };
        let pod_of = LocalPod { pod: id, container: pod.to_owned(), addresses: addresses.into() };
        (pod.to_owned(), Arc::new(Endpoint { pod: pod_of, links: vec![link] }))
    });
    Desired {
        node: Default::default(),
        revision: 0,
        state: Arc::new(snapshot(policies)),
        endpoints: Arc::new(endpoints.into()),
        services: Arc::default(),
        changed: None,
    }
}
