//! The resource controller against the cloud that it works in.

use crate::world::{World, quiet};
use config_model::{EniId, PodName, SecurityGroupId, Span};
use lab_cloud::{
    Action, ClusterSnapshot, ClusterWrite, ControllerEvent, Fault, InstanceType, InterfaceKind,
    ObservedNode, ObservedPod, PodEni, ResourceController, TrunkRequest,
};
use std::collections::{BTreeMap, BTreeSet};

struct Simulation {
    world: World,
    controller: ResourceController,
}

impl Simulation {
    fn new(kind: &str) -> Self {
        let mut spec = quiet();
        spec.timing.attach = Span::seconds(2);
        let mut play =
            Self { world: World::of(spec, kind), controller: ResourceController::default() };
        let node = play.world.node.clone();
        play.controller.request_trunk(&node, TrunkRequest::default());
        play
    }

    fn step(&mut self) -> Vec<ControllerEvent> {
        self.controller.step(self.world.now, &mut self.world.cloud)
    }

    /// Lets everything happen that happens by itself within this time.
    fn pass(&mut self, seconds: u64) -> Vec<ControllerEvent> {
        let mut news = Vec::new();
        for _ in 0..seconds {
            self.world.pass(Span::seconds(1));
            news.extend(self.step());
        }
        news
    }

    fn bind(&mut self, name: &str) {
        let node = self.world.node.clone();
        self.controller.pod_bound(&node, pod(name), self.groups());
    }

    fn groups(&self) -> Vec<SecurityGroupId> {
        vec![self.world.cloud.group_named("default").unwrap()]
    }

    fn delete(&mut self, name: &str) {
        let node = self.world.node.clone();
        self.controller.pod_deleted(self.world.now, &node, &pod(name));
    }

    fn branch(&self, name: &str) -> Option<PodEni> {
        self.controller.branch_of(&self.world.node, &pod(name)).cloned()
    }

    fn trunks(&mut self) -> Vec<EniId> {
        let all = self.world.enis().into_iter();
        all.filter(|eni| eni.kind == InterfaceKind::Trunk).map(|eni| eni.id).collect()
    }
}

fn pod(name: &str) -> PodName {
    PodName { namespace: "default".to_owned(), name: name.to_owned() }
}

fn refusals(news: &[ControllerEvent]) -> Vec<&str> {
    fn why(news: &ControllerEvent) -> Option<&str> {
        match news {
            ControllerEvent::Refused { why, .. } => Some(why),
            ControllerEvent::TrunkAttached { .. } | ControllerEvent::Annotated { .. } => None,
        }
    }
    news.iter().filter_map(why).collect()
}

#[test]
fn a_trunk_comes_at_the_highest_free_place_and_pods_get_branches_of_it() {
    let mut play = Simulation::new("c5.large");
    assert_eq!(play.step(), []);
    play.bind("web");
    let news = play.pass(2);
    let trunk = play.trunks()[0].clone();
    let eni = play.world.find(&trunk).unwrap();
    let attachment = eni.attachment.unwrap();
    assert_eq!((attachment.device_index.0, attachment.delete_on_termination), (2, true));
    assert!(eni.description.starts_with("aws-k8s-trunk-eni"), "{}", eni.description);
    assert_eq!(eni.tags["node.k8s.amazonaws.com/instance_id"], play.world.node.to_string());
    let branch = play.branch("web").unwrap();
    let wanted = [
        ControllerEvent::TrunkAttached {
            instance: play.world.node.clone(),
            trunk: trunk.clone(),
            branches: 9,
        },
        ControllerEvent::Annotated {
            instance: play.world.node.clone(),
            pod: pod("web"),
            branch: branch.clone(),
        },
    ];
    assert_eq!(news, wanted);
    let of_pod = play.world.find(&branch.eni).unwrap();
    assert_eq!(of_pod.kind, InterfaceKind::Branch);
    assert_eq!(of_pod.tags["vpcresources.k8s.aws/vlan-id"], branch.vlan.to_string());
    assert_eq!(of_pod.tags["vpcresources.k8s.aws/trunk-eni-id"], trunk.to_string());
    let truth = play.world.cloud.truth_of(play.world.now, &play.world.node).unwrap();
    assert_eq!(truth.branches[0].id, branch.eni);
    assert_eq!(play.pass(5), []);
}

