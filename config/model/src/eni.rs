//! Identifiers of EC2 objects, and the route table that belongs to an ENI.

use crate::registry;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text that EC2 uses for this id.
            pub fn new(id: impl Into<String>) -> Self {
                Self(id.into())
            }

            /// The id as EC2 writes it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self::new(id)
            }
        }
    };
}

text_id!(
    /// An elastic network interface, `eni-…`.
    EniId
);
text_id!(
    /// A subnet, `subnet-…`.
    SubnetId
);
text_id!(
    /// An instance, `i-…`.
    InstanceId
);
text_id!(
    /// The attachment of an ENI to an instance, `eni-attach-…`.
    AttachmentId
);
text_id!(
    /// A VPC, `vpc-…`.
    VpcId
);
text_id!(
    /// A security group, `sg-…`.
    SecurityGroupId
);

/// The place of an ENI on its network card; 0 on card 0 is the primary ENI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceIndex(pub u16);

/// A network card of an instance; most types have card 0 alone.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CardIndex(pub u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub u32);

impl TableId {
    /// The kernel's `main` table.
    pub const MAIN: Self = Self(254);
    /// The kernel's own: local addresses and broadcasts.
    pub const LOCAL: Self = Self(255);
    /// The routes to pods, where pods share their rules.
    pub const PODS: Self = Self(registry::POD_ROUTES);

    /// The table of the ENI at this place: the numbering of amazon-vpc-cni and of the EKS AMI.
    ///
    /// Card 0: device 0 is `main`, device n is n + 1. Card c: 10000 + 100 c + device.
    pub fn of_eni(card: CardIndex, device: DeviceIndex) -> Self {
        match (card.0, device.0) {
            (0, 0) => Self::MAIN,
            (0, device) => Self(u32::from(device) + 1),
            (card, device) => Self(10_000 + 100 * u32::from(card) + u32::from(device)),
        }
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAIN { f.write_str("main") } else { write!(f, "{}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_numbered_as_amazon_vpc_cni_numbers_them() {
        let table = |card, device| TableId::of_eni(CardIndex(card), DeviceIndex(device)).0;
        assert_eq!([table(0, 0), table(0, 1), table(0, 2)], [254, 2, 3]);
        assert_eq!([table(1, 0), table(1, 1), table(2, 1)], [10100, 10101, 10201]);
    }
}
