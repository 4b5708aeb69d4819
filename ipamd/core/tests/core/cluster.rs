//! The facts from Kubernetes.

use crate::world::{Fault, World, key, pod, uid};
use config_model::{CardIndex, Mac, PodName, Span};
use ipamd_core::{
    Action, Answer, BranchEni, Cards, ClusterFact, EniConfig, EniKind, Event, PoolConfig, Record,
    Refusal, RefusalReason, ReleaseCause, Ticket, Topic,
};
use std::collections::{BTreeSet, VecDeque};

const WAIT: Span = Span::seconds(45);

fn send_fact(world: &mut World, fact: ClusterFact) {
    world.send(Event::Cluster(fact));
}

fn coming(world: &mut World, pods: impl IntoIterator<Item = u32>) {
    let pods: BTreeSet<PodName> = pods.into_iter().map(pod).collect();
    send_fact(world, ClusterFact::Coming(pods));
}

fn warm(addresses: u32) -> PoolConfig {
    PoolConfig { warm_ip_target: Some(addresses), ..PoolConfig::default() }
}

#[test]
fn pods_that_are_announced_find_their_addresses_ready() {
    let mut world = World::new(warm(1), 4, 15, 0);
    world.pass(Span::seconds(10));
    coming(&mut world, 0..30);
    world.pass(Span::seconds(5));
    let counts = world.core.counts();
    assert_eq!(counts.coming, 30);
    assert!(counts.usable >= 30, "{counts:?}");
    let before = world.cloud.log.len();
    let tickets = world.reserve_all(0..30);
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    assert_eq!(world.core.counts().coming, 0);
    world.pass(Span::seconds(300));
    assert_eq!(world.cloud.log.len(), before, "they were counted twice");
    assert_eq!(world.core.counts().total, 31);
}

#[test]
fn an_announced_pod_no_longer_counts_after_its_add_in_any_order() {
    let mut world = World::new(warm(1), 4, 15, 0);
    world.pass(Span::seconds(10));
    world.reserve(1);
    coming(&mut world, [1, 2]);
    assert_eq!(world.core.counts().coming, 1);
    world.reserve(2);
    assert_eq!(world.core.counts().coming, 0);
    world.pass(Span::seconds(10));
    // A pod that gave its address back is about to end: it is not expected again.
    world.release(1);
    coming(&mut world, [1, 2]);
    assert_eq!(world.core.counts().coming, 0);
    // Gone and back under the same name, it is another.
    coming(&mut world, [2]);
    coming(&mut world, [1, 2]);
    assert_eq!(world.core.counts().coming, 1);
}

#[test]
fn a_pod_is_expected_again_after_a_failed_add() {
    let mut world = World::new(PoolConfig::default(), 1, 4, 3);
    world.pass(Span::seconds(10));
    coming(&mut world, 0..5);
    world.reserve_all(0..3);
    let refused = world.reserve_for(3, Span::seconds(5));
    let abandoned = world.reserve(4);
    assert_eq!(world.core.counts().coming, 0);
    world.send(Event::Abandoned { ticket: abandoned });
    world.pass(Span::seconds(10));
    assert!(world.refused(refused).is_some());
    assert_eq!(world.core.counts().coming, 2);
    let (ticket, cause) = (Ticket(900), ReleaseCause::SetupFailed);
    world.send(Event::Release { ticket, key: key(0), cause });
    assert_eq!(world.core.counts().coming, 3);
    world.release(1);
    assert_eq!(world.core.counts().coming, 3, "that pod was deleted");
}

#[test]
fn announced_pods_do_not_grow_the_pool_beyond_max_pods() {
    let mut world = World::new(warm(1), 4, 15, 0);
    send_fact(&mut world, ClusterFact::MaxPods(20));
    world.pass(Span::seconds(10));
    coming(&mut world, 0..50);
    world.pass(Span::seconds(60));
    assert!(world.core.counts().total <= 51, "{:?}", world.core.counts());
    coming(&mut world, []);
    world.pass(Span::seconds(600));
    assert_eq!(world.core.counts().total, 1);
}

