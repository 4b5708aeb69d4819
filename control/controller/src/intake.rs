//! Objects of list pages and watches, applied to the hub.
//!
//! An object is parsed before the hub's lock is taken. Streams and the other kinds wait only while parsed objects are
//! applied.

use crate::{
    agents::{Agent, Agents},
    kinds::Resource,
    metrics::Metrics,
    object_tracker::{Gone, ObjectTracker},
    status::ReportCollector,
};
use control_hub::Hub;
use control_rpc::SharedHub;
use policy_core::{Policy, compile, index::Event};
use policy_objects::{
    Kind, Object, Parsed, Phase, ReadError, Severity,
    page::{self, NamespaceView, Page, PageError, PodView, PolicyItem},
};
use serde::Deserialize;
use serde_json::Value;
use service_objects::{ObjectName, Problem, Service, Slice};
use std::{sync::Arc, time::Instant};

/// Maximum number of objects that are applied under one lock.
const BATCH: usize = 128;
/// Maximum number of logged notes on one object.
const NOTES: usize = 4;

/// The receivers of objects.
#[derive(Clone)]
pub(crate) struct Intake {
    pub(crate) hub: Arc<SharedHub>,
    pub(crate) agents: Arc<Agents>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reports: Arc<ReportCollector>,
    /// Services and slices are sent to nodes.
    pub(crate) serves: bool,
}

/// A page of a list whose objects are not parsed.
#[derive(Deserialize)]
struct RawPage {
    metadata: RawPageMeta,
    /// Go writes null for an empty list.
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPageMeta {
    resource_version: String,
    #[serde(rename = "continue", default)]
    next: String,
}

/// A page that cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageFault {
    #[error(transparent)]
    Policy(#[from] PageError),
    #[error("not JSON of a list: {0}")]
    Json(#[from] serde_json::Error),
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    #[serde(rename = "type")]
    pub(crate) what: String,
    pub(crate) object: Value,
}

impl Line {
    /// Returns the resource version of the object.
    pub(crate) fn version(&self) -> Option<&str> {
        self.object.pointer("/metadata/resourceVersion").and_then(Value::as_str)
    }
}

/// A parsed change of one object.
enum Item<'a> {
    Pod(PodView<'a>),
    Namespace(NamespaceView<'a>),
    Policy(CompiledPolicy),
    Object(Box<Object>),
    /// A Service for nodes that serve it. The same Service comes before it as an object of policy.
    Service(Box<Service>),
    Slice {
        uid: String,
        slice: Box<Slice>,
    },
    Gone(Gone),
}

/// A policy in the form that the hub receives.
struct CompiledPolicy {
    namespace: String,
    name: String,
    uid: String,
    /// The generation of the spec.
    generation: i64,
    policy: Option<Policy>,
}

impl Intake {
    /// Applies a page of a list. A page that cannot be read to its end changes nothing.
    pub(crate) fn page(
        &self,
        kind: Resource,
        text: &[u8],
        tracker: &mut ObjectTracker,
    ) -> Result<Page, PageFault> {
        let (items, page) = match kind {
            Resource::Policy(Kind::Service) if self.serves => self.parse_raw_page(kind, text)?,
            Resource::EndpointSlice => self.parse_raw_page(kind, text)?,
            Resource::Policy(kind) => self.parse_page(kind, text)?,
        };
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            self.hub.with(|hub| {
                let mut change = HubChange { hub, tracker, kind, intake: self };
                items.by_ref().take(BATCH).for_each(|item| change.apply(item));
            });
        }
        Ok(page)
    }

    /// Applies lines of a watch under one lock.
    pub(crate) fn lines(&self, kind: Resource, lines: &[Line], tracker: &mut ObjectTracker) {
        let start = Instant::now();
        let items: Vec<Item<'_>> =
            lines.iter().flat_map(|line| self.parse_line(kind, line)).collect();
        let parsed = Instant::now();
        let (generation, touched) = self.hub.apply(|hub| {
            self.metrics.queued(parsed.elapsed());
            let before = hub.generation();
            let mut change = HubChange { hub, tracker, kind, intake: self };
            items.into_iter().for_each(|item| change.apply(item));
            let after = hub.generation();
            (after != before).then_some(after)
        });
        if let Some(generation) = generation {
            self.metrics.propagation.sent(generation, touched, start);
        }
    }

    /// Removes objects.
    pub(crate) fn remove(&self, kind: Resource, gone: &[Gone], tracker: &mut ObjectTracker) {
        for batch in gone.chunks(BATCH) {
            self.hub.with(|hub| {
                let mut change = HubChange { hub, tracker, kind, intake: self };
                batch.iter().for_each(|gone| change.remove(gone));
            });
        }
    }

    fn parse_page<'p>(
        &self,
        kind: Kind,
        text: &'p [u8],
    ) -> Result<(Vec<Item<'p>>, Page), PageError> {
        let mut items = Vec::new();
        let page = match kind {
            Kind::Pod => page::pods(text, |pod| {
                items.extend(self.readable(kind, pod).map(Item::Pod));
            }),
            Kind::Namespace => page::namespaces(text, |namespace| {
                items.extend(self.readable(kind, namespace).map(Item::Namespace));
            }),
            Kind::NetworkPolicy => page::network_policies(text, |policy| {
                let policy = self.readable(kind, policy);
                items.extend(policy.map(|policy| match policy {
                    PolicyItem::Borrowed(view) => Item::of(Object::NetworkPolicy(view.into())),
                    PolicyItem::Read(parsed) => self.item(kind, *parsed),
                }));
            }),
            Kind::Node
            | Kind::Service
            | Kind::ClusterNetworkPolicy
            | Kind::AwsClusterNetworkPolicy
            | Kind::AwsApplicationNetworkPolicy
            | Kind::AntreaTier
            | Kind::AntreaClusterNetworkPolicy
            | Kind::AntreaNetworkPolicy
            | Kind::AntreaClusterGroup
            | Kind::AntreaGroup => page::objects(kind, text, |object| {
                let object = self.readable(kind, object);
                items.extend(object.map(|parsed| self.item(kind, parsed)));
            }),
        }?;
        Ok((items, page))
    }

    fn parse_raw_page(
        &self,
        kind: Resource,
        text: &[u8],
    ) -> Result<(Vec<Item<'static>>, Page), PageFault> {
        let RawPage { metadata, items } = serde_json::from_slice(text)?;
        let objects = items.unwrap_or_default();
        let page = Page {
            next: metadata.next,
            resource_version: metadata.resource_version,
            items: objects.len(),
            ..Page::default()
        };
        Ok((objects.iter().flat_map(|object| self.items(kind, object)).collect(), page))
    }

    /// Parses an object for each source that needs it.
    fn items(&self, kind: Resource, object: &Value) -> Vec<Item<'static>> {
        let Resource::Policy(policy) = kind else {
            let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            let slice = self.used(kind, Slice::read(object));
            slice.iter().for_each(|slice| log_problems(kind, &slice.name, &slice.problems));
            let item = |slice| Item::Slice { uid: uid.to_owned(), slice: Box::new(slice) };
            return slice.map(item).into_iter().collect();
        };
        let parsed = self.readable(policy, Object::read_as(policy, object));
        let mut items: Vec<_> =
            parsed.map(|parsed| self.item(policy, parsed)).into_iter().collect();
        if self.serves && policy == Kind::Service {
            let service = self.used(kind, Service::read(object));
            service.iter().for_each(|of| log_problems(kind, &of.name, &of.problems));
            items.extend(service.map(|service| Item::Service(Box::new(service))));
        }
        items
    }

