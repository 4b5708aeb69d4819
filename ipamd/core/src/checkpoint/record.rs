//! One line of the checkpoint.

use super::Made;
use crate::{BranchEni, HeldAddress, Want};
use config_model::{
    CardIndex, DeviceIndex, EniId, PodKey, PodName, SecurityGroupId, SubnetId, Time,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

    /// An ENI is about to be asked for.
    pub(crate) fn asked(token: String, made: &Made) -> Self {
        let Made { want, subnet, groups, card, .. } = made.clone();
        let single = matches!(want, Want::Addresses(_));
        let (count, want) = (want.blocks(), (!single).then_some(want));
        Self::EniAsked { token, count, want, subnet, groups, card }
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
