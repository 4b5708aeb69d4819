//! What survives the process: records to append, and the state that they add up to.

use crate::{BranchEni, HeldAddress, Want};
use config_model::{
    CardIndex, DeviceIndex, EniId, PodKey, PodName, SecurityGroupId, SubnetId, Time,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The version of the records. A reader skips kinds of records that it does not know.
///
/// The first readers knew single IPv4 addresses alone. What they knew keeps its shape; what came
/// later has kinds and fields of its own, so that they still find every IPv4 pod.
pub const RECORD_FORMAT: u32 = 1;

/// One change, small and complete. Times are of the boot named by the last `Boot`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "r", rename_all = "snake_case")]
pub enum Record {
    /// What stands before holds for this boot.
    Boot {
        /// [`RECORD_FORMAT`] of the writer.
        format: u32,
        /// The kernel's boot id.
        boot_id: String,
    },
    /// The key has the address, not confirmed yet.
    Reserved {
        /// The interface.
        key: PodKey,
        /// Its pod.
        pod: PodName,
        /// The address.
        address: Ipv4Addr,
        /// The address's ENI.
        eni: EniId,
        /// The ENI's network card.
        #[serde(default)]
        card: CardIndex,
        /// The ENI's place on it.
        device: DeviceIndex,
        /// Those of the other cards. In the same record, so that all are kept or none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more: Vec<HeldAddress>,
        /// When the reservation lapses.
        lapses: Time,
    },
    /// The key has these IPv6 addresses, not confirmed yet.
    ReservedV6 {
        /// The interface.
        key: PodKey,
        /// Its pod.
        pod: PodName,
        /// The addresses, one for each card in use.
        addresses: Vec<HeldAddress>,
        /// When the reservation lapses.
        lapses: Time,
    },
    /// The key has a branch ENI, not confirmed yet.
    ReservedBranch {
        /// The interface.
        key: PodKey,
        /// Its pod.
        pod: PodName,
        /// The branch.
        branch: BranchEni,
        /// When the reservation lapses.
        lapses: Time,
    },
    /// The key's reservation was confirmed.
    Confirmed {
        /// The interface.
        key: PodKey,
        /// The host end's name.
        host_interface: String,
    },
    /// The key holds its branch ENI no more.
    BranchReleased {
        /// The interface.
        key: PodKey,
    },
    /// The address is held by none, and cools.
    Cooling {
        /// The address.
        address: Ipv4Addr,
        /// Its ENI.
        eni: EniId,
        /// When it was released.
        since: Time,
        /// When the cooldown is over.
        until: Time,
    },
    /// The IPv6 address is held by none, and cools.
    CoolingV6 {
        /// The address.
        address: Ipv6Addr,
        /// Its ENI.
        eni: EniId,
        /// When it was released.
        since: Time,
        /// When the cooldown is over.
        until: Time,
    },
    /// These free addresses are about to be given back to EC2.
    Leaving {
        /// Their ENI.
        eni: EniId,
        /// The addresses.
        addresses: Vec<Ipv4Addr>,
    },
    /// These prefixes, of which nothing is used, are about to be given back to EC2.
    BlocksLeaving {
        /// Their ENI.
        eni: EniId,
        /// The prefixes.
        blocks: Vec<IpNet>,
    },
    /// Giving them back came to its end, either way.
    Settled {
        /// The addresses.
        addresses: Vec<Ipv4Addr>,
    },
    /// Giving them back came to its end, either way; prefixes and IPv6 addresses (/128).
    BlocksSettled {
        /// The blocks.
        blocks: Vec<IpNet>,
    },
    /// An ENI is about to be asked for.
    EniAsked {
        /// The client token. It is good for exactly these parameters.
        token: String,
        /// Blocks asked for.
        count: u16,
        /// Their kind, unless they are single IPv4 addresses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        want: Option<Want>,
        /// Where, unless it is the node's own subnet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subnet: Option<SubnetId>,
        /// Its security groups, unless they are the primary ENI's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        groups: Option<Vec<SecurityGroupId>>,
        /// For which card.
        #[serde(default, skip_serializing_if = "is_first")]
        card: CardIndex,
    },
    /// The ENI of that token exists and is not attached yet.
    EniMade {
        /// The client token.
        token: String,
        /// The ENI.
        eni: EniId,
    },
    /// The ENI of that token is attached, or will never be.
    EniSettled {
        /// The client token.
        token: String,
    },
    /// The ENI is about to be detached and deleted.
    EniLeaving {
        /// The ENI.
        eni: EniId,
    },
    /// The ENI is deleted, or stays after all.
    EniLeft {
        /// The ENI.
        eni: EniId,
    },
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

fn is_first(card: &CardIndex) -> bool {
    *card == CardIndex(0)
}

impl Record {
    /// Whether the record must outlive the machine's power, not just the process.
    ///
    /// After a reboot every assignment cools, confirmed or not, and an address that still counts as
    /// assigned cools from the start anew: to lose these with the boot changes nothing.
    pub fn outlives_the_boot(&self) -> bool {
        !matches!(
            self,
            Self::Confirmed { .. }
                | Self::Cooling { .. }
                | Self::CoolingV6 { .. }
                | Self::BranchReleased { .. }
        )
    }

    /// The key holds these addresses, all of one family. `None` if there are none.
    pub fn reserved(
        key: PodKey,
        pod: PodName,
        addresses: Vec<HeldAddress>,
        lapses: Time,
    ) -> Option<Self> {
        let (first, more) = addresses.split_first()?;
        let IpAddr::V4(address) = first.address else {
            return Some(Self::ReservedV6 { key, pod, addresses, lapses });
        };
        let HeldAddress { eni, card, device, .. } = first.clone();
        Some(Self::Reserved { key, pod, address, eni, card, device, more: more.to_vec(), lapses })
    }

    /// The address cools.
    pub fn cooling(address: IpAddr, eni: EniId, since: Time, until: Time) -> Self {
        match address {
            IpAddr::V4(address) => Self::Cooling { address, eni, since, until },
            IpAddr::V6(address) => Self::CoolingV6 { address, eni, since, until },
        }
    }

    /// The blocks, all of one kind, are about to be given back.
    pub(crate) fn leaving(eni: EniId, blocks: Vec<IpNet>) -> Self {
        match singles(&blocks) {
            Some(addresses) => Self::Leaving { eni, addresses },
            None => Self::BlocksLeaving { eni, blocks },
        }
    }

    /// Giving the blocks back, all of one kind, came to its end.
    pub(crate) fn settled(blocks: Vec<IpNet>) -> Self {
        match singles(&blocks) {
            Some(addresses) => Self::Settled { addresses },
            None => Self::BlocksSettled { blocks },
        }
    }
}

/// The addresses, if all of the blocks are single IPv4 ones.
fn singles(blocks: &[IpNet]) -> Option<Vec<Ipv4Addr>> {
    let single = |block: &IpNet| match block {
        IpNet::V4(net) if net.prefix_len() == 32 => Some(net.addr()),
        IpNet::V4(_) | IpNet::V6(_) => None,
    };
    blocks.iter().map(single).collect()
}

/// What the records add up to: the hint that a new process starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub(crate) boot_id: Option<String>,
    pub(crate) held: BTreeMap<PodKey, Held>,
    pub(crate) cooling: BTreeMap<IpAddr, Cooled>,
    pub(crate) leaving: BTreeMap<IpNet, EniId>,
    pub(crate) making: BTreeMap<String, Made>,
    pub(crate) enis_leaving: BTreeSet<EniId>,
    /// The key of each held address, so that a record costs the same however many there are.
    holders: BTreeMap<IpAddr, PodKey>,
}

/// What a key holds in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) pod: PodName,
    pub(crate) what: Holding,
    pub(crate) lapses: Time,
    pub(crate) host_interface: Option<String>,
}

