//! Antrea's policies and groups.

use super::*;
use AntreaAction::{Allow as Let, Drop as Gone, Pass, Reject as Refuse};
use Decision::{Allow, Drop, Reject};

fn named(namespace: &str, name: &str) -> Named {
    Named { namespace: namespace.to_owned(), name: name.to_owned() }
}

#[test]
fn a_selector_of_pods_alone_is_of_all_namespaces_or_of_the_own() {
    let rules = || vec![entry(Gone, vec![])];
    let policy = |namespace: &str| {
        let policy = antrea(namespace, "drop", "application", 1.0);
        let applied_to = vec![applied(None, Some("app=a"))];
        Object::AntreaPolicy(AntreaPolicy { applied_to, ingress: rules(), ..policy })
    };
    let asked = |policy| {
        let world = with([policy]);
        ["x/a", "y/a", "x/b"].map(|to| ask(&world, "z/b", to, tcp(80)))
    };
    assert_eq!(asked(policy("")), [Drop, Drop, Allow]);
    assert_eq!(asked(policy("x")), [Drop, Allow, Allow]);
}

#[test]
fn an_empty_item_is_nothing_in_the_cluster_and_all_of_a_namespace() {
    let nothing = || AntreaPeer::Pods { namespaces: None, pods: None };
    let in_x = AntreaPolicy {
        ingress: vec![entry(Gone, vec![nothing()])],
        ..antrea("x", "drop", "application", 1.0)
    };
    let world = with([
        antrea_in("drop", "application", 1.0, vec![entry(Gone, vec![nothing()])]),
        Object::AntreaPolicy(in_x),
    ]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&world, "x/b", "x/a", tcp(80)), Drop);
}

#[test]
fn nothing_is_isolated() {
    let world = with([antrea_in("z", "application", 1.0, vec![entry(Let, vec![antrea_of("z")])])]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
}

#[test]
fn to_reject_is_not_to_drop_and_the_first_half_that_denies_decides() {
    let refuse = antrea_in("in", "application", 1.0, vec![entry(Refuse, vec![])]);
    let drop = antrea_out("out", "application", 1.0, vec![entry(Gone, vec![])]);
    assert_eq!(ask(&with([refuse.clone()]), "y/a", "x/a", tcp(80)), Reject);
    assert_eq!(ask(&with([refuse, drop]), "y/a", "x/a", tcp(80)), Drop);
}

#[test]
fn a_rule_may_say_itself_what_it_is_about() {
    let mut narrow = entry(Gone, vec![]);
    narrow.applied_to = vec![applied(None, Some("app=b"))];
    let world = with([antrea_in("drop", "application", 1.0, vec![narrow])]);
    assert_eq!(ask(&world, "y/a", "x/b", tcp(80)), Drop);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
}

#[test]
fn peers_of_the_same_namespace_are_the_subjects_own() {
    let same = AntreaPeer::Matching { namespaces: NamespaceMatch::Same, pods: None };
    let rules = vec![entry(Pass, vec![same]), entry(Gone, vec![])];
    let world = with([antrea_in("fence", "application", 1.0, rules)]);
    let asked = ["x/a", "y/a", "n1", OUTSIDE].map(|from| ask(&world, from, "x/b", tcp(80)));
    assert_eq!(asked, [Allow, Drop, Allow, Drop]);
}

#[test]
fn peers_of_the_same_labels_are_void_for_a_subject_that_lacks_one() {
    let team = NamespaceMatch::SameLabels(vec!["team".to_owned()]);
    let same = AntreaPeer::Matching { namespaces: team, pods: None };
    let rules = vec![entry(Pass, vec![same]), entry(Gone, vec![])];
    let mut world = with([antrea_in("fence", "application", 1.0, rules)]);
    assert_eq!(ask(&world, "x/a", "x/b", tcp(80)), Allow);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Drop);
    assert_eq!(ask(&world, "z/a", "z/b", tcp(80)), Drop);
    world.insert(a_namespace("y", Some("red")));
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
}

