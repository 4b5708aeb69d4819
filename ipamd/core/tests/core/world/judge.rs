//! The laws that the core must keep at every moment.

use super::World;
use config_model::PodKey;
use ipamd_core::{BlockSource, Checkpoint, CloudCall};
use std::{collections::BTreeMap, net::IpAddr};

impl World {
    pub(super) fn judge_handing_out(&self, key: &PodKey, address: IpAddr) {
        if let Some(released) = self.released_at.get(&address) {
            assert!(self.now >= *released + self.config.cooldown, "{address} had not cooled down");
        }
        let in_kernel = self.kernel.get(&address).filter(|holder| *holder != key);
        assert_eq!(in_kernel, None, "{address} was given to {key} while the kernel had it");
    }

    /// Law: an address that is assigned, cools or is in the kernel is not returned to EC2.
    pub(super) fn judge_giving_back(&self, call: &CloudCall) {
        let blocks = match call {
            CloudCall::Unassign { blocks, .. } => blocks.clone(),
            CloudCall::DetachEni { eni, .. } => {
                self.cloud.enis.get(eni).map(|eni| eni.seen.blocks.clone()).unwrap_or_default()
            }
            CloudCall::CreateEni { .. }
            | CloudCall::AttachEni { .. }
            | CloudCall::KeepUntilTermination { .. }
            | CloudCall::Assign { .. }
            | CloudCall::DeleteEni { .. }
            | CloudCall::DescribeEni { .. }
            | CloudCall::DescribeBranches { .. }
            | CloudCall::SetGroups { .. }
            | CloudCall::TagEni { .. }
            | CloudCall::DescribeSubnets { .. }
            | CloudCall::FindLeftovers { .. } => return,
        };
        let cooldown = self.config.cooldown;
        for block in blocks {
            let within = block.network()..=block.broadcast();
            for (address, released) in self.released_at.range(within.clone()) {
                assert!(self.now >= *released + cooldown, "{address} was given back too soon");
            }
            let in_kernel = self.kernel.range(within.clone()).next();
            assert_eq!(in_kernel, None, "{block} was given back while the kernel had it");
            let assigned =
                self.assigned.values().flatten().find(|address| block.contains(*address));
            assert_eq!(assigned, None, "{block} was given back under a pod");
        }
    }

    /// Checks the laws after an event.
    pub(super) fn check(&mut self) {
        let snapshot = self.snapshot();
        let mut holders: BTreeMap<IpAddr, &PodKey> = BTreeMap::new();
        let held = snapshot.pods.iter().flat_map(|pod| pod.addresses.iter().map(move |h| (pod, h)));
        for (pod, held) in held {
            let address = held.address;
            if let Some(other) = holders.insert(address, &pod.key) {
                panic!("{address} is held by {other} and {}", pod.key);
            }
            let there = match &held.source {
                BlockSource::Eni(id) => self.cloud.enis.get(id).is_some_and(|eni| {
                    let has = eni.seen.blocks.iter().any(|block| block.contains(&address));
                    has && eni.seen.attachment.is_some()
                }),
                // The gateway has the first address after the network address.
                BlockSource::NodeCidr(cidr) => cidr.hosts().skip(1).any(|host| host == address),
            };
            let stolen = self.stolen.contains(&address);
            assert!(there || stolen, "{address} of {} is not of {}", pod.key, held.source);
        }
        for of in &self.limits.cards {
            let attached = self.cloud.places(of.card).len();
            assert!(attached <= usize::from(of.enis), "{attached} ENIs on card {}", of.card.0);
        }
        let (now, released_at) = (self.now, &mut self.released_at);
        self.assigned.retain(|key, addresses| {
            let (kept, lost): (Vec<IpAddr>, Vec<IpAddr>) =
                addresses.iter().partition(|address| holders.get(address) == Some(&key));
            released_at.extend(lost.into_iter().map(|address| (address, now)));
            *addresses = kept;
            !addresses.is_empty()
        });
        self.agree_with_the_journal();
    }

    /// Law: the replayed records are the core's checkpoint.
    fn agree_with_the_journal(&self) {
        // Longer files are compared at the next restart.
        if self.dies_after.is_none() && self.file.len() < 60 {
            let all = self.file.iter().chain(&self.unsynced).cloned();
            assert_eq!(&Checkpoint::replay(all), self.core.checkpoint());
        }
    }
}
