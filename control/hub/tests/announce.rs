//! Announcements of pod addresses by agents: acceptance, end and refusal.

use control_hub::{Announce, AnnounceError, ClientState, Handshake, Hub};
use control_wire::{NodeSnapshot, parts, proto::Part};
use policy_core::index::Event;
use policy_objects::{Kind, MIRROR, Meta, Named, Node, Phase, Pod, Read, Service, page::PodView};
use prost::Message as _;
use std::net::IpAddr;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn named(name: &str) -> Named {
    Named { namespace: "shop".to_owned(), name: name.to_owned() }
}

fn pod(name: &str, node: &str, addresses: &[&str]) -> Pod {
    Pod {
        meta: Meta {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: format!("uid of {name}"),
            created: "2026-01-31T10:00:00Z".to_owned(),
            ..Meta::default()
        },
        node: node.to_owned(),
        host_network: false,
        service_account: "default".to_owned(),
        phase: Phase::Live,
        addresses: addresses.iter().copied().map(address).collect(),
        ports: Vec::new(),
    }
}

fn node(name: &str, its: &str) -> Node {
    let meta = Meta { name: name.to_owned(), ..Meta::default() };
    Node { meta, addresses: vec![address(its)], is_leaving: false }
}

fn service(its: &str) -> Service {
    let meta = Meta { namespace: "shop".to_owned(), name: "till".to_owned(), ..Meta::default() };
    let (selector, cluster_ips) = (Read::Known(None), Read::Known(vec![address(its)]));
    Service { meta, selector, cluster_ips, outer_ips: Vec::new(), ports: Vec::new() }
}

/// The same one, also reached from outside.
fn reached_at(outer: &str) -> Service {
    Service { outer_ips: vec![address(outer)], ..service("172.20.0.1") }
}

/// A pod with its node's network, at an address that the node does not name.
fn on_host(name: &str, its: &str) -> Pod {
    Pod { host_network: true, ..pod(name, "n2", &[its]) }
}

/// Two nodes, a Service, a pod without address on the first node and one with an address on the second.
fn hub() -> Hub {
    let mut hub = Hub::new([1; 16], 1);
    hub.apply(Event::Node(&node("n1", "192.168.0.1")));
    hub.apply(Event::Node(&node("n2", "192.168.0.2")));
    hub.apply(Event::Service(&service("172.20.0.1")));
    hub.apply(Event::Pod(&pod("new", "n1", &[])));
    hub.apply(Event::Pod(&pod("old", "n2", &["10.0.0.2"])));
    hub.loaded();
    hub
}

fn announcement(name: &str, addresses: &[&str]) -> Announce {
    let addresses = addresses.iter().copied().map(address).collect();
    Announce { pod: named(name), uid: format!("uid of {name}"), addresses }
}

/// Returns the pod's addresses as nodes receive them.
fn addresses_of(hub: &Hub, node: &str, name: &str) -> Vec<String> {
    let state = hub.index().node_state(node);
    let found = state.pods.values().find(|pod| pod.name == name).expect("a pod of the node");
    found.addresses.iter().map(ToString::to_string).collect()
}

/// The announcement is refused for this reason, and no node receives anything.
#[track_caller]
fn refuses(mut hub: Hub, node: &str, announce: &Announce, reason: &str) -> AnnounceError {
    let before = (hub.index().snapshot(), hub.measures());
    hub.take_touched();
    let refused = hub.announce(node, announce, 0).expect_err("a refusal");
    assert_eq!(refused.reason(), reason, "{refused}");
    assert_eq!((hub.index().snapshot(), hub.measures()), before);
    assert!(hub.take_touched().is_empty());
    refused
}

