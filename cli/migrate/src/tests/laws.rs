//! Takeover and rollback converge, rest, resume and spare. No address ever has two owners.

use super::node::{CONFLIST, Node, pod};
use crate::{Calls, PolicyChoice, Program, RuleView, Step, plan, result};
use config_model::{Migration, Owner, TableId, VethName};
use proptest::prelude::*;

/// Applies at most `most` steps.
fn go(node: &mut Node, owner: Owner, most: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for _ in 0..most.min(100) {
        let plan = node.plan(owner);
        assert_eq!(plan.refusals, [], "after {taken:?}");
        let Some(step) = plan.steps.first() else { return taken };
        // There is a configuration at every moment.
        node.take(step);
        assert!(["aws-cni", "ferrule-cni"].contains(&node.plugin().as_str()), "after {step}");
        taken.push(step.to_string());
    }
    assert!(most < 100, "it comes to no end: {taken:?}");
    taken
}

fn three() -> Vec<super::node::Pod> {
    vec![pod(0, 0), pod(1, 1), pod(2, 2)]
}

#[test]
fn a_takeover_goes_from_agent_to_daemon_to_configuration() {
    let mut node = Node::of_theirs(three());
    let taken = go(&mut node, Owner::Ferrule, 100);
    assert!(node.is_ours());
    assert_eq!(node.plugin(), "ferrule-cni");
    assert_eq!(node.journal.map(|journal| journal.done), Some(true));
    let at = |words: &str| taken.iter().position(|step| step.contains(words)).unwrap();
    assert!(at("agent has stopped") < at("ferrule-ipamd serves"));
    assert!(at("ferrule-ipamd serves") < at("write 05-ferrule"));
    assert!(at("write 05-ferrule") < at("put 10-aws"));
    assert_eq!(node.plan(Owner::Ferrule).steps, [], "it rests");
}

#[test]
fn a_takeover_and_a_rollback_restore_the_node() {
    let before = Node::of_theirs(three());
    let mut node = before.clone();
    go(&mut node, Owner::Ferrule, 100);
    node.add_ours(pod(3, 1));
    go(&mut node, Owner::AmazonVpcCni, 100);
    assert_eq!(node.files, before.files);
    assert!(
        node.their_agent
            && !node.our_daemon
            && node.tables.is_empty()
            && node.assignments.is_none()
    );
    assert_eq!(node.plan(Owner::AmazonVpcCni).steps, [], "it rests");
    // Ferrule's pod has amazon-vpc-cni's form, and the others are unchanged.
    let held = node.holding();
    for one in &held {
        let kept = &node.results[&result::file_name(one)];
        assert_eq!(result::vpc_cni(kept, one, "eni"), Ok(None));
        assert_eq!(result::addresses(kept), [one.addresses[0].0]);
    }
    for (name, kept) in &before.results {
        assert_eq!(&node.results[name], kept);
    }
    // Once more in the other direction.
    go(&mut node, Owner::Ferrule, 100);
    assert!(node.is_ours());
}

#[test]
fn a_cached_result_gets_the_form_of_amazon_vpc_cni() {
    let mut node = Node::of_theirs(vec![]);
    go(&mut node, Owner::Ferrule, 100);
    node.add_ours(pod(3, 1));
    go(&mut node, Owner::AmazonVpcCni, 100);
    let kept: serde_json::Value = serde_json::from_slice(&node.results["aws-cni-c3-eth0"]).unwrap();
    let interfaces = &kept["result"]["interfaces"];
    let host = VethName::of("eni", &pod(3, 1).name, 0);
    assert_eq!(interfaces[0], serde_json::json!({ "name": host.as_str() }));
    assert_eq!((&interfaces[1]["name"], &interfaces[1]["mac"]), (&"eth0".into(), &"2".into()));
    assert_eq!(interfaces[1]["sandbox"], "/run/netns/x");
    assert_eq!((&interfaces[2]["mac"], &interfaces[2]["sandbox"]), (&"0".into(), &"1".into()));
    assert_eq!(interfaces.as_array().map(Vec::len), Some(3), "(len - 1) / 2 of them are real");
    assert_eq!(kept["result"]["ips"][0]["interface"], 1);
}

#[test]
fn the_ferrule_copy_of_a_duplicate_rule_is_deleted() {
    let mut node = Node::of_theirs(three());
    go(&mut node, Owner::Ferrule, 100);
    let rule = |protocol| RuleView {
        pref: 32_765,
        src: Some("10.0.1.1/32".parse().unwrap()),
        dst: None,
        table: TableId(2),
        protocol,
        text: "pref 32765 from 10.0.1.1 lookup 2".to_owned(),
    };
    node.kernel.rules = vec![rule(70), rule(3)];
    go(&mut node, Owner::AmazonVpcCni, 100);
    assert_eq!(node.kernel.rules, [rule(3)]);
}