#[test]
fn the_node_objects_max_pods_override_the_setting() {
    let config = PoolConfig { warm_eni_target: 3, max_pods: 110, ..PoolConfig::default() };
    let mut world = World::new(config, 4, 10, 9);
    send_fact(&mut world, ClusterFact::MaxPods(15));
    world.pass(Span::seconds(120));
    assert_eq!(world.split(), [9, 9]);
    send_fact(&mut world, ClusterFact::MaxPods(110));
    world.pass(Span::seconds(120));
    assert_eq!(world.split(), [9, 9, 9]);
}

fn branch(vlan: u16) -> BranchEni {
    BranchEni {
        eni: "eni-branch".into(),
        mac: Mac([6, 0, 0, 0, 0, 1]),
        address: Some("10.0.9.9".parse().unwrap()),
        address_v6: None,
        vlan,
        subnet_cidr: Some("10.0.0.0/16".parse().unwrap()),
        subnet_cidr_v6: None,
    }
}

fn announce(world: &mut World, number: u32, branch: Option<BranchEni>) {
    send_fact(world, ClusterFact::Branch { pod: pod(number), uid: uid(number), branch });
}

/// A node with a trunk. EC2 lists these branches.
fn trunk_world(branches: &[BranchEni]) -> World {
    let mut world = World::new(warm(1), 4, 15, 0);
    let trunk = world.cloud.attach_other(CardIndex(0), 3, EniKind::Trunk, 0, world.now);
    branches.iter().for_each(|branch| world.cloud.list_branch(branch, &trunk));
    world.pass(Span::seconds(60));
    world
}

/// Requests the branch, and waits for EC2's answer.
fn reserve_branch(world: &mut World, number: u32) -> Ticket {
    let ticket = world.reserve_from(number, Cards::First, true, WAIT);
    world.pass(Span::seconds(1));
    ticket
}

fn refusal(world: &World, ticket: Ticket) -> &Refusal {
    let answer = &world.answers[&ticket];
    let Answer::Refused(refusal) = answer else { panic!("not refused: {answer:?}") };
    refusal
}

fn calls(world: &World, from: usize) -> Vec<Action> {
    world.cloud.log[from..].iter().map(|(_, call)| call.action()).collect()
}

#[test]
fn a_pod_with_a_branch_eni_gets_no_address_of_the_pool() {
    let mut world = trunk_world(&[branch(7)]);
    announce(&mut world, 1, Some(branch(7)));
    let first = reserve_branch(&mut world, 1);
    assert_eq!(world.answers[&first], Answer::ReservedBranch(branch(7)));
    let again = world.reserve_from(1, Cards::First, true, WAIT);
    assert_eq!(world.answers[&first], world.answers[&again]);
    world.pass(Span::seconds(300));
    assert_eq!(world.core.counts().assigned, 0);
    let view = world.core.inspect(&key(1)).unwrap();
    assert!(view.confirmed && view.addresses.is_empty());
    assert_eq!(view.branch, Some(branch(7)));
}

#[test]
fn a_pod_waits_for_its_branch_annotation_and_delays_no_other() {
    let mut world = trunk_world(&[branch(7)]);
    let waiting = world.reserve_from(1, Cards::First, true, WAIT);
    let other = world.reserve(2);
    assert!(world.served(other) && !world.answers.contains_key(&waiting));
    let before = world.cloud.log.len();
    world.pass(Span::seconds(10));
    announce(&mut world, 1, Some(branch(7)));
    world.pass(Span::seconds(1));
    assert_eq!(world.answers[&waiting], Answer::ReservedBranch(branch(7)));
    let late = world.reserve_from(3, Cards::First, true, Span::seconds(5));
    world.pass(Span::seconds(6));
    assert_eq!(world.refused(late), Some(RefusalReason::TryAgain));
    let expected = [Action::Assign, Action::Describe];
    assert_eq!(calls(&world, before), expected, "pod 2's place is filled, and one branch is read");
}

