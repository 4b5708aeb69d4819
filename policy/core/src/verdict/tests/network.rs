//! NetworkPolicy and ApplicationNetworkPolicy.

use super::*;
use Decision::{Allow, Drop};

#[test]
fn isolation_is_of_each_direction_by_itself() {
    let world = with([Object::NetworkPolicy(network("x", "", OUT, vec![], vec![]))]);
    assert_eq!(ask(&world, "x/a", "y/a", tcp(80)), Drop);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
}

#[test]
fn rules_of_a_direction_that_the_policy_lacks_are_dead_letters() {
    let from_c = rule(vec![pods(None, Some("app=c"))], vec![]);
    let world = with([Object::NetworkPolicy(network("x", "", OUT, vec![from_c], vec![]))]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
}

#[test]
fn policies_are_a_union_and_both_halves_must_allow() {
    let y_at = |port| {
        rule(vec![pods(Some("team=blue"), None)], vec![NetworkPort::number(Protocol::Tcp, port)])
    };
    let second =
        NetworkPolicy { meta: meta("x", "second"), ..network("x", "", IN, vec![y_at(80)], vec![]) };
    let mut world = with([let_in("x", "", vec![y_at(81)]), Object::NetworkPolicy(second)]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(82)), Drop);
    world.insert(let_out("y", "", vec![]));
    let verdict = verdict(&world, &packet(&world, "y/a", "x/a", tcp(80)));
    assert_eq!(verdict.decision, Drop);
    assert_eq!(verdict.ingress.as_ref().map(|half| half.decision), Some(Allow));
    let deciding = verdict.deciding().expect("a half that denies");
    assert_eq!(deciding.direction, Direction::Egress);
}

#[test]
fn a_selector_of_pods_alone_is_about_the_own_namespace() {
    let world = with([let_in("x", "", vec![rule(vec![pods(None, Some("app=a"))], vec![])])]);
    assert_eq!(ask(&world, "x/a", "x/b", tcp(80)), Allow);
    assert_eq!(ask(&world, "y/a", "x/b", tcp(80)), Drop);
}

#[test]
fn selectors_of_one_peer_are_both_wanted_and_those_of_two_either() {
    let both = vec![pods(Some("team=blue"), Some("app=a"))];
    let either = vec![pods(Some("team=blue"), None), pods(None, Some("app=a"))];
    let world = with([let_in("x", "", vec![rule(both, vec![])])]);
    let asked = |world: &World| {
        ["y/a", "y/b", "x/a", "z/a"].map(|from| ask(world, from, "x/b", tcp(80)) == Allow)
    };
    assert_eq!(asked(&world), [true, false, false, false]);
    let world = with([let_in("x", "", vec![rule(either, vec![])])]);
    assert_eq!(asked(&world), [true, true, true, false]);
}

#[test]
fn a_label_that_is_not_there_is_not_in_a_list() {
    let operator = Operator::NotIn(["red".to_owned()].into());
    let not_red = Requirement { key: "team".to_owned(), operator };
    let namespaces = Some(Selector { requirements: [not_red].into() });
    let peer = NetworkPeer::Pods { namespaces, pods: None };
    let world = with([let_in("x", "", vec![rule(vec![peer], vec![])])]);
    assert_eq!(ask(&world, "z/a", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&world, "x/b", "x/a", tcp(80)), Drop);
}

#[test]
fn all_namespaces_contain_pods_only() {
    let world = with([let_in("x", "", vec![rule(vec![pods(Some(""), None)], vec![])])]);
    assert_eq!(ask(&world, "z/c", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&world, OUTSIDE, "x/a", tcp(80)), Drop);
}

#[test]
fn an_empty_rule_matches_every_protocol_and_peer() {
    let world = with([let_in("x", "", vec![rule(vec![], vec![])])]);
    for segment in [tcp(1), Segment::Icmp { kind: 8, code: 0 }, Segment::Other(47)] {
        assert_eq!(ask(&world, OUTSIDE, "x/a", segment), Allow);
    }
}

