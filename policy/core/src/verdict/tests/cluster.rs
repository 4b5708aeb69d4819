//! ClusterNetworkPolicies, upstream's and AWS's.

use super::*;
use ClusterAction::{Accept, Deny, Pass};
use ClusterTier::{Admin, Baseline};
use Decision::{Allow, Drop};
use Direction::{Egress, Ingress};

fn on_x(name: &str, tier: ClusterTier, priority: i32, rules: Vec<ClusterRule>) -> Object {
    Object::ClusterPolicy(cluster(name, tier, priority, &of("x"), Ingress, rules))
}

fn out_of_x(rules: Vec<ClusterRule>) -> Object {
    Object::ClusterPolicy(cluster("out", Admin, 0, &of("x"), Egress, rules))
}

#[test]
fn the_first_rule_that_matches_decides() {
    let cases = [
        ([Accept, Deny, Pass], Allow),
        ([Deny, Accept, Pass], Drop),
        ([Pass, Deny, Accept], Allow),
    ];
    for (actions, wanted) in cases {
        let rules = actions.map(|action| about(action, "y")).to_vec();
        let world = with([out_of_x(rules)]);
        assert_eq!(ask(&world, "x/a", "y/a", tcp(80)), wanted, "{actions:?}");
    }
}

#[test]
fn a_rule_wants_peer_and_port() {
    let protocols =
        vec![ProtocolMatch::Ports(Protocol::Tcp, Some(PortRange { first: 8080, last: 8080 }))];
    let narrow = ClusterRule { protocols, ..about(Accept, "z") };
    let world = with([out_of_x(vec![narrow, about(Deny, "z")])]);
    assert_eq!(ask(&world, "x/a", "z/a", tcp(8080)), Allow);
    assert_eq!(ask(&world, "x/a", "z/a", tcp(80)), Drop);
    assert_eq!(ask(&world, "x/a", "z/a", udp(8080)), Drop);
    assert_eq!(ask(&world, "x/a", "y/a", tcp(80)), Allow);
}

#[test]
fn a_lower_number_is_before_and_a_pass_leads_to_the_baseline() {
    let world = |pass| {
        with([
            on_x("deny", Admin, 50, vec![about(Deny, "y")]),
            on_x("pass", Admin, pass, vec![about(Pass, "y")]),
            on_x("base", Baseline, 0, vec![about(Accept, "y")]),
        ])
    };
    assert_eq!(ask(&world(60), "y/a", "x/a", tcp(80)), Drop);
    assert_eq!(ask(&world(40), "y/a", "x/a", tcp(80)), Allow);
}

#[test]
fn networkpolicies_stand_between_the_tiers() {
    let from = |namespace: &str| {
        let_in("x", "", vec![rule(vec![pods(Some(&of(namespace)), None)], vec![])])
    };
    let deny = || on_x("admin", Admin, 0, vec![about(Deny, "y")]);
    assert_eq!(ask(&with([deny(), from("y")]), "y/a", "x/a", tcp(80)), Drop);
    let accept = on_x("admin", Admin, 0, vec![about(Accept, "y")]);
    assert_eq!(ask(&with([accept, let_in("x", "", vec![])]), "y/a", "x/a", tcp(80)), Allow);
    let base = |action| on_x("base", Baseline, 0, vec![about(action, "y")]);
    let pass = || on_x("admin", Admin, 0, vec![about(Pass, "y")]);
    assert_eq!(ask(&with([pass(), from("y"), base(Deny)]), "y/a", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&with([pass(), base(Deny)]), "y/a", "x/a", tcp(80)), Drop);
    assert_eq!(ask(&with([from("z"), base(Accept)]), "y/a", "x/a", tcp(80)), Drop);
}

#[test]
fn a_pass_of_the_baseline_leads_to_the_default() {
    let world = with([
        on_x("1", Baseline, 1, vec![about(Pass, "y")]),
        on_x("2", Baseline, 2, vec![about(Deny, "y")]),
    ]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&world, "z/a", "x/a", tcp(80)), Allow);
}

#[test]
fn equal_priorities_go_by_kind_and_name() {
    let tie = |accept: &str, deny: &str| {
        with([
            on_x(accept, Admin, 10, vec![about(Accept, "y")]),
            on_x(deny, Admin, 10, vec![about(Deny, "y")]),
        ])
    };
    assert_eq!(ask(&tie("a", "b"), "y/a", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&tie("b", "a"), "y/a", "x/a", tcp(80)), Drop);
    let aws = cluster("a", Admin, 10, &of("x"), Ingress, vec![about(Deny, "y")]);
    let world = with([
        Object::ClusterPolicy(ClusterPolicy { dialect: Dialect::Aws, ..aws }),
        on_x("b", Admin, 10, vec![about(Accept, "y")]),
    ]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow, "upstream's are before AWS's");
}

#[test]
fn networks_hold_pods_and_are_of_one_family() {
    let networks =
        |ranges: &[&str]| ClusterPeer::Networks(ranges.iter().map(|range| cidr(range)).collect());
    let world = with([out_of_x(vec![about(Accept, "y"), rule_of(Deny, networks(&["0.0.0.0/0"]))])]);
    assert_eq!(ask(&world, "x/a", "y/a", tcp(80)), Allow);
    assert_eq!(ask(&world, "x/a", "z/a", tcp(80)), Drop);
    assert_eq!(ask(&world, "x/a", OUTSIDE, Segment::Icmp { kind: 8, code: 0 }), Drop);
    assert_eq!(ask(&world, "x/a", "2001:db8::7", Segment::Icmp { kind: 128, code: 0 }), Allow);
}