#[test]
fn one_call_confirms_the_branches_of_all_waiting_pods() {
    let branches: Vec<BranchEni> = (1..9)
        .map(|number: u8| BranchEni {
            eni: format!("eni-b{number}").as_str().into(),
            mac: Mac([6, 0, 0, 0, 0, number]),
            address: Some([10, 0, 9, number].into()),
            ..branch(number.into())
        })
        .collect();
    let mut world = trunk_world(&branches);
    let before = world.cloud.log.len();
    let numbered = || (1..).zip(&branches);
    for (number, branch) in numbered() {
        announce(&mut world, number, Some(branch.clone()));
    }
    let tickets: Vec<Ticket> = numbered()
        .map(|(number, _)| world.reserve_from(number, Cards::First, true, WAIT))
        .collect();
    world.pass(Span::seconds(3));
    for (ticket, branch) in tickets.iter().zip(&branches) {
        assert_eq!(world.answers[ticket], Answer::ReservedBranch(branch.clone()));
    }
    // The first request starts a call at once. The others wait for the second one at most.
    assert!(calls(&world, before).len() <= 2, "{:?}", calls(&world, before));
}

#[test]
fn an_annotation_that_differs_from_ec2_is_refused_with_the_difference() {
    type Change = fn(&mut BranchEni);
    let changes: [(Change, &str); 4] = [
        (|it| it.address = Some([10, 0, 9, 8].into()), "address 10.0.9.8, which is \"10.0.9.9\""),
        (|it| it.mac = Mac([6, 0, 0, 0, 0, 2]), "MAC address 06:00:00:00:00:02"),
        (|it| it.vlan = 8, "VLAN 8, which is \"7\""),
        (
            |it| it.subnet_cidr = Some("10.0.8.0/21".parse().unwrap()),
            "subnet 10.0.8.0/21, which is \"10.0.0.0/16\"",
        ),
    ];
    for (change, part) in changes {
        let mut world = trunk_world(&[branch(7)]);
        let mut written = branch(7);
        change(&mut written);
        announce(&mut world, 1, Some(written));
        let ticket = reserve_branch(&mut world, 1);
        let refusal = refusal(&world, ticket);
        assert_eq!(refusal.reason, RefusalReason::TryAgain);
        for part in [part, "eni-branch", &pod(1).to_string()] {
            assert!(refusal.message.contains(part), "{part}: {}", refusal.message);
        }
        assert!(world.core.inspect(&key(1)).is_none());
    }
}

#[test]
fn a_branch_of_another_trunk_is_refused() {
    let mut world = trunk_world(&[branch(7)]);
    announce(&mut world, 1, Some(branch(7)));
    let trunk = "vpcresources.k8s.aws/trunk-eni-id".to_owned();
    world.cloud.branches[0].tags.as_mut().unwrap().insert(trunk, "eni-of-another".to_owned());
    let ticket = reserve_branch(&mut world, 1);
    let message = &refusal(&world, ticket).message;
    assert!(message.contains("eni-of-another"), "{message}");
    assert!(world.count_of(Topic::ReserveRefused) > 0, "it is reported");
}

#[test]
fn an_eni_that_is_no_branch_yet_waits_for_its_type_and_addresses() {
    let v6 = Some("fd00::9".parse().unwrap());
    let wanted = BranchEni { address_v6: v6, ..branch(7) };
    let mut world = trunk_world(&[branch(7)]);
    world.cloud.branches[0].kind = Some(EniKind::Standard);
    announce(&mut world, 1, Some(wanted.clone()));
    let ticket = reserve_branch(&mut world, 1);
    assert!(!world.answers.contains_key(&ticket));
    world.cloud.branches[0].kind = Some(EniKind::Branch);
    world.pass(Span::seconds(5));
    assert!(!world.answers.contains_key(&ticket), "the IPv6 address is missing");
    world.cloud.branches[0].ipv6_addresses.extend(v6);
    world.pass(Span::seconds(10));
    assert_eq!(world.answers[&ticket], Answer::ReservedBranch(wanted));
}

