//! Packets that are exempt from judgment, and the kinds of policy that skip them.

use super::*;
use Decision::{Allow, Drop};

fn closed(namespace: &str) -> Object {
    Object::NetworkPolicy(network(namespace, "", BOTH, vec![], vec![]))
}

fn deny_all(tier: ClusterTier, direction: Direction, name: &str) -> Object {
    let all = ClusterPeer::Pods(of_namespaces(""));
    let rules = vec![rule_of(ClusterAction::Deny, all)];
    Object::ClusterPolicy(cluster(name, tier, 0, "", direction, rules))
}

fn deny_networks(tier: ClusterTier) -> Object {
    let all = ClusterPeer::Networks(vec![cidr("0.0.0.0/0")]);
    let rules = vec![rule_of(ClusterAction::Deny, all)];
    Object::ClusterPolicy(cluster("networks", tier, 0, "", Direction::Egress, rules))
}

#[test]
fn a_process_of_the_own_node_reaches_a_pod_and_a_spoofed_address_does_not() {
    let drop_all = antrea_in("drop", "emergency", 1.0, vec![entry(AntreaAction::Drop, vec![])]);
    let world = with([closed("x"), drop_all]);
    assert_eq!(ask(&world, "n1", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&world, "n2", "x/a", tcp(80)), Drop);
    assert_eq!(ask(&world, "n1", "y/a", tcp(80)), Drop);
    let forwarded = Packet { origin: Origin::Forwarded, ..packet(&world, "n1", "x/a", tcp(80)) };
    assert_eq!(verdict(&world, &forwarded).decision, Drop);
    let verdict = verdict(&world, &packet(&world, "n1", "x/a", tcp(80)));
    assert!(verdict.egress.is_none());
    let reason = Reason::Exemption { exemption: Exemption::FromOwnNode };
    assert_eq!(verdict.ingress.map(|half| half.reason), Some(reason));
}

#[test]
fn a_pod_of_the_nodes_network_is_its_node() {
    let mut world = with([closed("x"), closed("y")]);
    let mut host = a_pod("y", "host", N1);
    host.host_network = true;
    host.node = "n1".to_owned();
    world.insert(Object::Pod(host));
    assert_eq!(ask(&world, "y/host", "x/a", tcp(80)), Allow);
    let verdict = verdict(&world, &packet(&world, "y/host", "x/a", tcp(80)));
    assert!(verdict.egress.is_none(), "it is no subject");
    world.insert(deny_all(ClusterTier::Admin, Direction::Egress, "admin"));
    world.remove(Kind::NetworkPolicy, "x", "np");
    assert_eq!(ask(&world, "x/a", "y/host", tcp(80)), Allow, "it is no peer");
}

#[test]
fn networkpolicies_say_nothing_of_what_goes_to_the_own_node_and_others_do() {
    let world = with([closed("x"), closed("y")]);
    assert_eq!(ask(&world, "x/a", "n1", tcp(10250)), Allow);
    assert_eq!(ask(&world, "x/a", "n2", tcp(10250)), Drop);
    for tier in [ClusterTier::Admin, ClusterTier::Baseline] {
        let world = with([closed("x"), deny_networks(tier)]);
        assert_eq!(ask(&world, "x/a", "n1", tcp(10250)), Drop, "{tier:?}");
    }
    let drop_all = vec![entry(AntreaAction::Drop, vec![])];
    let world = with([closed("x"), antrea_out("drop", "baseline", 1.0, drop_all)]);
    assert_eq!(ask(&world, "x/a", "n1", tcp(10250)), Drop);
}

#[test]
fn a_pods_own_address_is_never_judged() {
    let world = with([
        closed("x"),
        deny_all(ClusterTier::Admin, Direction::Egress, "out"),
        deny_all(ClusterTier::Admin, Direction::Ingress, "in"),
        antrea_in("drop", "emergency", 1.0, vec![entry(AntreaAction::Drop, vec![])]),
    ]);
    assert_eq!(ask(&world, "x/a", "x/a", tcp(80)), Allow);
    let other = Packet { destination: ip("fd00::0:1"), ..packet(&world, "x/a", "x/a", tcp(80)) };
    assert_eq!(verdict(&world, &other).decision, Allow);
    let forged = Packet { origin: Origin::Forwarded, ..packet(&world, "x/a", "x/a", tcp(80)) };
    assert_eq!(verdict(&world, &forged).decision, Drop, "the origin decides");
}