#[test]
fn nodes_are_their_addresses() {
    let nodes = ClusterPeer::Nodes(select("host=n2"));
    let world = with([out_of_x(vec![rule_of(Deny, nodes)])]);
    assert_eq!(ask(&world, "x/a", "n2", tcp(22)), Drop);
    assert_eq!(ask(&world, "x/a", "n1", tcp(22)), Allow);
}

#[test]
fn a_port_by_its_name_has_the_protocol_that_the_pod_gives_it() {
    let protocols = vec![ProtocolMatch::Named("dns".to_owned())];
    let narrow = ClusterRule { protocols, ..about(Accept, "z") };
    let world = with([out_of_x(vec![narrow, about(Deny, "z")])]);
    assert_eq!(ask(&world, "x/a", "z/a", udp(53)), Allow);
    assert_eq!(ask(&world, "x/a", "z/a", tcp(53)), Drop);
}

#[test]
fn a_named_port_of_a_range_belongs_to_pods_only() {
    let protocols = vec![ProtocolMatch::Named("dns".to_owned())];
    let all = || ClusterPeer::Networks(vec![cidr("0.0.0.0/0")]);
    let narrow = ClusterRule { protocols, ..rule_of(Accept, all()) };
    let world = with([out_of_x(vec![narrow, rule_of(Deny, all())])]);
    assert_eq!(ask(&world, "x/a", "z/a", udp(53)), Allow);
    assert_eq!(ask(&world, "x/a", "z/a", tcp(53)), Drop);
    assert_eq!(ask(&world, "x/a", OUTSIDE, udp(53)), Drop);
}

#[test]
fn what_is_not_understood_accepts_nothing_and_denies_all() {
    let world = |action: Option<&str>| {
        let mut policy = cluster("odd", Admin, 0, &of("x"), Ingress, vec![about(Deny, "z")]);
        policy.ingress.insert(0, not_read(action));
        with([Object::ClusterPolicy(policy)])
    };
    let asked = |action| {
        let world = world(action);
        ["y/a", "z/a"].map(|from| ask(&world, from, "x/a", tcp(80)))
    };
    assert_eq!(asked(Some("Accept")), [Allow, Drop]);
    for action in [Some("Deny"), Some("Pass"), Some("Allow"), Some("Log"), None] {
        assert_eq!(asked(action), [Drop, Drop], "{action:?}");
    }
    let world = world(Some("Pass"));
    assert_eq!(ask(&world, "x/a", "y/a", tcp(80)), Allow, "the other direction stands");
    let verdict = verdict(&world, &packet(&world, "y/a", "x/a", tcp(80)));
    let reason = verdict.ingress.map(|half| half.reason);
    assert!(matches!(reason, Some(Reason::NotUnderstood { .. })), "{reason:?}");
}

#[test]
fn a_subject_that_is_not_understood_gets_denials_alone() {
    let world = |action| {
        let mut policy = cluster("odd", Admin, 0, "", Ingress, vec![about(action, "y")]);
        policy.subject.doubt = Some("an operator that nobody knows".to_owned());
        let deny = on_x("deny", Admin, 1, vec![about(Deny, "y")]);
        with([Object::ClusterPolicy(policy), deny])
    };
    assert_eq!(ask(&world(Accept), "y/a", "x/a", tcp(80)), Drop);
    assert_eq!(ask(&world(Deny), "y/a", "z/a", tcp(80)), Drop);
    assert_eq!(ask(&world(Deny), "x/a", "z/a", tcp(80)), Allow);
    assert_eq!(ask(&world(Pass), "x/a", "z/a", tcp(80)), Drop, "a pass denies all");
}

#[test]
fn a_pod_that_is_denied_since_a_subject_was_read_wider_gets_word_of_it() {
    let odd = || Some("an operator that nobody knows".to_owned());
    let told = |world: &World| {
        let half = verdict(world, &packet(world, "y/a", "x/a", tcp(80))).ingress;
        let half = half.expect("the destination is a pod");
        assert_eq!(half.decision, Drop);
        half.wider.into_iter().map(|wider| wider.why).collect::<Vec<String>>()
    };
    for action in [Deny, Pass] {
        let mut policy = cluster("odd", Admin, 0, "", Ingress, vec![about(action, "y")]);
        policy.subject.doubt = odd();
        assert_eq!(told(&with([Object::ClusterPolicy(policy)])), [odd().unwrap_or_default()]);
    }
    let mut policy = network("x", "", &[PolicyType::Ingress], vec![], vec![]);
    policy.subject.doubt = odd();
    let world = with([Object::NetworkPolicy(policy)]);
    assert_eq!(told(&world), [odd().unwrap_or_default()]);
    let text = verdict(&world, &packet(&world, "y/a", "x/a", tcp(80))).to_string();
    assert!(
        text.contains("NetworkPolicy x/np may be about more pods than were meant: an operator")
    );

    let deny = on_x("deny", Admin, 1, vec![about(Deny, "y")]);
    assert_eq!(told(&with([deny])), Vec::<String>::new());
}
