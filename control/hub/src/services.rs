//! Services and EndpointSlices as a source of objects: each node that serves Services needs all of them.

use crate::{
    distributor::{Generation, Pending},
    source::{Recipient, Source},
};
use control_wire::{Digest, Entry, ObjectId, SERVICE_KINDS, entry, proto};
use service_objects::{ObjectName, Service, Slice};
use std::collections::BTreeMap;

/// The Services and slices of the cluster. Each is encoded once, for all nodes.
#[derive(Debug, Default)]
pub struct ServiceSource {
    objects: BTreeMap<ObjectId, (Entry, Digest)>,
}

impl ServiceSource {
    /// Adds or replaces a Service.
    pub fn set_service(&mut self, service: &Service, generation: &mut Generation<'_>) {
        self.set(ObjectId::service(&service.name), &service.into(), generation);
    }

    pub fn remove_service(&mut self, name: &ObjectName, generation: &mut Generation<'_>) {
        self.remove(&ObjectId::service(name), generation);
    }

    /// Adds or replaces a slice.
    pub fn set_slice(&mut self, slice: &Slice, generation: &mut Generation<'_>) {
        self.set(ObjectId::slice(&slice.name), &slice.into(), generation);
    }

    pub fn remove_slice(&mut self, name: &ObjectName, generation: &mut Generation<'_>) {
        self.remove(&ObjectId::slice(name), generation);
    }

    /// The number of Services and slices.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// A field that nodes do not read makes no generation.
    fn set(&mut self, id: ObjectId, object: &proto::Change, generation: &mut Generation<'_>) {
        let entry = entry(object);
        let digest = entry.digest();
        match self.objects.insert(id.clone(), (entry, digest)) {
            Some((_, before)) if before == digest => {}
            Some(_) => generation.changed_everywhere(&id),
            None => generation.entered_everywhere(&id),
        }
    }

    fn remove(&mut self, id: &ObjectId, generation: &mut Generation<'_>) {
        if self.objects.remove(id).is_some() {
            generation.left_everywhere(id);
        }
    }
}

impl Source for ServiceSource {
    fn needs(&mut self, recipient: &Recipient<'_>) -> Vec<(ObjectId, Digest)> {
        if !SERVICE_KINDS.iter().any(|kind| recipient.kinds.contains(kind)) {
            return Vec::new();
        }
        self.objects.iter().map(|(id, (_, digest))| (id.clone(), *digest)).collect()
    }

    fn encode(
        &mut self,
        _recipient: &Recipient<'_>,
        objects: &[(ObjectId, Pending)],
        changes: &mut Vec<Entry>,
    ) {
        let own = objects.iter().filter_map(|(id, _)| self.objects.get(id));
        changes.extend(own.map(|(entry, _)| entry.clone()));
    }
}
