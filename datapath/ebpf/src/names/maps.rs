//! The maps of names: those of `datapath/bpf/names.h`.

use crate::{
    LoadError,
    maps::{gone, typed},
};
use aya::{
    Ebpf,
    maps::{Array, HashMap, MapData, PerCpuArray, RingBuf},
};
use config_model::Time;
use datapath_abi::{AddressKey, address, address_key};
use datapath_names::Row;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsFd as _, OwnedFd},
};

type NameKey = [u8; 336];

const POD: usize = 16;
const NAME: usize = 80;

/// The header of a record in the ring.
const HEADER: usize = 24;

pub(crate) struct NamesMaps {
    pods: HashMap<MapData, u32, [u8; 16]>,
    hold: Array<MapData, [u8; 16]>,
    answers: RingBuf<MapData>,
    names: HashMap<MapData, NameKey, u64>,
    used: HashMap<MapData, AddressKey, u64>,
    counters: PerCpuArray<MapData, u64>,
}

/// A frame to a pod, as the programs wrote it to the ring.
pub(super) struct Record {
    /// Nanoseconds since the boot.
    pub(super) at: u64,
    pub(super) link: u32,
    pub(super) segment: usize,
    pub(super) is_udp: bool,
    pub(super) is_held: bool,
    pub(super) frame: Vec<u8>,
}

impl NamesMaps {
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        Ok(Self {
            pods: typed(ebpf, "names_pods")?,
            hold: typed(ebpf, "dns_hold")?,
            answers: typed(ebpf, "dns_answers")?,
            names: typed(ebpf, "names")?,
            used: typed(ebpf, "names_used")?,
            counters: typed(ebpf, "names_counters")?,
        })
    }

    /// The links of the pods whose answers are read.
    pub(super) fn pods(&self) -> Result<BTreeSet<u32>, LoadError> {
        let links = self.pods.keys().collect::<Result<_, _>>();
        links.map_err(|cause| LoadError::Map { name: "names_pods", cause })
    }

    /// Adds the pods of these links, or removes all others.
    pub(super) fn set_pods(
        &mut self,
        links: &BTreeSet<u32>,
        is_added: bool,
    ) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: "names_pods", cause };
        let found = self.pods()?;
        if is_added {
            for link in links.difference(&found) {
                self.pods.insert(link, [0; 16], 0).map_err(fault)?;
            }
        } else {
            for link in found.difference(links) {
                gone(self.pods.remove(link)).map_err(fault)?;
            }
        }
        Ok(())
    }

    /// Answers are held until this time, in nanoseconds since the boot. Packets with the mark pass.
    pub(super) fn hold(&mut self, until: u64, mark: u32) -> Result<(), LoadError> {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&until.to_ne_bytes());
        value[8..12].copy_from_slice(&mark.to_ne_bytes());
        let set = self.hold.set(0, value, 0);
        set.map_err(|cause| LoadError::Map { name: "dns_hold", cause })
    }

    /// A descriptor that is readable if the ring has a record.
    pub(super) fn ready(&self) -> std::io::Result<OwnedFd> {
        self.answers.as_fd().try_clone_to_owned()
    }

    /// The next record of the ring, or `None` without one. A record that is not whole is skipped.
    pub(super) fn next(&mut self) -> Option<Record> {
        loop {
            let record = self.answers.next()?;
            if let Some(record) = Record::of(&record) {
                return Some(record);
            }
        }
    }

    /// The names that are stored, with their expiry. Rows that are no names are skipped.
    pub(super) fn names(&self) -> Result<Vec<(Row, Time)>, LoadError> {
        let mut names = Vec::new();
        for row in self.names.iter() {
            let (key, expires) = row.map_err(|cause| LoadError::Map { name: "names", cause })?;
            names.extend(row_of(&key).map(|row| (row, Time(expires))));
        }
        Ok(names)
    }

    /// Stores a name with its expiry, or removes it.
    pub(super) fn set_name(&mut self, row: &Row, expires: Option<Time>) -> Result<(), LoadError> {
        let Some(key) = key_of(row) else { return Ok(()) };
        let fault = |cause| LoadError::Map { name: "names", cause };
        let Some(expires) = expires else { return gone(self.names.remove(&key)).map_err(fault) };
        self.names.insert(key, expires.0, 0).map_err(fault)?;
        let at = address_key(row.address.into());
        if self.used.get(&at, 0).is_err() {
            let fault = |cause| LoadError::Map { name: "names_used", cause };
            self.used.insert(at, 0, 0).map_err(fault)?;
        }
        Ok(())
    }

    /// Removes an address that is no longer an address of a name.
    pub(super) fn forget_address(&mut self, at: IpAddr) -> Result<(), LoadError> {
        let removed = gone(self.used.remove(&address_key(at.into())));
        removed.map_err(|cause| LoadError::Map { name: "names_used", cause })
    }

    /// The addresses to which a sweep has found an open connection since a time.
    pub(super) fn used_since(&self, time: u64) -> Result<BTreeSet<IpAddr>, LoadError> {
        let mut used = BTreeSet::new();
        for row in self.used.iter() {
            let (key, at) = row.map_err(|cause| LoadError::Map { name: "names_used", cause })?;
            if at >= time {
                used.insert(Ipv6Addr::from_bits(address(key).0).to_canonical());
            }
        }
        Ok(used)
    }

    pub(super) fn counters(&self) -> Result<BTreeMap<&'static str, u64>, LoadError> {
        let mut counters = BTreeMap::new();
        for (number, name) in (0..).zip(REASONS) {
            let of = self.counters.get(&number, 0);
            let of = of.map_err(|cause| LoadError::Map { name: "names_counters", cause })?;
            counters.insert(name, of.iter().sum());
        }
        Ok(counters)
    }
}

