use super::*;
use crate::stage::*;
use policy_objects::*;

fn found(world: &World) -> Vec<(Check, String, String)> {
    let brief = |finding: Finding| (finding.check, finding.object.name, finding.field);
    lint(world, &Aside::default()).into_iter().map(brief).collect()
}

fn one(check: Check, name: &str, field: &str) -> (Check, String, String) {
    (check, name.to_owned(), field.to_owned())
}

fn from(namespace: &str, action: AntreaAction) -> AntreaEntry {
    entry(action, vec![antrea_of(namespace)])
}

fn cluster_rule(tier: ClusterTier, name: &str, action: ClusterAction) -> Object {
    let rules = vec![about(action, "y")];
    Object::ClusterPolicy(cluster(name, tier, 0, "", Direction::Ingress, rules))
}

#[test]
fn a_world_in_order_has_no_findings() {
    let world = with([
        let_in("x", "app=a", vec![rule(vec![pods(Some("team=blue"), None)], vec![])]),
        antrea_in("one", "application", 1.0, vec![from("y", AntreaAction::Allow)]),
        antrea_in("two", "application", 2.0, vec![entry(AntreaAction::Drop, vec![])]),
    ]);
    assert_eq!(found(&world), []);
}

#[test]
fn notes_and_foreign_kinds_come_first_if_they_are_worse() {
    let meta = meta("x", "np");
    let object = ObjectName::new(Kind::NetworkPolicy, &meta);
    let note =
        |severity, text: &str| Note { severity, field: "spec".to_owned(), text: text.to_owned() };
    let aside = Aside {
        notes: vec![
            (object.clone(), note(Severity::Warning, "odd")),
            (object, note(Severity::Error, "not understood")),
        ],
        foreign: vec![Foreign {
            api_version: "policy.networking.k8s.io/v1alpha1".to_owned(),
            kind: "AdminNetworkPolicy".to_owned(),
            namespace: String::new(),
            name: "old".to_owned(),
        }],
    };
    let texts: Vec<String> =
        lint(&World::default(), &aside).iter().map(Finding::to_string).collect();
    assert_eq!(
        texts,
        [
            "error: AdminNetworkPolicy.policy.networking.k8s.io old: it is not enforced: \
             `ferrule policy convert` writes it in a version that is",
            "error: NetworkPolicy x/np spec: not understood",
            "warning: NetworkPolicy x/np spec: odd",
        ]
    );
}

#[test]
fn unknown_kinds_of_a_policy_group_are_distinguished_from_other_kinds() {
    let foreign = |api_version: &str, kind: &str| Foreign {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: "x".to_owned(),
        name: "p".to_owned(),
    };
    let networking = "networking.k8s.io/v1";
    for (version, kind, misspelt, next) in [
        (networking, "Networkpolicy", true, "write it as NetworkPolicy of networking.k8s.io/v1"),
        (networking, "NetworkPolicies", true, "write it as NetworkPolicy of networking.k8s.io/v1"),
        (networking, "NetPol", true, "of networking.k8s.io these kinds are: NetworkPolicy"),
        ("networking.k8s.io/v2", "NetworkPolicy", false, "write it as NetworkPolicy of"),
        ("crd.antrea.io/v1beta1", "ACNP", true, "of crd.antrea.io these kinds are: Tier, "),
        ("crd.antrea.io/v1alpha1", "Tier", false, "`ferrule policy convert`"),
        ("v1", "pods", true, "write it as Pod of v1"),
        ("v1", "ConfigMap", false, ""),
        (networking, "Ingress", false, ""),
        ("crd.antrea.io/v1beta1", "Egress", false, ""),
        ("networking.k8s.aws/v1alpha1", "PolicyEndpoint", false, ""),
        ("cilium.io/v2", "CiliumNetworkPolicy", false, "write it as a NetworkPolicy or"),
    ] {
        let foreign = foreign(version, kind);
        assert_eq!(foreign.is_misspelled(), misspelt, "{version} {kind}");
        assert!(foreign.next().starts_with(next), "{version} {kind}: {}", foreign.next());
    }
}

