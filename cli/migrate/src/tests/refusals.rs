//! Inputs that are not understood are refused with object, cause and next step.

use super::node::{CONFLIST, Node, Pod, pod, program, their_conflist};
use crate::{File, LinkView, Observation, PolicyChoice, Program, RouteView, RuleView, Step, plan};
use config_model::{Owner, PodKey, TableId};
use serde_json::json;

fn node() -> Node {
    Node::of_theirs(vec![pod(0, 0), pod(1, 1)])
}

/// Asserts that the only refusal has this object and these words, and that no step was applied.
fn refuses(node: &Node, object: &str, words: &str) {
    let refusals = node.plan(Owner::Ferrule).refusals;
    let [refusal] = refusals.as_slice() else { panic!("{words}: {refusals:?}") };
    assert_eq!(refusal.object, object, "{refusal:?}");
    assert!(refusal.cause.contains(words), "{refusal:?}");
    assert!(!refusal.next.is_empty());
}

#[test]
fn an_edited_configuration_is_refused() {
    let edited = |edit: fn(&mut serde_json::Value), words: &str| {
        let (mut node, mut list) = (node(), their_conflist());
        edit(&mut list);
        node.files.insert(CONFLIST.to_owned(), list.to_string());
        refuses(&node, CONFLIST, words);
    };
    edited(|list| list["name"] = json!("mine"), "its network is \"mine\"");
    edited(|list| list["cniVersion"] = json!("9.0.0"), "cniVersion");
    edited(|list| list["plugins"][0]["mtu"] = json!("jumbo"), "mtu");
    edited(|list| list["plugins"][0]["vethPrefix"] = json!("toolong"), "vethPrefix");
    edited(|list| list["plugins"][2]["type"] = json!("cilium-cni"), "cilium-cni");
    edited(|list| list["plugins"][1]["enabled"] = json!("true"), "ENABLE_V4_EGRESS in an IPv6");
    edited(|list| list["plugins"].as_array_mut().unwrap().rotate_left(2), "not the first");
    let mut node = node();
    let cut = their_conflist().to_string();
    node.files.insert(CONFLIST.to_owned(), cut[..cut.len() / 2].to_owned());
    refuses(&node, CONFLIST, "not JSON");
    node.files.insert(CONFLIST.to_owned(), cut.clone());
    node.files.insert("11-mine.conflist".to_owned(), cut);
    refuses(&node, "10-aws.conflist, 11-mine.conflist", "more than one");
    node.files.remove("11-mine.conflist");
    node.files.insert("00-multus.conf".to_owned(), "{\"type\":\"multus\"}".to_owned());
    refuses(&node, "00-multus.conf", "before 05-ferrule.conflist");
    node.files.clear();
    refuses(&node, "network configuration", "no file");
}

#[test]
fn a_checkpoint_that_is_not_understood() {
    let with = |bytes: Vec<u8>, words: &str| {
        let mut node = node();
        node.checkpoint.insert("ipam.json".to_owned(), bytes);
        refuses(&node, "ipam.json", words);
    };
    let whole = node().checkpoint["ipam.json"].clone();
    with(whole[..whole.len() / 2].to_vec(), "no whole checkpoint");
    with(Vec::new(), "no whole checkpoint");
    let text = String::from_utf8(whole).unwrap();
    with(text.replace("vpc-cni-ipam/1", "vpc-cni-ipam/2").into_bytes(), "\"vpc-cni-ipam/2\"");
    with(text.replacen("\"ipv4\":\"10.0.0.10\",", "", 1).into_bytes(), "its entry 1: it holds no");
    let mut node = node();
    node.checkpoint
        .insert("ipam.json".to_owned(), text.replace("10.0.1.11", "10.0.0.10").into_bytes());
    refuses(&node, "10.0.0.10", "two interfaces");
}