/// Addresses of the pool, or a branch ENI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// At least one.
    Addresses(Vec<HeldAddress>),
    Branch(BranchEni),
}

impl Holding {
    pub(crate) fn addresses(&self) -> &[HeldAddress] {
        match self {
            Self::Addresses(addresses) => addresses,
            Self::Branch(_) => &[],
        }
    }
}

/// A cooling address in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cooled {
    pub(crate) eni: EniId,
    pub(crate) since: Time,
    pub(crate) until: Time,
}

/// An ENI under way in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) want: Want,
    /// `None` is the node's own.
    pub(crate) subnet: Option<SubnetId>,
    /// `None` means those of the primary ENI.
    pub(crate) groups: Option<Vec<SecurityGroupId>>,
    pub(crate) card: CardIndex,
    pub(crate) eni: Option<EniId>,
}

impl Made {
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

    /// The keys that hold something, with what they hold of the pool.
    pub fn holders(&self) -> impl Iterator<Item = (&PodKey, &[HeldAddress])> {
        self.held.iter().map(|(key, held)| (key, held.what.addresses()))
    }

    /// Adds one more.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Boot { boot_id, .. } => self.boot_id = Some(boot_id.clone()),
            Record::Reserved { key, pod, address, eni, card, device, more, lapses } => {
                let (address, eni) = (IpAddr::V4(*address), eni.clone());
                let mut addresses =
                    vec![HeldAddress { address, eni, card: *card, device: *device }];
                addresses.extend(more.iter().cloned());
                self.hold(key, pod, Holding::Addresses(addresses), *lapses);
            }
            Record::ReservedV6 { key, pod, addresses, lapses } => {
                self.hold(key, pod, Holding::Addresses(addresses.clone()), *lapses);
            }
            Record::ReservedBranch { key, pod, branch, lapses } => {
                self.hold(key, pod, Holding::Branch(branch.clone()), *lapses);
            }
            Record::Confirmed { key, host_interface } => {
                if let Some(held) = self.held.get_mut(key) {
                    held.host_interface = Some(host_interface.clone());
                }
            }
            Record::BranchReleased { key } => self.drop_key(key),
            Record::Cooling { address, eni, since, until } => {
                self.cool(IpAddr::V4(*address), eni, *since, *until);
            }
            Record::CoolingV6 { address, eni, since, until } => {
                self.cool(IpAddr::V6(*address), eni, *since, *until);
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
                let made = Made {
                    want: want.unwrap_or(Want::Addresses(*count)),
                    subnet: subnet.clone(),
                    groups: groups.clone(),
                    card: *card,
                    eni: None,
                };
                self.making.insert(token.clone(), made);
            }
            Record::EniMade { token, eni } => {
                let made = self.making.entry(token.clone()).or_insert_with(Made::unknown);
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
                self.cooling.retain(|_, cooled| cooled.eni != *eni);
                self.leaving.retain(|_, of| of != eni);
            }
            Record::Unknown => {}
        }
    }

    /// The shortest list of records that adds up to the same.
    pub fn compact(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (key, held) in &self.held {
            let (key, pod, lapses) = (key.clone(), held.pod.clone(), held.lapses);
            records.extend(match held.what.clone() {
                Holding::Addresses(all) => Record::reserved(key.clone(), pod, all, lapses),
                Holding::Branch(branch) => {
                    Some(Record::ReservedBranch { key: key.clone(), pod, branch, lapses })
                }
            });
            if let Some(host_interface) = held.host_interface.clone() {
                records.push(Record::Confirmed { key, host_interface });
            }
        }
        for (address, cooled) in &self.cooling {
            let Cooled { eni, since, until } = cooled.clone();
            records.push(Record::cooling(*address, eni, since, until));
        }
        for (block, eni) in &self.leaving {
            records.push(Record::leaving(eni.clone(), vec![*block]));
        }
        for (token, made) in &self.making {
            records.push(Record::asked(token.clone(), made));
            if let Some(eni) = made.eni.clone() {
                records.push(Record::EniMade { token: token.clone(), eni });
            }
        }
        let leaving = self.enis_leaving.iter().cloned();
        records.extend(leaving.map(|eni| Record::EniLeaving { eni }));
        let format = RECORD_FORMAT;
        records.extend(self.boot_id.clone().map(|boot_id| Record::Boot { format, boot_id }));
        records
    }

    fn hold(&mut self, key: &PodKey, pod: &PodName, what: Holding, lapses: Time) {
        self.drop_key(key);
        for held in what.addresses() {
            self.unhold(held.address);
            self.cooling.remove(&held.address);
            self.leaving.remove(&IpNet::from(held.address));
            self.holders.insert(held.address, key.clone());
        }
        let held = Held { pod: pod.clone(), what, lapses, host_interface: None };
        self.held.insert(key.clone(), held);
    }

    fn drop_key(&mut self, key: &PodKey) {
        let Some(held) = self.held.remove(key) else { return };
        for held in held.what.addresses() {
            self.holders.remove(&held.address);
        }
    }

    /// Takes one address from whoever holds it; the key goes with its last one.
    fn unhold(&mut self, address: IpAddr) {
        let Some(key) = self.holders.remove(&address) else { return };
        let Some(held) = self.held.get_mut(&key) else { return };
        if let Holding::Addresses(addresses) = &mut held.what {
            addresses.retain(|held| held.address != address);
            if addresses.is_empty() {
                self.held.remove(&key);
            }
        }
    }

    fn cool(&mut self, address: IpAddr, eni: &EniId, since: Time, until: Time) {
        self.unhold(address);
        self.cooling.insert(address, Cooled { eni: eni.clone(), since, until });
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

impl Record {
    pub(crate) fn asked(token: String, made: &Made) -> Self {
        let Made { want, subnet, groups, card, .. } = made.clone();
        let single = matches!(want, Want::Addresses(_));
        let (count, want) = (want.blocks(), (!single).then_some(want));
        Self::EniAsked { token, count, want, subnet, groups, card }
    }
}