#[test]
fn a_tie_is_reported_where_the_order_could_matter() {
    let tie = |action, tier| {
        with([
            antrea_in("one", "application", 5.0, vec![from("y", AntreaAction::Allow)]),
            antrea_in("two", tier, 5.0, vec![from("z", action)]),
        ])
    };
    let wanted = [one(Check::Tie, "two", "spec.priority")];
    assert_eq!(found(&tie(AntreaAction::Drop, "application")), wanted);
    assert_eq!(found(&tie(AntreaAction::Allow, "application")), []);
    assert_eq!(found(&tie(AntreaAction::Drop, "platform")), []);
    let clusters = with([
        cluster_rule(ClusterTier::Admin, "one", ClusterAction::Deny),
        Object::ClusterPolicy(cluster(
            "two",
            ClusterTier::Admin,
            0,
            "",
            Direction::Ingress,
            vec![about(ClusterAction::Accept, "z")],
        )),
    ]);
    assert_eq!(found(&clusters), wanted);
}

#[test]
fn tiers_with_duplicate_or_reserved_numbers_are_reported() {
    let tier =
        |name, number| Object::Tier(Tier { meta: meta("", name), priority: Read::Known(number) });
    let world = with([tier("a", 10), tier("b", 10), tier("c", 220), tier("d", 252)]);
    let wanted = ["b", "c", "d"].map(|name| one(Check::Tie, name, "spec.priority"));
    assert_eq!(found(&world), wanted);
    let world = with([tier("baseline", 253), tier("application", 250)]);
    assert_eq!(found(&world), []);
}

#[test]
fn a_rule_behind_one_that_matches_all_of_it_is_shadowed() {
    let shadowed = [one(Check::Shadowed, "p", "spec.ingress[1]")];
    let rules = |first, second| with([antrea_in("p", "application", 1.0, vec![first, second])]);
    use AntreaAction::{Allow, Drop, Pass};
    let wide = || entry(Drop, vec![]);
    assert_eq!(found(&rules(wide(), from("y", Allow))), shadowed);
    assert_eq!(found(&rules(from("y", Allow), wide())), []);
    assert_eq!(found(&rules(from("y", Allow), from("z", Drop))), []);
    assert_eq!(found(&rules(entry(Pass, vec![]), from("y", Drop))), shadowed);
    let range = |text, holes: &[&str]| entry(Drop, vec![AntreaPeer::Block(block(text, holes))]);
    assert_eq!(found(&rules(range("10.0.0.0/8", &[]), range("10.1.0.0/16", &[]))), shadowed);
    let holed = || range("10.0.0.0/8", &["10.1.2.0/24"]);
    assert_eq!(found(&rules(holed(), range("10.1.0.0/16", &[]))), []);
    assert_eq!(found(&rules(holed(), range("10.2.0.0/16", &[]))), shadowed);
    assert_eq!(found(&rules(holed(), range("10.1.0.0/16", &["10.1.2.0/23"]))), shadowed);
    let everybody = ["0.0.0.0/0", "::/0"].map(|all| AntreaPeer::Block(block(all, &[]))).to_vec();
    assert_eq!(found(&rules(entry(Drop, everybody), from("y", Allow))), shadowed);
}

#[test]
fn ports_and_subjects_are_part_of_what_is_covered() {
    use AntreaAction::{Allow, Drop};
    let at = |action, first, last| {
        let mut entry = entry(action, vec![]);
        let Read::Known(rule) = &mut entry.rule else { return entry };
        let port = Some(range(first, last));
        rule.ports = vec![AntreaPort::Transport { protocol: Protocol::Tcp, port, source: None }];
        entry
    };
    let rules = |first, second| with([antrea_in("p", "application", 1.0, vec![first, second])]);
    let shadowed = [one(Check::Shadowed, "p", "spec.ingress[1]")];
    assert_eq!(found(&rules(at(Drop, 1, 100), at(Allow, 80, 80))), shadowed);
    assert_eq!(found(&rules(at(Drop, 1, 79), at(Allow, 80, 80))), []);
    let of = |labels: &str| AntreaEntry {
        applied_to: vec![applied(None, Some(labels))],
        ..entry(Drop, vec![])
    };
    assert_eq!(found(&rules(of("app"), of("app=a"))), shadowed);
    assert_eq!(found(&rules(of("app=b"), of("app=a"))), []);
}

