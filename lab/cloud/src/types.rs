//! Instance types and their network limits.

use serde::Serialize;
use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hypervisor {
    Nitro,
    Xen,
    /// Bare metal has no hypervisor.
    None,
}

impl Hypervisor {
    /// The word that DescribeInstanceTypes uses; bare metal has none.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Nitro => Some("nitro"),
            Self::Xen => Some("xen"),
            Self::None => None,
        }
    }
}

/// A network card of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkCard {
    pub index: u16,
    pub maximum_network_interfaces: u16,
}

/// An instance type, as in EC2's DescribeInstanceTypes; `types.tsv` names its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceType {
    /// For example `c5.xlarge`.
    pub name: &'static str,
    pub hypervisor: Hypervisor,
    pub bare_metal: bool,
    /// IPv4 addresses per ENI, the primary among them.
    pub ipv4_per_interface: u16,
    /// IPv6 addresses per ENI.
    pub ipv6_per_interface: u16,
    /// Its cards; every type has at least card 0.
    pub cards: Vec<NetworkCard>,
    /// `x86_64` or `arm64`.
    pub architecture: &'static str,
    /// Number of branch ENIs that its trunk carries; 0 if it can have no trunk. EC2 does not report this number.
    pub branch_interfaces: u16,
}

impl InstanceType {
    /// The type of this name, if the table has it.
    pub fn named(name: &str) -> Option<&'static Self> {
        let at = TABLE.binary_search_by(|row| row.name.cmp(name)).ok()?;
        TABLE.get(at)
    }

    /// Every type of the table, by name.
    pub fn all() -> &'static [Self] {
        &TABLE
    }

    /// Number of ENIs that one card takes; `None` if there is no such card.
    pub fn interfaces_of_card(&self, index: u16) -> Option<u16> {
        self.cards.get(usize::from(index)).map(|card| card.maximum_network_interfaces)
    }

    /// Number of ENIs that all cards take together.
    pub fn maximum_network_interfaces(&self) -> u32 {
        self.cards.iter().map(|card| u32::from(card.maximum_network_interfaces)).sum()
    }
}

static TABLE: LazyLock<Vec<InstanceType>> = LazyLock::new(|| {
    let mut rows: Vec<InstanceType> = include_str!("types.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| parse(line).expect("types.tsv is well-formed; a test reads all of it"))
        .collect();
    rows.sort_by_key(|row| row.name);
    rows
});

fn parse(line: &'static str) -> Option<InstanceType> {
    let mut cells = line.split('\t');
    let row = InstanceType {
        name: cells.next()?,
        ipv4_per_interface: cells.next()?.parse().ok()?,
        ipv6_per_interface: cells.next()?.parse().ok()?,
        cards: (0..)
            .zip(cells.next()?.split(','))
            .map(|(index, enis)| {
                Some(NetworkCard { index, maximum_network_interfaces: enis.parse().ok()? })
            })
            .collect::<Option<_>>()?,
        hypervisor: match cells.next()? {
            "nitro" => Hypervisor::Nitro,
            "xen" => Hypervisor::Xen,
            "none" => Hypervisor::None,
            _ => return None,
        },
        bare_metal: match cells.next()? {
            "metal" => true,
            "virtual" => false,
            _ => return None,
        },
        architecture: cells.next()?,
        branch_interfaces: cells.next()?.parse().ok()?,
    };
    cells.next().is_none().then_some(row)
}