#[test]
fn an_announced_address_stays_when_the_status_has_it() {
    let mut hub = hub();
    hub.announce("n1", &announcement("new", &["::ffff:10.0.0.1", "fd00::1"]), 0)
        .expect("it is accepted");
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.1", "fd00::1"]);
    assert_eq!(hub.measures().announced, 1);
    // Its object changes, and does not have the addresses yet.
    let labeled = |addresses: &[&str]| {
        let mut pod = pod("new", "n1", addresses);
        pod.meta.labels.insert("app".to_owned(), "till".to_owned());
        pod
    };
    hub.apply(Event::Pod(&labeled(&[])));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.1", "fd00::1"]);
    hub.apply(Event::PodView(&PodView::from(&labeled(&[]))));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.1", "fd00::1"]);
    let generation = hub.measures().generation;
    hub.apply(Event::Pod(&labeled(&["10.0.0.1", "fd00::1"])));
    assert_eq!(hub.measures().generation, generation, "no node has pending objects");
    assert_eq!(hub.measures().announced, 0);
    hub.tidy(120_000);
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.1", "fd00::1"]);
    // A late announcement of known addresses.
    hub.announce("n1", &announcement("new", &["10.0.0.1"]), 120_000).expect("it is accepted");
    assert_eq!(hub.measures().announced, 0);
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.1", "fd00::1"]);
}

#[test]
fn a_status_with_other_addresses_ends_an_announcement() {
    let mut hub = hub();
    hub.announce("n1", &announcement("new", &["10.0.0.1"]), 0).expect("it is accepted");
    hub.apply(Event::Pod(&pod("new", "n1", &["10.0.0.7"])));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.7"]);
    // The announcement adds to the status: the pod has restarted, and the status is older.
    hub.announce("n1", &announcement("new", &["10.0.0.8"]), 0).expect("it is accepted");
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.7", "10.0.0.8"]);
    hub.apply(Event::Pod(&pod("new", "n1", &["10.0.0.7"])));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.7", "10.0.0.8"], "an equal status");
    hub.apply(Event::Pod(&pod("new", "n1", &["10.0.0.8"])));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.8"]);
    assert_eq!(hub.measures().announced, 0);
}

#[test]
fn an_announcement_expires_a_minute_after_its_last_repetition() {
    let mut hub = hub();
    hub.announce("n1", &announcement("new", &["10.0.0.1"]), 1_000).expect("it is accepted");
    hub.tidy(60_999);
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.1"]);
    hub.announce("n1", &announcement("new", &["10.0.0.1"]), 50_000).expect("it is accepted");
    hub.tidy(109_999);
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.1"]);
    hub.take_touched();
    hub.open_stream("n1", &control_hub::ClientState::default());
    hub.take_touched();
    hub.tidy(110_000);
    assert_eq!(addresses_of(&hub, "n1", "new"), Vec::<String>::new());
    assert!(hub.take_touched().contains("n1"), "the node has pending objects");
    assert_eq!(hub.measures().announced, 0);
}

#[test]
fn replicas_agree_once_the_status_is_read_with_or_without_the_announcement() {
    let (mut announced, mut other) = (hub(), hub());
    announced.announce("n1", &announcement("new", &["10.0.0.1"]), 0).expect("it is accepted");
    assert_ne!(announced.index().snapshot(), other.index().snapshot());
    for status in [&["10.0.0.1"][..], &["10.0.0.3"]] {
        for hub in [&mut announced, &mut other] {
            hub.apply(Event::Pod(&pod("new", "n1", status)));
        }
        assert_eq!(announced.index().snapshot(), other.index().snapshot());
    }
}

#[test]
fn a_new_announcement_replaces_the_previous_one() {
    let mut hub = hub();
    hub.announce("n1", &announcement("new", &["10.0.0.1"]), 0).expect("it is accepted");
    hub.announce("n1", &announcement("new", &["10.0.0.3"]), 0).expect("it is accepted");
    assert_eq!(addresses_of(&hub, "n1", "new"), ["10.0.0.3"]);
    hub.apply(Event::Pod(&pod("other", "n1", &[])));
    hub.announce("n1", &announcement("other", &["10.0.0.1"]), 0).expect("it is free again");
}

