//! Bridged host ends, beside the laws in `laws.rs`: the plugin's batches, and the planner's operations and notes.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use config_model::{HostEndMode, Mac, PodKey, RuleLayout, TableId};
use routing_plan::{
    Action, IfIndex, LinkKind, LinkRef, NodeDesired, Note, Observed, Op, PodDesired, Route,
    Subject, plan,
    pod::{GatewayPort, HostEnd, PodNet, check, mac_addresses, removal, removal_from_port},
};
use tests_support::{
    FakeKernel,
    node::{address, mac, node, pod},
};

const PORT_MAC: Mac = Mac([0x0a, 0, 0, 8, 0, 1]);
const HOST_MAC: Mac = Mac([0x0a, 0, 0, 9, 0, 1]);

fn link(index: IfIndex) -> LinkRef {
    LinkRef { index, name: String::new() }
}

fn run(kernel: &mut FakeKernel, action: Action) {
    let applied = kernel.apply(&[Op::new(Subject::Node, action)]);
    assert_eq!(applied.refused, []);
}

fn add_port(kernel: &mut FakeKernel) -> IfIndex {
    let port = kernel.add_link("enigw0", PORT_MAC, LinkKind::Other("openvswitch".to_owned()));
    run(kernel, Action::SetUp(link(port)));
    port
}

fn bridged(i: u8) -> PodDesired {
    PodDesired { host_end: HostEndMode::bridged("eni"), ..pod(0, i) }
}

/// A node whose primary ENI is up, with the host veths of these pods.
fn kernel_of(pods: &[PodDesired]) -> FakeKernel {
    let mut kernel = FakeKernel::default();
    let eth0 = kernel.add_link("eth0", mac(0), LinkKind::Device);
    run(&mut kernel, Action::SetUp(link(eth0)));
    for pod in pods {
        let veth = kernel.add_link(pod.veth.as_str(), HOST_MAC, LinkKind::Veth);
        run(&mut kernel, Action::SetUp(link(veth)));
        run(&mut kernel, Action::SetAlias(link(veth), pod.key.alias()));
    }
    kernel
}

fn net(pod: &PodDesired, observed: &Observed) -> PodNet {
    let port = observed.link_named("enigw0").and_then(GatewayPort::of).unwrap();
    PodNet {
        key: pod.key.clone(),
        veth: pod.veth.clone(),
        number: 0,
        address: pod.address,
        table: pod.table,
        layout: RuleLayout::PerPod,
        host_end: HostEnd::Bridged(port),
        mtu: 1500,
        branch: None,
    }
}

fn settle(desired: &NodeDesired, kernel: &mut FakeKernel) {
    for _ in 0..2 {
        let ops = plan(desired, &kernel.observe()).ops;
        assert_eq!(kernel.apply(&ops).refused, []);
    }
    assert_eq!(plan(desired, &kernel.observe()).ops, []);
}

fn of_pod<'a>(ops: &'a [Op], pod: &PodDesired) -> Vec<&'a Action> {
    let subject = Subject::Address(pod.address);
    ops.iter().filter(|op| op.subject == subject).map(|op| &op.action).collect()
}

#[test]
fn both_ends_have_unicast_addresses_that_are_derived_from_the_key() {
    let key = |id: &str| PodKey::new("aws-cni", id, "eth0").unwrap();
    let [host, inside] = mac_addresses(&key("a1"));
    assert_ne!(host, inside);
    assert_eq!([host, inside], mac_addresses(&key("a1")));
    assert_ne!(host, mac_addresses(&key("a2"))[0]);
    for Mac(bytes) in [host, inside] {
        assert_eq!(bytes[0] & 0x03, 0x02, "locally administered, not multicast");
    }
}