#[test]
fn icmp_and_other_protocols_are_closed_too_and_no_port_opens_them() {
    let at_80 = rule(vec![], vec![NetworkPort::number(Protocol::Tcp, 80)]);
    let world = with([let_in("x", "", vec![at_80])]);
    for segment in [Segment::Icmp { kind: 8, code: 0 }, Segment::Other(47), udp(80)] {
        assert_eq!(ask(&world, "y/a", "x/a", segment), Drop);
    }
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
}

#[test]
fn a_range_holds_both_its_ends() {
    let port = NetworkPort { protocol: Protocol::Tcp, port: Some(range(32000, 32768)) };
    let world = with([let_out("x", "", vec![rule(vec![], vec![port])])]);
    let asked = [31999, 32000, 32768, 32769].map(|to| ask(&world, "x/a", OUTSIDE, tcp(to)));
    assert_eq!(asked, [Drop, Allow, Allow, Drop]);
}

fn named(name: &str, protocol: Protocol) -> NetworkPort {
    NetworkPort { protocol, port: Some(TargetPort::Named(name.to_owned())) }
}

#[test]
fn a_name_of_a_port_is_each_destination_pods_own() {
    let mut world = with([let_in("x", "", vec![rule(vec![], vec![named("web", Protocol::Tcp)])])]);
    let mut other = a_pod("x", "b", "10.0.0.2");
    other.ports = vec![
        ContainerPort { name: "web".to_owned(), protocol: Protocol::Tcp, port: 8080 },
        ContainerPort { name: "web".to_owned(), protocol: Protocol::Tcp, port: 9090 },
    ];
    world.insert(Object::Pod(other));
    let mut none = a_pod("x", "c", "10.0.0.3");
    none.ports.clear();
    world.insert(Object::Pod(none));
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    let asked = [80, 8080, 9090].map(|port| ask(&world, "y/a", "x/b", tcp(port)));
    assert_eq!(asked, [Drop, Allow, Drop], "the first of a name is the one");
    assert_eq!(ask(&world, "y/a", "x/c", tcp(80)), Drop);
}

#[test]
fn a_name_of_a_port_wants_its_protocol() {
    let world = with([let_in("x", "", vec![rule(vec![], vec![named("web", Protocol::Udp)])])]);
    assert_eq!(ask(&world, "y/a", "x/a", udp(80)), Drop);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Drop);
}

#[test]
fn a_named_egress_port_without_peers_matches_any_pod_and_no_other_address() {
    let world = with([let_out("x", "", vec![rule(vec![], vec![named("web", Protocol::Tcp)])])]);
    assert_eq!(ask(&world, "x/a", "y/a", tcp(80)), Allow);
    assert_eq!(ask(&world, "x/a", "y/a", tcp(81)), Drop);
    assert_eq!(ask(&world, "x/a", OUTSIDE, tcp(80)), Drop);
}

#[test]
fn a_hole_is_in_its_own_range_alone_and_ranges_hold_pods() {
    let holed = NetworkPeer::Block(block("10.0.0.0/24", &["10.0.0.2/32"]));
    let mut world = with([let_out("x", "app=a", vec![rule(vec![holed], vec![])])]);
    assert_eq!(ask(&world, "x/a", "x/b", tcp(80)), Drop);
    assert_eq!(ask(&world, "x/a", "x/c", tcp(80)), Allow);
    let filled = NetworkPeer::Block(block("10.0.0.2/32", &[]));
    let second = network("x", "app=a", OUT, vec![], vec![rule(vec![filled], vec![])]);
    let meta = meta("x", "second");
    world.insert(Object::NetworkPolicy(NetworkPolicy { meta, ..second }));
    assert_eq!(ask(&world, "x/a", "x/b", tcp(80)), Allow);
}

#[test]
fn a_range_is_of_one_family_and_pods_have_all_their_addresses() {
    let all = NetworkPeer::Block(block("0.0.0.0/0", &[]));
    let y = pods(Some("team=blue"), None);
    let world = with([let_out("x", "", vec![rule(vec![all, y], vec![])])]);
    assert_eq!(ask(&world, "x/a", "2001:db8::7", tcp(443)), Drop);
    assert_eq!(ask(&world, "x/a", OUTSIDE, tcp(443)), Allow);
    assert_eq!(ask(&world, "x/a", "fd00::1:1", tcp(80)), Allow);
    assert_eq!(ask(&world, "x/a", "fd00::2:1", tcp(80)), Drop);
    assert_eq!(ask(&world, "x/a", "::ffff:198.51.100.7", tcp(443)), Allow);
}

