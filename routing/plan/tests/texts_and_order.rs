//! The order of a few plans, what errors mean, and how plans speak.

use config_model::{TableId, registry};
use routing_plan::{
    Action, Errno, Execution, IfIndex, LinkKind, LinkRef, Op, Outcome, PodDesired, Route, Rule,
    Selector, Subject, SysctlName, outcome, plan,
};
use tests_support::{
    FakeKernel,
    node::{address, mac, node, pod, table},
};

/// A kernel with the links of a node of one secondary ENI, and of these pods.
fn kernel(pods: &[PodDesired]) -> FakeKernel {
    let mut kernel = FakeKernel::default();
    kernel.add_link("eth0", mac(0), LinkKind::Device);
    kernel.add_link("eth1", mac(1), LinkKind::Device);
    for pod in pods {
        let index = kernel.add_link(pod.veth.as_str(), mac(200), LinkKind::Veth);
        if let Some(link) = kernel.state.links.get_mut(&index) {
            link.up = true;
            link.alias = Some(pod.key.alias());
        }
    }
    kernel
}

fn texts(ops: &[Op]) -> Vec<String> {
    ops.iter().map(ToString::to_string).collect()
}

#[test]
fn a_new_eni_gets_link_address_table_and_rule_in_this_order() {
    let plan = plan(&node(1, Vec::new()), &kernel(&[]).observe());
    assert_eq!(
        texts(&plan.ops),
        [
            "node: set MTU of eth0 (#2) to 9001",
            "node: set rp_filter of eth0 (#2) to 2",
            "node: add rule pref 1024 fwmark 0x80/0x80 lookup main",
            "node: add rule pref 1535 to 198.18.0.0/24 lookup main",
            "eni-1: set MTU of eth1 (#3) to 9001",
            "eni-1: bring up eth1 (#3)",
            "eni-1: add address 10.0.1.5/24 to link #3",
            "eni-1: put route 10.0.1.1 dev #3 table 2",
            "eni-1: put route default via 10.0.1.1 dev #3 table 2",
            "eni-1: add rule pref 32765 from 10.0.1.5 lookup 2",
        ]
    );
}

#[test]
fn the_effective_one_of_several_stale_rules_is_removed_last() {
    let pods = vec![pod(1, 1)];
    let mut kernel = kernel(&pods);
    for table in [table(7), table(8)] {
        let stale = Rule::ours(registry::PREF_FROM_POD, Selector::from(address(1, 21)), table);
        kernel.apply(&[Op::new(Subject::Node, Action::AddRule(stale))]);
    }
    let plan = plan(&node(1, pods), &kernel.observe());
    let of_pod: Vec<Op> =
        plan.ops.into_iter().filter(|op| op.subject == Subject::Address(address(1, 21))).collect();
    assert_eq!(
        texts(&of_pod),
        [
            "10.0.1.21: put route 10.0.1.21 dev #4 table main",
            "10.0.1.21: add rule pref 512 to 10.0.1.21 lookup main",
            "10.0.1.21: add rule pref 1536 from 10.0.1.21 lookup 2",
            "10.0.1.21: remove rule pref 1536 from 10.0.1.21 lookup 9, protocol 70",
            "10.0.1.21: remove rule pref 1536 from 10.0.1.21 lookup 8, protocol 70",
        ]
    );
}

#[test]
fn an_obstacle_is_reported_as_a_note() {
    let gone = pod(1, 2);
    let mut kernel = kernel(&[]);
    kernel.add_link("eth1-copy", mac(1), LinkKind::Device);
    kernel.add_link("bridge", mac(0), LinkKind::Other("bridge".to_owned()));
    let plan = plan(&node(2, vec![gone]), &kernel.observe());
    let notes: Vec<String> = plan.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "10.0.1.22: no host veth enia5c4c0eec99 of aws-cni/c1x2/eth0",
            "eni-1: links #3, #4 all have MAC 02:00:00:00:00:01",
            "eni-2: waiting for link with MAC 02:00:00:00:00:02",
        ]
    );
}

#[test]
fn the_meaning_of_an_error_number_depends_on_the_object() {
    let rule = Rule::ours(512, Selector::to(address(1, 1)), TableId::MAIN);
    let route = Route::on_link(TableId::MAIN, address(1, 1), IfIndex(4));
    let link = LinkRef { index: IfIndex(4), name: "eth1".to_owned() };
    let gone = [Errno::ENOENT, Errno::ESRCH, Errno::ENODEV];
    assert_eq!(outcome(&Action::AddRule(rule.clone()), Err(Errno::EEXIST)), Outcome::AlreadySo);
    let conflict = Outcome::Conflict(Errno::EEXIST);
    assert_eq!(outcome(&Action::AddRoute(route.clone()), Err(Errno::EEXIST)), conflict);
    for errno in gone {
        assert_eq!(outcome(&Action::DeleteRule(rule.clone()), Err(errno)), Outcome::AlreadySo);
        assert_eq!(outcome(&Action::DeleteRoute(route.clone()), Err(errno)), Outcome::AlreadySo);
        assert_eq!(outcome(&Action::DeleteLink(link.clone()), Err(errno)), Outcome::AlreadySo);
        let reap = Action::SetGroup(link.clone(), registry::GROUP_REAP);
        assert_eq!(outcome(&reap, Err(errno)), Outcome::AlreadySo);
        let keep = Action::SetGroup(link.clone(), 0);
        assert_eq!(outcome(&keep, Err(errno)), Outcome::Refused(errno));
        // To bring up what is not there is no success.
        assert_eq!(outcome(&Action::SetUp(link.clone()), Err(errno)), Outcome::Refused(errno));
        let add = outcome(&Action::ReplaceRoute(route.clone()), Err(errno));
        assert_eq!(add, Outcome::Refused(errno));
    }
}

#[test]
fn a_refusal_stops_its_own_subject_alone() {
    let rule = |host| {
        let address = address(1, host);
        let rule = Rule::ours(512, Selector::to(address), TableId::MAIN);
        Op::new(Subject::Address(address), Action::AddRule(rule))
    };
    let mut execution = Execution::default();
    assert!(execution.admits(&rule(1)));
    execution.record(&rule(1), Err(Errno::EPERM));
    assert!(!execution.admits(&rule(1)) && execution.admits(&rule(2)));
    execution.record(&rule(2), Ok(()));
    let applied = execution.finish();
    assert_eq!((applied.changed, applied.already, applied.skipped), (1, 0, 1));
    assert_eq!(
        applied.refused[0].to_string(),
        "10.0.1.1: add rule pref 512 to 10.0.1.1 lookup main: EPERM"
    );
}

#[test]
fn a_setting_stays_below_its_namespace() {
    assert!(SysctlName::new("net/ipv4/ip_forward").is_some());
    for bad in ["kernel/panic", "net/../kernel/panic", "/net/ipv4", "net//x", "net/./x", ""] {
        assert_eq!(SysctlName::new(bad), None, "{bad}");
    }
}