#[test]
fn a_copy_of_an_annotation_does_not_win_while_both_pods_wait() {
    let mut world = trunk_world(&[branch(7)]);
    // The name of the second pod is the first one in the order of names.
    announce(&mut world, 2, Some(branch(7)));
    announce(&mut world, 1, Some(branch(7)));
    let genuine = world.reserve_from(2, Cards::First, true, WAIT);
    let copy = world.reserve_from(1, Cards::First, true, WAIT);
    world.pass(Span::seconds(1));
    assert_eq!(world.answers[&genuine], Answer::ReservedBranch(branch(7)));
    let message = &refusal(&world, copy).message;
    assert!(message.contains("named before") || message.contains("the same ENI"), "{message}");
    // The next sandbox of the pod has the branch again.
    world.release(2);
    let copy = reserve_branch(&mut world, 1);
    assert!(refusal(&world, copy).message.contains("named before"));
    let genuine = reserve_branch(&mut world, 2);
    assert_eq!(world.answers[&genuine], Answer::ReservedBranch(branch(7)));
}

/// Sends the first list of pods of a new process: the annotations in the order of names, then the pods.
fn list(world: &mut World, annotated: impl IntoIterator<Item = u32>) {
    for number in annotated {
        announce(world, number, Some(branch(7)));
    }
    coming(world, []);
}

#[test]
fn a_copy_of_an_annotation_does_not_win_after_a_restart_or_a_reboot() {
    for reboot in [false, true] {
        let mut world = trunk_world(&[branch(7)]);
        announce(&mut world, 2, Some(branch(7)));
        announce(&mut world, 1, Some(branch(7)));
        // Each new process starts from the checkpoint of the one before.
        for _ in 0..3 {
            world.sync();
            if reboot {
                world.reboot()
            } else {
                world.restart()
            }
            world.pass(Span::seconds(60));
            list(&mut world, [1, 2]);
            let copy = reserve_branch(&mut world, 1);
            let message = &refusal(&world, copy).message;
            assert!(message.contains("named before"), "reboot {reboot}: {message}");
        }
        let genuine = reserve_branch(&mut world, 2);
        assert_eq!(world.answers[&genuine], Answer::ReservedBranch(branch(7)));
        // The running pod keeps its branch, also while the list has only the copy.
        world.pass(Span::seconds(5));
        world.sync();
        world.restart();
        world.pass(Span::seconds(60));
        announce(&mut world, 1, Some(branch(7)));
        let copy = reserve_branch(&mut world, 1);
        let message = &refusal(&world, copy).message;
        assert!(message.contains("the same ENI"), "reboot {reboot}: {message}");
        assert_eq!(world.core.inspect(&key(2)).unwrap().branch, Some(branch(7)));
    }
}

#[test]
fn an_annotation_that_went_while_the_daemon_was_down_no_longer_counts_as_the_first() {
    let mut world = trunk_world(&[branch(7)]);
    announce(&mut world, 2, Some(branch(7)));
    world.sync();
    world.restart();
    world.pass(Span::seconds(60));
    announce(&mut world, 1, Some(branch(7)));
    let early = reserve_branch(&mut world, 1);
    assert!(refusal(&world, early).message.contains("named before"));
    coming(&mut world, []);
    let late = reserve_branch(&mut world, 1);
    assert_eq!(world.answers[&late], Answer::ReservedBranch(branch(7)));
    // A removed annotation is removed from the checkpoint too.
    announce(&mut world, 1, None);
    world.sync();
    let named = |record: &Record| matches!(record, Record::BranchNamed { .. });
    assert!(!world.core.checkpoint().compact().iter().any(named));
}

