//! The checkpoint: records that survive the process, and the state that they add up to.

pub mod frame;
mod record;

pub use record::{RECORD_FORMAT, Record};

use crate::{BlockSource, BranchEni, HeldAddress, Want};
use config_model::{CardIndex, EniId, PodKey, PodName, SecurityGroupId, SubnetId, Time};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The sum of the records. A new process starts from it as a hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub(crate) boot_id: Option<String>,
    pub(crate) held: BTreeMap<PodKey, AssignmentRecord>,
    pub(crate) cooling: BTreeMap<IpAddr, CoolingRecord>,
    pub(crate) leaving: BTreeMap<IpNet, EniId>,
    pub(crate) making: BTreeMap<String, CreationRecord>,
    pub(crate) enis_leaving: BTreeSet<EniId>,
    /// The pod whose annotation was the first one with a branch ENI, with the pod's UID.
    pub(crate) named: BTreeMap<EniId, (PodName, String)>,
    /// The key of each assigned address, so that applying a record does not depend on their number.
    holders: BTreeMap<IpAddr, PodKey>,
}

/// An assignment in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssignmentRecord {
    pub(crate) pod: PodName,
    pub(crate) what: AssignedResource,
    pub(crate) lapses: Time,
    pub(crate) host_interface: Option<String>,
    pub(crate) adopted: bool,
}

/// The addresses of the pool, or the branch ENI, of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AssignedResource {
    /// At least one.
    Addresses(Vec<HeldAddress>),
    Branch(BranchEni),
}

impl AssignedResource {
    pub(crate) fn addresses(&self) -> &[HeldAddress] {
        match self {
            Self::Addresses(addresses) => addresses,
            Self::Branch(_) => &[],
        }
    }
}

/// A cooling address in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoolingRecord {
    pub(crate) source: BlockSource,
    pub(crate) since: Time,
    pub(crate) until: Time,
}

/// An ENI under creation in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreationRecord {
    pub(crate) want: Want,
    /// `None` for the node's own subnet.
    pub(crate) subnet: Option<SubnetId>,
    /// `None` for the primary ENI's groups.
    pub(crate) groups: Option<Vec<SecurityGroupId>>,
    pub(crate) card: CardIndex,
    pub(crate) eni: Option<EniId>,
}

impl CreationRecord {
    fn unknown() -> Self {
        let want = Want::Addresses(0);
        Self { want, subnet: None, groups: None, card: CardIndex(0), eni: None }
    }
}

impl Checkpoint {
    /// Adds the records up, oldest first.
    pub fn replay(records: impl IntoIterator<Item = Record>) -> Self {
        let mut sum = Self::default();
        for record in records {
            sum.apply(&record);
        }
        sum
    }

    /// The keys with assignments, and their addresses of the pool.
    pub fn holders(&self) -> impl Iterator<Item = (&PodKey, &[HeldAddress])> {
        self.held.iter().map(|(key, held)| (key, held.what.addresses()))
    }