#[test]
fn what_may_be_reached_past_the_earlier_rule_is_not_shadowed() {
    use ClusterAction::{Accept, Deny};
    let drop_y = || vec![from("y", AntreaAction::Drop)];
    let world = with([
        antrea_in("early", "platform", 1.0, drop_y()),
        cluster_rule(ClusterTier::Admin, "late", Accept),
    ]);
    assert_eq!(found(&world), [], "a Service hairpin passes the one and not the other");
    let world = with([
        cluster_rule(ClusterTier::Admin, "early", Deny),
        antrea_in("late", "application", 1.0, drop_y()),
        let_in("x", "", vec![rule(vec![pods(Some(&of("y")), None)], vec![])]),
    ]);
    let wanted = ["late", "np"].map(|name| one(Check::Shadowed, name, "spec.ingress[0]"));
    assert_eq!(found(&world), wanted);
    let pass = cluster(
        "a",
        ClusterTier::Admin,
        0,
        "",
        Direction::Ingress,
        vec![about(ClusterAction::Pass, "z"), about(Deny, "y")],
    );
    let world = with([
        Object::ClusterPolicy(pass),
        let_in("x", "", vec![rule(vec![pods(Some(&of("y")), None)], vec![])]),
    ]);
    assert_eq!(found(&world), [], "NetworkPolicies decide about passed traffic");
}

#[test]
fn a_pass_without_effect_on_the_other_family_is_reported() {
    let world = with([
        antrea_in("pass", "platform", 1.0, vec![from("y", AntreaAction::Pass)]),
        cluster_rule(ClusterTier::Admin, "admin", ClusterAction::Deny),
    ]);
    assert_eq!(found(&world), [one(Check::Pass, "pass", "spec.ingress[0]")]);
    let world = with([
        cluster_rule(ClusterTier::Admin, "pass", ClusterAction::Pass),
        antrea_in("late", "application", 1.0, vec![from("y", AntreaAction::Drop)]),
    ]);
    assert_eq!(found(&world), [one(Check::Pass, "pass", "spec.ingress[0]")]);
    let world = with([
        antrea_in("early", "platform", 1.0, vec![from("y", AntreaAction::Drop)]),
        cluster_rule(ClusterTier::Admin, "pass", ClusterAction::Pass),
    ]);
    assert_eq!(found(&world), []);
    let pass = vec![from("y", AntreaAction::Pass)];
    let world = with([antrea_in("base", "baseline", 1.0, pass)]);
    assert_eq!(found(&world), [one(Check::Pass, "base", "spec.ingress[0]")]);
}

#[test]
fn missing_groups_tiers_and_services_are_reported() {
    let rules = vec![entry(AntreaAction::Drop, vec![AntreaPeer::Group("none".to_owned())])];
    let world = with([antrea_in("p", "nowhere", 1.0, rules)]);
    let rule = one(Check::Missing, "p", "spec.ingress[0]");
    assert_eq!(found(&world), [rule.clone(), one(Check::Missing, "p", "spec.tier")]);

    let mut policy = antrea("x", "p", "application", 1.0);
    policy.applied_to = vec![sure(AntreaAppliedTo::Group("g".to_owned()))];
    policy.ingress = vec![entry(AntreaAction::Drop, vec![])];
    let policy = Object::AntreaPolicy(policy);
    let nobody = one(Check::MatchesNothing, "p", "");
    assert_eq!(found(&with([policy.clone()])), [rule.clone(), nobody.clone()]);
    let addresses = group("x", "g", GroupSpec::Blocks(vec![block("10.0.0.0/8", &[])]));
    assert_eq!(found(&with([policy.clone(), addresses])), [nobody, rule.clone()]);
    let all = GroupSpec::Pods { namespaces: Some(select("")), pods: None };
    assert_eq!(found(&with([policy, group("x", "g", all)])), [rule]);
}

#[test]
fn unusable_and_empty_groups_are_reported() {
    let nested = group("", "g", GroupSpec::Children(vec!["g".to_owned()]));
    assert_eq!(found(&with([nested])), [one(Check::Missing, "g", "spec")]);
    let name = Named { namespace: "z".to_owned(), name: "db".to_owned() };
    let behind = || group("", "g", GroupSpec::Service(name.clone()));
    let wanted = [one(Check::Missing, "g", "spec")];
    assert_eq!(found(&with([behind()])), wanted);
    assert_eq!(found(&with([behind(), service("z", "db", None)])), wanted);
    assert_eq!(found(&with([behind(), service("z", "db", Some("app=a"))])), []);
}