#[test]
fn an_annotation_that_is_edited_in_a_loop_writes_the_checkpoint_once_a_second() {
    let mut world = trunk_world(&[branch(7)]);
    world.sync();
    let before = world.file.len();
    for edit in 0..1_000_u32 {
        let eni = format!("eni-{}", edit % 2).as_str().into();
        announce(&mut world, 1, Some(BranchEni { eni, ..branch(7) }));
        world.pass(Span::millis(10));
    }
    // Another pod's first annotation is written in time too.
    announce(&mut world, 2, Some(branch(7)));
    world.pass(Span::seconds(1));
    world.sync();
    // Ten seconds, and two records for each write.
    let records = world.file.len() - before;
    assert!((2..=24).contains(&records), "{records} records");
    world.restart();
    world.pass(Span::seconds(60));
    list(&mut world, [1, 2]);
    let copy = reserve_branch(&mut world, 1);
    assert!(refusal(&world, copy).message.contains("named before"));
    let genuine = reserve_branch(&mut world, 2);
    assert_eq!(world.answers[&genuine], Answer::ReservedBranch(branch(7)));
}

#[test]
fn a_branch_is_given_after_the_order_of_annotations_is_written() {
    let mut world = trunk_world(&[branch(7)]);
    announce(&mut world, 1, Some(BranchEni { eni: "eni-other".into(), ..branch(8) }));
    let genuine = world.reserve_from(2, Cards::First, true, WAIT);
    announce(&mut world, 2, Some(branch(7)));
    while !world.answers.contains_key(&genuine) {
        world.pass(Span::millis(10));
    }
    let named =
        |record: &Record| matches!(record, Record::BranchNamed { pod: of, .. } if *of == pod(2));
    assert!(world.file.iter().any(named));
}

#[test]
fn a_wrong_annotation_costs_few_calls() {
    let mut world = trunk_world(&[]);
    announce(&mut world, 1, Some(branch(7)));
    let before = world.cloud.log.len();
    for _ in 0..8 {
        world.reserve_from(1, Cards::First, true, WAIT);
        world.pass(Span::seconds(46));
    }
    let calls = calls(&world, before).len();
    assert!((10..=22).contains(&calls), "{calls} calls in six minutes");
}

#[test]
fn a_branch_that_ec2_does_not_list_waits_and_is_refused_at_the_deadline() {
    let mut world = trunk_world(&[]);
    let before = world.cloud.log.len();
    announce(&mut world, 1, Some(branch(7)));
    let late = world.reserve_from(1, Cards::First, true, Span::seconds(5));
    world.pass(Span::seconds(6));
    let refusal = refusal(&world, late);
    assert!(refusal.message.contains("EC2 does not list eni-branch"), "{refusal:?}");
    assert!(refusal.next_step.contains("find the writer"), "{refusal:?}");
    assert!((2..=6).contains(&calls(&world, before).len()), "{:?}", calls(&world, before));
    // EC2 lists a new ENI with a lag.
    let ticket = reserve_branch(&mut world, 1);
    assert!(!world.answers.contains_key(&ticket));
    let trunk = world
        .snapshot()
        .enis
        .iter()
        .find(|eni| eni.kind == Some(EniKind::Trunk))
        .unwrap()
        .id
        .clone();
    world.cloud.list_branch(&branch(7), &trunk);
    world.pass(Span::seconds(10));
    assert_eq!(world.answers[&ticket], Answer::ReservedBranch(branch(7)));
}

#[test]
fn no_branch_is_given_while_ec2_fails() {
    let mut world = trunk_world(&[branch(7)]);
    announce(&mut world, 1, Some(branch(7)));
    for fault in [Fault::Throttle, Fault::LoseReply] {
        world.cloud.faults.insert(Action::Describe, VecDeque::from([fault]));
        let ticket = world.reserve_from(1, Cards::First, true, WAIT);
        world.pass(Span::millis(200));
        assert!(!world.answers.contains_key(&ticket), "{fault:?}");
        world.pass(Span::seconds(120));
        let answer = &world.answers[&ticket];
        assert_eq!(*answer, Answer::ReservedBranch(branch(7)), "{fault:?}");
        world.release(1);
        // Without the annotation the confirmation ends.
        announce(&mut world, 1, None);
        world.pass(Span::seconds(2));
        announce(&mut world, 1, Some(branch(7)));
    }
    world.cloud.faults.insert(Action::Describe, VecDeque::from([Fault::Deny]));
    let ticket = world.reserve_from(1, Cards::First, true, Span::seconds(5));
    world.pass(Span::seconds(6));
    assert!(refusal(&world, ticket).message.contains("UnauthorizedOperation"));
}

