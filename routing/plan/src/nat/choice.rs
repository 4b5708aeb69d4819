//! The choice of the backend, and the removal of the others' rules.

use super::{
    NatDesired,
    iptables::{self, Saved},
    nftables::{self, Part, Tables},
};

/// The tool that writes the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// `iptables-legacy`: the kernel's older tables.
    IptablesLegacy,
    /// `iptables-nft`: iptables' syntax on nftables' tables.
    IptablesNft,
    /// A table of our own with `nft`.
    Nftables,
}

impl Backend {
    pub const ALL: [Self; 3] = [Self::IptablesLegacy, Self::IptablesNft, Self::Nftables];

    /// The name in settings, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::IptablesLegacy => "iptables-legacy",
            Self::IptablesNft => "iptables-nft",
            Self::Nftables => "nftables",
        }
    }
}

/// The state of netfilter as each tool lists it. `None` means that the node lacks the tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Netfilter {
    /// The output of `iptables-legacy-save`.
    pub legacy: Option<Saved>,
    /// The output of `iptables-nft-save`.
    pub nft: Option<Saved>,
    /// The output of `nft`.
    pub nftables: Option<Tables>,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub backend: Backend,
    /// The standard input of the tool.
    pub script: String,
}

/// The backend that fits the node's other rules; `None` if the node has no tool.
///
/// If other programs write legacy rules, the legacy backend is chosen. With two tools the kernel applies the
/// translation that comes first, and their order is not defined.
pub fn fitting(seen: &Netfilter) -> Option<Backend> {
    let foreign = |saved: &Option<Saved>| saved.as_ref().is_some_and(iptables::has_foreign_rules);
    if foreign(&seen.legacy) {
        return Some(Backend::IptablesLegacy);
    }
    let there = |backend: &Backend| seen.has(*backend);
    [Backend::Nftables, Backend::IptablesNft, Backend::IptablesLegacy].into_iter().find(there)
}

impl Netfilter {
    /// True if the node has the backend's tool.
    pub fn has(&self, backend: Backend) -> bool {
        match backend {
            Backend::IptablesLegacy => self.legacy.is_some(),
            Backend::IptablesNft => self.nft.is_some(),
            Backend::Nftables => self.nftables.is_some(),
        }
    }
}

/// The transactions that lead to the desired state with the chosen backend. With iptables, the table of nftables
/// holds the rule that iptables cannot express. The chosen backend comes first: a packet in between matches rules
/// twice, but never none.
pub fn plan(desired: Option<&NatDesired>, chosen: Backend, seen: &Netfilter) -> Vec<Change> {
    let mut order = Backend::ALL;
    order.sort_by_key(|backend| *backend != chosen);
    let of = |backend: Backend| {
        let speaks = desired.filter(|_| backend == chosen);
        let saved = |saved: &Option<Saved>| iptables::plan(speaks, saved.as_ref()?);
        match backend {
            Backend::IptablesLegacy => saved(&seen.legacy),
            Backend::IptablesNft => saved(&seen.nft),
            Backend::Nftables => {
                let part = if backend == chosen { Part::Whole } else { Part::Services };
                nftables::plan(desired.map(|it| (it, part)), seen.nftables.as_ref()?)
            }
        }
    };
    order.into_iter().filter_map(|backend| Some(Change { backend, script: of(backend)? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(rule: &str) -> Option<Saved> {
        let text =
            format!("*nat\n:PREROUTING ACCEPT [0:0]\n:X - [0:0]\n-A PREROUTING {rule}\nCOMMIT");
        Some(iptables::parse(&text).expect("it is what iptables-save prints"))
    }

    #[test]
    fn the_rules_of_other_programs_decide_the_backend() {
        let tools = Netfilter {
            legacy: Some(Saved::default()),
            nft: Some(Saved::default()),
            nftables: Some(Tables::default()),
        };
        let services = saved("-j KUBE-SERVICES");
        let ours = saved("-m comment --comment \"AWS, CONNMARK\" -j CONNMARK");
        assert_eq!(fitting(&tools), Some(Backend::Nftables));
        assert_eq!(
            fitting(&Netfilter { nft: services.clone(), ..tools.clone() }),
            Some(Backend::Nftables)
        );
        assert_eq!(fitting(&Netfilter { legacy: ours, ..tools.clone() }), Some(Backend::Nftables));
        let legacy = Netfilter { legacy: services, ..tools.clone() };
        assert_eq!(fitting(&legacy), Some(Backend::IptablesLegacy));
        assert_eq!(
            fitting(&Netfilter { nftables: None, ..tools.clone() }),
            Some(Backend::IptablesNft)
        );
        assert_eq!(fitting(&Netfilter::default()), None);
    }

    #[test]
    fn the_other_backends_remove_their_rules_after_the_chosen_one_has_written() {
        let seen = Netfilter {
            legacy: saved("-m comment --comment \"AWS, CONNMARK\" -j CONNMARK"),
            nft: saved("-j KUBE-SERVICES"),
            nftables: Some(Tables { ours: Some(nftables::Listed::default()), predecessor: true }),
        };
        let changes = plan(None, Backend::IptablesNft, &seen);
        let backends: Vec<Backend> = changes.iter().map(|change| change.backend).collect();
        assert_eq!(backends, [Backend::IptablesLegacy, Backend::Nftables]);
        assert_eq!(changes[1].script, "delete table ip ferrule\ndelete table ip aws-cni\n");
    }
}