#[test]
fn domain_names_are_those_of_the_packet() {
    let domain = NetworkPeer::Domains(vec![DomainName::Below("example.com".to_owned())]);
    let policy = network("x", "", OUT, vec![], vec![rule(vec![domain], vec![])]);
    let mut world = with([Object::NetworkPolicy(NetworkPolicy { flavor: Flavor::Aws, ..policy })]);
    assert_eq!(ask(&world, "x/a", OUTSIDE, tcp(443)), Drop);
    world.name(ip(OUTSIDE), "a.b.Example.com.");
    assert_eq!(ask(&world, "x/a", OUTSIDE, tcp(443)), Allow);
    world.name(ip("198.51.100.8"), "example.com");
    assert_eq!(
        ask(&world, "x/a", "198.51.100.8", tcp(443)),
        Drop,
        "the parent is not below itself"
    );
}

#[test]
fn policies_of_one_name_and_two_kinds_are_two() {
    let kubernetes = network("x", "", IN, vec![rule(vec![pods(None, None)], vec![])], vec![]);
    let from_y = rule(vec![pods(Some("team=blue"), None)], vec![]);
    let aws = NetworkPolicy { flavor: Flavor::Aws, ..network("x", "", IN, vec![from_y], vec![]) };
    let world = with([Object::NetworkPolicy(kubernetes), Object::NetworkPolicy(aws)]);
    let asked = ["x/b", "y/a", "z/a"].map(|from| ask(&world, from, "x/a", tcp(80)));
    assert_eq!(asked, [Allow, Allow, Drop]);
}

#[test]
fn what_is_not_understood_allows_nothing_and_closes_all() {
    let mut policy = network("x", "", IN, vec![], vec![]);
    policy.ingress = vec![not_read(None), Read::Known(rule(vec![pods(None, None)], vec![]))];
    let world = with([Object::NetworkPolicy(policy)]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Drop);
    assert_eq!(ask(&world, "x/b", "x/a", tcp(80)), Allow, "the other rule stands");

    let mut policy = network("x", "", IN, vec![rule(vec![], vec![])], vec![]);
    policy.subject.doubt = Some("an operator that nobody knows".to_owned());
    let world = with([Object::NetworkPolicy(policy)]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Drop, "nothing is allowed to a wider subject");
}

#[test]
fn what_is_gone_is_as_if_it_had_never_been() {
    let mut world = with([let_in("x", "", vec![])]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Drop);
    world.remove(Kind::NetworkPolicy, "x", "np");
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    assert_eq!(world.policies().count(), 0);
}

#[test]
fn a_relabeled_namespace_is_another_peer() {
    let from_blue = rule(vec![pods(Some("team=blue"), None)], vec![]);
    let mut world = with([let_in("x", "", vec![from_blue])]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    world.insert(a_namespace("y", Some("green")));
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Drop);
}

#[test]
fn only_a_live_pod_of_the_pods_network_is_a_peer() {
    let from_b = rule(vec![pods(None, Some("app=b"))], vec![]);
    let mut world = with([let_in("x", "", vec![from_b])]);
    assert_eq!(ask(&world, "x/b", "x/a", tcp(80)), Allow);
    let ended = Pod { phase: Phase::Ended, ..a_pod("x", "b", "10.0.0.2") };
    world.insert(Object::Pod(ended));
    assert_eq!(ask(&world, "10.0.0.2", "x/a", tcp(80)), Drop);
    let on_host = Pod { host_network: true, ..a_pod("x", "b", N2) };
    world.insert(Object::Pod(on_host));
    assert_eq!(ask(&world, "x/b", "x/a", tcp(80)), Drop);
}