#[test]
fn the_branch_of_an_earlier_pod_of_the_same_name_is_not_reused() {
    let eighth = BranchEni { eni: "eni-eighth".into(), ..branch(8) };
    let mut world = trunk_world(&[branch(7), eighth.clone()]);
    let of_before = "uid-before".to_owned();
    let fact = ClusterFact::Branch { pod: pod(1), uid: of_before, branch: Some(branch(7)) };
    send_fact(&mut world, fact);
    let waiting = reserve_branch(&mut world, 1);
    assert!(!world.answers.contains_key(&waiting), "{:?}", world.answers);
    announce(&mut world, 1, None);
    announce(&mut world, 1, Some(eighth.clone()));
    world.pass(Span::seconds(1));
    assert_eq!(world.answers[&waiting], Answer::ReservedBranch(eighth));
}

#[test]
fn a_vlan_that_another_pod_uses_is_refused_until_that_pod_is_gone() {
    let twin = BranchEni { eni: "eni-twin".into(), ..branch(7) };
    let mut world = trunk_world(&[branch(7), twin.clone()]);
    announce(&mut world, 1, Some(branch(7)));
    let first = reserve_branch(&mut world, 1);
    assert_eq!(world.answers[&first], Answer::ReservedBranch(branch(7)));
    announce(&mut world, 2, Some(twin.clone()));
    let second = reserve_branch(&mut world, 2);
    let refused = refusal(&world, second);
    assert_eq!(refused.reason, RefusalReason::TryAgain);
    for part in ["VLAN 7", "eni-twin", "eni-branch", &pod(1).to_string(), &pod(2).to_string()] {
        assert!(refused.message.contains(part), "{part}: {}", refused.message);
    }
    assert!(world.core.inspect(&key(2)).is_none(), "nothing is held");
    world.release(1);
    let third = reserve_branch(&mut world, 2);
    assert_eq!(world.answers[&third], Answer::ReservedBranch(twin));
}

#[test]
fn a_copied_annotation_is_refused_while_its_pod_lives() {
    let copies: [fn(BranchEni) -> BranchEni; 3] = [
        |it| it,
        |it| BranchEni { eni: "eni-c".into(), vlan: 9, address: Some([10, 0, 9, 8].into()), ..it },
        |it| BranchEni { eni: "eni-c".into(), vlan: 9, mac: Mac([6, 0, 0, 0, 0, 2]), ..it },
    ];
    for (copy, part) in copies.into_iter().zip(["the same ENI", "MAC address", "address 10.0.9.9"])
    {
        let mut world = trunk_world(&[branch(7)]);
        announce(&mut world, 1, Some(branch(7)));
        let first = reserve_branch(&mut world, 1);
        assert_eq!(world.answers[&first], Answer::ReservedBranch(branch(7)));
        announce(&mut world, 2, Some(copy(branch(7))));
        let second = reserve_branch(&mut world, 2);
        let refusal = refusal(&world, second);
        for part in [part, &pod(1).to_string(), &pod(2).to_string()] {
            assert!(refusal.message.contains(part), "{part}: {}", refusal.message);
        }
    }
}

#[test]
fn a_branch_with_an_address_of_the_node_is_refused() {
    let mut world = trunk_world(&[]);
    world.reserve(1);
    let Some(std::net::IpAddr::V4(of_pod)) = world.address_of(1) else { panic!("no address") };
    let foreign = BranchEni { address: Some(of_pod), ..branch(7) };
    announce(&mut world, 2, Some(foreign));
    let refused = reserve_branch(&mut world, 2);
    assert_eq!(world.refused(refused), Some(RefusalReason::TryAgain));
}

