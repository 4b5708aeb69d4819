//! Objects of pages and watches, taken into the hub.

use crate::{
    agents::{Agent, Agents},
    metrics::Metrics,
    object_tracker::{Gone, ObjectTracker},
    status::ReportCollector,
};
use control_hub::Hub;
use control_rpc::SharedHub;
use policy_core::{compile, index::Event};
use policy_objects::{
    Kind, Object, Parsed, Phase, ReadError, Severity,
    page::{self, Page, PageError, PodView, PolicyItem},
};
use serde::Deserialize;
use serde_json::Value;
use std::{sync::Arc, time::Instant};

/// Where objects go.
#[derive(Clone)]
pub(crate) struct Intake {
    pub(crate) office: Arc<SharedHub>,
    pub(crate) agents: Arc<Agents>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) desk: Arc<ReportCollector>,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    #[serde(rename = "type")]
    pub(crate) what: String,
    pub(crate) object: Value,
}

impl Line {
    /// The version of the cluster that this is of.
    pub(crate) fn version(&self) -> Option<&str> {
        self.object.pointer("/metadata/resourceVersion").and_then(Value::as_str)
    }
}

impl Intake {
    /// Takes in a page of a list.
    pub(crate) fn page(
        &self,
        kind: Kind,
        text: &[u8],
        known: &mut ObjectTracker,
    ) -> Result<Page, PageError> {
        self.office.with(|hub| {
            let mut take = Take { hub, known, kind, intake: self };
            match kind {
                Kind::Pod => page::pods(text, |pod| take.pod(pod)),
                Kind::Namespace => page::namespaces(text, |namespace| {
                    let Some(namespace) = take.named(namespace) else { return };
                    let meta = &namespace.meta;
                    take.put(&meta.namespace, &meta.name, &meta.uid);
                    take.apply(Event::NamespaceView(&namespace));
                }),
                Kind::NetworkPolicy => {
                    page::network_policies(text, |policy| match take.named(policy) {
                        Some(PolicyItem::Borrowed(policy)) => {
                            let meta = &policy.meta;
                            take.put(&meta.namespace, &meta.name, &meta.uid);
                            take.apply(Event::PolicyView(&policy));
                        }
                        Some(PolicyItem::Read(parsed)) => take.object(&parsed),
                        None => {}
                    })
                }
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
                    if let Some(parsed) = take.named(object) {
                        take.object(&parsed);
                    }
                }),
            }
        })
    }

    /// Takes in what a watch says, all at once.
    pub(crate) fn lines(&self, kind: Kind, lines: &[Line], known: &mut ObjectTracker) {
        let begun = Instant::now();
        let (generation, touched) = self.office.apply(|hub| {
            self.metrics.queued(begun.elapsed());
            let before = hub.generation();
            let mut take = Take { hub, known, kind, intake: self };
            lines.iter().for_each(|line| take.line(line));
            let after = hub.generation();
            (after != before).then_some(after)
        });
        if let Some(generation) = generation {
            self.metrics.propagation.told(generation, touched, begun);
        }
    }

    /// Takes out what is gone.
    pub(crate) fn gone(&self, kind: Kind, gone: &[Gone], known: &mut ObjectTracker) {
        for some in gone.chunks(GONE_AT_ONCE) {
            self.office.with(|hub| {
                let mut take = Take { hub, known, kind, intake: self };
                some.iter().for_each(|gone| take.gone(gone));
            });
        }
    }
}

/// How many objects that are gone are taken out under one lock.
const GONE_AT_ONCE: usize = 128;

/// The hub, while it takes something in.
struct Take<'a> {
    hub: &'a mut Hub,
    known: &'a mut ObjectTracker,
    kind: Kind,
    intake: &'a Intake,
}

impl Take<'_> {
    fn apply(&mut self, event: Event<'_>) {
        let begun = Instant::now();
        self.hub.apply(event);
        self.intake.metrics.computed(self.kind, begun.elapsed());
    }

    /// An object of which nothing is known but that it is there.
    fn named<T>(&self, read: Result<T, ReadError>) -> Option<T> {
        read.inspect_err(|error| {
            self.intake.metrics.unreadable(self.kind);
            tracing::warn!(kind = self.kind.text(), %error, "an object is passed over");
        })
        .ok()
    }

    /// It is there; what had its name before is not.
    fn put(&mut self, namespace: &str, name: &str, uid: &str) {
        if let Some(gone) = self.known.put(namespace, name, uid) {
            self.gone(&gone);
        }
    }

    fn pod(&mut self, pod: Result<PodView<'_>, ReadError>) {
        let Some(pod) = self.named(pod) else { return };
        let meta = &pod.meta;
        self.put(&meta.namespace, &meta.name, &meta.uid);
        self.agent(&pod);
        self.apply(Event::PodView(&pod));
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
        self.ends(was);
    }

    /// An agent's pod is not there any more as it was: a stream of its has to end.
    fn ends(&self, agent: Option<Agent>) {
        if let Some(agent) = agent {
            self.intake.office.look_again(&agent.node);
        }
    }

    fn line(&mut self, line: &Line) {
        match line.what.as_str() {
            "ADDED" | "MODIFIED" => {
                if let Some(parsed) = self.named(Object::read_as(self.kind, &line.object)) {
                    self.object(&parsed);
                }
            }
            "DELETED" => {
                let text = |field: &str| {
                    let value = line.object.pointer(field).and_then(Value::as_str);
                    value.unwrap_or_default().to_owned()
                };
                let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
                self.gone(&Gone { namespace, name, uid: text("/metadata/uid") });
            }
            _ => {}
        }
    }

    fn object(&mut self, parsed: &Parsed) {
        let (object, meta) = (&parsed.object, parsed.object.meta());
        self.put(&meta.namespace, &meta.name, &meta.uid);
        if self.kind.is_policy() {
            self.say(parsed);
        }
        match object {
            Object::Pod(pod) => {
                self.agent(&PodView::from(pod));
                self.apply(Event::Pod(pod));
            }
            Object::Namespace(namespace) => self.apply(Event::Namespace(namespace)),
            Object::Node(node) => self.apply(Event::Node(node)),
            Object::Service(service) => self.apply(Event::Service(service)),
            Object::Tier(tier) => self.apply(Event::Tier(tier)),
            Object::Group(group) => self.apply(Event::Group(group)),
            Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {
                let begun = Instant::now();
                if let Some(policy) = compile(object) {
                    self.hub.policy(&policy, meta.generation);
                }
                self.intake.metrics.computed(self.kind, begun.elapsed());
            }
        }
    }

    /// What is not understood of a policy fails closed; who wrote it should know.
    fn say(&self, parsed: &Parsed) {
        let meta = parsed.object.meta();
        for note in parsed.notes.iter().filter(|note| note.severity == Severity::Error).take(NOTES)
        {
            let (kind, namespace, name) = (self.kind.text(), &meta.namespace, &meta.name);
            tracing::warn!(kind, namespace, name, field = note.field, "{}", note.text);
        }
    }

    fn gone(&mut self, gone: &Gone) {
        let Gone { namespace, name, uid } = gone;
        self.known.remove(namespace, name, uid);
        if self.kind == Kind::Pod {
            self.ends(self.intake.agents.gone(namespace, name, uid));
        }
        if self.kind == Kind::Node {
            self.intake.desk.node_gone(name);
        }
        self.apply(Event::Gone { kind: self.kind, namespace, name, uid });
    }
}

/// How much is said of one object.
const NOTES: usize = 4;
