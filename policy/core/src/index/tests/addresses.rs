//! Addresses that a pod has before they are in its object, in any order with other events.

use super::{
    model::{Happening, Model},
    random::{address, check, happening, pod_name, uid},
};
use crate::index::{Holders, Index, KnownPod};
use policy_objects::Named;
use proptest::{collection::vec, prelude::*};
use std::net::IpAddr;

#[derive(Clone, Debug)]
enum Step {
    Happens(Box<Happening>),
    Readdressed(Named, String, Vec<IpAddr>),
}

fn step() -> impl Strategy<Value = Step> {
    let uid = prop_oneof![1 => Just(String::new()), 3 => uid()];
    let readdressed = (pod_name(), uid, vec(address(), 0..3))
        .prop_map(|(pod, uid, addresses)| Step::Readdressed(pod, uid, addresses));
    prop_oneof![5 => happening().prop_map(|happening| Step::Happens(Box::new(happening))), 2 => readdressed]
}

/// Checks the owner of each address, and the identity of each pod.
fn whose(index: &Index, model: &Model) -> Result<(), TestCaseError> {
    let addresses: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1"]
        .map(|address| address.parse().expect("an address"))
        .to_vec();
    for address in addresses {
        let (pods, node, service) = model.holders(address);
        prop_assert_eq!(index.holders(address), Holders { pods, node, service }, "{}", address);
    }
    for pod in model.pods() {
        let mut addresses = pod.addresses.clone();
        addresses.sort_unstable();
        addresses.dedup();
        let (uid, node) = (pod.meta.uid.clone(), pod.node.clone());
        let known = model.knows(pod).then_some(KnownPod { uid, node, addresses });
        prop_assert_eq!(index.known_pod(&pod.meta.namespace, &pod.meta.name), known);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_readdressed_pod_equals_a_pod_with_that_status(
        first in vec(happening(), 0..25),
        then in vec(step(), 0..25),
    ) {
        let (mut index, mut model) = (Index::new(5), Model::default());
        for event in &first {
            model.apply(event.event());
            event.with_view(|borrowed| index.load(borrowed));
        }
        index.loaded();
        let mut folded = index.snapshot();
        whose(&index, &model)?;
        for step in &then {
            let deltas = match step {
                Step::Happens(event) => {
                    model.apply(event.event());
                    index.apply(event.event())
                }
                Step::Readdressed(pod, uid, addresses) => {
                    model.readdress(pod, uid, addresses);
                    index.readdress(pod, uid, addresses)
                }
            };
            folded.fold(&deltas);
            check(&index, &model, &folded)?;
            whose(&index, &model)?;
        }
    }
}