#[test]
fn an_object_with_the_address_ends_the_announcement() {
    let announced = || {
        let mut hub = hub();
        hub.announce("n1", &announcement("new", &["10.0.0.1", "fd00::1"]), 0)
            .expect("it is accepted");
        hub
    };
    let mut hub = announced();
    // This pod was created earlier, so it would win among two objects with the address.
    let mut earlier = pod("earlier", "n2", &["10.0.0.1"]);
    earlier.meta.created = "2025-01-31T10:00:00Z".to_owned();
    hub.apply(Event::Pod(&earlier));
    assert_eq!(addresses_of(&hub, "n2", "earlier"), ["10.0.0.1"]);
    assert_eq!(addresses_of(&hub, "n1", "new"), ["fd00::1"]);
    let mut hub = announced();
    hub.apply(Event::Service(&service("10.0.0.1")));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["fd00::1"]);
    let mut hub = announced();
    hub.apply(Event::Node(&node("n3", "10.0.0.1")));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["fd00::1"]);
    let mut hub = announced();
    hub.apply(Event::Service(&reached_at("10.0.0.1")));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["fd00::1"]);
    let mut hub = announced();
    hub.apply(Event::Pod(&on_host("agent", "10.0.0.1")));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["fd00::1"]);
    let mut hub = announced();
    hub.apply(Event::PodView(&PodView::from(&on_host("agent", "::ffff:10.0.0.1"))));
    assert_eq!(addresses_of(&hub, "n1", "new"), ["fd00::1"]);
}

#[test]
fn an_announcement_ends_with_a_removed_ended_moved_or_replaced_pod() {
    let after = |then: &dyn Fn(&mut Hub)| {
        let mut hub = hub();
        hub.announce("n1", &announcement("new", &["10.0.0.1"]), 0).expect("it is accepted");
        then(&mut hub);
        assert_eq!(hub.measures().announced, 0);
        assert!(hub.index().holders(address("10.0.0.1")).pods.is_empty());
    };
    let gone = |uid| Event::Gone { kind: Kind::Pod, namespace: "shop", name: "new", uid };
    after(&|hub| hub.apply(gone("")));
    after(&|hub| hub.apply(gone("uid of new")));
    after(&|hub| hub.apply(Event::Pod(&Pod { phase: Phase::Ended, ..pod("new", "n1", &[]) })));
    after(&|hub| hub.apply(Event::Pod(&pod("new", "n2", &[]))));
    after(&|hub| {
        let mut another = pod("new", "n1", &[]);
        another.meta.uid = "another".to_owned();
        hub.apply(Event::Pod(&another));
    });
    let mut hub = hub();
    hub.announce("n1", &announcement("new", &["10.0.0.1"]), 0).expect("it is accepted");
    hub.apply(gone("another"));
    assert_eq!(
        addresses_of(&hub, "n1", "new"),
        ["10.0.0.1"],
        "the end of another is not this one's"
    );
}

#[test]
fn an_agent_announces_pods_of_its_own_node_only() {
    let refused = refuses(hub(), "n2", &announcement("new", &["10.0.0.1"]), "other_node");
    assert!(!refused.is_retryable());
    assert_eq!(
        refused.to_string(),
        "pod shop/new is not bound to n2; an agent announces pods of its own node only"
    );
}

#[test]
fn an_address_of_another_object_is_refused() {
    let refused = refuses(hub(), "n1", &announcement("new", &["172.20.0.1"]), "address_of_service");
    assert!(!refused.is_retryable());
    let refused = refuses(hub(), "n1", &announcement("new", &["192.168.0.2"]), "address_of_node");
    assert!(!refused.is_retryable());
    // The end of the other may be on its way.
    let refused =
        refuses(hub(), "n1", &announcement("new", &["10.0.0.1", "10.0.0.2"]), "address_in_use");
    assert!(refused.is_retryable());
    let mut announced = hub();
    announced.apply(Event::Pod(&pod("other", "n1", &[])));
    announced.announce("n1", &announcement("other", &["10.0.0.1"]), 0).expect("it is accepted");
    refuses(announced, "n1", &announcement("new", &["10.0.0.1"]), "address_in_use");
}

