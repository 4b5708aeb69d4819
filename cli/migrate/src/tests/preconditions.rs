//! Facts about Ferrule's image, its role and the settings of `aws-node`.

use super::node::{Node, pod};
use config_model::Owner;
use std::collections::BTreeMap;

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