    /// Adds one more record.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Boot { boot_id, .. } => self.boot_id = Some(boot_id.clone()),
            Record::Reserved { key, pod, address, eni, card, device, more, lapses } => {
                let (address, source) = (IpAddr::V4(*address), BlockSource::Eni(eni.clone()));
                let mut addresses =
                    vec![HeldAddress { address, source, card: *card, device: *device }];
                addresses.extend(more.iter().cloned());
                self.hold(key, pod, AssignedResource::Addresses(addresses), *lapses);
            }
            Record::ReservedV6 { key, pod, addresses, lapses }
            | Record::ReservedCidr { key, pod, addresses, lapses } => {
                self.hold(key, pod, AssignedResource::Addresses(addresses.clone()), *lapses);
            }
            Record::ReservedBranch { key, pod, branch, lapses } => {
                self.hold(key, pod, AssignedResource::Branch(branch.clone()), *lapses);
            }
            Record::Confirmed { key, host_interface, marked } => {
                if let Some(held) = self.held.get_mut(key) {
                    held.host_interface = Some(host_interface.clone());
                    held.adopted = !marked;
                }
            }
            Record::BranchReleased { key } => self.drop_key(key),
            Record::BranchNamed { eni, pod, uid } => {
                self.named.insert(eni.clone(), (pod.clone(), uid.clone()));
            }
            Record::BranchUnnamed { eni } => {
                self.named.remove(eni);
            }
            Record::Cooling { address, eni, since, until } => {
                self.cool(IpAddr::V4(*address), BlockSource::Eni(eni.clone()), *since, *until);
            }
            Record::CoolingV6 { address, eni, since, until } => {
                self.cool(IpAddr::V6(*address), BlockSource::Eni(eni.clone()), *since, *until);
            }
            Record::CoolingCidr { address, cidr, since, until } => {
                self.cool(*address, BlockSource::NodeCidr(*cidr), *since, *until);
            }
            Record::Leaving { eni, addresses } => {
                addresses.iter().for_each(|address| self.leave(eni, IpAddr::V4(*address).into()));
            }
            Record::BlocksLeaving { eni, blocks } => {
                blocks.iter().for_each(|block| self.leave(eni, *block));
            }
            Record::Settled { addresses } => {
                addresses.iter().for_each(|address| self.settle(IpAddr::V4(*address).into()));
            }
            Record::BlocksSettled { blocks } => blocks.iter().for_each(|block| self.settle(*block)),
            Record::EniAsked { token, count, want, subnet, groups, card } => {
                let made = CreationRecord {
                    want: want.unwrap_or(Want::Addresses(*count)),
                    subnet: subnet.clone(),
                    groups: groups.clone(),
                    card: *card,
                    eni: None,
                };
                self.making.insert(token.clone(), made);
            }
            Record::EniMade { token, eni } => {
                let made = self.making.entry(token.clone()).or_insert_with(CreationRecord::unknown);
                made.eni = Some(eni.clone());
            }
            Record::EniSettled { token } => {
                self.making.remove(token);
            }
            Record::EniLeaving { eni } => {
                self.enis_leaving.insert(eni.clone());
            }
            Record::EniLeft { eni } => {
                self.enis_leaving.remove(eni);
                self.cooling.retain(|_, cooled| !cooled.source.is_eni(eni));
                self.leaving.retain(|_, of| of != eni);
            }
            Record::Unknown => {}
        }
    }

    /// The shortest list of records with the same sum.
    pub fn compact(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (key, held) in &self.held {
            let (key, pod, lapses) = (key.clone(), held.pod.clone(), held.lapses);
            records.extend(match held.what.clone() {
                AssignedResource::Addresses(all) => Record::reserved(key.clone(), pod, all, lapses),
                AssignedResource::Branch(branch) => {
                    Some(Record::ReservedBranch { key: key.clone(), pod, branch, lapses })
                }
            });
            if let Some(host_interface) = held.host_interface.clone() {
                let marked = !held.adopted;
                records.push(Record::Confirmed { key, host_interface, marked });
            }
        }
        for (block, eni) in &self.leaving {
            records.push(Record::leaving(eni.clone(), vec![*block]));
        }
        // After the blocks, because a leaving block drops the cooling addresses in it. These addresses started to cool
        // later.
        for (address, cooled) in &self.cooling {
            let CoolingRecord { source, since, until } = cooled.clone();
            records.push(Record::cooling(*address, source, since, until));
        }
        for (token, made) in &self.making {
            records.push(Record::asked(token.clone(), made));
            if let Some(eni) = made.eni.clone() {
                records.push(Record::EniMade { token: token.clone(), eni });
            }
        }
        let leaving = self.enis_leaving.iter().cloned();
        records.extend(leaving.map(|eni| Record::EniLeaving { eni }));
        for (eni, (pod, uid)) in &self.named {
            let (eni, pod, uid) = (eni.clone(), pod.clone(), uid.clone());
            records.push(Record::BranchNamed { eni, pod, uid });
        }
        let format = RECORD_FORMAT;
        records.extend(self.boot_id.clone().map(|boot_id| Record::Boot { format, boot_id }));
        records
    }

    fn hold(&mut self, key: &PodKey, pod: &PodName, what: AssignedResource, lapses: Time) {
        self.drop_key(key);
        for held in what.addresses() {
            self.unhold(held.address);
            self.cooling.remove(&held.address);
            self.leaving.remove(&IpNet::from(held.address));
            self.holders.insert(held.address, key.clone());
        }
        let (host_interface, adopted) = (None, false);
        let held = AssignmentRecord { pod: pod.clone(), what, lapses, host_interface, adopted };
        self.held.insert(key.clone(), held);
    }

    fn drop_key(&mut self, key: &PodKey) {
        let Some(held) = self.held.remove(key) else { return };
        for held in held.what.addresses() {
            self.holders.remove(&held.address);
        }
    }

    /// Takes one address from its key; the key goes with its last address.
    fn unhold(&mut self, address: IpAddr) {
        let Some(key) = self.holders.remove(&address) else { return };
        let Some(held) = self.held.get_mut(&key) else { return };
        if let AssignedResource::Addresses(addresses) = &mut held.what {
            addresses.retain(|held| held.address != address);
            if addresses.is_empty() {
                self.held.remove(&key);
            }
        }
    }

    fn cool(&mut self, address: IpAddr, source: BlockSource, since: Time, until: Time) {
        self.unhold(address);
        self.cooling.insert(address, CoolingRecord { source, since, until });
    }

    fn leave(&mut self, eni: &EniId, block: IpNet) {
        self.uncool(block);
        self.leaving.insert(block, eni.clone());
    }

    fn settle(&mut self, block: IpNet) {
        self.uncool(block);
        self.leaving.remove(&block);
    }

    fn uncool(&mut self, block: IpNet) {
        let within = self.cooling.range(block.network()..=block.broadcast());
        let cooled: Vec<IpAddr> = within.map(|(address, _)| *address).collect();
        for address in cooled {
            self.cooling.remove(&address);
        }
    }
}
