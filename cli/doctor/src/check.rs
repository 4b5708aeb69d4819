//! The checks by name.

use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    RpFilter,
    /// Forwarding off.
    Forwarding,
    /// Daemons that create policy routing rules of their own.
    ForeignDaemons,
    ForeignTables,
    /// Foreign rules that match pods' packets first.
    ForeignRules,
    /// Network managers that change links of other owners.
    NetworkManagers,
    /// Routes over secondary ENIs in table main.
    MainRoutes,
    /// MAC addresses that udev changes.
    UdevMac,
    /// A FORWARD chain whose policy is drop.
    ForwardPolicy,
    /// Rules of legacy iptables beside nftables.
    IptablesMixed,
    /// The metadata service and its hop limit.
    Imds,
    /// MTUs of links.
    Mtu,
    KernelFeatures,
    /// Free entries of the conntrack table.
    Conntrack,
    /// Duplicate rules.
    TwinRules,
    /// Rules without a target.
    LeftoverRules,
    /// Needs of the policy backend `ebpf`; a node with another backend skips it.
    EbpfBackend,
}

impl Check {
    /// All checks in the order of execution.
    pub const ALL: [Self; 17] = [
        Self::RpFilter,
        Self::Forwarding,
        Self::ForeignDaemons,
        Self::ForeignTables,
        Self::ForeignRules,
        Self::NetworkManagers,
        Self::MainRoutes,
        Self::UdevMac,
        Self::ForwardPolicy,
        Self::IptablesMixed,
        Self::Imds,
        Self::Mtu,
        Self::KernelFeatures,
        Self::Conntrack,
        Self::TwinRules,
        Self::LeftoverRules,
        Self::EbpfBackend,
    ];

    /// Describes a node that passes the check.
    pub fn good(self) -> &'static str {
        match self {
            Self::RpFilter => "no ENI filters by strict reverse path",
            Self::Forwarding => "the node forwards",
            Self::ForeignDaemons => "no other daemon configures policy routing",
            Self::ForeignTables => "nm-cloud-setup has no tables",
            Self::ForeignRules => "no foreign rule matches pods' packets first",
            Self::NetworkManagers => "network managers do not change pods' links, rules and routes",
            Self::MainRoutes => "table main has no route over a secondary ENI",
            Self::UdevMac => "udev does not change MAC addresses",
            Self::ForwardPolicy => "no forward chain drops by default",
            Self::IptablesMixed => "only one variant of iptables is in use",
            Self::Imds => "the metadata service answers",
            Self::Mtu => "ENIs and pods' links have the right MTU",
            Self::KernelFeatures => "the kernel has all needed features",
            Self::Conntrack => "the conntrack table has free entries",
            Self::TwinRules => "no rule is a duplicate",
            Self::LeftoverRules => "every rule has a target",
            Self::EbpfBackend => "the policy backend ebpf has all that it needs",
        }
    }

    /// Returns true if an ADD or DEL in progress can cause a finding of this check.
    pub(crate) fn is_transient(self) -> bool {
        matches!(self, Self::TwinRules | Self::LeftoverRules | Self::MainRoutes | Self::Mtu)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RpFilter => "rp-filter",
            Self::Forwarding => "forwarding",
            Self::ForeignDaemons => "foreign-daemons",
            Self::ForeignTables => "foreign-tables",
            Self::ForeignRules => "foreign-rules",
            Self::NetworkManagers => "network-managers",
            Self::MainRoutes => "main-routes",
            Self::UdevMac => "udev-mac",
            Self::ForwardPolicy => "forward-policy",
            Self::IptablesMixed => "iptables-mixed",
            Self::Imds => "imds",
            Self::Mtu => "mtu",
            Self::KernelFeatures => "kernel-features",
            Self::Conntrack => "conntrack",
            Self::TwinRules => "twin-rules",
            Self::LeftoverRules => "leftover-rules",
            Self::EbpfBackend => "ebpf-backend",
        })
    }
}
