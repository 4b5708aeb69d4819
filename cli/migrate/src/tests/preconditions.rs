//! Facts about Ferrule's image, its role and the settings of `aws-node`.

use super::node::{Node, pod};
use crate::{Cluster, DaemonSet, Step, check};
use config_model::Owner;
use std::collections::{BTreeMap, BTreeSet};

fn node() -> Node {
    Node::of_theirs(vec![pod(0, 0)])
}

fn facts(node: &Node) -> String {
    node.plan(Owner::Ferrule).facts.join("\n")
}

fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn each_difference_of_the_settings_is_named() {
    let mut node = node();
    node.settings.defaults =
        values(&[("WARM_IP_TARGET", "0"), ("ENABLE_POD_ENI", "false"), ("WARM_ENI_TARGET", "1")]);
    node.settings.vpc_cni = Ok(Some(values(&[("WARM_IP_TARGET", "5"), ("ENABLE_POD_ENI", "F")])));
    let text = facts(&node);
    let line = r#"setting WARM_IP_TARGET: aws-node has "5", Ferrule by default has "0""#;
    assert!(text.contains(line), "{text}");
    assert_eq!(text.matches("setting ").count(), 1, "{text}");
    // The running daemon has the chart's values.
    node.settings.ferrule = Some(values(&[("WARM_IP_TARGET", " 5"), ("WARM_ENI_TARGET", "2")]));
    let text = facts(&node);
    let line = r#"setting WARM_ENI_TARGET: aws-node has "1", ferrule-ipamd has "2""#;
    assert!(text.contains(line) && text.matches("setting ").count() == 1, "{text}");
    node.settings.ferrule = Some(values(&[("WARM_IP_TARGET", "5")]));
    assert!(facts(&node).contains("settings of aws-node and Ferrule do not differ"));
    node.settings.vpc_cni = Ok(None);
    assert!(facts(&node).contains("aws-node does not run here, so its settings are not compared"));
    node.settings.vpc_cni = Err("no right".to_owned());
    assert!(facts(&node).contains("the settings of aws-node are not compared: no right"));
}

#[test]
fn the_daemon_shows_that_image_and_role_are_usable() {
    let mut node = node();
    assert!(facts(&node).contains("its image and its role are not checked; put the node into"));
    node.their_agent = false;
    node.our_daemon = true;
    let text = facts(&node);
    assert!(text.contains("its image is on the node") && !text.contains("has no role"), "{text}");
    node.unavailable = vec!["starting: read the instance metadata: no answer".to_owned()];
    let text = facts(&node);
    assert!(text.contains("does not serve yet: starting: read the instance"), "{text}");
    assert!(!text.contains("has no role"), "{text}");
    node.unavailable = vec![
        "starting: reach the cloud: AccessDenied: Not authorized to perform \
         sts:AssumeRoleWithWebIdentity"
            .to_owned(),
    ];
    assert!(facts(&node).contains("trusts the service account kube-system:aws-node only"));
}

fn set(account: &str, settings: &[(&str, &str)]) -> DaemonSet {
    DaemonSet {
        settings: values(settings),
        unread: BTreeSet::new(),
        account: format!("kube-system:{account}"),
        role: None,
        pod_identity: Ok(false),
    }
}

/// The DaemonSets differ in one setting.
fn cluster(name: &str, theirs: &str, ours: &str) -> Cluster {
    Cluster {
        vpc_cni: Some(set("aws-node", &[(name, theirs)])),
        ferrule: Some(set("ferrule", &[(name, ours)])),
    }
}