#[test]
fn the_plan_waits_for_a_call_in_progress() {
    let mut node = Node::of_theirs(three());
    node.their_agent = false;
    node.calls = Calls { vpc_cni: 1, ferrule: 0 };
    let steps = node.plan(Owner::Ferrule).steps;
    let words: Vec<String> = steps.iter().map(Step::to_string).collect();
    assert!(words[1].contains("aws-cni is in progress"), "{words:?}");
    go(&mut node, Owner::Ferrule, 100);
    node.calls = Calls { vpc_cni: 0, ferrule: 1 };
    go(&mut node, Owner::AmazonVpcCni, 100);
}

#[test]
fn a_pod_that_aws_cni_deleted_meanwhile_is_reported_to_the_daemon() {
    let mut node = Node::of_theirs(three());
    while !node.our_daemon {
        let step = node.plan(Owner::Ferrule).steps[0].clone();
        node.take(&step);
    }
    let gone = node.pods.remove(1);
    go(&mut node, Owner::Ferrule, 100);
    assert_eq!(node.tombstones, [gone.key]);
}

#[test]
fn a_del_that_the_daemon_missed_is_not_handed_over() {
    let mut node = Node::of_theirs(three());
    go(&mut node, Owner::Ferrule, 100);
    node.our_daemon = false;
    let gone = node.pods.remove(1);
    node.tombstones.push(gone.key);
    // The start of the agent asserts that it imports exactly the running pods.
    go(&mut node, Owner::AmazonVpcCni, 100);
}

#[test]
fn a_migration_in_the_other_direction_is_reversed() {
    let mut node = Node::of_theirs(three());
    go(&mut node, Owner::Ferrule, 3);
    go(&mut node, Owner::AmazonVpcCni, 100);
    assert!(node.their_agent && !node.our_daemon);
    assert_eq!(node.plugin(), "aws-cni");
}

#[test]
fn a_node_that_ferrule_never_owned_is_not_changed() {
    let node = Node::of_theirs(three());
    let plan = node.plan(Owner::AmazonVpcCni);
    assert_eq!((plan.steps, plan.refusals), (vec![], vec![]));
}

#[test]
fn a_policy_agents_programs_leave_last_and_others_stay() {
    let mut node = Node::with_policy(three());
    node.choice = PolicyChoice::Drop;
    let facts = node.plan(Owner::Ferrule).facts;
    let named = facts.iter().filter(|fact| fact.contains("handle_egress and handle_ingress"));
    assert_eq!(named.count(), 3, "{facts:?}");
    let taken = go(&mut node, Owner::Ferrule, 100);
    let at = |words: &str| taken.iter().position(|step| step.contains(words)).unwrap();
    assert!(at("the policy agent has stopped") < at("write 05-ferrule"));
    assert!(at("put 10-aws") < at("detach 6 programs of the policy agent from 3 host veths"));
    assert!(at("detach 6 programs") < at("remove 7 pinned"));
    assert!(at("remove 7 pinned") < at("record the end of the migration"));
    assert_eq!(
        (node.programs.len(), node.pins.as_slice()),
        (1, &["maps/of_somebody".to_owned()][..])
    );
    assert_eq!(node.plan(Owner::Ferrule).steps, [], "it rests");
}

#[test]
fn a_policy_agents_programs_leave_once_ferrule_enforces_and_its_pins_stay() {
    let mut node = Node::with_policy(three());
    node.choice = PolicyChoice::Enforce;
    let pins = node.pins.clone();
    let taken = go(&mut node, Owner::Ferrule, 100);
    let at = |words: &str| taken.iter().position(|step| step.contains(words)).unwrap();
    assert!(at("the policy agent has stopped") < at("write 05-ferrule"));
    assert!(at("put 10-aws") < at("Ferrule enforces the policies of all pods"));
    assert_eq!(
        at("Ferrule enforces the policies of all pods") + 1,
        at("detach 6 programs of the policy agent from 3 host veths: Ferrule alone enforces")
    );
    let left: Vec<&str> = node.programs.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(left.iter().filter(|name| name.starts_with("handle_")).count(), 1, "a foreign one");
    assert_eq!((left.len(), &node.pins), (7, &pins));
    assert_eq!(node.plan(Owner::Ferrule).steps, [], "it rests");
    // The pins go by request.
    node.choice = PolicyChoice::Drop;
    let taken = go(&mut node, Owner::Ferrule, 100);
    assert_eq!((taken.len(), node.pins.len(), node.programs.len()), (1, 1, 7));
}

