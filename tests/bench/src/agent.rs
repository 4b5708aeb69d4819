//! An agent's core with the backend in the kernel.

use crate::world::{World, link, local};
use anyhow::{Context as _, Result, ensure};
use config_model::{EnforcingMode, Time};
use config_settings::{Connections, Settings};
use control_rpc::{Follow, StreamEvent, Trust};
use control_wire::proto::{Change, Part};
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Hook, Method, Programs};
use datapath_node::{BackendEvent, Effect, Node};
use runtime_process::memory::{self, FreeMemory};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// An agent that follows a replica.
pub struct Agent {
    node: Node,
    backend: EbpfBackend,
    generation: u64,
    started: Instant,
    free_memory: FreeMemory,
    pub maps: PathBuf,
}

impl Agent {
    /// Loads the programs and puts a world into force.
    pub async fn start(object: &Path, pins: &Path, world: &World) -> Result<Self> {
        let connections = Settings::defaults().agent.connections;
        let maps = pins.join("maps");
        let programs = Programs::load(object, Some(&maps), &connections)?;
        let backend = EbpfBackend::over(programs, &maps, connections)?;
        let mut agent = Self::over(backend, "", maps, 0..world.pods);
        agent.receive(world.objects()).await?;
        Ok(agent)
    }

    /// Loads the programs as an agent that serves Services and has received nothing. Processes of the node are served if
    /// the folder of cgroup trees is given.
    pub async fn serve(
        object: &Path,
        pins: &Path,
        name: &str,
        cgroup: Option<&Path>,
        pods: Range<u32>,
    ) -> Result<Self> {
        let connections = Connections { services: true, ..Settings::defaults().agent.connections };
        let mut backend = EbpfBackend::open(object, pins, connections, Method::Filters)?;
        if let Some(cgroup) = cgroup {
            backend = backend.with_sockets(cgroup)?;
        }
        Ok(Self::over(backend, name, pins.to_owned(), pods))
    }

    fn over(backend: EbpfBackend, name: &str, maps: PathBuf, pods: Range<u32>) -> Self {
        let node = Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new());
        let mut node = node.named(name, !name.is_empty());
        node.began(([10, 9, 9, 1], 1).into(), &[1; 16], false);
        let (started, free_memory) = (Instant::now(), FreeMemory::default());
        let mut agent = Self { node, backend, generation: 0, started, free_memory, maps };
        for pod in pods {
            let now = agent.now();
            agent.node.admit(local(pod), vec![link(pod)], EnforcingMode::Standard, now);
            agent.node.take_effects();
        }
        agent
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Receives a generation. Returns the time until it is in force.
    pub async fn receive(&mut self, changes: Vec<Change>) -> Result<Duration> {
        self.generation += 1;
        let received = Instant::now();
        self.part(Part { generation: self.generation, changes, last: true });
        Ok(self.carry_out().await? - received)
    }

    /// Receives a generation in parts, each as it comes.
    pub async fn receive_parts(
        &mut self,
        parts: impl Iterator<Item = Result<Vec<Change>>>,
    ) -> Result<()> {
        self.generation += 1;
        let mut parts = parts.peekable();
        while let Some(changes) = parts.next() {
            let (generation, last) = (self.generation, parts.peek().is_none());
            self.part(Part { generation, changes: changes?, last });
        }
        self.carry_out().await.map(drop)
    }

    fn part(&mut self, part: Part) {
        self.free_memory.note(part.changes.len(), Instant::now());
        let now = self.now();
        self.node.part(part, now);
    }

    /// Observes everything, and repairs what differs. Replaces filters that have other programs.
    pub async fn repair(&mut self) -> Result<()> {
        let now = self.now();
        self.node.backend_event(&BackendEvent::Drift("other programs".to_owned()), now);
        self.carry_out().await.map(drop)
    }

    /// Opens the stream of a replica.
    pub async fn follow(&mut self, at: SocketAddr, trust: &Trust, name: &str) -> Result<Follow> {
        let stream = Follow::begin(at, trust, name, self.node.hello(false)).await;
        let stream = stream.context("open a stream")?;
        self.node.began(at, &stream.welcome().epoch, false);
        Ok(stream)
    }

    /// Receives from a stream until a generation is in force.
    pub async fn receive_from(&mut self, stream: &mut Follow) -> Result<()> {
        loop {
            tokio::select! {
                message = stream.receive() => {
                    match message.context("receive from the replica")? {
                        StreamEvent::Bookmark(bookmark) => {
                            let now = self.now();
                            self.node.bookmark(&bookmark, now);
                        }
                        StreamEvent::Part(part) => {
                            let generation = part.generation;
                            self.part(part);
                            if self.effects().await?.is_some() {
                                return stream.acknowledge(generation).await.context("acknowledge");
                            }
                        }
                    }
                }
                event = self.backend.event() => {
                    let now = self.now();
                    self.node.backend_event(&event, now);
                }
            }
        }
    }

    async fn carry_out(&mut self) -> Result<Instant> {
        self.effects().await?.context("the generation was not applied")
    }

    /// Returns the moment at which the first state is in force. `None` if there is nothing to apply.
    async fn effects(&mut self) -> Result<Option<Instant>> {
        self.return_memory();
        let mut in_force = None;
        loop {
            let effects = self.node.take_effects();
            if effects.is_empty() {
                return Ok(in_force);
            }
            for effect in effects {
                let Effect::Apply(desired) = effect else { continue };
                let outcome = self.backend.apply(&desired).await;
                in_force.get_or_insert_with(Instant::now);
                let revision = desired.revision;
                drop(desired);
                let failed = outcome.endpoints.iter().find_map(|(_, of)| of.as_ref().err());
                ensure!(outcome.in_force.is_ok(), "not in force: {:?}", outcome.in_force);
                ensure!(failed.is_none(), "a pod is not in force: {failed:?}");
                let failed = outcome.services.iter().next();
                ensure!(failed.is_none(), "a Service is not in force: {failed:?}");
                let now = self.now();
                self.node.applied(revision, outcome, now);
            }
        }
    }

    /// Works as the agent does, until the work is done.
    pub async fn work(&mut self, is_done: &AtomicBool) -> Result<()> {
        while !is_done.load(Ordering::Relaxed) {
            if let Ok(event) = timeout(Duration::from_millis(10), self.backend.event()).await {
                let now = self.now();
                self.node.backend_event(&event, now);
                self.effects().await?;
            }
        }
        Ok(())
    }

    /// Numbers of packets and answers by their name.
    pub fn counters(&mut self) -> BTreeMap<&'static str, u64> {
        self.backend.figures().packets
    }

    /// The memory of the maps in the kernel, in bytes.
    pub fn map_memory(&self) -> u64 {
        self.backend.map_memory()
    }

    /// Waits as the agent does between two changes.
    pub async fn rest(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Ok(event) =
            timeout(end.saturating_duration_since(Instant::now()), self.backend.event()).await
        {
            let now = self.now();
            self.node.backend_event(&event, now);
        }
        let now = self.now();
        self.node.tick(now);
        self.return_memory();
    }

    fn return_memory(&mut self) {
        if self.free_memory.is_due(Instant::now()) {
            memory::trim();
        }
    }

    /// Ends the agent and returns its programs, with those that only tests run.
    pub fn into_programs(mut self) -> Result<Programs> {
        // These programs refer to the ring of events, which the backend has.
        for name in ["first_packet", "only_pick", "only_lookups", Hook::TestToWire.name()] {
            self.backend.programs().time(name, &[0; 64], [0, 0], [0; 16], 1)?;
        }
        Ok(self.backend.into_programs())
    }
}
