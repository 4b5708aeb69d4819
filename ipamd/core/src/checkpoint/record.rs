//! The records of the checkpoint, one per line.

use super::CreationRecord;
use crate::{BlockSource, BranchEni, HeldAddress, Want, branch_checks::OrderChange};
use config_model::{
    CardIndex, DeviceIndex, EniId, PodKey, PodName, SecurityGroupId, SubnetId, Time,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The version of the records. A reader skips the kinds that it does not know.
///
/// The first readers know only single IPv4 addresses. Their records keep their shape and later facts have kinds and
/// fields of their own, so these readers still find every IPv4 pod.
pub const RECORD_FORMAT: u32 = 1;

/// One complete change. Times belong to the boot of the last `Boot` record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "r", rename_all = "snake_case")]
pub enum Record {
    /// The state before this record belongs to this boot.
    Boot {
        /// [`RECORD_FORMAT`] of the writer.
        format: u32,
        /// The kernel's boot ID.
        boot_id: String,
    },
    /// The key has the address, not confirmed yet.
    Reserved {
        key: PodKey,
        pod: PodName,
        address: Ipv4Addr,
        eni: EniId,
        #[serde(default)]
        card: CardIndex,
        /// The ENI's device number.
        device: DeviceIndex,
        /// The addresses of the other cards, in the same record so that all or none survive.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more: Vec<HeldAddress>,
        /// The end of the reservation.
        lapses: Time,
    },
    /// The key has these IPv6 addresses, not confirmed yet.
    ReservedV6 {
        key: PodKey,
        pod: PodName,
        /// At least one: an address of each card in use.
        addresses: Vec<HeldAddress>,
        /// The end of the reservation.
        lapses: Time,
    },
    /// The key has addresses of which one is of the node's pod CIDRs, not confirmed yet.
    ReservedCidr {
        key: PodKey,
        pod: PodName,
        /// At least one.
        addresses: Vec<HeldAddress>,
        /// The end of the reservation.
        lapses: Time,
    },
    /// The key has a branch ENI, not confirmed yet.
    ReservedBranch {
        key: PodKey,
        pod: PodName,
        branch: BranchEni,
        /// The end of the reservation.
        lapses: Time,
    },
    /// The key's reservation was confirmed.
    Confirmed {
        key: PodKey,
        /// The name of the host end.
        host_interface: String,
        /// True if its host end has an alias. Pods that amazon-vpc-cni built have none. Records of earlier releases lack
        /// the field.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        marked: bool,
    },
    /// The key no longer has its branch ENI.
    BranchReleased { key: PodKey },
    /// The pod's annotation was the first one with this branch ENI. A copy of it comes later.
    BranchNamed {
        eni: EniId,
        pod: PodName,
        /// A later pod of the same name has another UID.
        uid: String,
    },
    /// The annotation of that pod no longer has the branch ENI.
    BranchUnnamed { eni: EniId },
    /// The address is released and cools.
    Cooling {
        address: Ipv4Addr,
        eni: EniId,
        /// The time of the release.
        since: Time,
        /// The end of the cooldown.
        until: Time,
    },
    /// The IPv6 address is released and cools.
    CoolingV6 {
        address: Ipv6Addr,
        eni: EniId,
        /// The time of the release.
        since: Time,
        /// The end of the cooldown.
        until: Time,
    },
    /// The address of a pod CIDR of the node is released and cools.
    CoolingCidr {
        address: IpAddr,
        cidr: IpNet,
        /// The time of the release.
        since: Time,
        /// The end of the cooldown.
        until: Time,
    },
    /// These free addresses are about to be returned to EC2.
    Leaving { eni: EniId, addresses: Vec<Ipv4Addr> },
    /// These unused prefixes are about to be returned to EC2.
    BlocksLeaving { eni: EniId, blocks: Vec<IpNet> },
    /// The return of these addresses ended, with or without success.
    Settled { addresses: Vec<Ipv4Addr> },
    /// The return of these prefixes or IPv6 addresses (/128) ended, with or without success.
    BlocksSettled { blocks: Vec<IpNet> },
    /// The creation of an ENI is about to be requested.
    EniAsked {
        /// The client token. It is valid only with exactly these parameters.
        token: String,
        /// The number of blocks.
        count: u16,
        /// `None` for single IPv4 addresses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        want: Option<Want>,
        /// `None` for the node's own subnet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subnet: Option<SubnetId>,
        /// `None` for the primary ENI's groups.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        groups: Option<Vec<SecurityGroupId>>,
        #[serde(default, skip_serializing_if = "is_first")]
        card: CardIndex,
    },
    /// The ENI of that token exists and is not attached yet.
    EniMade { token: String, eni: EniId },
    /// The ENI of that token is attached or was given up.
    EniSettled { token: String },
    /// The ENI is about to be detached and deleted.
    EniLeaving { eni: EniId },
    /// The ENI is deleted, or stays after all.
    EniLeft { eni: EniId },
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

fn is_first(card: &CardIndex) -> bool {
    *card == CardIndex(0)
}

impl From<OrderChange> for Record {
    fn from(change: OrderChange) -> Self {
        match change {
            OrderChange::First { eni, pod, uid } => Self::BranchNamed { eni, pod, uid },
            OrderChange::Ended { eni } => Self::BranchUnnamed { eni },
        }
    }
}

impl Record {
    /// Returns whether the record must survive a power loss, not only the process.
    ///
    /// Every assignment cools after a reboot, confirmed or not. An address that still counts as assigned then starts
    /// its cooldown again. Losing the other records with the boot changes nothing.
    pub fn outlives_the_boot(&self) -> bool {
        !matches!(
            self,
            Self::Confirmed { .. }
                | Self::Cooling { .. }
                | Self::CoolingV6 { .. }
                | Self::CoolingCidr { .. }
                | Self::BranchReleased { .. }
                | Self::BranchUnnamed { .. }
        )
    }

    /// The key gets these addresses, all of one family. `None` if there are none.
    pub fn reserved(
        key: PodKey,
        pod: PodName,
        addresses: Vec<HeldAddress>,
        lapses: Time,
    ) -> Option<Self> {
        let (first, more) = addresses.split_first()?;
        if addresses.iter().any(|held| held.source.eni().is_none()) {
            return Some(Self::ReservedCidr { key, pod, addresses, lapses });
        }
        let (IpAddr::V4(address), Some(eni)) = (first.address, first.source.eni().cloned()) else {
            return Some(Self::ReservedV6 { key, pod, addresses, lapses });
        };
        let HeldAddress { card, device, .. } = *first;
        Some(Self::Reserved { key, pod, address, eni, card, device, more: more.to_vec(), lapses })
    }

    pub fn cooling(address: IpAddr, source: BlockSource, since: Time, until: Time) -> Self {
        match (source, address) {
            (BlockSource::Eni(eni), IpAddr::V4(address)) => {
                Self::Cooling { address, eni, since, until }
            }
            (BlockSource::Eni(eni), IpAddr::V6(address)) => {
                Self::CoolingV6 { address, eni, since, until }
            }
            (BlockSource::NodeCidr(cidr), address) => {
                Self::CoolingCidr { address, cidr, since, until }
            }
        }
    }

    /// The creation of an ENI is about to be requested.
    pub(crate) fn asked(token: String, made: &CreationRecord) -> Self {
        let CreationRecord { want, subnet, groups, card, .. } = made.clone();
        let single = matches!(want, Want::Addresses(_));
        let (count, want) = (want.blocks(), (!single).then_some(want));
        Self::EniAsked { token, count, want, subnet, groups, card }
    }

    /// The blocks, all of one kind, are about to be returned.
    pub(crate) fn leaving(eni: EniId, blocks: Vec<IpNet>) -> Self {
        match singles(&blocks) {
            Some(addresses) => Self::Leaving { eni, addresses },
            None => Self::BlocksLeaving { eni, blocks },
        }
    }

    /// The return of the blocks, all of one kind, has ended.
    pub(crate) fn settled(blocks: Vec<IpNet>) -> Self {
        match singles(&blocks) {
            Some(addresses) => Self::Settled { addresses },
            None => Self::BlocksSettled { blocks },
        }
    }
}

/// The addresses, if all blocks are single IPv4 addresses.
fn singles(blocks: &[IpNet]) -> Option<Vec<Ipv4Addr>> {
    let single = |block: &IpNet| match block {
        IpNet::V4(net) if net.prefix_len() == 32 => Some(net.addr()),
        IpNet::V4(_) | IpNet::V6(_) => None,
    };
    blocks.iter().map(single).collect()
}