    /// Logs and counts an object of Services that cannot be read. A slice of host names is for no proxy.
    fn used<T>(&self, kind: Resource, read: Result<T, service_objects::ReadError>) -> Option<T> {
        match read {
            Ok(object) => Some(object),
            Err(service_objects::ReadError::AddressType(_)) => None,
            Err(error) => {
                self.metrics.unreadable(kind);
                tracing::warn!(kind = kind.text(), %error, "object skipped: it cannot be read");
                None
            }
        }
    }

    fn parse_line(&self, kind: Resource, line: &Line) -> Vec<Item<'static>> {
        match line.what.as_str() {
            "ADDED" | "MODIFIED" => self.items(kind, &line.object),
            "DELETED" => {
                let text = |field: &str| {
                    let value = line.object.pointer(field).and_then(Value::as_str);
                    value.unwrap_or_default().to_owned()
                };
                let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
                vec![Item::Gone(Gone { namespace, name, uid: text("/metadata/uid") })]
            }
            _ => Vec::new(),
        }
    }

    /// Logs and counts an object that cannot be read at all, such as one without a name. It is skipped.
    fn readable<T>(&self, kind: Kind, read: Result<T, ReadError>) -> Option<T> {
        read.inspect_err(|error| {
            self.metrics.unreadable(Resource::Policy(kind));
            tracing::warn!(kind = kind.text(), %error, "object skipped: it cannot be read");
        })
        .ok()
    }

    /// Logs the parts of a policy that are not understood and fail closed.
    fn item(&self, kind: Kind, parsed: Parsed) -> Item<'static> {
        let Parsed { object, notes } = parsed;
        let meta = object.meta();
        let errors = notes.iter().filter(|note| note.severity == Severity::Error).take(NOTES);
        for note in errors.filter(|_| kind.is_policy()) {
            let (kind, namespace, name) = (kind.text(), &meta.namespace, &meta.name);
            tracing::warn!(kind, namespace, name, field = note.field, "{}", note.text);
        }
        Item::of(object)
    }
}

/// Logs the parts of an object of Services that cannot be read. The rest of the object is served.
fn log_problems(kind: Resource, of: &ObjectName, problems: &[Problem]) {
    let kind = kind.text();
    for Problem { field, cause } in problems.iter().take(NOTES) {
        tracing::warn!(
            kind,
            namespace = of.namespace,
            name = of.name,
            field,
            cause,
            "cannot use a field of the object: the rest is served; correct the field, or remove it"
        );
    }
}

