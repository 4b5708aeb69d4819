//! Owners of addresses, and addresses of a pod that its object does not contain yet.

use super::{Index, delta::Deltas, entities::Entity, settle::Seen};
use policy_objects::Named;
use std::net::IpAddr;

/// Objects whose status has an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Live pods with a network of their own; sorted. More than one while the end of one is not known.
    pub pods: Vec<Named>,
    pub node: bool,
    /// A Service: it is one of its cluster addresses.
    pub service: bool,
}

/// A live pod with a network of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    pub uid: String,
    /// The node that it is bound to; empty as long as there is none.
    pub node: String,
    /// All addresses in its status, sorted.
    pub addresses: Vec<IpAddr>,
}

impl Index {
    /// Returns the objects whose status has an address. The cost does not depend on the size of the cluster.
    pub fn holders(&self, address: IpAddr) -> Holders {
        let address = address.to_canonical();
        let mut pods: Vec<Named> =
            self.entities.claimants(address).map(|id| self.name(id)).collect();
        pods.sort_unstable();
        Holders {
            pods,
            node: self.entities.is_of_node(address),
            service: self.named.is_of_service(address),
        }
    }

    /// A live pod with a network of its own; one that has ended or has its node's is not known here.
    pub fn known_pod(&self, namespace: &str, name: &str) -> Option<KnownPod> {
        let id = self.entities.find(&self.matching, namespace, name)?;
        let Entity { node, uid, addresses, .. } = &self.entities.entities[id];
        (!namespace.is_empty()).then(|| KnownPod {
            uid: uid.text().into_owned(),
            node: node.map(|node| self.entities.nodes[node].to_string()).unwrap_or_default(),
            addresses: addresses.to_vec(),
        })
    }

    /// Gives a pod these addresses instead of those of its object, until the next event of that object. Returns the
    /// changes. Has no effect if the pod is unknown, if its UID differs, or before all objects are loaded.
    pub fn readdress(&mut self, pod: &Named, uid: &str, addresses: &[IpAddr]) -> Deltas {
        let found = self.entities.find(&self.matching, &pod.namespace, &pod.name);
        let is_pod = !pod.namespace.is_empty() && !self.loading;
        let Some(id) = found.filter(|id| is_pod && self.entities.is(*id, uid)) else {
            return Deltas::default();
        };
        let mut others = self.entities.rivals(Some(id), addresses);
        let had = self.entities.addresses(id).to_vec();
        self.entities.rivals(Some(id), &had).iter().for_each(|id| others.insert(id));
        let before: Vec<Seen> = others.iter().map(|id| self.see(id)).collect();
        let was = self.see(id);
        self.entities.readdress(id, addresses);
        let is = self.see(id);
        self.compare(Some(&was), Some(&is));
        self.others_changed(&others, &before);
        self.settle()
    }

    fn name(&self, id: u32) -> Named {
        let Entity { space, name, .. } = &self.entities.entities[id];
        let namespace = self.matching.spaces[*space].name.to_string();
        Named { namespace, name: name.to_string() }
    }
}