#[test]
fn a_service_account_is_that_of_the_pod() {
    let ci = AntreaPeer::ServiceAccount(named("y", "ci"));
    let rules = vec![entry(Gone, vec![ci])];
    let mut world = with([antrea_in("drop", "application", 1.0, rules)]);
    let pod = Pod { service_account: "ci".to_owned(), ..a_pod("y", "a", "10.0.1.1") };
    world.insert(Object::Pod(pod));
    let asked = ["y/a", "y/b"].map(|from| ask(&world, from, "x/a", tcp(80)));
    assert_eq!(asked, [Drop, Allow]);
}

#[test]
fn a_source_port_and_icmp_types_are_matched() {
    let port = |port| AntreaRule { ports: vec![port], ..rule_of(Gone) };
    let from = AntreaPort::Transport {
        protocol: Protocol::Tcp,
        port: Some(range(80, 80)),
        source: Some(PortRange { first: 1000, last: 2000 }),
    };
    let echo = AntreaPort::Icmp(Icmp { kind: Some(8), code: None });
    let rules = vec![entry_of(port(from)), entry_of(port(echo))];
    let world = with([antrea_in("drop", "application", 1.0, rules)]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    let segment = Segment::Ports { protocol: Protocol::Tcp, source: 2000, destination: 80 };
    assert_eq!(ask(&world, "y/a", "x/a", segment), Drop);
    assert_eq!(ask(&world, "y/a", "x/a", Segment::Icmp { kind: 8, code: 3 }), Drop);
    let six = Segment::Icmp { kind: 128, code: 0 };
    assert_eq!(ask(&world, "fd00::1:1", "fd00::0:1", six), Allow);
}

fn rule_of(action: AntreaAction) -> AntreaRule {
    let entry = entry(action, vec![]);
    entry.rule.known().cloned().expect("a rule of a test")
}

#[test]
fn a_service_is_its_own_address_and_not_its_pods() {
    let services = vec![named("y", "db")];
    let rule = AntreaRule { services, ..rule_of(Gone) };
    let mut world = with([antrea_out("drop", "application", 1.0, vec![entry_of(rule)])]);
    let direct = packet(&world, "x/a", "y/a", tcp(80));
    let through = Packet { service: Some(ip(VIP)), ..direct.clone() };
    assert_eq!(verdict(&world, &through).decision, Allow, "there is no such Service");
    world.insert(service("y", "db", Some("app=a")));
    assert_eq!(verdict(&world, &through).decision, Drop);
    assert_eq!(verdict(&world, &direct).decision, Allow);
    let other = Packet { service: Some(ip("172.20.0.11")), ..direct };
    assert_eq!(verdict(&world, &other).decision, Allow);
}

#[test]
fn a_pattern_of_names_goes_over_dots() {
    let pattern = |text: &str| AntreaPeer::Fqdn(FqdnPattern(text.to_owned()));
    let cases = [
        ("*foobar.com", "foobar.com", true),
        ("*foobar.com", "a.b.foobar.com", true),
        ("a*b*c", "a.c.b.b.c", true),
        ("a*b*c", "ac", false),
        ("a*a", "a", false),
        ("*", "anything.at.all", true),
        ("www.example.org", "ww.example.org", false),
    ];
    for (text, name, wanted) in cases {
        let rules = vec![entry(Gone, vec![pattern(text)])];
        let mut world = with([antrea_out("drop", "application", 1.0, rules)]);
        world.name(ip(OUTSIDE), name);
        let decision = ask(&world, "x/a", OUTSIDE, tcp(443));
        assert_eq!(decision == Drop, wanted, "{text} {name}");
    }
}

/// Returns true for each dropped packet of y/a, z/a, outside and node n2 to x/a. A rule drops a group's members.
fn dropped(objects: Vec<Object>) -> [bool; 4] {
    let peer = AntreaPeer::Group("g".to_owned());
    let drop = antrea_in("drop", "application", 1.0, vec![entry(Gone, vec![peer])]);
    let world = with(objects.into_iter().chain([drop]));
    ["y/a", "z/a", OUTSIDE, "n2"].map(|from| ask(&world, from, "x/a", tcp(80)) == Drop)
}

fn of_y() -> GroupSpec {
    GroupSpec::Pods { namespaces: Some(select("team=blue")), pods: None }
}

fn children(names: &[&str]) -> GroupSpec {
    GroupSpec::Children(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn a_group_is_pods_ranges_nodes_a_service_or_children() {
    let one = |spec| dropped(vec![group("", "g", spec)]);
    assert_eq!(one(GroupSpec::Empty), [false; 4]);
    assert_eq!(one(of_y()), [true, false, false, false]);
    let ranges = GroupSpec::Blocks(vec![block("198.51.100.0/24", &[]), block("10.0.2.1/32", &[])]);
    assert_eq!(one(ranges.clone()), [false, true, true, false]);
    assert_eq!(one(GroupSpec::Nodes(select("host=n2"))), [false, false, false, true]);
    let behind = GroupSpec::Service(named("z", "db"));
    assert_eq!(one(behind.clone()), [false; 4], "a missing Service has no pods");
    let g = || group("", "g", behind.clone());
    assert_eq!(dropped(vec![g(), service("z", "db", None)]), [false; 4]);
    assert_eq!(dropped(vec![g(), service("z", "db", Some("app=a"))]), [false, true, false, false]);
    let both = vec![
        group("", "g", children(&["pods", "ranges"])),
        group("", "pods", of_y()),
        group("", "ranges", ranges),
    ];
    assert_eq!(dropped(both), [true, true, true, false]);
    let with_missing = vec![group("", "g", children(&["pods", "none"])), group("", "pods", of_y())];
    let pods_alone = vec![group("", "g", children(&["pods"])), group("", "pods", of_y())];
    assert_eq!(dropped(with_missing), dropped(pods_alone), "a missing child has no members");
    assert_eq!(dropped(vec![group("", "g", children(&["none"]))]), [false; 4]);
}

#[test]
fn a_group_that_cannot_be_used_drops_all_and_allows_nothing() {
    let g = |spec| group("", "g", spec);
    let unknown = Object::Group(Group { meta: meta("", "g"), spec: not_read(None) });
    let of_a_namespace = group("x", "g", of_y());
    let cases = [
        vec![],
        vec![unknown],
        vec![of_a_namespace],
        vec![g(children(&["g"]))],
        vec![g(children(&["h"])), group("", "h", children(&["g"]))],
        vec![g(children(&["h"])), group("", "h", children(&["pods"])), group("", "pods", of_y())],
    ];
    for objects in cases {
        assert_eq!(dropped(objects.clone()), [true; 4], "{objects:?}");
        let peer = || vec![AntreaPeer::Group("g".to_owned())];
        let rules = |action| vec![entry(action, peer()), entry(Refuse, vec![])];
        let asked = |action| {
            let policy = antrea_in("p", "application", 1.0, rules(action));
            ask(&with(objects.clone().into_iter().chain([policy])), "y/a", "x/a", tcp(80))
        };
        assert_eq!(asked(Let), Reject, "{objects:?}");
        assert_eq!(asked(Pass), Drop, "{objects:?}");
    }
}

#[test]
fn a_missing_group_selects_no_pod_and_other_subjects_stay() {
    let mut policy = antrea("", "drop", "application", 1.0);
    let missing = sure(AntreaAppliedTo::Group("none".to_owned()));
    policy.applied_to = vec![missing, applied(None, Some("app=b"))];
    policy.ingress = vec![entry(Gone, vec![])];
    let world = with([Object::AntreaPolicy(policy)]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    assert_eq!(ask(&world, "y/a", "x/b", tcp(80)), Drop);
}

/// Decisions for y/a to x/a, y/a to z/a, z/b to x/a by rules about the ClusterGroup `g`, then a Reject.
fn about_g(action: AntreaAction, objects: &[Object]) -> [Decision; 3] {
    let mut policy = antrea("", "odd", "application", 1.0);
    policy.applied_to = vec![sure(AntreaAppliedTo::Group("g".to_owned()))];
    policy.ingress = vec![entry(action, vec![antrea_of("y")])];
    let refuse = antrea_in("refuse", "application", 2.0, vec![entry(Refuse, vec![])]);
    let world = with(objects.iter().cloned().chain([Object::AntreaPolicy(policy), refuse]));
    [("y/a", "x/a"), ("y/a", "z/a"), ("z/b", "x/a")]
        .map(|(from, to)| ask(&world, from, to, tcp(80)))
}

#[test]
fn a_group_that_is_there_and_not_understood_is_all_pods_to_what_denies() {
    let g = |spec| group("", "g", spec);
    let odd = |name: &str| Object::Group(Group { meta: meta("", name), spec: not_read(None) });
    let pods = || group("", "pods", of_y());
    let Object::Service(mut service) = service("z", "db", None) else { panic!("another kind") };
    service.selector = not_read(None);
    let behind = g(GroupSpec::Service(named("z", "db")));
    let cases = [
        vec![odd("g")],
        vec![g(children(&["g"]))],
        vec![g(children(&["pods", "h"])), pods(), odd("h")],
        vec![g(children(&["h"])), group("", "h", children(&["pods"])), pods()],
        vec![behind, Object::Service(service)],
    ];
    for objects in cases {
        assert_eq!(about_g(Let, &objects), [Reject; 3], "{objects:?}");
        assert_eq!(about_g(Gone, &objects), [Drop, Drop, Reject], "{objects:?}");
        assert_eq!(about_g(Pass, &objects), [Drop; 3], "{objects:?}");
    }
    // A missing object, and an object that is not a pod, has no members.
    let with_pods = vec![g(children(&["none", "pods"])), group("", "pods", one_of_x())];
    assert_eq!(about_g(Gone, &with_pods), [Drop, Reject, Reject]);
    for objects in [vec![], vec![g(GroupSpec::External)], vec![g(children(&["none"]))]] {
        assert_eq!(about_g(Gone, &objects), [Reject; 3], "{objects:?}");
    }
}

fn one_of_x() -> GroupSpec {
    GroupSpec::Pods { namespaces: Some(select("kubernetes.io/metadata.name=x")), pods: None }
}

#[test]
fn a_group_of_a_namespace_that_is_not_understood_is_all_of_that_namespace() {
    let mut policy = antrea("x", "drop", "application", 1.0);
    policy.applied_to = vec![sure(AntreaAppliedTo::Group("g".to_owned()))];
    policy.ingress = vec![entry(Gone, vec![])];
    let odd = Object::Group(Group { meta: meta("x", "g"), spec: not_read(None) });
    let world = with([Object::AntreaPolicy(policy), odd]);
    let asked = ["x/a", "x/c", "y/a"].map(|to| ask(&world, "z/a", to, tcp(80)));
    assert_eq!(asked, [Drop, Drop, Allow]);
}

#[test]
fn what_is_applied_to_a_service_denies_all_to_its_pods_and_to_nodes_nothing() {
    let asked = |action, to: AntreaAppliedTo, service: Vec<Object>| {
        let mut policy = antrea("", "odd", "application", 1.0);
        policy.applied_to = vec![sure(to)];
        policy.ingress = vec![entry(action, vec![antrea_of("y")])];
        let world = with(service.into_iter().chain([Object::AntreaPolicy(policy)]));
        [("z/b", "x/a"), ("z/b", "x/b"), ("y/a", "z/a")]
            .map(|(from, to)| ask(&world, from, to, tcp(80)))
    };
    let there = || vec![service("x", "s", Some("app=a"))];
    let to = || AntreaAppliedTo::Service(Some(named("x", "s")));
    for action in [Gone, Refuse, Pass] {
        assert_eq!(asked(action, to(), there()), [Drop, Allow, Allow]);
        assert_eq!(asked(action, to(), vec![]), [Allow; 3]);
        assert_eq!(asked(action, AntreaAppliedTo::Service(None), vec![]), [Drop; 3]);
    }
    assert_eq!(asked(Let, to(), there()), [Allow; 3]);
    assert_eq!(asked(Gone, AntreaAppliedTo::Nodes, vec![]), [Allow; 3]);
    assert_eq!(asked(Gone, AntreaAppliedTo::External, vec![]), [Allow; 3]);
}

#[test]
fn a_service_whose_address_is_not_understood_fails_closed() {
    let Object::Service(mut service) = service("z", "db", None) else { panic!("another kind") };
    service.cluster_ips = not_read(None);
    let asked = |action| {
        let mut to_service = entry(action, vec![]);
        let Read::Known(rule) = &mut to_service.rule else { panic!("it is known") };
        rule.services = vec![named("z", "db")];
        let out = antrea_out("p", "application", 1.0, vec![to_service, entry(Refuse, vec![])]);
        ask(&with([out, Object::Service(service.clone())]), "x/a", "y/a", tcp(80))
    };
    assert_eq!([Let, Gone, Pass].map(asked), [Reject, Drop, Drop]);
}

#[test]
fn a_policy_of_a_namespace_never_judges_pods_of_another() {
    let mut policy = antrea("x", "drop", "application", 1.0);
    policy.applied_to = vec![sure(AntreaAppliedTo::Group("all".to_owned()))];
    policy.ingress = vec![entry(Gone, vec![])];
    let everywhere = GroupSpec::Pods { namespaces: Some(select("")), pods: None };
    let world = with([Object::AntreaPolicy(policy), group("x", "all", everywhere)]);
    assert_eq!(ask(&world, "z/a", "x/a", tcp(80)), Drop);
    assert_eq!(ask(&world, "z/a", "y/a", tcp(80)), Allow);
}

#[test]
fn what_is_not_understood_allows_nothing_and_drops_all() {
    let asked = |action| {
        let odd = AntreaEntry { applied_to: vec![], rule: not_read(action) };
        let rules = vec![odd, entry(Refuse, vec![])];
        ask(&with([antrea_in("p", "application", 1.0, rules)]), "y/a", "x/a", tcp(80))
    };
    assert_eq!(asked(Some("Allow")), Reject);
    for action in [Some("Drop"), Some("Reject"), Some("Pass"), Some("Accept"), None] {
        assert_eq!(asked(action), Drop, "{action:?}");
    }
}

#[test]
fn one_doubtful_subject_of_several_spoils_what_allows() {
    let asked = |action| {
        let mut policy = antrea("", "odd", "application", 1.0);
        let doubt = Some("an operator that nobody knows".to_owned());
        policy.applied_to =
            vec![applied(None, Some("app=a")), Subject { doubt, ..applied(None, Some("app=b")) }];
        policy.ingress = vec![entry(action, vec![antrea_of("y")])];
        let refuse = antrea_in("refuse", "application", 2.0, vec![entry(Refuse, vec![])]);
        let world = with([Object::AntreaPolicy(policy), refuse]);
        ["x/a", "x/b", "x/c"].map(|to| ask(&world, "y/a", to, tcp(80)))
    };
    assert_eq!(asked(Let), [Reject; 3]);
    assert_eq!(asked(Gone), [Drop, Drop, Reject]);
    assert_eq!(asked(Pass), [Drop, Drop, Reject]);
}