impl Item<'_> {
    fn of(object: Object) -> Self {
        match object {
            Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {
                let meta = object.meta();
                Self::Policy(CompiledPolicy {
                    namespace: meta.namespace.clone(),
                    name: meta.name.clone(),
                    uid: meta.uid.clone(),
                    generation: meta.generation,
                    policy: compile(&object),
                })
            }
            Object::Pod(_)
            | Object::Namespace(_)
            | Object::Node(_)
            | Object::Service(_)
            | Object::Tier(_)
            | Object::Group(_) => Self::Object(Box::new(object)),
        }
    }
}

/// The locked hub and the state of one kind, while objects are applied.
struct HubChange<'a> {
    hub: &'a mut Hub,
    tracker: &'a mut ObjectTracker,
    kind: Resource,
    intake: &'a Intake,
}

impl HubChange<'_> {
    fn apply(&mut self, item: Item<'_>) {
        match item {
            Item::Pod(pod) => {
                self.put(&pod.meta.namespace, &pod.meta.name, &pod.meta.uid);
                self.agent(&pod);
                self.event(Event::PodView(&pod));
            }
            Item::Namespace(namespace) => {
                let meta = &namespace.meta;
                self.put(&meta.namespace, &meta.name, &meta.uid);
                self.event(Event::NamespaceView(&namespace));
            }
            Item::Policy(compiled) => {
                self.put(&compiled.namespace, &compiled.name, &compiled.uid);
                if let Some(policy) = &compiled.policy {
                    let start = Instant::now();
                    self.hub.policy(policy, compiled.generation);
                    self.intake.metrics.computed(self.kind, start.elapsed());
                }
            }
            Item::Object(object) => self.object(&object),
            Item::Service(service) => {
                self.timed(|hub| hub.set_service(&service));
            }
            Item::Slice { uid, slice } => {
                self.put(&slice.name.namespace, &slice.name.name, &uid);
                self.timed(|hub| hub.set_slice(&slice));
            }
            Item::Gone(gone) => self.remove(&gone),
        }
    }

    fn object(&mut self, object: &Object) {
        let meta = object.meta();
        self.put(&meta.namespace, &meta.name, &meta.uid);
        match object {
            Object::Pod(pod) => {
                self.agent(&PodView::from(pod));
                self.event(Event::Pod(pod));
            }
            Object::Namespace(namespace) => self.event(Event::Namespace(namespace)),
            Object::Node(node) => self.event(Event::Node(node)),
            Object::Service(service) => self.event(Event::Service(service)),
            Object::Tier(tier) => self.event(Event::Tier(tier)),
            Object::Group(group) => self.event(Event::Group(group)),
            // These are compiled before the lock is taken.
            Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {}
        }
    }

    fn event(&mut self, event: Event<'_>) {
        self.timed(|hub| hub.apply(event));
    }

    fn timed(&mut self, change: impl FnOnce(&mut Hub)) {
        let start = Instant::now();
        change(self.hub);
        self.intake.metrics.computed(self.kind, start.elapsed());
    }

    /// Records an existing object, and removes another object of the same name first.
    fn put(&mut self, namespace: &str, name: &str, uid: &str) {
        if let Some(gone) = self.tracker.put(namespace, name, uid) {
            self.remove(&gone);
        }
    }

    fn agent(&self, pod: &PodView<'_>) {
        let (meta, agents) = (&pod.meta, &self.intake.agents);
        let was = if pod.phase == Phase::Ended {
            agents.gone(&meta.namespace, &meta.name, "")
        } else {
            agents.saw(&meta.namespace, &pod.service_account, &meta.name, || Agent {
                uid: meta.uid.to_string(),
                node: pod.node.to_string(),
            })
        };
        self.recheck_stream(was);
    }

    /// The stream of a removed or changed agent pod has to check its client again.
    fn recheck_stream(&self, agent: Option<Agent>) {
        if let Some(agent) = agent {
            self.intake.hub.look_again(&agent.node);
        }
    }

    fn remove(&mut self, gone: &Gone) {
        let Gone { namespace, name, uid } = gone;
        self.tracker.remove(namespace, name, uid);
        let kind = match self.kind {
            Resource::Policy(kind) => kind,
            Resource::EndpointSlice => {
                let name = ObjectName::new(namespace, name);
                return self.timed(|hub| hub.remove_slice(&name));
            }
        };
        if kind == Kind::Pod {
            self.recheck_stream(self.intake.agents.gone(namespace, name, uid));
        }
        if kind == Kind::Node {
            self.intake.reports.node_gone(name);
        }
        if kind == Kind::Service {
            let name = ObjectName::new(namespace, name);
            self.timed(|hub| hub.remove_service(&name));
        }
        self.event(Event::Gone { kind, namespace, name, uid });
    }
}
