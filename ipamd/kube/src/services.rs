//! Services and EndpointSlices for an agent that follows no replica of the controller. The agent has no access to the API
//! server.

use crate::{
    Concern,
    status_reporter::StatusReporter,
    watch::{Subject, Watch},
};
use control_wire::proto::Change;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher::Event,
};
use prost::Message as _;
use service_objects::{ObjectName, Service, Slice};
use std::{collections::BTreeMap, fmt, mem::take};
use tokio::sync::{mpsc, watch};

/// The kind of the objects of a [`ServicesRead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServicesKind {
    Service,
    Slice,
}

/// Services or EndpointSlices that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicesRead {
    pub kind: ServicesKind,
    /// True if the objects are all of the kind. Otherwise they were added or changed.
    pub is_list: bool,
    /// Each as the controller sends it to nodes: an encoded change.
    pub objects: Vec<Vec<u8>>,
    pub removed: Vec<ObjectName>,
    /// The newest resourceVersion of these objects; `None` without an object.
    pub version: Option<u64>,
}

impl ServicesKind {
    fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Service => ("", "v1", "Service", "services"),
            Self::Slice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    fn subject(self) -> Subject {
        let (concern, resource) = match self {
            Self::Service => (Concern::Services, "services"),
            Self::Slice => (Concern::EndpointSlices, "endpointslices.discovery.k8s.io"),
        };
        let page = Some(PAGE);
        Subject { concern, resource, fields: String::new(), labels: String::new(), page }
    }

    /// `None` for an object that no node serves, such as a slice of host names.
    fn encoded(self, object: &DynamicObject) -> Option<Vec<u8>> {
        let value = serde_json::to_value(object).ok()?;
        let change: Change = match self {
            Self::Service => (&Service::read(&value).ok()?).into(),
            Self::Slice => (&Slice::read(&value).ok()?).into(),
        };
        Some(change.encode_to_vec())
    }
}

/// Access to the API server.
#[derive(Clone)]
pub(crate) struct Access {
    /// `None` until there is a client.
    pub(crate) client: watch::Receiver<Option<Client>>,
    pub(crate) status: StatusReporter,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Reads both kinds until the receiver is dropped.
    pub(crate) async fn read(mut self, to: mpsc::Sender<ServicesRead>) {
        let client = tokio::select! {
            client = self.client.wait_for(Option::is_some) => client.ok().and_then(|it| it.clone()),
            () = to.closed() => None,
        };
        let Some(client) = client else { return };
        let follow = |kind| follow(kind, client.clone(), to.clone(), self.status.clone());
        tokio::join!(follow(ServicesKind::Service), follow(ServicesKind::Slice));
    }
}

async fn follow(
    kind: ServicesKind,
    client: Client,
    to: mpsc::Sender<ServicesRead>,
    status: StatusReporter,
) {
    let subject = kind.subject();
    let (concern, resource) = (subject.concern, subject.resource);
    let api = Api::<DynamicObject>::all_with(client, &kind.resource());
    let mut watch = Watch::new(api, subject, status.clone());
    let mut reader = Reader { kind, coming: None };
    'reading: loop {
        let batch = tokio::select! {
            batch = watch.batch() => batch,
            () = to.closed() => break,
        };
        for read in reader.take(batch) {
            if to.send(read).await.is_err() {
                break 'reading;
            }
        }
    }
    // The watch has ended, so it does not fail any longer.
    status.good(concern, resource);
}

/// Makes messages of events.
struct Reader {
    kind: ServicesKind,
    /// The objects so far of a list.
    coming: Option<ServicesRead>,
}

