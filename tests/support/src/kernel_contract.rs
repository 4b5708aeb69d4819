//! What holds for every kernel that plans are carried out on, the fake one and the real one.
//!
//! Each case starts on an empty namespace and fails by panicking.

mod drift;
mod objects;

use crate::node::{address, eni, mac, node, pod, speak};
use config_model::{Mac, TableId, registry};
use ipnet::IpNet;
use routing_plan::{
    Action, Applied, EniDesired, Family, IfIndex, LinkAddr, LinkRef, NodeDesired, Observed, Op,
    Route, Subject, plan,
};

/// A kernel under test, with what only a test may do to it.
pub trait TestKernel {
    /// One full observation.
    fn observe(&mut self) -> Observed;
    /// Carries out operations as an executor must.
    fn apply(&mut self, ops: &[Op]) -> Applied;
    /// Attaches an ENI: a link, down, without addresses.
    fn add_eni(&mut self, name: &str, mac: Mac) -> IfIndex;
    /// Makes a veth whose other end is in a pod; the host end is up.
    fn add_pod_veth(&mut self, name: &str, alias: Option<&str>) -> IfIndex;
    /// Takes a link down.
    fn set_down(&mut self, index: IfIndex);
}

/// One case: a sentence, and what shows it.
pub type Case = (&'static str, fn(&mut dyn TestKernel));

/// Every case, in every family that it speaks of. What shows it runs on a thread on which nothing
/// else speaks of another family meanwhile.
pub fn cases() -> Vec<(Family, Case)> {
    let both = [Family::V4, Family::V6].into_iter().flat_map(|family| {
        let cases = [objects::CASES, drift::CASES].concat();
        cases.into_iter().map(move |case| (family, case))
    });
    let of_v4 = objects::V4_CASES.iter().map(|case| (Family::V4, *case));
    both.chain(of_v4).chain(drift::V6_CASES.iter().map(|case| (Family::V6, *case))).collect()
}

/// Runs one.
pub fn run((family, (_, case)): (Family, Case), kernel: &mut dyn TestKernel) {
    speak(family);
    case(kernel);
}

/// A namespace with a node's links, planned for until it rests.
struct Stage<'a> {
    kernel: &'a mut dyn TestKernel,
    desired: NodeDesired,
    pod_links: Vec<IfIndex>,
    eni_links: Vec<IfIndex>,
}

impl<'a> Stage<'a> {
    /// Two secondary ENIs, a pod on the primary ENI and one on each of them; nothing is planned yet.
    fn raw(kernel: &'a mut dyn TestKernel) -> Self {
        let desired = node(2, vec![pod(0, 1), pod(1, 1), pod(2, 1)]);
        let primary = kernel.add_eni("eth0", mac(0));
        let eni_links = vec![kernel.add_eni("eth1", mac(1)), kernel.add_eni("eth2", mac(2))];
        let mut pod_links = Vec::new();
        for pod in &desired.pods {
            pod_links.push(kernel.add_pod_veth(pod.veth.as_str(), Some(&pod.key.alias())));
        }
        let mut stage = Self { kernel, desired, pod_links, eni_links };
        let link = stage.link(primary);
        stage.force(Action::SetUp(link));
        stage.force(Action::AddAddress(subnet_address(0, primary)));
        stage.force(Action::AddRoute(Route {
            protocol: BOOT,
            ..Route::default_via(TableId::MAIN, address(0, 1), primary)
        }));
        stage
    }

    fn settled(kernel: &'a mut dyn TestKernel) -> Self {
        let mut stage = Self::raw(kernel);
        stage.pass();
        stage.assert_rests();
        stage
    }

    /// One pass of the repair loop, in which the kernel must refuse nothing.
    fn pass(&mut self) -> Applied {
        let observed = self.kernel.observe();
        let plan = plan(&self.desired, &observed);
        let applied = self.kernel.apply(&plan.ops);
        assert_eq!(applied.refused, [], "the plan was {:#?}", plan.ops);
        applied
    }

    fn assert_rests(&mut self) {
        let observed = self.kernel.observe();
        let plan = plan(&self.desired, &observed);
        assert_eq!(plan.ops, [], "after {observed:#?}");
        assert!(plan.node_ready(), "{:?}", plan.notes);
        for eni in &self.desired.enis {
            assert!(plan.ready(&eni.eni), "{:?}", plan.notes);
        }
    }

    /// What somebody else does.
    fn force(&mut self, action: Action) {
        let op = Op::new(Subject::Node, action);
        let applied = self.kernel.apply(std::slice::from_ref(&op));
        assert_eq!((applied.changed, applied.refused), (1, Vec::new()), "{op}");
    }

    fn link(&mut self, index: IfIndex) -> LinkRef {
        LinkRef::from(&self.kernel.observe().links[&index])
    }
}

fn subnet_address(n: u8, dev: IfIndex) -> LinkAddr {
    let EniDesired { address, subnet, .. } = eni(n);
    let address = address.expect("it has one");
    let address = IpNet::new_assert(address, subnet.prefix_len());
    let peer = None;
    LinkAddr { dev, address, peer, global: true, secondary: false, noprefixroute: false }
}

fn try_one(kernel: &mut dyn TestKernel, action: Action) -> Applied {
    kernel.apply(&[Op::new(Subject::Node, action)])
}

const BOOT: u8 = 3;
const STATIC: u8 = 4;
const DHCP: u8 = 16;
const OURS: u8 = registry::ROUTE_PROTOCOL;
