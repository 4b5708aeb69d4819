//! The one order, and what a Pass ends.

use super::*;
use AntreaAction::{Allow as Let, Drop as Gone, Pass};
use Decision::{Allow, Drop};

fn from_y(action: AntreaAction) -> Vec<AntreaEntry> {
    vec![entry(action, vec![antrea_of("y")])]
}

fn antrea_at(tier: &str, priority: f64, action: AntreaAction) -> Object {
    antrea_in(&format!("{tier}-{priority}"), tier, priority, from_y(action))
}

fn of_cluster(tier: ClusterTier, action: ClusterAction) -> Object {
    let name = format!("{tier:?}");
    Object::ClusterPolicy(cluster(&name, tier, 0, "", Direction::Ingress, vec![about(action, "y")]))
}

fn a_tier(name: &str, number: u8) -> Object {
    Object::Tier(Tier { meta: meta("", name), priority: Read::Known(number) })
}

fn asked(policies: impl IntoIterator<Item = Object>) -> Decision {
    ask(&with(policies), "y/a", "x/a", tcp(80))
}

#[test]
fn the_tier_is_before_the_priority_and_the_priority_before_the_kind() {
    assert_eq!(
        asked([antrea_at("emergency", 20.0, Let), antrea_at("application", 1.0, Gone)]),
        Allow
    );
    let own = AntreaPolicy { ingress: from_y(Let), ..antrea("x", "own", "application", 5.0) };
    let own = Object::AntreaPolicy(own);
    assert_eq!(asked([antrea_at("application", 10.0, Gone), own.clone()]), Allow);
    assert_eq!(asked([antrea_at("application", 5.0, Gone), own]), Drop, "the cluster's is first");
    assert_eq!(
        asked([antrea_at("application", 1.25, Gone), antrea_at("application", 1.5, Let)]),
        Drop
    );
}

#[test]
fn antreas_tiers_stand_on_both_sides_of_the_admin_tier() {
    use ClusterAction::Accept;
    let admin = || of_cluster(ClusterTier::Admin, Accept);
    assert_eq!(asked([antrea_at("platform", 1.0, Gone), admin()]), Drop);
    assert_eq!(asked([antrea_at("application", 1.0, Gone), admin()]), Allow);
    for (number, wanted) in [(219, Drop), (220, Allow), (221, Allow)] {
        let world = [a_tier("own", number), antrea_at("own", 1.0, Gone), admin()];
        assert_eq!(asked(world), wanted, "{number}");
    }
}

#[test]
fn networkpolicies_are_after_250_and_before_what_is_above() {
    let closed = || let_in("x", "", vec![]);
    for (number, wanted) in [(250, Allow), (251, Drop), (253, Drop), (255, Drop)] {
        let world = [a_tier("own", number), antrea_at("own", 1.0, Let), closed()];
        assert_eq!(asked(world), wanted, "{number}");
    }
    assert_eq!(asked([antrea_at("baseline", 1.0, Let), closed()]), Drop);
    let open = let_in("x", "", vec![rule(vec![], vec![])]);
    assert_eq!(asked([antrea_at("baseline", 1.0, Gone), open]), Allow);
    assert_eq!(asked([antrea_at("baseline", 1.0, Gone)]), Drop);
}

#[test]
fn antreas_baseline_is_before_the_clusters() {
    let base = |action| of_cluster(ClusterTier::Baseline, action);
    assert_eq!(asked([antrea_at("baseline", 1.0, Gone), base(ClusterAction::Accept)]), Drop);
    assert_eq!(asked([antrea_at("baseline", 1.0, Let), base(ClusterAction::Deny)]), Allow);
}

#[test]
fn a_missing_tier_is_application_and_a_tier_has_its_number() {
    let refused = |own: Object| asked([own, antrea_at("application", 2.0, Let)]);
    assert_eq!(refused(antrea_at("none", 1.0, Gone)), Drop);
    assert_eq!(refused(antrea_at("none", 3.0, Gone)), Allow);
    let mut world = with([antrea_at("own", 3.0, Gone), antrea_at("application", 2.0, Let)]);
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    world.insert(a_tier("own", 10));
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Drop);
    world.insert(Object::Tier(Tier { meta: meta("", "own"), priority: not_read(None) }));
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    world.insert(a_tier("own", 10));
    world.remove(Kind::AntreaTier, "", "own");
    assert_eq!(ask(&world, "y/a", "x/a", tcp(80)), Allow);
    assert_eq!(world.policies().count(), 2);
}

#[test]
fn a_pass_ends_its_own_familys_walk_and_not_the_others() {
    let pass = || antrea_at("securityops", 1.0, Pass);
    assert_eq!(asked([pass(), antrea_at("platform", 1.0, Gone)]), Allow);
    assert_eq!(asked([pass(), of_cluster(ClusterTier::Admin, ClusterAction::Deny)]), Drop);
    let admin = || of_cluster(ClusterTier::Admin, ClusterAction::Pass);
    assert_eq!(asked([admin(), antrea_at("application", 1.0, Gone)]), Drop);
    assert_eq!(
        asked([pass(), antrea_at("platform", 1.0, Gone), antrea_at("baseline", 1.0, Gone)]),
        Drop,
        "its baseline is after NetworkPolicies"
    );
    assert_eq!(asked([pass(), let_in("x", "", vec![])]), Drop);
}

#[test]
fn a_pass_of_a_baseline_leaves_its_tier_alone() {
    let base = |action| of_cluster(ClusterTier::Baseline, action);
    let pass = || antrea_at("baseline", 1.0, Pass);
    assert_eq!(asked([pass(), antrea_at("baseline", 2.0, Gone)]), Allow);
    assert_eq!(asked([pass(), base(ClusterAction::Deny)]), Drop);
    let late = [a_tier("late", 255), antrea_at("late", 1.0, Gone)];
    assert_eq!(asked([pass()].into_iter().chain(late)), Drop);
}

#[test]
fn rules_after_a_pass_are_marked_as_skipped() {
    let world = with([antrea_at("securityops", 1.0, Pass), antrea_at("platform", 1.0, Gone)]);
    let verdict = verdict(&world, &packet(&world, "y/a", "x/a", tcp(80)));
    let half = verdict.ingress.expect("the destination is a pod");
    let why: Vec<&WhyNot> = half.earlier.iter().map(|earlier| &earlier.why).collect();
    let [WhyNot::PassesOn, WhyNot::Skipped { by }] = why.as_slice() else { panic!("{why:?}") };
    assert_eq!(by.policy.name, "securityops-1");
}
