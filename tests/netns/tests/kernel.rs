//! The real kernel passes the suite that the fake one passes, each case in a fresh namespace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what was skipped and what ran is said aloud")]

use config_model::{Mac, PodKey, PodName, TableId, VethName, registry};
use nix::{
    sched::{CloneFlags, unshare},
    unistd::Uid,
};
use routing_netlink::{Kernel as _, LinuxKernel, Monitor, Netns, Socket, SocketError, With};
use routing_plan::{
    Action, Applied, Errno, IfIndex, LinkRef, Neighbour, Observed, Op, RulePattern, Subject,
    SysctlName,
    pod::{PodNet, VethEnd, VethPair, check, removal},
};
use std::{
    collections::BTreeSet,
    os::fd::AsFd as _,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};
use tests_support::kernel_contract::{TestKernel, cases};
use tokio::runtime::Runtime;

/// A node's namespace, and another where the far ends of its links are.
struct Real {
    runtime: Runtime,
    kernel: LinuxKernel,
    socket: Socket,
    outside: Netns,
    made: u8,
}

impl Real {
    /// Leaves the calling thread in the node's namespace.
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let outside = Netns::current().unwrap();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kernel = {
            let _inside = runtime.enter();
            LinuxKernel::open("/proc/sys", BTreeSet::new()).unwrap()
        };
        Self { runtime, kernel, socket: Socket::open().unwrap(), outside, made: 0 }
    }

    fn add_veth(&mut self, name: &str, mac: Mac) -> IfIndex {
        self.made += 1;
        let far = Mac([0x0a, 0, 0, 1, 0, self.made]);
        let pair = VethPair {
            host: VethEnd { name: name.to_owned(), mac, mtu: 1500 },
            pod: VethEnd { name: format!("far{}", self.made), mac: far, mtu: 9001 },
        };
        self.socket.create_veth(&pair, self.outside.as_fd()).unwrap();
        self.socket.link_named(name).unwrap().unwrap().index
    }
}

impl TestKernel for Real {
    fn observe(&mut self) -> Observed {
        let seen = self.runtime.block_on(self.kernel.observe()).unwrap();
        // Both ways of looking must see the same.
        assert_eq!(self.socket.observe(With::Nothing).unwrap(), seen);
        seen
    }

    fn apply(&mut self, ops: &[Op]) -> Applied {
        self.runtime.block_on(self.kernel.apply(ops))
    }

    fn add_eni(&mut self, name: &str, mac: Mac) -> IfIndex {
        let index = self.add_veth(name, mac);
        self.set_down(index);
        index
    }

    fn add_pod_veth(&mut self, name: &str, alias: Option<&str>) -> IfIndex {
        let index = self.add_veth(name, Mac([0x0a, 0, 0, 2, 0, self.made]));
        let link = LinkRef { index, name: name.to_owned() };
        let ops: Vec<Op> = alias
            .map(|alias| Op::new(Subject::Node, Action::SetAlias(link, alias.to_owned())))
            .into_iter()
            .collect();
        assert_eq!(self.apply(&ops).refused, []);
        index
    }

    fn set_down(&mut self, index: IfIndex) {
        self.runtime.block_on(async {
            let (connection, handle, _events) = rtnetlink::new_connection().unwrap();
            let connection = tokio::spawn(connection);
            let down = rtnetlink::LinkUnspec::new_with_index(index.0).down().build();
            handle.link().set(down).execute().await.unwrap();
            connection.abort();
        });
    }
}

/// Runs in a thread of its own, which may change its namespace and is thrown away.
fn in_own_thread(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name(name.to_owned()).spawn(body).unwrap().join().is_ok()
}

fn needs_root() -> bool {
    let root = Uid::effective().is_root();
    if !root {
        println!("SKIP kernel: needs root");
    }
    root
}

#[test]
fn the_real_kernel_keeps_the_contract() {
    if !needs_root() {
        return;
    }
    let mut failed = Vec::new();
    for (name, case) in cases() {
        let passed = in_own_thread(name, move || case(&mut Real::new()));
        println!("{} {name}", if passed { "ok  " } else { "FAIL" });
        failed.extend((!passed).then_some(name));
    }
    assert_eq!(failed, Vec::<&str>::new());
}