impl Reader {
    fn take(&mut self, batch: Vec<Event<DynamicObject>>) -> Vec<ServicesRead> {
        let mut reads = Vec::new();
        // The last state of each object; `None` if it was removed.
        let mut changes: BTreeMap<ObjectName, Option<Vec<u8>>> = BTreeMap::new();
        let mut version = None;
        for event in batch {
            match event {
                Event::Init => {
                    reads.extend(self.changes(take(&mut changes), version.take()));
                    self.coming = Some(self.empty(true));
                }
                Event::InitApply(object) => {
                    let list = self.coming.get_or_insert(Self::of(self.kind, true));
                    list.objects.extend(self.kind.encoded(&object));
                    list.version = list.version.max(version_of(&object));
                }
                Event::InitDone => reads.extend(self.coming.take()),
                Event::Apply(object) => {
                    version = version.max(version_of(&object));
                    if let Some(bytes) = self.kind.encoded(&object) {
                        changes.insert(name(&object), Some(bytes));
                    }
                }
                Event::Delete(object) => {
                    version = version.max(version_of(&object));
                    changes.insert(name(&object), None);
                }
            }
        }
        reads.extend(self.changes(changes, version));
        reads
    }

    fn of(kind: ServicesKind, is_list: bool) -> ServicesRead {
        ServicesRead { kind, is_list, objects: Vec::new(), removed: Vec::new(), version: None }
    }

    fn empty(&self, is_list: bool) -> ServicesRead {
        Self::of(self.kind, is_list)
    }

    fn changes(
        &self,
        changes: BTreeMap<ObjectName, Option<Vec<u8>>>,
        version: Option<u64>,
    ) -> Option<ServicesRead> {
        if changes.is_empty() {
            return None;
        }
        let mut read = ServicesRead { version, ..self.empty(false) };
        for (name, object) in changes {
            match object {
                Some(bytes) => read.objects.push(bytes),
                None => read.removed.push(name),
            }
        }
        Some(read)
    }
}

fn name(object: &DynamicObject) -> ObjectName {
    ObjectName::new(object.namespace().unwrap_or_default(), object.name_any())
}

fn version_of(object: &DynamicObject) -> Option<u64> {
    object.metadata.resource_version.as_deref()?.parse().ok()
}

/// The number of objects of a page: a slice can have a thousand endpoints, and the agent's container is small.
const PAGE: u32 = 50;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    fn service(name: &str, version: u64) -> DynamicObject {
        let metadata = serde_json::json!({
            "namespace": "shop", "name": name, "resourceVersion": version.to_string(),
        });
        let service = serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"clusterIP": "10.100.0.1", "ports": [{"port": 80}]},
        });
        serde_json::from_value(service).unwrap()
    }

    #[test]
    fn a_list_is_one_message_and_a_batch_has_the_last_state_of_each_object() {
        let mut reader = Reader { kind: ServicesKind::Service, coming: None };
        let list = vec![Event::Init, Event::InitApply(service("a", 7))];
        assert!(reader.take(list).is_empty(), "the list is not complete");
        let [list, changes] = <[ServicesRead; 2]>::try_from(reader.take(vec![
            Event::InitApply(service("b", 5)),
            Event::InitDone,
            Event::Apply(service("a", 8)),
            Event::Delete(service("a", 9)),
            Event::Delete(service("c", 10)),
            Event::Apply(service("c", 11)),
        ]))
        .unwrap();
        assert!(list.is_list && list.objects.len() == 2 && list.version == Some(7));
        assert_eq!((changes.is_list, changes.version), (false, Some(11)));
        assert_eq!(changes.removed, [ObjectName::new("shop", "a")]);
        let sent = Change::decode(&*changes.objects[0]).unwrap();
        let read = Service::read(&serde_json::to_value(service("c", 11)).unwrap()).unwrap();
        assert_eq!(sent, Change::from(&read));
    }

    #[test]
    fn an_object_that_no_node_serves_is_left_out() {
        let names = serde_json::json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "FQDN",
            "metadata": {"namespace": "shop", "name": "s", "resourceVersion": "3"}, "endpoints": [],
        });
        let names: DynamicObject = serde_json::from_value(names).unwrap();
        let mut reader = Reader { kind: ServicesKind::Slice, coming: None };
        let [list] = <[ServicesRead; 1]>::try_from(reader.take(vec![
            Event::Init,
            Event::InitApply(names),
            Event::InitDone,
        ]))
        .unwrap();
        assert!(list.is_list && list.objects.is_empty());
    }
}
