//! A backend in memory: it executes effects on its own kernel, which tests can read, make refuse, and stop.

use crate::{Faults, Subject};
use async_trait::async_trait;
use control_wire::ObjectId;
use datapath_backend::{Backend, BackendError};
use datapath_node::{Applied, BackendEvent, Desired, Observed, Retire, Trace, TraceStep};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// A kernel in memory, which outlives the backend's process.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    kernel: Arc<Mutex<Kernel>>,
    noticed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Kernel {
    /// Rows of the snapshot, by object.
    rows: BTreeMap<ObjectId, String>,
    /// The filters on the pods' links, by UID.
    filters: BTreeMap<String, String>,
    refused: BTreeSet<String>,
    cut_after: Option<usize>,
    calls: Vec<Call>,
    events: VecDeque<BackendEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    WriteRow(ObjectId, String),
    /// Attaches or replaces the filters of a pod.
    Attach(String, String),
    /// Removes the filters of a pod.
    Detach(String),
    DeleteRow(ObjectId),
}

impl Fake {
    /// The effects since the start.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for Fake {
    type Backend = FakeBackend;

    fn start(&self) -> FakeBackend {
        self.lock().cut_after = None;
        FakeBackend { fake: self.clone(), revision: 0, target: None }
    }

    fn in_force(&self) -> Option<BTreeMap<String, String>> {
        let kernel = self.lock();
        let rows = kernel.rows.iter().map(|(id, row)| (format!("row {id}"), row.clone()));
        let filters = kernel.filters.iter();
        let filters = filters.map(|(uid, filter)| (format!("filter {uid}"), filter.clone()));
        Some(rows.chain(filters).collect())
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }
}

impl Faults for Fake {
    fn refuse_endpoint(&self, uid: &str, refused: bool) {
        let mut kernel = self.lock();
        match refused {
            true => drop(kernel.refused.insert(uid.to_owned())),
            false => drop(kernel.refused.remove(uid)),
        }
    }

    fn remove_endpoint(&self, uid: &str, noticed: bool) {
        let mut kernel = self.lock();
        kernel.filters.remove(uid);
        if noticed {
            let why = format!("the filters of {uid} were removed");
            kernel.events.push_back(BackendEvent::Drift(why));
            self.noticed.notify_one();
        }
    }

    fn cut_after(&self, effects: usize) {
        self.lock().cut_after = Some(effects);
    }

    fn effects(&self) -> usize {
        self.lock().calls.len()
    }
}

/// A process of the backend.
#[derive(Debug)]
pub struct FakeBackend {
    fake: Fake,
    revision: u64,
    target: Option<Target>,
}

/// The kernel's state that a desired state requires.
#[derive(Clone, Debug, Default)]
struct Target {
    rows: BTreeMap<ObjectId, String>,
    filters: BTreeMap<String, String>,
}

impl Target {
    fn of(desired: &Desired) -> Self {
        let rows = desired.state.objects();
        let filters = desired.endpoints.iter();
        Self {
            rows: rows.map(|(id, object)| (id, format!("{object:?}"))).collect(),
            filters: filters.map(|(uid, of)| (uid.clone(), format!("{:?}", of.links))).collect(),
        }
    }

    /// Effects in an order in which no pod refers to a missing row.
    fn plan(&self, kernel: &Kernel, desired: &Desired) -> Vec<Call> {
        let changed = desired.changed.as_ref();
        let row_in =
            |id: &ObjectId| changed.is_none_or(|changed| changed.objects.get(id).is_some());
        let pod_in = |uid: &String| changed.is_none_or(|changed| changed.endpoints.contains(uid));
        let write =
            self.rows.iter().filter(|(id, row)| row_in(id) && kernel.rows.get(*id) != Some(*row));
        let write = write.map(|(id, row)| Call::WriteRow(id.clone(), row.clone()));
        let attach = self.filters.iter();
        let attach =
            attach.filter(|(uid, of)| pod_in(uid) && kernel.filters.get(*uid) != Some(*of));
        let attach = attach.map(|(uid, of)| Call::Attach(uid.clone(), of.clone()));
        let detach =
            kernel.filters.keys().filter(|uid| pod_in(uid) && !self.filters.contains_key(*uid));
        let detach = detach.map(|uid| Call::Detach(uid.clone()));
        let delete = kernel.rows.keys().filter(|id| row_in(id) && !self.rows.contains_key(*id));
        let delete = delete.map(|id| Call::DeleteRow(id.clone()));
        write.chain(attach).chain(detach).chain(delete).collect()
    }
}