#[test]
fn a_bridged_pod_is_built_checked_repaired_and_removed_by_its_mode() {
    let pod = bridged(1);
    let mut kernel = kernel_of(std::slice::from_ref(&pod));
    let port = add_port(&mut kernel);
    let veth = kernel.state.link_of(&pod.key).unwrap().index;
    let net = net(&pod, &kernel.state);
    assert_eq!(kernel.apply(&net.host_batch(veth)).refused, []);
    let entry = net.host_neighbor().unwrap();
    assert_eq!((entry.dev, entry.mac), (port, Some(mac_addresses(&pod.key)[1])));
    let inside = net.pod_batch(IfIndex(7), HOST_MAC);
    let gateway = inside.iter().find_map(|op| {
        let Action::SetNeighbor(neighbor) = &op.action else { return None };
        neighbor.mac
    });
    assert_eq!(gateway, Some(PORT_MAC));

    let desired = node(0, vec![pod.clone()]);
    assert_eq!(of_pod(&plan(&desired, &kernel.observe()).ops, &pod), Vec::<&Action>::new());
    let route = Route::on_link(TableId::MAIN, pod.address, port);
    assert!(kernel.state.routes.iter().any(|there| there.leads_as(&route)));
    assert!(!kernel.state.routes.iter().any(|there| there.dev == Some(veth)));

    let ops = [removal_from_port(pod.address, port), removal(pod.address, Some(veth))].concat();
    assert_eq!(kernel.apply(&ops).refused, []);
    assert!(routing_plan::addresses_in_use(&kernel.state).is_empty());
    assert_eq!(kernel.state.neighbors, []);
    // A second DEL finds nothing, and undoing a build removes the same objects.
    assert_eq!(kernel.apply(&ops).refused, []);
    assert_eq!(kernel.apply(&net.host_batch(veth)).refused, []);
    assert_eq!(kernel.apply(&net.undo_batch(Some(veth))).refused, []);
    assert!(routing_plan::addresses_in_use(&kernel.state).is_empty());
    assert_eq!(kernel.state.neighbors, []);
}

#[test]
fn a_missing_gateway_port_is_reported_and_its_route_waits() {
    let pods = vec![bridged(1), bridged(2)];
    let mut kernel = kernel_of(&pods);
    let desired = node(0, pods.clone());
    let first = plan(&desired, &kernel.observe());
    let note = Note::GatewayPortMissing { port: "enigw0".to_owned(), pods: 2 };
    assert!(first.notes.contains(&note), "{:?}", first.notes);
    settle(&desired, &mut kernel);
    assert!(kernel.state.routes.iter().all(|route| route.host_address().is_none()));

    let port = add_port(&mut kernel);
    settle(&desired, &mut kernel);
    for pod in &pods {
        let route = Route::on_link(TableId::MAIN, pod.address, port);
        assert!(kernel.state.routes.iter().any(|there| there.leads_as(&route)));
        assert_eq!(kernel.state.bridged_addresses(&pod.key, port), [pod.address].into());
    }
}

#[test]
fn a_change_of_the_mode_moves_the_route_and_the_neighbor_entry() {
    let routed = pod(0, 1);
    let mut kernel = kernel_of(std::slice::from_ref(&routed));
    let port = add_port(&mut kernel);
    let veth = kernel.state.link_of(&routed.key).unwrap().index;
    for (pod, dev, entries) in [(bridged(1), port, 1), (routed, veth, 0), (bridged(1), port, 1)] {
        settle(&node(0, vec![pod.clone()]), &mut kernel);
        let to_pod = kernel.state.routes.iter().find(|r| r.host_address() == Some(pod.address));
        assert_eq!(to_pod.and_then(|route| route.dev), Some(dev));
        assert_eq!(kernel.state.neighbors.len(), entries);
    }
}

#[test]
fn an_adopted_pod_without_an_alias_gets_no_neighbor_entry() {
    let pod = PodDesired { adopted: true, ..bridged(1) };
    let mut kernel = kernel_of(std::slice::from_ref(&pod));
    add_port(&mut kernel);
    kernel.state.links.values_mut().for_each(|link| link.alias = None);
    settle(&node(0, vec![pod]), &mut kernel);
    assert_eq!(kernel.state.neighbors, []);
}

#[test]
fn check_names_a_wrong_route_and_neighbor_entry_of_a_bridged_pod() {
    let pod = bridged(1);
    let mut kernel = kernel_of(std::slice::from_ref(&pod));
    let port = add_port(&mut kernel);
    let veth = kernel.state.link_of(&pod.key).unwrap().index;
    let net = net(&pod, &kernel.state);
    let texts = |kernel: &FakeKernel| -> Vec<String> {
        let found = check(&net, &Observed::default(), &kernel.state);
        found.iter().map(ToString::to_string).collect()
    };
    let inside = "no link eth0 in the pod";
    assert_eq!(kernel.apply(&net.host_batch(veth)).refused, []);
    assert_eq!(texts(&kernel), [inside]);
    run(&mut kernel, Action::ReplaceRoute(Route::on_link(TableId::MAIN, pod.address, veth)));
    run(&mut kernel, Action::DeleteNeighbor(net.host_neighbor().unwrap()));
    let inside_mac = mac_addresses(&pod.key)[1];
    let address = address(0, 21);
    assert_eq!(
        texts(&kernel),
        [
            format!("route {address} dev {} on the host should be {address} dev enigw0", pod.veth),
            format!("no neighbor {address} at {inside_mac} on enigw0 on the host"),
            inside.to_owned(),
        ]
    );
    assert!(kernel.state.links.contains_key(&port));
}