#[test]
fn a_way_back_to_itself_through_a_service_is_for_clusternetworkpolicies_alone() {
    let asked = |world: &World| {
        let service = Some(ip(VIP));
        verdict(world, &Packet { service, ..packet(world, "x/a", "x/a", tcp(80)) }).decision
    };
    let drop_all = || vec![entry(AntreaAction::Drop, vec![])];
    let tiers = ["emergency", "baseline"];
    let antreas = tiers.map(|tier| antrea_in(tier, tier, 1.0, drop_all()));
    let mut world = with([closed("x")].into_iter().chain(antreas));
    assert_eq!(asked(&world), Allow);
    world.insert(deny_all(ClusterTier::Baseline, Direction::Ingress, "in"));
    assert_eq!(asked(&world), Drop);
    let world = with([deny_all(ClusterTier::Admin, Direction::Egress, "out")]);
    assert_eq!(asked(&world), Drop);
}

#[test]
fn a_skipped_isolation_is_reported() {
    let world = with([closed("x")]);
    let service = Some(ip(VIP));
    let hairpin = Packet { service, ..packet(&world, "x/a", "x/a", tcp(80)) };
    let to_node = packet(&world, "x/a", "n1", tcp(10250));
    for (packet, exemption) in [(hairpin, Exemption::Hairpin), (to_node, Exemption::ToOwnNode)] {
        let verdict = verdict(&world, &packet);
        let half = verdict.egress.as_ref().expect("a pod sends it");
        assert_eq!(half.reason, Reason::Default);
        let unasked = half.unasked.as_ref().expect("a policy isolates the pod");
        let names: Vec<String> = unasked.policies.iter().map(ToString::to_string).collect();
        assert_eq!((unasked.exemption, names), (exemption, vec!["NetworkPolicy x/np".to_owned()]));
        let text = verdict.to_string();
        assert!(text.contains("isolated by NetworkPolicy x/np, but not from this: "), "{text}");
    }
    let elsewhere = verdict(&world, &packet(&world, "x/a", "n2", tcp(10250)));
    assert_eq!(elsewhere.egress.expect("a pod sends it").unasked, None);
}

#[test]
fn replies_and_errors_follow_their_flow_and_flows_are_judged_as_when_they_began() {
    let world = with([closed("x")]);
    let mut packet = packet(&world, "y/a", "x/a", tcp(80));
    let cases = [
        (State::New, Drop),
        (State::Established, Drop),
        (State::Reply, Allow),
        (State::Related, Allow),
    ];
    for (state, wanted) in cases {
        packet.state = state;
        assert_eq!(verdict(&world, &packet).decision, wanted, "{state:?}");
    }
}

#[test]
fn a_pod_that_has_ended_has_no_policies() {
    let mut world = with([closed("x")]);
    world.insert(Object::Pod(Pod { phase: Phase::Ended, ..a_pod("x", "a", "10.0.0.1") }));
    let verdict = verdict(&world, &packet(&world, "y/a", "x/a", tcp(80)));
    assert_eq!(verdict.decision, Allow);
    assert!(verdict.ingress.is_none());
}

#[test]
fn peers_are_known_by_the_address_and_subjects_by_the_origin() {
    let from_y = rule(vec![pods(Some("team=blue"), None)], vec![]);
    let world = with([let_in("x", "", vec![from_y]), let_out("z", "", vec![])]);
    let masked = Packet { source: ip(N2), ..packet(&world, "y/a", "x/a", tcp(80)) };
    assert_eq!(verdict(&world, &masked).decision, Drop, "a node's address is no pod");
    let forged = Packet { source: ip("10.0.1.1"), ..packet(&world, "z/a", "x/a", tcp(80)) };
    assert_eq!(verdict(&world, &forged).decision, Drop, "z/a is closed, with any claimed identity");
}
