#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]
#![expect(clippy::print_stdout, reason = "a lane reads the skips of its tests")]

use super::*;
use datapath_sockets::Transport;
use std::{net::TcpListener, os::unix::fs::MetadataExt as _};
use tempfile::TempDir;

/// A node whose settings are plain files.
struct Settings(TempDir);

impl Settings {
    fn new(reserved: &str) -> Self {
        let of = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(of.at("net/ipv4")).unwrap();
        fs::create_dir(of.at("state")).unwrap();
        of.set("net/ipv4/ip_local_reserved_ports", reserved);
        of.set("net/ipv4/ip_local_port_range", "32768\t60999\n");
        of.set("boot_id", "boot-1\n");
        of
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn set(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    fn reserved(&self) -> String {
        fs::read_to_string(self.at("net/ipv4/ip_local_reserved_ports")).unwrap()
    }

    fn node(&self) -> NodePorts {
        let node = NodePorts::of(&self.at("net"), &self.at("state"));
        NodePorts { boot: self.at("boot_id"), ..node }
    }

    /// A task of an agent that starts.
    fn task(&self) -> ReservedPorts {
        ReservedPorts::new(self.node(), Arc::new(Metrics::new().unwrap()))
    }
}

fn ports(text: &str) -> PortSet {
    text.parse().unwrap()
}

/// The value of a series without labels.
fn value(task: &ReservedPorts, series: &str) -> String {
    let page = task.metrics.page(None);
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{series} ")));
    line.unwrap_or_default().to_owned()
}

#[test]
fn the_agent_reserves_its_ports_and_repairs_them() {
    let node = Settings::new("8080,9000-9010\n");
    let mut task = node.task();
    task.pass();
    assert_eq!(node.reserved(), "8080,9000-9010,61000-65535\n");
    let repairs = "ferrule_agent_service_repairs_total{object=\"reserved_ports\"}";
    assert_eq!(value(&task, repairs), "0");
    // Another program writes its own list.
    node.set("net/ipv4/ip_local_reserved_ports", "7000\n");
    task.pass();
    assert_eq!(node.reserved(), "7000,61000-65535\n");
    assert_eq!(value(&task, repairs), "1");
    task.pass();
    assert_eq!(value(&task, repairs), "1");
}

#[test]
fn an_agent_without_services_removes_the_ports_that_agents_have_added() {
    let node = Settings::new("61000-61999,8080\n");
    node.task().pass();
    // The next agent adds nothing.
    node.task().pass();
    assert_eq!(node.reserved(), "8080,61000-65535\n");
    assert_eq!(node.node().release().unwrap(), ports("62000-65535"));
    assert_eq!(node.reserved(), "8080,61000-61999\n");
    assert_eq!(node.node().release().unwrap(), PortSet::default());
    assert_eq!(node.reserved(), "8080,61000-61999\n");
}

#[test]
fn the_last_reserved_ports_are_removed_too() {
    let node = Settings::new("\n");
    node.task().pass();
    assert_eq!(node.node().release().unwrap(), ports("61000-65535"));
    assert_eq!(node.reserved(), "\n");
}

#[test]
fn a_record_that_stays_the_same_is_not_written_again() {
    let node = Settings::new("8080\n");
    let mut task = node.task();
    task.pass();
    let record = node.at("state/reserved-ports");
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let first = inode(&record);
    // A write replaces the file by a new one.
    node.set("net/ipv4/ip_local_reserved_ports", "8080\n");
    task.pass();
    assert_eq!(node.reserved(), "8080,61000-65535\n");
    assert_eq!(inode(&record), first);
    node.set("boot_id", "boot-2\n");
    node.set("net/ipv4/ip_local_reserved_ports", "8080\n");
    task.pass();
    assert_ne!(inode(&record), first, "the ports belong to another boot");
}

#[test]
fn ports_of_an_operator_stay() {
    let node = Settings::new("1024-65535\n");
    node.task().pass();
    assert_eq!(node.node().release().unwrap(), PortSet::default());
    // After a boot the ports are those of the operator's files.
    let node = Settings::new("\n");
    node.task().pass();
    node.set("boot_id", "boot-2\n");
    node.set("net/ipv4/ip_local_reserved_ports", "61000-65535\n");
    assert_eq!(node.node().release().unwrap(), PortSet::default());
    assert_eq!(node.reserved(), "61000-65535\n");
    assert!(!node.at("state/reserved-ports").exists());
}

#[test]
fn a_setting_that_cannot_be_used_is_reported_and_stays() {
    for (name, text, why) in [
        ("ip_local_reserved_ports", "8080,x\n", "\"x\" is neither a port nor a range of ports"),
        ("ip_local_port_range", "here\n", "\"here\" is neither"),
        ("ip_local_port_range", "61000 65535\n", "61000-65535 would have no other port"),
    ] {
        let node = Settings::new("8080\n");
        node.set(&format!("net/ipv4/{name}"), text);
        let mut task = node.task();
        let before = node.reserved();
        task.pass();
        assert_eq!(node.reserved(), before);
        let fault = task.fault.clone().unwrap_or_default();
        assert!(fault.contains(why), "{fault}");
        assert_eq!(value(&task, "ferrule_agent_reserved_ports_failing"), "1");
        // The fault ends without the agent.
        node.set("net/ipv4/ip_local_reserved_ports", "8080\n");
        node.set("net/ipv4/ip_local_port_range", "32768 60999\n");
        task.pass();
        assert_eq!((task.fault.clone(), &*node.reserved()), (None, "8080,61000-65535\n"));
        assert_eq!(value(&task, "ferrule_agent_reserved_ports_failing"), "0");
    }
}

#[test]
fn common_ports_with_the_range_of_processes_are_noticed() {
    let node = Settings::new("");
    node.set("net/ipv4/ip_local_port_range", "1024 62000\n");
    let mut task = node.task();
    task.pass();
    assert_eq!(task.common, ports("61000-62000"));
    assert_eq!(node.reserved(), "61000-65535\n");
}

#[test]
fn a_folder_without_a_record_does_not_prevent_the_reservation() {
    let node = Settings::new("");
    fs::remove_dir(node.at("state")).unwrap();
    node.task().pass();
    assert_eq!(node.reserved(), "61000-65535\n");
    assert_eq!(node.node().release().unwrap(), PortSet::default());
    assert_eq!(node.reserved(), "61000-65535\n");
}

#[test]
fn a_setting_that_is_longer_than_the_first_buffer_is_read_whole() {
    let long: Vec<String> = (1..20_000).step_by(2).map(|port: u16| port.to_string()).collect();
    let node = Settings::new(&long.join(","));
    node.task().pass();
    assert_eq!(node.reserved(), format!("{},61000-65535\n", long.join(",")));
}

#[test]
fn a_setting_that_cannot_be_written_is_a_fault_with_the_next_step() {
    let node = Settings::new("");
    let without_folder = NodePorts { reserved: node.at("absent/ports"), ..node.node() };
    let fault = causes(&without_folder.write(&ports("1")).unwrap_err());
    assert!(fault.contains("cannot write") && fault.contains("FERRULE_PROC_SYS_NET"), "{fault}");
}

#[test]
fn a_process_that_listens_at_a_source_port_is_counted() {
    let node = Settings::new("");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut task = ReservedPorts { wanted: (port..=port).into(), ..node.task() };
    task.pass();
    if let Some(why) = &task.listeners_fault {
        println!("SKIP a_process_that_listens_at_a_source_port_is_counted: {why}");
        return;
    }
    let at = Listener { transport: Transport::Tcp, local: socket.local_addr().unwrap() };
    assert_eq!(task.listeners, [at]);
    assert_eq!(value(&task, "ferrule_agent_source_port_listeners"), "1");
    drop(socket);
    task.passes = 0;
    task.pass();
    assert_eq!(value(&task, "ferrule_agent_source_port_listeners"), "0");
}

#[test]
fn programs_of_ferrule_do_not_count_as_listeners() {
    assert!(!is_foreign(METRICS_PORT) && !is_foreign(CONTROLLER_PORT));
    assert!(is_foreign(61_500));
}