impl Record {
    fn of(bytes: &[u8]) -> Option<Self> {
        let (header, frame) = bytes.split_at_checked(HEADER)?;
        let word = |at: usize| Some(u32::from_ne_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let flag = |at: usize| Some(header.get(at..at + 2)? != [0, 0]);
        let length = usize::try_from(word(12)?).ok()?;
        Some(Self {
            at: u64::from_ne_bytes(header.get(..8)?.try_into().ok()?),
            link: word(8)?,
            segment: usize::try_from(word(16)?).ok()?,
            is_udp: flag(20)?,
            is_held: flag(22)?,
            frame: frame.get(..length)?.to_vec(),
        })
    }
}

/// The key of a name, or `None` if it does not fit.
fn key_of(row: &Row) -> Option<NameKey> {
    let mut key = [0; 336];
    key.get_mut(..POD)?.copy_from_slice(&address_key(row.address.into()));
    // At least one zero byte ends each.
    let (pod, name) = (row.pod.as_bytes(), row.name.as_bytes());
    if pod.len() >= NAME - POD || name.len() >= key.len() - NAME {
        return None;
    }
    key.get_mut(POD..POD + pod.len())?.copy_from_slice(pod);
    key.get_mut(NAME..NAME + name.len())?.copy_from_slice(name);
    Some(key)
}

fn row_of(key: &NameKey) -> Option<Row> {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0)?;
        String::from_utf8(bytes.get(..end)?.to_vec()).ok()
    };
    let at: AddressKey = key.get(..POD)?.try_into().ok()?;
    let address = Ipv6Addr::from_bits(address(at).0).to_canonical();
    Some(Row { pod: text(key.get(POD..NAME)?)?, name: text(key.get(NAME..)?)?, address })
}

/// `enum names_reason` in `names.h`.
const REASONS: [&str; 6] =
    ["dns_unasked", "dns_unreadable", "dns_rate", "dns_ring_full", "dns_unheld", "dns_held"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back() {
        for address in ["192.0.2.1", "2001:db8::1"] {
            let address = address.parse().expect("an address");
            let row = Row { pod: "uid".to_owned(), name: "a.test".to_owned(), address };
            assert_eq!(key_of(&row).as_ref().and_then(row_of), Some(row.clone()));
            assert_eq!(key_of(&Row { name: "a".repeat(256), ..row }), None);
        }
    }

    #[test]
    fn records_that_are_not_whole_are_none() {
        let mut bytes = vec![0; HEADER + 4];
        bytes[12..16].copy_from_slice(&4_u32.to_ne_bytes());
        bytes[22..24].copy_from_slice(&1_u16.to_ne_bytes());
        let record = Record::of(&bytes).expect("a record");
        assert!(record.is_held && !record.is_udp && record.frame == [0; 4]);
        for end in 0..bytes.len() {
            assert!(Record::of(&bytes[..end]).is_none(), "{end} bytes");
        }
    }
}