#[test]
fn a_vlan_is_not_used_again_for_a_minute() {
    let mut play = Simulation::new("c5.large");
    play.bind("first");
    play.pass(3);
    let first = play.branch("first").unwrap();
    play.delete("first");
    play.bind("second");
    play.pass(59);
    let second = play.branch("second").unwrap();
    assert_ne!(second.vlan, first.vlan);
    assert!(play.world.find(&first.eni).is_some());
    play.pass(2);
    assert!(play.world.find(&first.eni).is_none());
    play.bind("third");
    play.pass(1);
    assert_eq!(play.branch("third").unwrap().vlan, first.vlan);
}

#[test]
fn no_more_branches_than_the_type_allows() {
    let mut play = Simulation::new("c5.large");
    let most = usize::from(InstanceType::named("c5.large").unwrap().branch_interfaces);
    for number in 0..most + 2 {
        play.bind(&format!("p{number:02}"));
    }
    let news = play.pass(3);
    assert_eq!(refusals(&news), [] as [&str; 0]);
    let vlans: BTreeSet<u16> = (0..most + 2)
        .filter_map(|number| play.branch(&format!("p{number:02}")))
        .map(|branch| branch.vlan)
        .collect();
    assert_eq!(vlans.len(), most);
    play.delete("p00");
    play.pass(61);
    let served = (0..most + 2).filter(|n| play.branch(&format!("p{n:02}")).is_some()).count();
    assert_eq!(served, most);
}

#[test]
fn a_refused_trunk_has_a_reason() {
    let mut play = Simulation::new("c5.large");
    play.world.attached(1);
    play.world.attached(2);
    let news = play.step();
    assert_eq!(refusals(&news), ["card 0 has no free place for a trunk"]);
    assert_eq!(play.controller.wake_at(), Some(play.world.now + Span::seconds(1)));
    let mut small = Simulation::new("t3.small");
    assert_eq!(refusals(&small.step()), ["the instance type can have no trunk"]);
    assert!(small.trunks().is_empty());
}

#[test]
fn throttling_and_lost_replies_make_no_second_trunk_and_no_second_branch() {
    let mut play = Simulation::new("c5.large");
    for action in [
        Action::CreateNetworkInterface,
        Action::AttachNetworkInterface,
        Action::AssociateTrunkInterface,
    ] {
        let lost = Fault::LoseReply { action: Some(action), times: Some(2) };
        play.world.cloud.set_fault(play.world.now, lost);
        let throttled = Fault::ThrottleEveryNth { action: Some(action), nth: 3 };
        play.world.cloud.set_fault(play.world.now, throttled);
    }
    play.bind("web");
    let news = play.pass(30);
    assert!(!refusals(&news).is_empty());
    assert_eq!(play.trunks().len(), 1);
    let branches =
        play.world.enis().iter().filter(|eni| eni.description == "aws-k8s-branch-eni").count();
    assert_eq!((branches, play.branch("web").is_some()), (1, true));
}

#[test]
fn a_terminated_node_leaves_no_trunk_and_no_branch() {
    let mut play = Simulation::new("c5.large");
    play.bind("web");
    play.pass(3);
    let node = play.world.node.clone();
    play.world.cloud.terminate(play.world.now, &node).unwrap();
    play.pass(2);
    assert_eq!(play.world.enis(), []);
    assert_eq!(play.controller.wake_at(), None);
    // Nor of one that goes while its trunk is on its way.
    let mut early = Simulation::new("c5.large");
    early.step();
    let node = early.world.node.clone();
    early.world.cloud.terminate(early.world.now, &node).unwrap();
    early.pass(5);
    assert_eq!(early.world.enis(), []);
}

#[test]
fn an_eni_config_sets_the_subnet_of_the_trunk() {
    let mut play = Simulation::new("c5.large");
    let groups = play.groups();
    let subnet = play.world.subnet("tiny");
    let request = TrunkRequest { subnet: Some(subnet.clone()), groups };
    let node = play.world.node.clone();
    play.controller.request_trunk(&node, request);
    play.bind("web");
    play.pass(3);
    let trunk = play.trunks()[0].clone();
    assert_eq!(play.world.find(&trunk).unwrap().subnet_id, subnet);
    assert_eq!(play.branch("web").unwrap().subnet_cidr.to_string(), "10.0.32.0/28");
}

/// The first one's branch is half made when another pod comes before it.
#[test]
fn a_started_branch_is_finished_while_pods_change() {
    let mut play = Simulation::new("c5.large");
    play.pass(3);
    let refused = Fault::Error {
        action: Some(Action::AssociateTrunkInterface),
        error: lab_cloud::Ec2Error::new("InternalError", "later"),
        times: Some(2),
    };
    play.world.cloud.set_fault(play.world.now, refused);
    play.bind("second");
    play.pass(1);
    play.bind("first");
    play.delete("second");
    play.pass(5);
    assert!(play.branch("first").is_some() && play.branch("second").is_none());
    let branches = |play: &mut Simulation| {
        let all = play.world.enis().into_iter();
        all.filter(|eni| eni.description == "aws-k8s-branch-eni").count()
    };
    assert_eq!(branches(&mut play), 2, "that of the pod that went cools");
    play.pass(61);
    assert_eq!(branches(&mut play), 1);
}