/// A node that was taken over, with ferrule-agent's programs.
fn enforced() -> Node {
    let mut node = Node::of_theirs(three());
    go(&mut node, Owner::Ferrule, 100);
    node.attach_ours();
    (node.our_agent, node.attachments) = (true, node.programs.len() + 1);
    node
}

#[test]
fn a_rollback_removes_ferrules_programs_last_and_on_request_only() {
    let mut node = enforced();
    let kept = node.programs.clone();
    let facts = node.plan(Owner::AmazonVpcCni).facts;
    assert!(facts.iter().any(|fact| fact.contains("--policy drop removes them")), "{facts:?}");
    go(&mut node, Owner::AmazonVpcCni, 100);
    assert_eq!((&node.programs, node.attachments), (&kept, kept.len() + 1));
    let rests = node.plan(Owner::AmazonVpcCni);
    assert_eq!(rests.steps, []);
    assert!(rests.facts.iter().any(|fact| fact.contains("--policy drop removes them")));
    // Later, on a node that was given back.
    node.choice = PolicyChoice::Drop;
    let taken = go(&mut node, Owner::AmazonVpcCni, 100);
    let [wait, removal] = &*taken else { panic!("{taken:?}") };
    assert!(wait.contains("ferrule-agent has stopped"), "{wait}");
    assert!(removal.contains("remove Ferrule's eBPF programs"), "{removal}");
    assert_eq!(node.attachments, 0);

    let mut node = enforced();
    node.choice = PolicyChoice::Drop;
    let taken = go(&mut node, Owner::AmazonVpcCni, 100);
    let at = |words: &str| taken.iter().position(|step| step.contains(words)).unwrap();
    assert!(at("amazon-vpc-cni's agent serves") < at("ferrule-agent has stopped"));
    assert!(at("ferrule-agent has stopped") < at("remove Ferrule's eBPF programs"));
    assert!(at("remove Ferrule's eBPF programs") < at("record the end of the migration"));
    assert_eq!((node.attachments, node.plan(Owner::AmazonVpcCni).steps), (0, vec![]));
}

#[test]
fn ferrules_programs_that_cannot_be_listed_stop_only_their_removal() {
    let mut seen = enforced().see();
    seen.ferrule.attachments = Err("no netlink".to_owned());
    let refusals = |policy| plan(&seen, Owner::AmazonVpcCni, policy).refusals;
    assert_eq!(refusals(PolicyChoice::Refuse), []);
    let refused = refusals(PolicyChoice::Drop);
    assert_eq!((refused.len(), refused[0].cause.as_str()), (1, "no netlink"));
}

#[test]
fn a_tcx_link_of_ferrule_is_a_witness_unless_another_one_is_before_it() {
    let mut node = Node::of_theirs(three());
    go(&mut node, Owner::Ferrule, 100);
    node.programs = Node::with_policy(three()).programs;
    (node.choice, node.agent_enforces) = (PolicyChoice::Enforce, true);
    let is_waiting = |node: &Node| {
        let steps = node.plan(Owner::Ferrule).steps;
        steps[0].to_string().contains("Ferrule enforces the policies")
    };
    assert!(is_waiting(&node));
    let first = node.programs.iter().find(|of| of.handle == 1).unwrap().clone();
    node.attach_ours();
    for program in &mut node.programs {
        if ["from_pod", "to_pod"].contains(&program.name.as_str()) {
            (program.priority, program.handle, program.is_tcx) = (0, 0, true);
        }
    }
    assert!(!is_waiting(&node));
    let named = Program { name: "other".to_owned(), is_tcx: true, ..first };
    node.programs.insert(0, named);
    assert!(is_waiting(&node));
    let facts = node.plan(Owner::Ferrule).facts;
    assert!(facts.iter().any(|fact| fact.contains("TCX program \"other\"")), "{facts:?}");
}