#[test]
fn pods_with_other_rules_are_refused() {
    let mut node = node();
    node.kernel.rules.push(RuleView {
        pref: 1536,
        src: Some("10.0.1.11/32".parse().unwrap()),
        dst: None,
        table: TableId(7),
        protocol: 3,
        text: "pref 1536 from 10.0.1.11 lookup 7".to_owned(),
    });
    refuses(&node, "default/web-1", "lookup 7` does not match");
    node.kernel.rules[0].table = TableId(2);
    let plan = node.plan(Owner::Ferrule);
    assert_eq!(plan.refusals, [], "a twin is no misfit");
    assert!(
        plan.facts.iter().any(|fact| fact.starts_with("1 rule is a duplicate")),
        "{:?}",
        plan.facts
    );
    node.kernel.rules.clear();
    node.kernel.routes.push(RouteView { address: "10.0.0.10".parse().unwrap(), dev: Some(7) });
    refuses(&node, "default/web-0", "no route, or more than one");
    node.kernel.routes.clear();
    node.kernel.links.push(LinkView { index: 9, name: "eni0".into(), veth: true, key: None });
    node.kernel.routes.push(RouteView { address: "10.0.0.99".parse().unwrap(), dev: Some(9) });
    refuses(&node, "eni0", "not in amazon-vpc-cni's checkpoint");
    node.kernel.routes.clear();
    node.kernel.links[0].name = "vlan.eth.3".to_owned();
    refuses(&node, "vlan.eth.3", "branch ENI");
}

#[test]
fn an_entry_of_an_older_pod_of_the_same_name_is_none() {
    let mut node = node();
    let older = Pod { address: "10.0.1.99".parse().unwrap(), ..pod(1, 1) };
    node.pods.push(Pod { key: PodKey::new("aws-cni", "older", "eth0").unwrap(), ..older });
    node.checkpoint = crate::vpc_cni::written(&node.holding(), 1);
    node.pods.pop();
    let plan = node.plan(Owner::Ferrule);
    assert_eq!(plan.refusals, []);
    assert!(plan.facts.iter().any(|fact| fact.contains("10.0.1.99")), "{:?}", plan.facts);
}

#[test]
fn an_address_of_no_eni() {
    let node = Node::of_theirs(vec![pod(0, 5)]);
    refuses(&node, "default/web-0", "no ENI of this node has 10.0.5.10");
}

#[test]
fn a_policy_agent() {
    let mut node = node();
    node.policy_agent = true;
    refuses(&node, "npa.sock", "it answers");
    node.policy_agent = false;
    node.programs = vec![program("eni1", true), program("eni1", false)];
    node.pins = vec!["programs/web_default_handle_ingress".to_owned()];
    refuses(&node, "eni1", "2 of its programs");
    node.programs.clear();
    refuses(&node, "globals/aws", "1 of its programs and maps");
    node.pins.clear();
    let mut seen = node.see();
    seen.vpc_cni.policy.programs = Err("no netlink".to_owned());
    let plan = plan(&seen, Owner::Ferrule, PolicyChoice::Drop);
    assert_eq!((plan.refusals.len(), plan.refusals[0].cause.as_str()), (1, "no netlink"));
}

#[test]
fn a_policy_agent_that_the_daemon_does_not_know_is_refused() {
    let mut node = Node::with_policy(vec![pod(0, 0)]);
    node.choice = PolicyChoice::Keep;
    for _ in 0..3 {
        let plan = node.plan(Owner::Ferrule);
        assert_eq!(plan.refusals, [], "the daemon's settings are known once it serves");
        node.take(&plan.steps[0]);
    }
    assert!(node.our_daemon);
    refuses(&node, "ferrule-ipamd", "not configured to call a policy agent");
    assert_eq!(node.plugin(), "aws-cni");
    node.serves_policy = true;
    assert_eq!(node.plan(Owner::Ferrule).refusals, []);
}

#[test]
fn a_policy_agent_is_not_dropped_if_the_daemon_uses_it() {
    let mut node = Node::with_policy(vec![pod(0, 0)]);
    (node.choice, node.serves_policy) = (PolicyChoice::Drop, true);
    for _ in 0..4 {
        let plan = node.plan(Owner::Ferrule);
        assert_eq!(plan.refusals, [], "the daemon's settings are known once it serves");
        node.take(&plan.steps[0]);
    }
    assert!(node.our_daemon);
    refuses(&node, "ferrule-ipamd", "no new pod would start without the agent");
    assert_eq!((node.plugin().as_str(), node.programs.len()), ("aws-cni", 3));
    node.serves_policy = false;
    assert_eq!(node.plan(Owner::Ferrule).refusals, []);
}

