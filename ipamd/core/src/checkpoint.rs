//! What survives the process: records to append, and the state that they add up to.

use config_model::{CardIndex, DeviceIndex, EniId, PodKey, PodName, Time};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// The version of the records. A reader skips kinds of records that it does not know.
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
    /// These free addresses are about to be given back to EC2.
    Leaving {
        /// Their ENI.
        eni: EniId,
        /// The addresses.
        addresses: Vec<Ipv4Addr>,
    },
    /// Giving them back came to its end, either way.
    Settled {
        /// The addresses.
        addresses: Vec<Ipv4Addr>,
    },
    /// An ENI is about to be asked for.
    EniAsked {
        /// The client token.
        token: String,
        /// Secondary addresses asked for.
        count: u16,
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

impl Record {
    /// Whether the record must outlive the machine's power, not just the process.
    ///
    /// After a reboot every assignment cools, confirmed or not, and an address that still counts as
    /// assigned cools from the start anew: to lose these two with the boot changes nothing.
    pub fn outlives_the_boot(&self) -> bool {
        !matches!(self, Self::Confirmed { .. } | Self::Cooling { .. })
    }
}

/// What the records add up to: the hint that a new process starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub(crate) boot_id: Option<String>,
    pub(crate) held: BTreeMap<PodKey, Held>,
    pub(crate) cooling: BTreeMap<Ipv4Addr, Cooled>,
    pub(crate) leaving: BTreeMap<Ipv4Addr, EniId>,
    pub(crate) making: BTreeMap<String, Made>,
    pub(crate) enis_leaving: BTreeSet<EniId>,
    /// The key of each held address, so that a record costs the same however many there are.
    holders: BTreeMap<Ipv4Addr, PodKey>,
}

/// A key's address in the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) pod: PodName,
    pub(crate) address: Ipv4Addr,
    pub(crate) eni: EniId,
    pub(crate) card: CardIndex,
    pub(crate) device: DeviceIndex,
    pub(crate) lapses: Time,
    pub(crate) host_interface: Option<String>,
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
    pub(crate) count: u16,
    pub(crate) eni: Option<EniId>,
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

    /// Adds one more.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Boot { boot_id, .. } => self.boot_id = Some(boot_id.clone()),
            Record::Reserved { key, pod, address, eni, card, device, lapses } => {
                self.cooling.remove(address);
                self.leaving.remove(address);
                self.unhold(*address);
                let held = Held {
                    pod: pod.clone(),
                    address: *address,
                    eni: eni.clone(),
                    card: *card,
                    device: *device,
                    lapses: *lapses,
                    host_interface: None,
                };
                if let Some(old) = self.held.insert(key.clone(), held) {
                    self.holders.remove(&old.address);
                }
                self.holders.insert(*address, key.clone());
            }
            Record::Confirmed { key, host_interface } => {
                if let Some(held) = self.held.get_mut(key) {
                    held.host_interface = Some(host_interface.clone());
                }
            }
            Record::Cooling { address, eni, since, until } => {
                self.unhold(*address);
                let cooled = Cooled { eni: eni.clone(), since: *since, until: *until };
                self.cooling.insert(*address, cooled);
            }
            Record::Leaving { eni, addresses } => {
                for address in addresses {
                    self.cooling.remove(address);
                    self.leaving.insert(*address, eni.clone());
                }
            }
            Record::Settled { addresses } => {
                for address in addresses {
                    self.leaving.remove(address);
                    self.cooling.remove(address);
                }
            }
            Record::EniAsked { token, count } => {
                self.making.insert(token.clone(), Made { count: *count, eni: None });
            }
            Record::EniMade { token, eni } => {
                let made = self.making.entry(token.clone()).or_insert(Made { count: 0, eni: None });
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
            records.push(Record::Reserved {
                key: key.clone(),
                pod: held.pod.clone(),
                address: held.address,
                eni: held.eni.clone(),
                card: held.card,
                device: held.device,
                lapses: held.lapses,
            });
            if let Some(host_interface) = held.host_interface.clone() {
                records.push(Record::Confirmed { key: key.clone(), host_interface });
            }
        }
        for (address, cooled) in &self.cooling {
            let Cooled { eni, since, until } = cooled.clone();
            records.push(Record::Cooling { address: *address, eni, since, until });
        }
        for (address, eni) in &self.leaving {
            records.push(Record::Leaving { eni: eni.clone(), addresses: vec![*address] });
        }
        for (token, made) in &self.making {
            records.push(Record::EniAsked { token: token.clone(), count: made.count });
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

    fn unhold(&mut self, address: Ipv4Addr) {
        if let Some(key) = self.holders.remove(&address) {
            self.held.remove(&key);
        }
    }
}