#[test]
fn a_difference_that_breaks_pods_is_a_refusal() {
    let mut node = node();
    node.their_agent = false;
    for (name, breaks) in [("AWS_VPC_K8S_CNI_EXTERNALSNAT", true), ("ANNOTATE_POD_IP", false)] {
        node.settings.defaults = values(&[(name, "false")]);
        node.cluster = Ok(cluster(name, "true", "false"));
        let plan = node.plan(Owner::Ferrule);
        let refusals = check(&node.cluster, &node.settings.defaults).refusals;
        assert_eq!(plan.refusals, refusals, "{name}: plan and check agree");
        let object = format!("setting {name}");
        assert_eq!(refusals.iter().any(|it| it.object == object), breaks, "{refusals:?}");
        let line =
            format!(r#"{object}: aws-node has "true", the DaemonSet of Ferrule has "false""#);
        assert_eq!(facts(&node).contains(&line), !breaks, "{}", facts(&node));
        node.cluster = Ok(cluster(name, "true", "1"));
        assert_eq!(node.plan(Owner::Ferrule).refusals, [], "{name}");
        assert!(facts(&node).contains("settings of aws-node and Ferrule do not differ"));
    }
}

#[test]
fn the_settings_of_running_daemons_precede_those_of_the_daemon_sets() {
    let mut node = node();
    node.their_agent = false;
    node.our_daemon = true;
    node.assignments = Some(node.holding());
    let name = "ENABLE_POD_ENI";
    node.settings.defaults = values(&[(name, "false")]);
    node.cluster = Ok(cluster(name, "true", "true"));
    // The daemon was not restarted with the new settings.
    node.settings.ferrule = Some(values(&[(name, "false")]));
    let refusals = node.plan(Owner::Ferrule).refusals;
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].cause.contains(r#"ferrule-ipamd has "false""#), "{refusals:?}");
    node.settings.vpc_cni = Ok(Some(values(&[])));
    assert_eq!(node.plan(Owner::Ferrule).refusals, []);
    // A setting of another object is unknown.
    node.settings.vpc_cni = Ok(None);
    let mut unread = cluster(name, "true", "true");
    unread.vpc_cni.as_mut().unwrap().unread.insert(name.to_owned());
    node.cluster = Ok(unread);
    assert_eq!(node.plan(Owner::Ferrule).refusals, []);
    assert!(
        facts(&node)
            .contains("not compared, because the value is in another object: ENABLE_POD_ENI")
    );
}

#[test]
fn a_begun_switch_is_completed_despite_a_difference() {
    let mut node = node();
    node.settings.defaults = values(&[("ENABLE_POD_ENI", "false")]);
    loop {
        let step = node.plan(Owner::Ferrule).steps.remove(0);
        node.take(&step);
        if matches!(step, Step::PutAside { .. }) {
            break;
        }
    }
    node.cluster = Ok(cluster("ENABLE_POD_ENI", "true", "false"));
    let plan = node.plan(Owner::Ferrule);
    assert_eq!(plan.refusals, []);
    assert!(!plan.steps.is_empty(), "the end of the migration is not recorded");
}

#[test]
fn an_account_without_the_role_of_aws_node_is_a_refusal() {
    let role = || Some("arn:aws:iam::111122223333:role/cni".to_owned());
    let defaults = values(&[]);
    type Change = fn(&mut DaemonSet, &mut DaemonSet);
    let checked = |change: Change| {
        let (mut theirs, mut ours) = (set("aws-node", &[]), set("ferrule", &[]));
        theirs.role = role();
        change(&mut theirs, &mut ours);
        check(&Ok(Cluster { vpc_cni: Some(theirs), ferrule: Some(ours) }), &defaults)
    };
    let without = checked(|_, _| {});
    let [refusal] = &without.refusals[..] else { panic!("{without:?}") };
    assert_eq!(refusal.object, "service account kube-system:ferrule");
    assert!(refusal.next.contains("serviceAccount.annotations"), "{refusal:?}");
    assert!(refusal.next.contains("shows at the first pod of Ferrule"), "{refusal:?}");
    let accepted: [(Change, &str); 5] = [
        (
            |_, ours| ours.role = Some("arn:r".to_owned()),
            "must name system:serviceaccount:kube-system:ferrule",
        ),
        (|_, ours| ours.pod_identity = Ok(true), "has a role from EKS Pod Identity"),
        (|theirs, _| theirs.role = None, "both use the role of the node"),
        (
            |theirs, _| (theirs.role, theirs.pod_identity) = (None, Ok(true)),
            "aws eks list-pod-identity-associations",
        ),
        (
            |theirs, _| (theirs.role, theirs.pod_identity) = (None, Err("no right".to_owned())),
            "the credentials of aws-node's pods are not known: no right",
        ),
    ];
    for (change, fact) in accepted {
        let found = checked(change);
        assert_eq!(found.refusals, [], "{fact}");
        assert!(found.facts.iter().any(|it| it.contains(fact)), "{fact}: {found:?}");
    }
    // The running daemon reports its role itself.
    let mut node = node();
    let mut of_cluster = cluster("ENABLE_POD_ENI", "false", "false");
    of_cluster.vpc_cni.as_mut().unwrap().role = role();
    node.cluster = Ok(of_cluster);
    assert_eq!(node.plan(Owner::Ferrule).refusals.len(), 1);
    node.their_agent = false;
    node.our_daemon = true;
    node.assignments = Some(node.holding());
    assert_eq!(node.plan(Owner::Ferrule).refusals, []);
}

#[test]
fn a_cluster_without_a_daemon_set_is_refused() {
    let whole = cluster("ENABLE_POD_ENI", "false", "false");
    let without = [
        (Cluster { vpc_cni: None, ..whole.clone() }, "the DaemonSet aws-node"),
        (Cluster { ferrule: None, ..whole }, "the DaemonSet of Ferrule"),
    ];
    for (cluster, object) in without {
        let found = check(&Ok(cluster), &values(&[]));
        assert_eq!(found.refusals.len(), 1, "{found:?}");
        assert_eq!(found.refusals[0].object, object);
    }
    let unread = check(&Err("no right".to_owned()), &values(&[]));
    assert_eq!(unread.refusals[0].cause, "no right");
    assert_eq!(unread.refusals[0].next, "fix the cause and run this again where kubectl works");
}
