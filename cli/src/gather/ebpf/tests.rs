#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use super::*;
use std::path::PathBuf;

/// The root of a node, its procfs and its sysfs.
struct Node {
    folder: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { folder: tempfile::tempdir().unwrap() };
        node.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        node.write(
            "proc/7/status",
            "Name:\tferrule-agent\nCapPrm:\t0\nCapEff:\t000000c000001000\n",
        );
        node.write("proc/7/cgroup", "0::/kubepods.slice/pod1.slice/agent.scope\n");
        node.write("proc/7/environ", "PATH=/bin\0FERRULE_AGENT_MAP_MEMORY=256\0");
        node.write("proc/8/status", "Name:\tferrule-ipamd\nCapEff:\t0000000000003000\n");
        fs::create_dir_all(node.path("sys/fs/bpf")).unwrap();
        node
    }

    fn path(&self, at: &str) -> PathBuf {
        self.folder.path().join(at)
    }

    fn write(&self, at: &str, text: &str) {
        let path = self.path(at);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn see(&self) -> Ebpf {
        let pins = Path::new("/sys/fs/bpf/ferrule/maps");
        observe(self.folder.path(), &self.path("proc"), &self.path("sys"), pins)
    }

    fn memory(&self) -> Observed<AgentMemory> {
        let [agent] = <[EbpfAgent; 1]>::try_from(self.see().agents.unwrap()).unwrap();
        agent.memory
    }
}

#[test]
fn release_file_system_and_capabilities_are_read_from_the_nodes_files() {
    let node = Node::new();
    let seen = node.see();
    assert_eq!(seen.release, Ok("6.1.0-18-amd64".to_owned()));
    assert_eq!(seen.agents.unwrap()[0].capabilities, 0xc0_0000_1000);
    assert_eq!(seen.has_bpffs, Ok(false), "the folder is on the disk");
    assert_eq!(seen.pins, "/sys/fs/bpf/ferrule/maps");
    assert_eq!(seen.bandwidth, Ok(Vec::new()), "there is no configuration yet");
    let missing =
        observe(&node.path("none"), &node.path("none"), &node.path("sys"), Path::new("/"));
    assert!(missing.release.is_err() && missing.agents.is_err());
}

#[test]
fn the_lowest_memory_limit_of_an_agents_control_groups_is_read_with_its_setting() {
    let node = Node::new();
    let of = |limit| AgentMemory { limit, maps: 256 << 20, others: 48 << 20 };
    assert_eq!(node.memory(), Ok(of(None)), "no group has a limit");
    node.write("sys/fs/cgroup/kubepods.slice/pod1.slice/agent.scope/memory.max", "max\n");
    assert_eq!(node.memory(), Ok(of(None)));
    node.write("sys/fs/cgroup/kubepods.slice/pod1.slice/memory.max", "209715200\n");
    assert_eq!(node.memory(), Ok(of(Some(200 << 20))), "the limit of the pod");
    node.write("sys/fs/cgroup/kubepods.slice/pod1.slice/agent.scope/memory.max", "1048576\n");
    assert_eq!(node.memory(), Ok(of(Some(1 << 20))));
    node.write("proc/7/environ", "PATH=/bin\0");
    assert_eq!(node.memory().unwrap().maps, 128 << 20, "the default");
    node.write("proc/7/cgroup", "4:memory:/agent\n");
    assert_eq!(node.memory().unwrap().limit, None, "control groups of version 1");
}

#[test]
fn memory_that_cannot_be_read_has_a_cause_and_a_next_step() {
    let node = Node::new();
    node.write("proc/7/environ", "FERRULE_AGENT_MAP_MEMORY=much\0");
    assert!(node.memory().unwrap_err().contains("FERRULE_AGENT_MAP_MEMORY"));
    fs::remove_file(node.path("proc/7/environ")).unwrap();
    assert!(node.memory().unwrap_err().ends_with("run as root"));
    node.write("proc/7/cgroup", "0::/../../pod1.slice/agent.scope\n");
    assert!(node.memory().unwrap_err().ends_with("run on the node"));
}

#[test]
fn configurations_of_ferrule_with_the_plugin_bandwidth_are_found() {
    let node = Node::new();
    let list = |first: &str, second: &str| {
        format!(
            "{{\"name\": \"x\", \"plugins\": [{{\"type\": \"{first}\"}}, {{\"type\": \"{second}\"}}]}}"
        )
    };
    for (name, text) in [
        ("05-ferrule.conflist", list("ferrule-cni", "bandwidth")),
        ("06-ferrule.conflist", list("ferrule-cni", "portmap")),
        ("10-aws.conflist", list("aws-cni", "bandwidth")),
        ("10-aws.conflist.ferrule-aside", list("ferrule-cni", "bandwidth")),
        ("20-broken.conflist", "{".to_owned()),
    ] {
        node.write(&format!("etc/cni/net.d/{name}"), &text);
    }
    assert_eq!(node.see().bandwidth, Ok(vec!["05-ferrule.conflist".to_owned()]));
}
