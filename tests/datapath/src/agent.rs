//! The agent's core and a backend, driven step by step.

use crate::world::{id, link, local, part};
use config_model::{EnforcingMode, Span, Time};
use control_wire::proto::Change;
use datapath_backend::Backend;
use datapath_node::{Answer, Effect, Node, Ticket};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::timeout;

/// A node whose effects this backend executes.
pub struct Agent<B> {
    /// The core.
    pub node: Node,
    /// The answers of pods that have started.
    pub answers: BTreeMap<u8, Answer>,
    backend: B,
    asked: BTreeMap<Ticket, u8>,
    now: Time,
    generation: u64,
}

impl<B: Backend> Agent<B> {
    /// Starts with nothing on the disk.
    pub async fn start(backend: B) -> Self {
        let mut node = Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new());
        node.began(([10, 9, 9, 1], 1).into(), &[1; 16], false);
        let (answers, asked) = (BTreeMap::new(), BTreeMap::new());
        let mut agent = Self { node, answers, backend, asked, now: Time(0), generation: 0 };
        agent.run().await;
        agent
    }

    /// Delivers these changes from a replica.
    pub async fn send(&mut self, changes: Vec<Change>) {
        self.generation += 1;
        self.node.part(part(self.generation, changes), self.now);
        self.run().await;
    }

    /// Starts a pod.
    pub async fn admit(&mut self, pod: u8, mode: EnforcingMode) {
        let ticket = self.node.admit(local(pod), vec![link(pod)], mode, self.now);
        self.asked.insert(ticket, pod);
        self.run().await;
    }

    /// Ends a pod.
    pub async fn forget(&mut self, pod: u8) {
        self.node.forget(&id(pod), "", self.now);
        self.run().await;
    }

    /// Advances time, in steps at which the node's timers expire.
    pub async fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(wake) = self.node.wake_at().filter(|wake| *wake <= end) {
            self.now = wake.max(self.now);
            self.node.tick(self.now);
            self.run().await;
        }
        self.now = end;
        self.node.tick(self.now);
        self.run().await;
    }

    /// Delivers the pending events of the backend.
    pub async fn take_events(&mut self) {
        while let Ok(event) = timeout(EVENT_WAIT, self.backend.event()).await {
            self.node.backend_event(&event, self.now);
            self.run().await;
        }
    }

    /// Executes effects until there are none.
    async fn run(&mut self) {
        loop {
            let effects = self.node.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out(effect).await;
            }
        }
    }

    async fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Apply(desired) => {
                let outcome = self.backend.apply(&desired).await;
                self.node.applied(desired.revision, outcome, self.now);
            }
            Effect::Observe => {
                let observed = self.backend.observe().await.map_err(|error| error.to_string());
                self.node.observed(observed, self.now);
            }
            Effect::Answer { ticket, answer } => {
                if let Some(pod) = self.asked.remove(&ticket) {
                    self.answers.insert(pod, answer);
                }
            }
            Effect::Announce(_)
            | Effect::Acknowledge(_)
            | Effect::Resync(_)
            | Effect::Persist(_)
            | Effect::Report(_) => {}
        }
    }
}

/// Time to wait for a possible event. A backend may gather changes before it reports one.
const EVENT_WAIT: Duration = Duration::from_secs(1);