#[test]
fn each_of_two_witnesses_can_stop_the_removal() {
    let mut node = Node::of_theirs(three());
    go(&mut node, Owner::Ferrule, 100);
    node.programs = Node::with_policy(three()).programs;
    node.choice = PolicyChoice::Enforce;
    let is_waiting = |node: &Node| {
        let plan = node.plan(Owner::Ferrule);
        assert_eq!(plan.refusals, []);
        let is_waiting = plan.steps[0].to_string().contains("Ferrule enforces the policies");
        (is_waiting, plan.facts)
    };
    let named = |facts: &[String], words: &str| facts.iter().any(|fact| fact.contains(words));
    let (waits, facts) = is_waiting(&node);
    assert!(waits && named(&facts, "no program of Ferrule before"), "{facts:?}");
    assert!(named(&facts, "not in force: its backend is none"), "{facts:?}");
    node.attach_ours();
    let (waits, facts) = is_waiting(&node);
    assert!(waits && !named(&facts, "no program of Ferrule before"), "{facts:?}");
    node.agent_enforces = true;
    assert!(!is_waiting(&node).0);
    // One program that the other agent attached before ours is enough.
    let first = node.programs.iter().position(|it| it.name == "from_pod").unwrap();
    let ours = node.programs.remove(first);
    node.programs.push(ours);
    let (waits, facts) = is_waiting(&node);
    assert!(waits && named(&facts, "no program of Ferrule before handle_egress"), "{facts:?}");
}

#[test]
fn a_policy_agent_is_kept_with_all_that_is_its_own() {
    let mut node = Node::with_policy(three());
    (node.choice, node.serves_policy) = (PolicyChoice::Keep, true);
    let before = (node.programs.clone(), node.pins.clone());
    // The policy agent stopped with amazon-vpc-cni's DaemonSet and returned in its own.
    node.policy_agent = false;
    let taken = go(&mut node, Owner::Ferrule, 100);
    let at = |words: &str| taken.iter().position(|step| step.contains(words)).unwrap();
    assert!(at("ferrule-ipamd serves") < at("the policy agent serves"));
    assert!(at("the policy agent serves") < at("write 05-ferrule"));
    assert!(node.policy_agent);
    assert_eq!((node.programs.clone(), node.pins.clone()), before);
    assert_eq!(node.plan(Owner::Ferrule).steps, [], "it rests");
}

#[test]
fn the_rest_of_a_policy_agent_is_removed_also_after_the_takeover() {
    let mut node = Node::of_theirs(three());
    go(&mut node, Owner::Ferrule, 100);
    let attached = Node::with_policy(three());
    (node.programs, node.pins) = (attached.programs, attached.pins);
    assert_eq!(node.plan(Owner::Ferrule).steps, [], "a step that was not requested");
    node.choice = PolicyChoice::Drop;
    go(&mut node, Owner::Ferrule, 100);
    assert_eq!((node.programs.len(), node.pins.len()), (1, 1));
}

proptest! {
    /// After an interruption or a change of direction at any step the plan converges and spares foreign objects.
    #[test]
    fn a_migration_converges_after_any_interruption_and_reversal(
        turns in proptest::collection::vec((any::<bool>(), 0_usize..12), 0..6),
        devices in proptest::collection::vec(0_u16..3, 0..8),
        last in any::<bool>(),
        policy in any::<bool>(),
        enforce in any::<bool>(),
    ) {
        let pods = (0..).zip(devices).map(|(number, device)| pod(number, device)).collect();
        let mut node = if policy { Node::with_policy(pods) } else { Node::of_theirs(pods) };
        node.choice = if enforce { PolicyChoice::Enforce } else { PolicyChoice::Drop };
        let owner = |ours| if ours { Owner::Ferrule } else { Owner::AmazonVpcCni };
        let mut new = 100;
        for (ours, steps) in turns {
            // A complete change is not reversed by force: the daemons follow.
            go(&mut node, owner(ours), steps);
            if node.our_daemon && node.assignments.is_some() && node.plugin() == "ferrule-cni" {
                node.add_ours(pod(new, 1));
                new += 1;
            }
        }
        go(&mut node, owner(last), 100);
        prop_assert_eq!(node.our_daemon, last);
        prop_assert_eq!(node.their_agent, !last);
        prop_assert_eq!(node.plugin(), if last { "ferrule-cni" } else { "aws-cni" });
        prop_assert!(node.files.contains_key("87-podman.conflist"));
        prop_assert_eq!(node.plan(owner(last)).steps, vec![]);
        prop_assert_eq!(node.programs.iter().filter(|it| it.priority == 2).count(), usize::from(policy));
        let theirs = node.programs.iter().filter(|it| it.handle == 1).count();
        prop_assert!(!last || theirs == 0);
        prop_assert!(!last || enforce || node.pins.len() == usize::from(policy));
        prop_assert!(last || node.files.contains_key(CONFLIST));
        if let Some(Migration { owner: now, done, .. }) = node.journal {
            prop_assert!(now == owner(last) && done);
        }
    }
}
