//! The contract of every kernel that plans are applied to, fake or real.
//!
//! Each case starts in an empty namespace and fails by a panic.

mod drift;
mod objects;

use crate::node::{address, eni, mac, node, pod, set_family};
use config_model::{Mac, TableId, registry};
use ipnet::IpNet;
use routing_plan::{
    Action, Applied, EniDesired, Family, IfIndex, LinkAddr, LinkRef, NodeDesired, Observed, Op,
    Route, Subject, plan,
};

/// A kernel under test, with operations that only tests use.
pub trait TestKernel {
    fn observe(&mut self) -> Observed;
    /// Executes operations as an executor must.
    fn apply(&mut self, ops: &[Op]) -> Applied;
    /// Attaches an ENI: a link that is down and has no addresses.
    fn add_eni(&mut self, name: &str, mac: Mac) -> IfIndex;
    /// Creates a veth whose other end is in a pod. The host end is up.
    fn add_pod_veth(&mut self, name: &str, alias: Option<&str>) -> IfIndex;
    /// Sets a link down.
    fn set_down(&mut self, index: IfIndex);
}

/// A case: its claim and its function.
pub type Case = (&'static str, fn(&mut dyn TestKernel));

/// Every case in every family that it applies to. The family is thread-local, so cases of different families
/// must run on different threads.
pub fn cases() -> Vec<(Family, Case)> {
    let both = [Family::V4, Family::V6].into_iter().flat_map(|family| {
        let cases = [objects::CASES, drift::CASES].concat();
        cases.into_iter().map(move |case| (family, case))
    });
    let of_v4 = objects::V4_CASES.iter().map(|case| (Family::V4, *case));
    both.chain(of_v4).chain(drift::V6_CASES.iter().map(|case| (Family::V6, *case))).collect()
}

pub fn run((family, (_, case)): (Family, Case), kernel: &mut dyn TestKernel) {
    set_family(family);
    case(kernel);
}

/// A namespace with a node's links, on which plans are applied.
struct Stage<'a> {
    kernel: &'a mut dyn TestKernel,
    desired: NodeDesired,
    pod_links: Vec<IfIndex>,
    eni_links: Vec<IfIndex>,
}

impl<'a> Stage<'a> {
    /// Two secondary ENIs, a pod on the primary ENI and one on each secondary ENI. No plan has been applied
    /// yet.
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

    fn converged(kernel: &'a mut dyn TestKernel) -> Self {
        let mut stage = Self::raw(kernel);
        stage.pass();
        stage.assert_converged();
        stage
    }

    /// One pass of the repair loop. The kernel must refuse nothing.
    fn pass(&mut self) -> Applied {
        let observed = self.kernel.observe();
        let plan = plan(&self.desired, &observed);
        let applied = self.kernel.apply(&plan.ops);
        assert_eq!(applied.refused, [], "the plan was {:#?}", plan.ops);
        applied
    }

    fn assert_converged(&mut self) {
        let observed = self.kernel.observe();
        let plan = plan(&self.desired, &observed);
        assert_eq!(plan.ops, [], "after {observed:#?}");
        assert!(plan.node_ready(), "{:?}", plan.notes);
        for eni in &self.desired.enis {
            assert!(plan.ready(&eni.eni), "{:?}", plan.notes);
        }
    }

    /// A change by another program.
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
    let address = address.expect("the ENI has an address");
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