#[test]
fn selectors_and_port_names_without_a_match_are_reported() {
    let world = with([let_in("x", "app=none", vec![])]);
    assert_eq!(found(&world), [one(Check::MatchesNothing, "np", "")]);
    let odd =
        NetworkPort { protocol: Protocol::Udp, port: Some(TargetPort::Named("web".to_owned())) };
    let rules = vec![
        rule(vec![pods(Some("team=green"), None), pods(None, None)], vec![]),
        rule(vec![], vec![odd]),
    ];
    let wanted = ["spec.ingress[0]", "spec.ingress[1]"];
    let wanted = wanted.map(|field| one(Check::MatchesNothing, "np", field));
    assert_eq!(found(&with([let_in("x", "", rules.clone())])), wanted);
    let alone = World::new([let_in("x", "", rules)]);
    assert_eq!(found(&alone), [], "without pods every selector is empty");
}

#[test]
fn a_policy_without_rules_and_isolation_does_nothing() {
    let world = with([antrea_in("p", "application", 1.0, vec![]), let_in("x", "", vec![])]);
    assert_eq!(found(&world), [one(Check::MatchesNothing, "p", "")]);
}

#[test]
fn policies_that_are_never_about_one_pod_neither_tie_nor_are_passed_to() {
    let of = |namespace: &str, pods: &str, action| {
        let mut policy = antrea(namespace, "p", "platform", 5.0);
        policy.applied_to = vec![applied(None, Some(pods))];
        policy.ingress = vec![entry(action, vec![])];
        Object::AntreaPolicy(policy)
    };
    let two = |one, other| found(&with([one, other]));
    let (allow, drop, pass) = (AntreaAction::Allow, AntreaAction::Drop, AntreaAction::Pass);
    assert_eq!(two(of("x", "", allow), of("y", "", drop)), []);
    assert_eq!(two(of("", "app=a", allow), of("y", "app=b", drop)), []);
    let wanted = one(Check::Tie, "p", "spec.priority");
    assert!(two(of("", "app=a", allow), of("y", "", drop)).contains(&wanted));
    assert!(two(of("", "app", allow), of("y", "app=b", drop)).contains(&wanted));

    let admin = |pods: &str| {
        let rules = vec![about(ClusterAction::Deny, "y")];
        let mut policy = cluster("q", ClusterTier::Admin, 0, "", Direction::Ingress, rules);
        policy.subject.selects.pods = select(pods);
        Object::ClusterPolicy(policy)
    };
    assert_eq!(two(of("x", "app=a", pass), admin("app=b")), []);
    let wanted = [one(Check::Pass, "p", "spec.ingress[0]")];
    assert_eq!(two(of("x", "app=a", pass), admin("app=a")), wanted);
}

#[test]
fn names_with_a_final_dot_and_services_without_an_address_are_reported() {
    let fqdn = |name: &str| AntreaPeer::Fqdn(FqdnPattern(name.to_owned()));
    let world = |rule| with([antrea_out("p", "platform", 1.0, vec![rule])]);
    let wanted = [one(Check::Missing, "p", "spec.egress[0]")];
    assert_eq!(found(&world(entry(AntreaAction::Drop, vec![fqdn("evil.com.")]))), wanted);
    assert_eq!(found(&world(entry(AntreaAction::Drop, vec![fqdn("evil.com")]))), []);

    let mut to_service = entry(AntreaAction::Drop, vec![]);
    let name = Named { namespace: "x".to_owned(), name: "db".to_owned() };
    if let Read::Known(rule) = &mut to_service.rule {
        rule.services = vec![name];
    }
    let mut world = world(to_service);
    assert_eq!(found(&world), wanted);
    world.insert(service("x", "db", Some("app=a")));
    assert_eq!(found(&world), []);
    let Object::Service(mut headless) = service("x", "db", Some("app=a")) else { return };
    headless.cluster_ips = Read::Known(Vec::new());
    world.insert(Object::Service(headless));
    assert_eq!(found(&world), wanted);
}

#[test]
fn a_huge_priority_is_short() {
    let priority = |number| crate::Priority::new(number).to_string();
    assert_eq!([5.0, 0.5, 1e308].map(priority), ["5", "0.5", "1e308"]);
}