impl Kernel {
    /// Executes one effect. `None` if the process was killed before it.
    fn execute(&mut self, call: Call) -> Option<()> {
        if let Some(left) = &mut self.cut_after {
            *left = left.checked_sub(1)?;
        }
        match call.clone() {
            Call::WriteRow(id, row) => drop(self.rows.insert(id, row)),
            Call::Attach(uid, _) if self.refused.contains(&uid) => {}
            Call::Attach(uid, filter) => drop(self.filters.insert(uid, filter)),
            Call::Detach(uid) => drop(self.filters.remove(&uid)),
            Call::DeleteRow(id) => drop(self.rows.remove(&id)),
        }
        self.calls.push(call);
        Some(())
    }
}

#[async_trait]
impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn observe(&mut self) -> Result<Observed, BackendError> {
        let kernel = self.fake.lock();
        let Some(target) = &self.target else {
            let endpoints = kernel.filters.keys().cloned().collect();
            return Ok(Observed { endpoints, drift: Vec::new() });
        };
        let good = |(uid, filter): &(&String, &String)| target.filters.get(*uid) == Some(*filter);
        let endpoints = kernel.filters.iter().filter(good).map(|(uid, _)| uid.clone());
        let rows = (kernel.rows != target.rows).then(|| "rows differ".to_owned());
        Ok(Observed { endpoints: endpoints.collect(), drift: rows.into_iter().collect() })
    }

    async fn apply(&mut self, desired: &Desired) -> Applied {
        if desired.revision < self.revision {
            return Applied::older(desired.revision, self.revision);
        }
        self.revision = desired.revision;
        let target = Target::of(desired);
        let mut kernel = self.fake.lock();
        for call in target.plan(&kernel, desired) {
            if kernel.execute(call).is_none() {
                return Applied::failed("the process was killed");
            }
        }
        let mut outcome = Applied::complete(desired);
        for (uid, result) in Arc::make_mut(&mut outcome.endpoints) {
            if kernel.filters.get(uid) != target.filters.get(uid) {
                *result = Err("the kernel refuses the filter".to_owned());
            }
        }
        drop(kernel);
        self.target = Some(target);
        outcome
    }

    async fn event(&mut self) -> BackendEvent {
        loop {
            if let Some(event) = self.fake.lock().events.pop_front() {
                return event;
            }
            self.fake.noticed.notified().await;
        }
    }

    async fn trace(&mut self, trace: &Trace) -> Result<(), BackendError> {
        let step = TraceStep { id: trace.id, stage: "from_pod".to_owned(), allowed: Some(true) };
        self.fake.lock().events.push_back(BackendEvent::Trace(step));
        self.fake.noticed.notify_one();
        Ok(())
    }

    async fn retire(&mut self, retire: Retire) -> Result<(), BackendError> {
        match retire {
            Retire::Keep => {}
            Retire::Remove => {
                let mut kernel = self.fake.lock();
                let filters: Vec<_> = kernel.filters.keys().cloned().map(Call::Detach).collect();
                let rows: Vec<_> = kernel.rows.keys().cloned().map(Call::DeleteRow).collect();
                for call in filters.into_iter().chain(rows) {
                    if kernel.execute(call).is_none() {
                        let cause = "the process was killed".to_owned();
                        return Err(BackendError::NotRemoved { cause });
                    }
                }
                self.target = None;
            }
        }
        Ok(())
    }
}
