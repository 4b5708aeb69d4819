//! Objects of kinds that are not read.

use policy_objects::{Kind, convert::target};

/// An object of a kind that is not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Foreign {
    /// The API group and version.
    pub api_version: String,
    pub kind: String,
    /// The namespace; empty if it has none.
    pub namespace: String,
    pub name: String,
}

impl Foreign {
    /// The API group; empty for the core's.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// True if its API group is one that is read and the group does not have this kind.
    pub fn is_misspelled(&self) -> bool {
        let others = self.others();
        match self.group() {
            _ if self.is_known() => false,
            // Much else is of it.
            "" => self.meant().is_some(),
            _ => others.is_some_and(|others| !others.contains(&self.singular().as_str())),
        }
    }

    pub fn next(&self) -> String {
        if target(&self.api_version, &self.kind).is_some() {
            return "`ferrule policy convert` writes it in a version that is".to_owned();
        }
        if let Some(kind) = self.meant() {
            return format!("write it as {} of {}", kind.name(), kind.api_version());
        }
        match self.others() {
            Some(_) => {
                let kinds = self.kinds().map(Kind::name);
                format!(
                    "of {} these kinds are: {}",
                    self.group(),
                    crate::text::joined(kinds.map(str::to_owned), ", ")
                )
            }
            None => {
                "write it as a NetworkPolicy or a ClusterNetworkPolicy, or delete it".to_owned()
            }
        }
    }

    /// An old or a new version of a kind that is read.
    fn is_known(&self) -> bool {
        let known = Kind::of_any_version(&self.api_version, &self.kind);
        target(&self.api_version, &self.kind).or(known).is_some()
    }

    /// The kind that its name is nearly the name of.
    fn meant(&self) -> Option<Kind> {
        let name = self.singular();
        let mut kinds = self.kinds();
        kinds.find(|kind| kind.name().to_ascii_lowercase() == name)
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| {
            kind.api_version().split_once('/').map_or("", |(group, _)| group) == self.group()
        })
    }

    /// Its kind in small letters, as of one.
    fn singular(&self) -> String {
        let name = self.kind.to_ascii_lowercase();
        match (name.strip_suffix("ies"), name.strip_suffix('s')) {
            (Some(stem), _) => format!("{stem}y"),
            (None, Some(stem)) if !stem.ends_with('s') => stem.to_owned(),
            (None, _) => name,
        }
    }

    /// The kinds of a group that are no matter of policy; `None` for a group without any that is.
    fn others(&self) -> Option<&'static [&'static str]> {
        match self.group() {
            "networking.k8s.io" => {
                Some(&["ingress", "ingressclass", "ipaddress", "servicecidr", "clustercidr"])
            }
            "policy.networking.k8s.io" => Some(&[]),
            "networking.k8s.aws" => Some(&["policyendpoint", "clusterpolicyendpoint"]),
            "crd.antrea.io" => Some(&ANTREA),
            _ => None,
        }
    }
}

/// Of crd.antrea.io.
const ANTREA: [&str; 18] = [
    "antreaagentinfo",
    "antreacontrollerinfo",
    "antreaclusternetworkpolicystat",
    "antreanetworkpolicystat",
    "networkpolicystat",
    "bgppolicy",
    "clusterset",
    "egress",
    "externalentity",
    "externalippool",
    "externalnode",
    "flowexporterdestination",
    "ippool",
    "nodelatencymonitor",
    "packetcapture",
    "supportbundlecollection",
    "traceflow",
    "trafficcontrol",
];
