//! Comparison of the checkpoint with the kernel: only a pod that matches can change its owner.

use crate::{Eni, Kernel, LinkView, Refusal, RuleView, vpc_cni::Allocation};
use config_model::{PodKey, TableId, VethName, registry};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The result of the comparison.
#[derive(Debug, Default)]
pub(crate) struct Fit {
    /// The running pods with their addresses.
    pub(crate) running: BTreeMap<PodKey, Vec<IpAddr>>,
    /// Addresses of entries without a host veth, so without a pod.
    pub(crate) gone: Vec<IpAddr>,
    /// Interfaces of such entries, if the pod's name gives the name of its host veth.
    pub(crate) ended: BTreeSet<PodKey>,
    /// Duplicate rules.
    pub(crate) twins: Vec<String>,
    /// Missing rules, which ferrule-ipamd will add.
    pub(crate) missing: Vec<String>,
    pub(crate) refusals: Vec<Refusal>,
}

/// Compares every entry with the kernel, and every host veth with the entries.
pub(crate) fn fit(allocations: &[Allocation], kernel: &Kernel, enis: &[Eni], prefix: &str) -> Fit {
    let mut fit = Fit::default();
    let mut numbers: BTreeMap<&PodKey, u8> = BTreeMap::new();
    let mut known = BTreeSet::new();
    let by_link = kernel.addresses();
    for allocation in allocations {
        let number = numbers.entry(&allocation.key).or_default();
        let link = host_end(allocation, *number, kernel, prefix);
        *number = number.saturating_add(1);
        match link {
            // A newer pod of that name runs, and the entry belongs to an older one.
            Some(link) if is_older(allocation, link, &by_link, allocations) => {
                fit.gone.push(allocation.address);
            }
            Some(link) => {
                known.insert(link.index);
                fit.pod(allocation, link, kernel, enis);
            }
            None => {
                fit.gone.push(allocation.address);
                fit.ended.extend(allocation.pod.as_ref().map(|_| allocation.key.clone()));
            }
        }
    }
    // A link with a pod key belongs to a pod of Ferrule.
    let unmarked = kernel.links.iter().filter(|link| link.veth && link.key.is_none());
    for link in unmarked.filter(|link| link.name.starts_with(prefix)) {
        let Some(addresses) = by_link.get(&link.index).filter(|_| !known.contains(&link.index))
        else {
            continue;
        };
        fit.refusals.push(Refusal {
            object: link.name.clone(),
            cause: format!(
                "it leads to {}, which is not in amazon-vpc-cni's checkpoint",
                addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            ),
            next: "find the pod by its address and delete it; if none has it, delete the link"
                .to_owned(),
        });
    }
    fit.refuse_branch_enis(kernel);
    fit
}

/// Returns true if no route leads to the entry's address, but the host veth has a route of another entry.
fn is_older(
    allocation: &Allocation,
    link: &LinkView,
    by_link: &BTreeMap<u32, Vec<IpAddr>>,
    allocations: &[Allocation],
) -> bool {
    let led = |address: &IpAddr| by_link.values().flatten().any(|led| led == address);
    let listed = |address: &IpAddr| allocations.iter().any(|other| other.address == *address);
    !led(&allocation.address)
        && by_link.get(&link.index).is_some_and(|addresses| addresses.iter().any(listed))
}

/// Returns the host veth of an entry: by the pod's name, or by the route to its address.
fn host_end<'a>(
    allocation: &Allocation,
    number: u8,
    kernel: &'a Kernel,
    prefix: &str,
) -> Option<&'a LinkView> {
    match &allocation.pod {
        Some(pod) => kernel.link(VethName::of(prefix, pod, number).as_str()),
        None => {
            let led = kernel.leading_to(allocation.address);
            kernel.links.iter().find(|link| led.contains(&link.index))
        }
    }
}

impl Fit {
    fn pod(&mut self, allocation: &Allocation, link: &LinkView, kernel: &Kernel, enis: &[Eni]) {
        let Allocation { key, pod, address } = allocation;
        let object = pod.as_ref().map_or_else(|| key.to_string(), ToString::to_string);
        let mut refuse = |cause: String| {
            let next =
                "delete the pod, which its owner recreates, or fix its rules and routes".to_owned();
            self.refusals.push(Refusal { object: object.clone(), cause, next });
        };
        if kernel.leading_to(*address) != [link.index] {
            refuse(format!("no route, or more than one, leads to {address} by {}", link.name));
            return;
        }
        let host = IpNet::from(*address);
        let eni = enis.iter().find(|eni| eni.blocks.iter().any(|block| block.contains(&host)));
        let Some(eni) = eni else {
            refuse(format!("no ENI of this node has {address} according to instance metadata"));
            return;
        };
        let table = eni.table();
        let of = |rule: &&RuleView| rule.src == Some(host) || rule.dst == Some(host);
        let rules: Vec<&RuleView> = kernel.rules.iter().filter(of).collect();
        let mut wanted = vec![(registry::PREF_TO_POD, TableId::MAIN, "to")];
        if table != TableId::MAIN {
            wanted.push((registry::PREF_FROM_POD, table, "from"));
        }
        for rule in &rules {
            let fits = match rule.pref {
                registry::PREF_TO_POD => rule.dst == Some(host) && rule.table == TableId::MAIN,
                // A pod of the primary ENI may have this rule, which repeats the default.
                registry::PREF_FROM_POD => rule.src == Some(host) && rule.table == table,
                registry::PREF_FROM_ENI => true,
                _ => false,
            };
            if !fits {
                refuse(format!(
                    "the rule `{}` does not match: {address} belongs to the ENI {} with table {table}",
                    rule.text, eni.mac
                ));
            }
        }
        for (pref, table, way) in wanted {
            let mut found = rules.iter().filter(|rule| (rule.pref, rule.table) == (pref, table));
            match (found.next(), found.next()) {
                (None, _) => {
                    self.missing.push(format!("pref {pref} {way} {address} lookup {table}"));
                }
                (Some(_), None) => {}
                (Some(rule), Some(_)) => self.twins.push(rule.text.clone()),
            }
        }
        self.running.entry(key.clone()).or_default().push(*address);
    }

    /// Refuses branch ENIs, which are in no checkpoint.
    fn refuse_branch_enis(&mut self, kernel: &Kernel) {
        for link in kernel.links.iter().filter(|link| link.name.starts_with("vlan.eth.")) {
            self.refusals.push(Refusal {
                object: link.name.clone(),
                cause: "a pod with security groups of its own runs here, on a branch ENI"
                    .to_owned(),
                next: "move the pods with security groups to other nodes first".to_owned(),
            });
        }
    }
}