/// A cluster that does what is written to it.
fn write(seen: &mut ClusterSnapshot, writes: &[ClusterWrite]) {
    for write in writes.iter().cloned() {
        match write {
            ClusterWrite::CreateCniNode { node, .. } => {
                seen.cni_nodes.insert(node, BTreeMap::new());
            }
            ClusterWrite::AnnounceTrunk { node, branches } => {
                let node = seen.nodes.get_mut(&node).unwrap();
                (node.labeled, node.branches) = (true, [Some(branches); 2]);
            }
            ClusterWrite::Annotate { pod, uid, annotation } => {
                let pod = seen.pods.get_mut(&pod).filter(|now| now.uid == uid).unwrap();
                pod.annotation = Some(annotation);
            }
        }
    }
}

fn wants_branch(uid: &str) -> ObservedPod {
    ObservedPod { uid: uid.to_owned(), node: "node1".to_owned(), annotation: None }
}

#[test]
fn missing_writes_are_repeated_and_a_pod_of_the_same_name_gets_its_own_branch() {
    let mut play = Simulation::new("c5.large");
    play.controller = ResourceController::default();
    let instances = BTreeMap::from([("node1".to_owned(), play.world.node.clone())]);
    let mut seen = ClusterSnapshot::default();
    let uid = "n1".to_owned();
    seen.nodes
        .insert("node1".to_owned(), ObservedNode { uid: uid.clone(), ..ObservedNode::default() });
    seen.nodes.insert("elsewhere".to_owned(), ObservedNode::default());
    seen.pods.insert(pod("web"), wants_branch("u1"));

    // One round: look, work, write.
    let round = |play: &mut Simulation, seen: &mut ClusterSnapshot, seconds| {
        play.controller.observe(play.world.now, &instances, seen);
        play.pass(seconds);
        let writes = play.controller.writes(&instances, seen);
        write(seen, &writes);
        writes
    };
    let made = ClusterWrite::CreateCniNode { node: "node1".to_owned(), uid };
    assert_eq!(round(&mut play, &mut seen, 5), [made]);
    assert!(play.trunks().is_empty(), "no trunk was requested");

    let custom = BTreeMap::from([
        ("CustomNetworking".to_owned(), "zone-a".to_owned()),
        ("SecurityGroupsForPods".to_owned(), String::new()),
    ]);
    seen.cni_nodes.insert("node1".to_owned(), custom);
    assert_eq!(round(&mut play, &mut seen, 5), [], "the ENIConfig is not there yet");
    let tiny = play.world.subnet("tiny");
    let config = TrunkRequest { subnet: Some(tiny.clone()), groups: play.groups() };
    seen.eni_configs.insert("zone-a".to_owned(), config);
    let writes = round(&mut play, &mut seen, 5);
    let first = play.branch("web").unwrap();
    let annotated = |uid: &str, branch: &PodEni| ClusterWrite::Annotate {
        pod: pod("web"),
        uid: uid.to_owned(),
        annotation: branch.annotation(),
    };
    let announced = ClusterWrite::AnnounceTrunk { node: "node1".to_owned(), branches: 9 };
    assert_eq!(writes, [announced, annotated("u1", &first)]);
    let trunk = play.trunks()[0].clone();
    assert_eq!(play.world.find(&trunk).unwrap().subnet_id, tiny);
    assert_eq!(round(&mut play, &mut seen, 1), [], "nothing is lacking");

    // A write that was lost or undone is repeated.
    seen.pods.get_mut(&pod("web")).unwrap().annotation = None;
    assert_eq!(round(&mut play, &mut seen, 0), [annotated("u1", &first)]);

    // The next pod of the name is seen without a look in between.
    seen.pods.insert(pod("web"), wants_branch("u2"));
    let writes = round(&mut play, &mut seen, 1);
    let second = play.branch("web").unwrap();
    assert_ne!((&second.eni, second.vlan), (&first.eni, first.vlan));
    assert_eq!(writes, [annotated("u2", &second)]);
    play.pass(61);
    assert!(play.world.find(&first.eni).is_none() && play.world.find(&second.eni).is_some());
    seen.pods.clear();
    assert_eq!(round(&mut play, &mut seen, 62), []);
    assert!(play.world.find(&second.eni).is_none());
}