#[test]
fn a_host_or_external_service_address_is_refused_while_it_is_in_use() {
    let new = || announcement("new", &["10.0.0.7"]);
    let with = |pod: Pod| {
        let mut hub = hub();
        hub.apply(Event::Pod(&pod));
        hub
    };
    let refused = refuses(with(on_host("agent", "10.0.0.7")), "n1", &new(), "address_in_use");
    assert!(refused.is_retryable());
    assert!(refused.to_string().contains("shop/agent"), "{refused}");
    let mut hub_with = with(on_host("agent", "10.0.0.7"));
    hub_with.apply(Event::Pod(&Pod { phase: Phase::Ended, ..on_host("agent", "10.0.0.7") }));
    hub_with.announce("n1", &new(), 0).expect("it has ended");
    let gone = |kind, name, uid| Event::Gone { kind, namespace: "shop", name, uid };
    let mut hub_with = with(on_host("agent", "10.0.0.7"));
    hub_with.apply(gone(Kind::Pod, "agent", "another"));
    hub_with.announce("n1", &new(), 0).expect_err("the end of another is not its own");
    hub_with.apply(gone(Kind::Pod, "agent", "uid of agent"));
    hub_with.announce("n1", &new(), 0).expect("it is gone");
    let reached = || {
        let mut hub = hub();
        hub.apply(Event::Service(&reached_at("10.0.0.7")));
        hub
    };
    assert!(!refuses(reached(), "n1", &new(), "address_of_service").is_retryable());
    let mut hub_with = reached();
    hub_with.apply(Event::Service(&service("172.20.0.1")));
    hub_with.announce("n1", &new(), 0).expect("the Service no longer has it");
    let mut hub_with = reached();
    hub_with.apply(gone(Kind::Service, "till", ""));
    hub_with.announce("n1", &new(), 0).expect("it is gone");
}

#[test]
fn unusable_addresses_are_refused() {
    for odd in [
        "0.0.0.0",
        "::",
        "127.0.0.1",
        "::1",
        "169.254.1.1",
        "fe80::1",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
    ] {
        refuses(hub(), "n1", &announcement("new", &[odd]), "unusable_address");
    }
    refuses(hub(), "n1", &announcement("new", &[]), "number_of_addresses");
    let five = ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"];
    refuses(hub(), "n1", &announcement("new", &five), "number_of_addresses");
}

#[test]
fn an_announcement_of_an_unknown_replaced_or_unbound_pod_is_retryable() {
    let refused = refuses(hub(), "n1", &announcement("gone", &["10.0.0.1"]), "unknown_pod");
    assert!(refused.is_retryable());
    let mut ended = hub();
    let (namespace, name, uid) = ("shop", "new", "");
    ended.apply(Event::Gone { kind: Kind::Pod, namespace, name, uid });
    refuses(ended, "n1", &announcement("new", &["10.0.0.1"]), "unknown_pod");
    let another = Announce { uid: "of before".to_owned(), ..announcement("new", &["10.0.0.1"]) };
    assert!(refuses(hub(), "n1", &another, "other_uid").is_retryable());
    let nobody = Announce { uid: String::new(), ..announcement("new", &["10.0.0.1"]) };
    refuses(hub(), "n1", &nobody, "other_uid");
    let mut unbound = hub();
    unbound.apply(Event::Pod(&pod("late", "", &[])));
    assert!(refuses(unbound, "n1", &announcement("late", &["10.0.0.1"]), "unbound").is_retryable());
    let refused =
        refuses(Hub::new([1; 16], 1), "n1", &announcement("new", &["10.0.0.1"]), "not_yet");
    assert!(refused.is_retryable());
}

#[test]
fn a_host_network_or_ended_pod_has_no_announcement() {
    let mut hub_with = hub();
    hub_with.apply(Event::Pod(&Pod { host_network: true, ..pod("agent", "n1", &["192.168.0.1"]) }));
    let refused = refuses(hub_with, "n1", &announcement("agent", &["10.0.0.1"]), "host_network");
    assert!(!refused.is_retryable());
    let ended = || Pod { phase: Phase::Ended, ..pod("job", "n1", &["10.0.0.9"]) };
    let mut hub_with = hub();
    hub_with.apply(Event::Pod(&ended()));
    assert!(!refuses(hub_with, "n1", &announcement("job", &["10.0.0.1"]), "ended").is_retryable());
    // Its end is forgotten with it, and another of its name may run.
    let mut hub_with = hub();
    hub_with.apply(Event::Pod(&ended()));
    let (namespace, name, uid) = ("shop", "job", "uid of job");
    hub_with.apply(Event::Gone { kind: Kind::Pod, namespace, name, uid });
    refuses(hub_with, "n1", &announcement("job", &["10.0.0.1"]), "unknown_pod");
    let mut hub_with = hub();
    hub_with.apply(Event::PodView(&PodView::from(&ended())));
    hub_with.apply(Event::Pod(&pod("job", "n1", &[])));
    hub_with.announce("n1", &announcement("job", &["10.0.0.1"]), 0).expect("it is accepted");
}

