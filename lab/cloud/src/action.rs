//! The EC2 actions that the model answers.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// An EC2 API action, by EC2's own name.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum Action {
            $($(#[$doc])* $name),+
        }

        impl Action {
            /// Every action, in alphabetical order.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name in `Action=`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),+
                }
            }
        }
    };
}

actions! {
    /// Adds IPv6 addresses or prefixes to an ENI.
    AssignIpv6Addresses,
    /// Adds secondary private addresses or prefixes to an ENI.
    AssignPrivateIpAddresses,
    /// Makes an ENI a branch of a trunk.
    AssociateTrunkInterface,
    /// Plugs an ENI into an instance.
    AttachNetworkInterface,
    /// Makes an ENI in a subnet.
    CreateNetworkInterface,
    /// Keeps addresses of a subnet for prefixes, or for those who name them.
    CreateSubnetCidrReservation,
    /// Adds or overwrites tags.
    CreateTags,
    /// Removes an ENI that is not attached.
    DeleteNetworkInterface,
    /// Ends a reservation of addresses.
    DeleteSubnetCidrReservation,
    /// Removes tags.
    DeleteTags,
    /// Limits and features of instance types.
    DescribeInstanceTypes,
    /// Instances with their ENIs.
    DescribeInstances,
    /// ENIs.
    DescribeNetworkInterfaces,
    /// Security groups with their rules.
    DescribeSecurityGroups,
    /// Subnets with their free addresses.
    DescribeSubnets,
    /// Tags of all resources.
    DescribeTags,
    /// Branches of trunks.
    DescribeTrunkInterfaceAssociations,
    /// VPCs with their CIDR blocks.
    DescribeVpcs,
    /// Unplugs an ENI.
    DetachNetworkInterface,
    /// Takes a branch from its trunk.
    DisassociateTrunkInterface,
    /// Reservations of a subnet's addresses.
    GetSubnetCidrReservations,
    /// Changes one attribute of an ENI.
    ModifyNetworkInterfaceAttribute,
    /// Takes IPv6 addresses or prefixes from an ENI.
    UnassignIpv6Addresses,
    /// Takes secondary private addresses or prefixes from an ENI.
    UnassignPrivateIpAddresses,
}

impl Action {
    /// True if the action changes anything.
    pub fn is_mutating(self) -> bool {
        !self.name().starts_with("Describe") && !self.name().starts_with("Get")
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Action {
    type Err = crate::Ec2Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().copied().find(|action| action.name() == name);
        found.ok_or_else(|| crate::Ec2Error::invalid_action(name))
    }
}
