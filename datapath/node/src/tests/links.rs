//! The links of endpoints, from the plugin and from observation.

use super::{entry, part, uid};
use crate::{Applied, Desired, Effect, Links, LocalPod, Node, PodId};
use config_model::{EnforcingMode, EniId, HostEnd, HostLink, Mac, TableId, Time};
use std::collections::BTreeMap;

fn link(ifindex: u32) -> HostLink {
    HostLink {
        name: format!("eni{ifindex}"),
        ifindex,
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        addresses: ["10.0.0.9".parse().unwrap()].into(),
        number: 0,
        table: Some(TableId(2)),
        mark: None,
        eni: Some(EniId::new("eni-1")),
        host_end: HostEnd::Routed,
    }
}

/// The link as it is observed.
fn seen(ifindex: u32) -> HostLink {
    HostLink { table: None, eni: None, ..link(ifindex) }
}

fn local(pod: u8) -> LocalPod {
    let id = PodId { uid: uid(pod), namespace: "shop".into(), name: super::name(pod) };
    let addresses = ["10.0.0.9".parse().unwrap()].into();
    LocalPod { pod: id, container: format!("c-{pod}"), addresses }
}

fn observed(container: &str, links: &[HostLink]) -> Links {
    [(container.to_owned(), links.to_vec())].into()
}

/// Applies every state; the last one.
fn apply(node: &mut Node) -> Option<Desired> {
    let mut last = None;
    loop {
        let effects = node.take_effects();
        if effects.is_empty() {
            return last;
        }
        for effect in effects {
            if let Effect::Apply(desired) = effect {
                node.applied(desired.revision, Applied::complete(&desired), Time(0));
                last = Some(desired);
            }
        }
    }
}

fn node() -> Node {
    let mut node = Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new());
    node.began("10.9.9.1:1".parse().unwrap(), &[1; 16], false);
    node.part(part(1, vec![entry(0), entry(1)]), Time(0));
    node
}

fn links_of(desired: &Desired, pod: u8) -> Vec<HostLink> {
    desired.endpoints[&uid(pod)].links.clone()
}

#[test]
fn links_come_with_the_pod_and_after_a_restart_from_observation_alone() {
    let mut node = node();
    apply(&mut node);
    node.admit(local(0), vec![link(7)], EnforcingMode::Strict, Time(0));
    let state = apply(&mut node).unwrap();
    assert_eq!(links_of(&state, 0), [link(7)]);
    assert_eq!(state.changed.unwrap().endpoints, [uid(0)].into());
    let (held, local) = node.image();
    let links = observed("c-0", &[seen(7)]);
    let mut again = Node::new((*held).clone(), (*local).clone(), &links);
    let state = apply(&mut again).unwrap();
    assert_eq!(links_of(&state, 0), [seen(7)]);
}

#[test]
fn observation_adds_to_the_plugins_facts_and_changes_nothing_that_is_known() {
    let mut node = node();
    node.admit(local(0), vec![link(7)], EnforcingMode::Strict, Time(0));
    apply(&mut node);
    node.links_observed(&observed("c-0", &[seen(7)]), Time(0));
    assert!(apply(&mut node).is_none(), "nothing has changed");
    let renamed = HostLink { name: "other".into(), ..seen(7) };
    node.links_observed(&observed("c-0", &[renamed]), Time(0));
    let state = apply(&mut node).unwrap();
    assert_eq!(links_of(&state, 0), [HostLink { name: "other".into(), ..link(7) }]);
    // A link that was recreated has another number.
    node.links_observed(&observed("c-0", &[seen(8)]), Time(0));
    assert_eq!(links_of(&apply(&mut node).unwrap(), 0), [seen(8)]);
    // A link that is missing in the observation stays.
    node.links_observed(&BTreeMap::new(), Time(0));
    assert!(apply(&mut node).is_none());
    // A plugin of an earlier release sends no links.
    node.admit(local(0), Vec::new(), EnforcingMode::Strict, Time(0));
    assert!(apply(&mut node).is_none());
}

#[test]
fn a_link_number_that_the_kernel_reuses_belongs_to_one_pod() {
    let mut node = node();
    node.admit(local(0), vec![link(7), link(8)], EnforcingMode::Strict, Time(0));
    node.admit(local(1), vec![link(7)], EnforcingMode::Strict, Time(0));
    let state = apply(&mut node).unwrap();
    assert_eq!(links_of(&state, 0), [link(8)]);
    assert_eq!(links_of(&state, 1), [link(7)]);
    node.forget(&local(1).pod, "c-1", Time(0));
    let state = apply(&mut node).unwrap();
    assert_eq!(state.endpoints.keys().collect::<Vec<_>>(), [&uid(0)]);
    assert_eq!(state.changed.unwrap().endpoints, [uid(1)].into());
}

/// The entry of a pod with an address.
fn with_address(pod: u8, address: &str) -> control_wire::proto::Change {
    let pod = control_wire::model::Pod {
        uid: uid(pod),
        namespace: "shop".into(),
        name: super::name(pod),
        addresses: vec![address.parse().unwrap()],
        ..Default::default()
    };
    (&pod).into()
}

#[test]
fn a_pod_that_was_not_admitted_is_an_endpoint_by_the_route_to_its_link() {
    let mut node = node();
    node.links_observed(&observed("", &[seen(4)]), Time(0));
    assert_eq!(apply(&mut node).unwrap().endpoints.len(), 0, "no pod has the address");
    node.part(part(2, vec![with_address(0, "10.0.0.9"), with_address(1, "10.0.0.8")]), Time(0));
    let desired = apply(&mut node).unwrap();
    assert_eq!(desired.endpoints.keys().collect::<Vec<_>>(), [&uid(0)]);
    assert_eq!(desired.endpoints[&uid(0)].links, [seen(4)]);
    // The admission of the same pod has more facts.
    node.admit(local(0), vec![link(4)], EnforcingMode::Strict, Time(0));
    let desired = apply(&mut node).unwrap();
    assert_eq!(desired.endpoints[&uid(0)].links, [link(4)]);
    assert_eq!(desired.endpoints[&uid(0)].pod.container, "c-0");
    // A link of an admitted pod belongs to that pod only.
    node.part(part(3, vec![with_address(1, "10.0.0.9")]), Time(0));
    node.links_observed(&observed("c-0", &[seen(4)]), Time(0));
    assert_eq!(apply(&mut node).unwrap().endpoints.len(), 1);
    node.forget(&local(0).pod, "", Time(0));
    node.links_observed(&Links::new(), Time(0));
    assert_eq!(apply(&mut node).unwrap().endpoints.len(), 0);
}

#[test]
fn a_restart_finds_pods_that_were_not_admitted() {
    let mut before = node();
    before.part(part(2, vec![with_address(0, "10.0.0.9")]), Time(0));
    let (held, _) = before.image();
    let mut node =
        Node::new(held.as_ref().clone(), BTreeMap::new(), &observed("other", &[seen(4)]));
    let desired = apply(&mut node).unwrap();
    assert_eq!(desired.endpoints[&uid(0)].links, [seen(4)]);
    node.links_observed(&Links::new(), Time(0));
    assert_eq!(apply(&mut node).unwrap().endpoints.len(), 0, "its link is gone");
}
