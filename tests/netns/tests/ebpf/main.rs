//! The eBPF programs in the kernel: verdicts, and attached programs with real traffic.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a lane reads the skips of its tests")]

mod bad_input;
mod beyond;
mod branches;
mod clusters;
mod contract;
mod errors;
mod events;
mod existing;
mod fast;
mod foreign;
mod grow;
mod hostile;
mod judge;
mod malformed;
mod names;
mod nat;
mod node_ports;
mod outside;
mod places;
mod planted;
mod refused;
mod reject;
mod related;
mod repair;
mod retire;
mod same_port;
mod sctp;
mod service;
mod serving;
mod sockets;
mod takeover;
mod tcx;
mod traffic;
mod upgrade;
mod verifier;

use config_settings::{Connections, Settings};
use datapath_abi::{Held, Numbers, Own, Pod, Row, Target, cleanup, plan};
use datapath_ebpf::{Hook, Programs};
use datapath_plan::Tables;
use routing_netlink::Socket;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The object file of the programs. `None` if it is not given: the test is skipped.
fn object(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("FERRULE_BPF").map(PathBuf::from);
    if path.is_none() {
        println!("SKIP {test}: FERRULE_BPF names no object file; use cargo xtask test netns");
    }
    path
}

/// The defaults of the agent's settings.
fn connections() -> Connections {
    Settings::defaults().agent.connections
}

/// The programs with a mirror of their maps.
pub(crate) struct Kernel {
    pub(crate) programs: Programs,
    held: Held,
    numbers: Numbers,
    pub(crate) own: Own,
}

impl Kernel {
    pub(crate) fn load(object: &Path, pins: Option<&Path>) -> Self {
        Self::over(Programs::load(object, pins, &connections()).unwrap())
    }

    pub(crate) fn over(programs: Programs) -> Self {
        let held = programs.read().unwrap();
        Self { programs, numbers: held.numbers(), held, own: Own::default() }
    }

    /// Puts tables into force. `pods` are the host links by ifindex; their rows follow from their UIDs.
    pub(crate) fn write(&mut self, tables: &Tables, pods: BTreeMap<u32, Pod>) {
        self.write_between(tables, pods, |_| {});
    }

    /// [`Self::write`] with calls of `probe` right before and right after the writes that change what is in force.
    pub(crate) fn write_between(
        &mut self,
        tables: &Tables,
        pods: BTreeMap<u32, Pod>,
        mut probe: impl FnMut(&mut Programs),
    ) {
        let target = Target::of(tables, &mut self.numbers).unwrap();
        let row =
            |uid: &str| target.rows.get(uid).map_or(Row::CLOSED, |row| *row.as_ref().unwrap());
        let pods = pods.into_iter().map(|(link, pod)| (link, Pod { row: row(&pod.uid), ..pod }));
        let plan = plan(&self.held, &target, &pods.collect(), &self.own, None).unwrap();
        probe(&mut self.programs);
        self.programs.write(&mut self.held, plan.writes()).unwrap();
        probe(&mut self.programs);
        let unused = cleanup(&self.held, &target, None);
        self.programs.write(&mut self.held, &unused).unwrap();
        self.held.release(&mut self.numbers);
        assert_eq!(self.programs.read().unwrap().set_rows, self.held.set_rows);
    }

    pub(crate) fn attach(&mut self, hook: Hook, link: &str) {
        let mut socket = Socket::open().unwrap();
        let index = socket.index_of(link).unwrap().unwrap();
        let filters = socket.filters(index, hook.side()).unwrap();
        socket.add_clsact(index).unwrap();
        self.programs.attach(hook, link, &filters).unwrap();
    }
}

/// Removes the filter of a hook from a link.
pub(crate) fn detach(hook: Hook, link: &str) {
    let mut socket = Socket::open().unwrap();
    let index = socket.index_of(link).unwrap().unwrap();
    let filters = socket.bpf_filters(index, hook.side()).unwrap();
    let ours = filters.iter().find(|filter| filter.name == hook.name()).unwrap();
    assert!(socket.delete_bpf_filter(ours).unwrap());
}
