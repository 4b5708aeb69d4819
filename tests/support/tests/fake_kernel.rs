//! The fake kernel passes the same suite as the real one in `tests/netns/tests/kernel.rs`.

use config_model::Mac;
use routing_plan::{Action, Applied, Family, IfIndex, LinkKind, LinkRef, Observed, Op, Subject};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tests_support::{
    FakeKernel,
    kernel_contract::{TestKernel, cases, run},
};

struct Fake(FakeKernel);

impl TestKernel for Fake {
    fn observe(&mut self) -> Observed {
        self.0.observe()
    }

    fn apply(&mut self, ops: &[Op]) -> Applied {
        self.0.apply(ops)
    }

    fn add_eni(&mut self, name: &str, mac: Mac) -> IfIndex {
        self.0.add_link(name, mac, LinkKind::Veth)
    }

    fn add_pod_veth(&mut self, name: &str, alias: Option<&str>) -> IfIndex {
        let index = self.0.add_link(name, Mac([0x0a, 0, 0, 0, 0, 1]), LinkKind::Veth);
        let link = LinkRef { index, name: name.to_owned() };
        let alias = alias.map(|alias| Action::SetAlias(link.clone(), alias.to_owned()));
        let actions = [Action::SetUp(link.clone())].into_iter().chain(alias);
        let ops: Vec<Op> = actions.map(|action| Op::new(Subject::Node, action)).collect();
        self.0.apply(&ops);
        index
    }

    fn set_down(&mut self, index: IfIndex) {
        self.0.set_down(index);
    }
}

#[test]
fn the_fake_kernel_keeps_the_contract() {
    let failed: Vec<(Family, &str)> = cases()
        .into_iter()
        .filter(|case| {
            let mut kernel = Fake(FakeKernel::default());
            catch_unwind(AssertUnwindSafe(|| run(*case, &mut kernel))).is_err()
        })
        .map(|(family, (name, _))| (family, name))
        .collect();
    assert_eq!(failed, []);
}