#[test]
fn unconfirmed_announcements_of_a_node_are_bounded() {
    let mut hub = hub();
    let names: Vec<String> = (0..1_025).map(|number| format!("p{number}")).collect();
    for name in &names {
        hub.apply(Event::Pod(&pod(name, "n1", &[])));
        hub.apply(Event::Pod(&pod(&format!("{name}b"), "n2", &[])));
    }
    let announce = |hub: &mut Hub, number: usize, now_ms| {
        let its = format!("10.{}.{}.9", 1 + number / 256, number % 256);
        hub.announce("n1", &announcement(&names[number], &[&its]), now_ms)
    };
    for number in 0..1_024 {
        announce(&mut hub, number, 0).expect("there is room");
    }
    let refused = announce(&mut hub, 1_024, 0).expect_err("there is none");
    assert_eq!(refused, AnnounceError::TooMany { count: 1_024, of: "of the node" });
    assert!(refused.is_retryable());
    announce(&mut hub, 7, 0).expect("one of those that wait");
    hub.announce("n2", &announcement("p3b", &["10.9.9.9"]), 0)
        .expect("another node has its own room");
    hub.tidy(60_000);
    announce(&mut hub, 1_024, 60_000).expect("there is room again");
}

/// Mirror pod of a static pod of the first node.
fn mirror(runtime: &str) -> Pod {
    let mut pod = pod("static", "n1", &[]);
    pod.meta.annotations.insert(MIRROR.to_owned(), runtime.to_owned());
    pod
}

#[test]
fn a_static_pod_is_announced_by_the_uid_of_its_kubelet() {
    for lent in [false, true] {
        let mut hub = hub();
        match lent {
            true => hub.apply(Event::PodView(&PodView::from(&mirror("of the kubelet")))),
            false => hub.apply(Event::Pod(&mirror("of the kubelet"))),
        }
        let Handshake::Compared(stream) = hub.open_stream("n1", &ClientState::default()) else {
            panic!("it")
        };
        let update = hub.next_update(&stream).expect("an update");
        let mut held = NodeSnapshot::default();
        held.start_stream(&hub.epoch());
        for part in parts(update.generation, &update.changes) {
            held.receive(Part::decode(part).expect("a part")).expect("it can be applied");
        }
        let entry = held.entry("of the kubelet", "shop", "static").expect("its entry");
        assert_eq!(entry.uid, "uid of static");
        assert!(held.entry("of the kubelet", "shop", "new").is_none());
        // It is announced by that UID as well, and has the address until its object contains another.
        let by =
            |uid: &str| Announce { uid: uid.to_owned(), ..announcement("static", &["10.0.0.7"]) };
        hub.announce("n1", &by("of the kubelet"), 0).expect("it is accepted");
        assert_eq!(addresses_of(&hub, "n1", "static"), ["10.0.0.7"]);
        hub.apply(Event::Pod(&Pod {
            addresses: vec![address("10.0.0.8")],
            ..mirror("of the kubelet")
        }));
        assert_eq!(addresses_of(&hub, "n1", "static"), ["10.0.0.8"]);
        hub.announce("n1", &by("uid of static"), 0).expect("by its own as ever");
    }
    let mut hub = hub();
    // A value that a user writes in such a field is not another pod's UID.
    hub.apply(Event::Pod(&mirror("uid of new")));
    let stranger =
        Announce { uid: "of the kubelet".to_owned(), ..announcement("static", &["10.0.0.7"]) };
    refuses(hub, "n1", &stranger, "other_uid");
}