#[test]
fn a_takeover_describes_the_policy_agent_of_the_node() {
    let mut node = node();
    node.has_policy = true;
    while let Some(step) = node.plan(Owner::Ferrule).steps.first().cloned() {
        node.take(&step);
    }
    assert!(node.is_ours());
    let next = |node: &Node| node.plan(Owner::Ferrule).steps.first().map(Step::to_string);
    let waits = |node: &Node, words: &str| {
        assert!(next(node).is_some_and(|step| step.contains(words)), "{:?}", next(node));
    };

    node.choice = PolicyChoice::Keep;
    refuses(&node, "ferrule-ipamd", "not configured to call a policy agent");
    node.our_daemon = false;
    waits(&node, "ferrule-ipamd serves");
    (node.our_daemon, node.serves_policy) = (true, true);
    assert_eq!(node.plan(Owner::Ferrule).refusals, []);
    waits(&node, "the policy agent serves");
    node.policy_agent = true;
    assert_eq!(next(&node), None);

    node.choice = PolicyChoice::Drop;
    refuses(&node, "ferrule-ipamd", "no new pod would start without the agent");
    node.our_daemon = false;
    waits(&node, "ferrule-ipamd serves");
    (node.our_daemon, node.serves_policy) = (true, false);
    assert_eq!(node.plan(Owner::Ferrule).refusals, []);
    waits(&node, "the policy agent has stopped");
    (node.choice, node.serves_policy) = (PolicyChoice::Refuse, true);
    assert_eq!(next(&node), None, "a step that was not requested");
}

#[test]
fn programs_and_pins_of_others_are_no_policy_agent() {
    let its = program("eni1", true);
    let others = [
        Program { link: "veth1".to_owned(), ..its.clone() },
        Program { ingress: false, ..its.clone() },
        Program { name: "cil_from_container".to_owned(), ..its.clone() },
        Program { chain: 1, ..its.clone() },
        Program { priority: 2, ..its.clone() },
        Program { protocol: 0x800, ..its.clone() },
        Program { handle: 2, ..its.clone() },
    ];
    let mut node = node();
    node.programs = others.to_vec();
    node.pins =
        ["maps/mine", "programs/handle_ingress", "else/a_handle_ingress", "maps/xingress_map"]
            .map(str::to_owned)
            .to_vec();
    for choice in [PolicyChoice::Refuse, PolicyChoice::Drop] {
        node.choice = choice;
        let plan = node.plan(Owner::Ferrule);
        assert_eq!(plan.refusals, []);
        let touching = plan
            .steps
            .iter()
            .filter(|step| matches!(step, Step::Detach { .. } | Step::Unpin { .. }));
        assert_eq!(touching.count(), 0);
        assert_eq!(plan.facts.iter().filter(|fact| fact.contains("of another owner")).count(), 7);
    }
}

#[test]
fn a_failed_observation_is_a_refusal() {
    let mut seen = node().see();
    seen.enis = Err("no answer".to_owned());
    let plan = plan(&seen, Owner::Ferrule, PolicyChoice::Refuse);
    assert_eq!((plan.refusals.len(), plan.refusals[0].cause.as_str()), (1, "no answer"));
}

#[test]
fn a_file_that_cannot_be_read_is_no_fault_of_its_writer() {
    let refused = |edit: fn(&mut Observation) -> &mut File, name: &str| {
        let mut seen = node().see();
        edit(&mut seen).bytes = Err("permission denied".to_owned());
        let plan = plan(&seen, Owner::Ferrule, PolicyChoice::Refuse);
        let [refusal] = plan.refusals.as_slice() else { panic!("{:?}", plan.refusals) };
        let (object, cause) = (refusal.object.as_str(), refusal.cause.as_str());
        assert_eq!((object, cause), (name, "permission denied"));
        assert!(refusal.next.contains("run this as root"), "{refusal:?}");
        assert!(!refusal.next.contains("amazon-vpc-cni"), "{refusal:?}");
    };
    refused(|seen| &mut seen.vpc_cni.checkpoints.as_mut().unwrap()[0], "ipam.json");
    refused(|seen| &mut seen.conflists.as_mut().unwrap()[0], CONFLIST);
}

#[test]
fn the_agent_of_amazon_vpc_cni_starts_early_in_a_rollback() {
    let mut node = node();
    for _ in 0..20 {
        let Some(step) = node.plan(Owner::Ferrule).steps.first().cloned() else { break };
        node.take(&step);
    }
    node.their_agent = true;
    let refusals = node.plan(Owner::AmazonVpcCni).refusals;
    assert!(refusals[0].cause.contains("before the pods were handed over"), "{refusals:?}");
}
