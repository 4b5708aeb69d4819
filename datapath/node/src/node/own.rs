//! Services that this node reads at the API server itself while it follows no replica.

use super::*;

/// The epoch of states to which the node added objects by itself. No replica has it, so the next replica compares each
/// object.
const EPOCH: &[u8; 16] = b"read by the node";

/// Services or EndpointSlices that were read at the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnRead {
    /// [`ObjectKind::SERVICE`] or [`ObjectKind::SLICE`].
    pub kind: ObjectKind,
    /// True if the objects are all of the kind: the node removes others.
    pub is_list: bool,
    /// The objects as a replica sends them. Objects of other kinds are ignored.
    pub objects: Vec<proto::Change>,
    pub removed: Vec<ObjectName>,
    /// The newest resourceVersion that was read; `None` if it is not known.
    pub version: Option<u64>,
}

impl OwnRead {
    /// The kind, as [`NodeSnapshot::reached`] names it.
    fn name_of_kind(&self) -> &'static str {
        if self.kind == ObjectKind::SERVICE { "Service" } else { "EndpointSlice" }
    }

    fn id(&self, name: &ObjectName) -> ObjectId {
        match self.kind == ObjectKind::SERVICE {
            true => ObjectId::service(name),
            false => ObjectId::slice(name),
        }
    }

    /// The name of an object, if it is of the kind.
    fn name_of(&self, object: &proto::Change) -> Option<ObjectName> {
        use proto::change::Of;
        match &object.of {
            Some(Of::Service(of)) if self.kind == ObjectKind::SERVICE => {
                Some(ObjectName::new(&of.namespace, &of.name))
            }
            Some(Of::Slice(of)) if self.kind == ObjectKind::SLICE => {
                Some(ObjectName::new(&of.namespace, &of.name))
            }
            Some(_) | None => None,
        }
    }

    fn held(&self, held: &NodeSnapshot, name: &ObjectName) -> Option<proto::Change> {
        match self.kind == ObjectKind::SERVICE {
            true => held.services.get(name).map(|of| (&**of).into()),
            false => held.slices.get(name).map(|of| (&**of).into()),
        }
    }

    /// The changes by which a snapshot gets these objects.
    fn changes(&self, held: &NodeSnapshot) -> Vec<proto::Change> {
        let named = |object: &proto::Change| Some((self.name_of(object)?, object.clone()));
        let objects: BTreeMap<ObjectName, proto::Change> =
            self.objects.iter().filter_map(named).collect();
        let mut removed: BTreeSet<&ObjectName> = self.removed.iter().collect();
        if self.is_list {
            match self.kind == ObjectKind::SERVICE {
                true => removed.extend(held.services.keys()),
                false => removed.extend(held.slices.keys()),
            }
        }
        let removed = removed
            .into_iter()
            .filter(|name| !objects.contains_key(*name) && self.held(held, name).is_some());
        let removed: Vec<proto::Change> = removed
            .map(|name| proto::change::Of::Removed(self.id(name).to_proto()))
            .map(|of| proto::Change { of: Some(of) })
            .collect();
        let changed = objects
            .into_iter()
            .filter(|(name, object)| self.held(held, name).is_none_or(|was| was != *object));
        changed.map(|(_, object)| object).chain(removed).collect()
    }
}

impl Node {
    /// Takes Services that this node has read at the API server. A node that follows a replica ignores them: the replica
    /// sends its own. So does a node without a snapshot: a state without policies would open its pods.
    ///
    /// # Errors
    /// An object cannot be decoded. The node keeps its snapshot.
    pub fn read_services(&mut self, read: &OwnRead, now: Time) -> Result<(), Fault> {
        if !self.serves || !self.has_snapshot || matches!(self.contact, Contact::With { .. }) {
            return Ok(());
        }
        let changes = read.changes(&self.held);
        if !changes.is_empty() {
            self.take_own(changes, now)?;
        }
        if let Some(version) = read.version {
            self.has_read(read.name_of_kind(), version);
        }
        Ok(())
    }

    fn take_own(&mut self, changes: Vec<proto::Change>, now: Time) -> Result<(), Fault> {
        let mut next = (*self.held).clone();
        next.start_stream(EPOCH);
        let part = proto::Part { generation: next.generation + 1, changes, last: true };
        let mut records = vec![Record::Part(part.encode_to_vec())];
        let Progress::Applied(changed) = next.receive(part)? else { return Ok(()) };
        if self.held.epoch != EPOCH {
            records.insert(0, Record::Begun { epoch: EPOCH.to_vec() });
        }
        self.held = Arc::new(next);
        self.effects.push(Effect::Persist(records));
        self.changed.objects.merge(changed);
        self.changed(now);
        Ok(())
    }

    /// The node has read this kind up to a resourceVersion. A replica that has read less is behind.
    fn has_read(&mut self, kind: &str, version: u64) {
        if self.held.reached.get(kind).is_some_and(|was| *was >= version) {
            return;
        }
        let held = Arc::make_mut(&mut self.held);
        held.reached.insert(kind.to_owned(), version);
        let reached = held.reached.iter();
        let reached = reached.map(|(kind, at)| proto::Reached { kind: kind.clone(), version: *at });
        let bookmark = proto::Bookmark {
            generation: held.generation,
            reached: reached.collect(),
            reports_to: String::new(),
        };
        let record = Record::Bookmark(bookmark.encode_to_vec());
        self.effects.push(Effect::Persist(vec![record]));
    }
}
