//! Services that the agent reads at the API server itself while it follows no replica.

use super::*;
use service_objects::{Service, Slice};

/// The epoch of states to which the agent added objects by itself. No replica has it, so the next replica compares each
/// object.
const EPOCH: &[u8; 16] = b"read by the node";

/// The objects of one kind that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T> {
    /// All objects: the node removes others.
    List(Vec<T>),
    /// Objects that were added, changed or removed.
    Changes { changed: Vec<T>, removed: Vec<ObjectName> },
}

/// Services or EndpointSlices that were read at the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnRead {
    Services(Read<Service>),
    Slices(Read<Slice>),
}

impl OwnRead {
    /// The kind, as [`NodeSnapshot::reached`] names it.
    fn kind(&self) -> &'static str {
        match self {
            Self::Services(_) => "Service",
            Self::Slices(_) => "EndpointSlice",
        }
    }

    /// The changes by which the snapshot gets these objects.
    fn changes(self, held: &NodeSnapshot) -> Vec<proto::Change> {
        match self {
            Self::Services(read) => {
                let of = |service: Service| {
                    // Problems are not held: the controller reports them.
                    let service = Service { problems: Vec::new(), ..service };
                    (service.name.clone(), service)
                };
                changes(read, &held.services, of, ObjectId::service)
            }
            Self::Slices(read) => {
                let of = |slice: Slice| {
                    let slice = Slice { problems: Vec::new(), ..slice };
                    (slice.name.clone(), slice)
                };
                changes(read, &held.slices, of, ObjectId::slice)
            }
        }
    }
}

fn changes<T: PartialEq>(
    read: Read<T>,
    held: &SharedMap<ObjectName, Arc<T>>,
    of: impl Fn(T) -> (ObjectName, T),
    id: impl Fn(&ObjectName) -> ObjectId,
) -> Vec<proto::Change>
where
    for<'a> &'a T: Into<proto::Change>,
{
    let (changed, removed) = match read {
        Read::List(all) => {
            let all: BTreeMap<ObjectName, T> = all.into_iter().map(of).collect();
            let others = held.keys().filter(|name| !all.contains_key(*name));
            let others: Vec<ObjectName> = others.cloned().collect();
            (all, others)
        }
        Read::Changes { changed, removed } => (changed.into_iter().map(of).collect(), removed),
    };
    let changed = changed.iter();
    let changed = changed.filter(|(name, is)| held.get(name).is_none_or(|was| **was != **is));
    let removed = removed.iter().filter(|name| held.contains_key(name));
    let removed = removed
        .map(|name| proto::Change { of: Some(proto::change::Of::Removed(id(name).to_proto())) });
    changed.map(|(_, is)| is.into()).chain(removed).collect()
}

impl Node {
    /// The agent has read Services at the API server up to this resourceVersion. A node that follows a replica ignores them:
    /// the replica sends its own. So does a node without a snapshot: a state without policies would open its pods.
    pub fn read_services(&mut self, read: OwnRead, version: Option<u64>, now: Time) {
        if !self.serves || !self.has_snapshot || matches!(self.contact, Contact::With { .. }) {
            return;
        }
        let kind = read.kind();
        let changes = read.changes(&self.held);
        if !changes.is_empty() {
            self.take_own(changes, now);
        }
        let reached = &self.held.reached;
        if let Some(version) = version
            && reached.get(kind).is_none_or(|was| *was < version)
        {
            let held = Arc::make_mut(&mut self.held);
            held.reached.insert(kind.to_owned(), version);
            let reached = held.reached.iter();
            let reached =
                reached.map(|(kind, at)| proto::Reached { kind: kind.clone(), version: *at });
            let reached = reached.collect();
            let generation = held.generation;
            let bookmark = proto::Bookmark { generation, reached, reports_to: String::new() };
            let record = Record::Bookmark(bookmark.encode_to_vec());
            self.effects.push(Effect::Persist(vec![record]));
        }
    }

    fn take_own(&mut self, changes: Vec<proto::Change>, now: Time) {
        let mut records = Vec::new();
        if self.held.epoch != EPOCH {
            records.push(Record::Begun { epoch: EPOCH.to_vec() });
        }
        let held = Arc::make_mut(&mut self.held);
        held.start_stream(EPOCH);
        let generation = held.generation + 1;
        let part = proto::Part { generation, changes, last: true };
        records.push(Record::Part(part.encode_to_vec()));
        match held.receive(part) {
            Ok(Progress::Applied(changed)) => {
                self.effects.push(Effect::Persist(records));
                self.changed.objects.merge(changed);
                self.changed(now);
            }
            // Own objects are always readable: they were encoded here.
            Ok(Progress::Incomplete) | Err(_) => {}
        }
    }
}