#[test]
fn an_address_is_the_latest_live_pods_and_goes_back_when_that_goes() {
    let job = rule(vec![pods(None, Some("app=job"))], vec![]);
    let mut world = with([let_in("x", "app=a", vec![job])]);
    let made = |name: &str, created: &str, uid: &str| {
        let mut pod = a_pod("x", name, "10.0.0.9");
        pod.meta.created = created.to_owned();
        pod.meta.uid = uid.to_owned();
        Object::Pod(pod)
    };
    world.insert(made("job", "2026-01-01T00:00:00Z", "9"));
    assert_eq!(ask(&world, "10.0.0.9", "x/a", tcp(80)), Allow);
    world.insert(made("new", "2026-01-02T00:00:00Z", "1"));
    assert_eq!(ask(&world, "10.0.0.9", "x/a", tcp(80)), Drop, "the latest made");
    world.insert(made("new", "2026-01-01T00:00:00Z", "1"));
    assert_eq!(ask(&world, "10.0.0.9", "x/a", tcp(80)), Allow, "the greater UID");
    world.insert(made("new", "2026-01-02T00:00:00Z", "1"));
    world.remove(Kind::Pod, "x", "new");
    assert_eq!(ask(&world, "10.0.0.9", "x/a", tcp(80)), Allow);
    world.remove(Kind::Pod, "x", "job");
    assert_eq!(ask(&world, "10.0.0.9", "x/a", tcp(80)), Drop);
}

#[test]
fn each_direction_has_the_deciding_rule_and_the_reasons_of_earlier_rules() {
    let at_81 = vec![NetworkPort::number(Protocol::Tcp, 81)];
    let from_b = rule(vec![pods(None, Some("app=b"))], vec![]);
    let world = with([
        let_in("x", "", vec![from_b, rule(vec![], at_81)]),
        let_in("z", "", vec![rule(vec![], vec![])]),
    ]);
    let verdict = verdict(&world, &packet(&world, "y/a", "x/a", tcp(80)));
    assert_eq!(verdict.egress.as_ref().map(|half| &half.reason), Some(&Reason::Default));
    let half = verdict.ingress.as_ref().expect("the destination is a pod");
    let Reason::Isolation { policies } = &half.reason else { panic!("{:?}", half.reason) };
    assert_eq!(policies.len(), 1);
    let why: Vec<&WhyNot> = half.earlier.iter().map(|earlier| &earlier.why).collect();
    let [WhyNot::Peer { peers }, WhyNot::Port { wanted }, WhyNot::Subject] = why.as_slice() else {
        panic!("{why:?}")
    };
    assert_eq!(peers[0].why, "10.0.1.1 is pod y/a");
    assert_eq!(wanted, &["TCP 81"]);
    let text = verdict.to_string();
    assert!(text.starts_with("drop\n"), "{text}");
    assert!(text.contains("ingress of x/a: drop, isolated by NetworkPolicy x/np"), "{text}");
    assert!(text.contains("not pods app=b of namespace x: 10.0.1.1 is pod y/a"), "{text}");
}

#[test]
fn a_verdict_is_an_object_of_json() {
    let world = with([let_in("x", "", vec![rule(vec![pods(None, Some("app=b"))], vec![])])]);
    let verdict = verdict(&world, &packet(&world, "y/a", "x/a", tcp(80)));
    let policy = serde_json::json!({"kind": "NetworkPolicy", "namespace": "x", "name": "np"});
    let wanted = serde_json::json!({
        "decision": "drop",
        "egress": {
            "direction": "egress",
            "pod": {"namespace": "y", "name": "a"},
            "decision": "allow",
            "reason": {"by": "default"},
            "earlier": [],
        },
        "ingress": {
            "direction": "ingress",
            "pod": {"namespace": "x", "name": "a"},
            "decision": "drop",
            "reason": {"by": "isolation", "policies": [policy]},
            "earlier": [{
                "rule": {
                    "policy": policy, "direction": "ingress", "index": 0, "name": null,
                    "action": "Allow",
                },
                "why": {"why": "peer", "peers": [
                    {"peer": "pods app=b of namespace x", "why": "10.0.1.1 is pod y/a"},
                ]},
            }],
        },
    });
    assert_eq!(serde_json::to_value(&verdict).expect("a verdict"), wanted);
}