#[test]
fn the_refusal_of_a_branch_pod_names_the_missing_annotation() {
    let mut world = World::new(warm(1), 4, 15, 0);
    world.pass(Span::seconds(10));
    let late = world.reserve_from(3, Cards::First, true, Span::seconds(5));
    world.pass(Span::seconds(6));
    let Answer::Refused(refusal) = &world.answers[&late] else { panic!("{:?}", world.answers) };
    for part in ["default/web-3", "vpc.amazonaws.com/pod-eni", "no trunk ENI"] {
        assert!(refusal.message.contains(part), "{refusal:?}");
    }
    assert!(refusal.next_step.contains("VPC resource controller"), "{refusal:?}");
}

#[test]
fn a_branch_survives_a_restart_but_no_reboot_and_does_not_cool() {
    let mut world = trunk_world(&[branch(7)]);
    for number in [1, 2] {
        announce(&mut world, number, Some(branch(7)));
        reserve_branch(&mut world, number);
    }
    world.pass(Span::seconds(1));
    world.restart();
    assert_eq!(world.core.inspect(&key(1)).unwrap().branch, Some(branch(7)));
    let gone = world.release(1);
    assert_eq!(world.answers[&gone], Answer::Released { known: true, addresses: Vec::new() });
    assert_eq!(world.core.counts().cooling, 0);
    world.restart();
    assert!(world.core.inspect(&key(1)).is_none());
    world.reboot();
    assert!(world.core.inspect(&key(2)).is_none());
}

#[test]
fn a_branch_reservation_never_confirmed_lapses() {
    let mut world = World::new(warm(1), 4, 15, 0);
    world.plugins_finish = false;
    announce(&mut world, 1, Some(branch(7)));
    world.reserve_from(1, Cards::First, true, WAIT);
    world.pass(Span::seconds(61));
    assert!(world.core.inspect(&key(1)).is_none());
}

#[test]
fn with_custom_networking_pods_get_addresses_of_other_enis_only() {
    let config = PoolConfig { custom_networking: true, ..warm(2) };
    let mut world = World::new(config, 3, 5, 4);
    let addresses: VecDeque<_> = (10..90).map(|n| [10, 1, 0, n].into()).collect();
    world.cloud.others.insert("subnet-2".into(), addresses);
    world.pass(Span::seconds(30));
    let early = world.reserve_for(1, Span::seconds(120));
    world.pass(Span::seconds(10));
    assert!(!world.answers.contains_key(&early), "the primary ENI gave an address");
    let found = EniConfig::Found {
        name: "zone-a".into(),
        subnet: "subnet-2".into(),
        groups: vec!["sg-pods".into()],
    };
    send_fact(&mut world, ClusterFact::EniConfig(found));
    world.pass(Span::seconds(120));
    assert!(world.served(early), "{:?}", world.answers.get(&early));
    let second = world.cloud.attached()[1].seen.clone();
    assert_eq!(world.eni_of(1), second.id);
    assert_eq!(second.subnet.as_str(), "subnet-2");
    assert_eq!(second.groups, Some(vec!["sg-pods".into()]));
    let primary = world.snapshot().enis.remove(0);
    assert!(primary.excluded && primary.blocks.is_empty(), "{primary:?}");
    assert_eq!(world.core.counts().free, 2);
}

#[test]
fn custom_networking_keeps_the_addresses_of_running_pods() {
    let mut world = World::new(warm(2), 3, 5, 4);
    world.pass(Span::seconds(30));
    world.reserve_all(0..2);
    world.pass(Span::seconds(60));
    let before = [world.address_of(0), world.address_of(1)];
    world.restart_with(PoolConfig { custom_networking: true, ..warm(2) });
    world.pass(Span::seconds(300));
    assert_eq!([world.address_of(0), world.address_of(1)], before);
    assert_eq!((world.split(), world.core.counts().assigned), (vec![2], 2));
    world.release(0);
    world.pass(Span::seconds(300));
    assert_eq!(world.split(), [1]);
}
