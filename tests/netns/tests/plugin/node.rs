//! A node that consists of namespaces: the host's and the pods' network namespaces.

use serde_json::Value;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

/// The node of one test. Its namespaces, mounts and links are removed with its thread, its folder at the end of the
/// test.
pub(crate) struct Node {
    pub(crate) folder: tempfile::TempDir,
}

/// Runs a test on a new node. Without root prints a skip.
pub(crate) fn on_a_node(test: impl FnOnce(&Node) + Send) {
    if !nix::unistd::geteuid().is_root() {
        skip("needs root");
        return;
    }
    let finished = thread::scope(|scope| {
        scope
            .spawn(|| {
                let node = Node::set_up();
                test(&node);
            })
            .join()
    });
    if let Err(panic) = finished {
        std::panic::resume_unwind(panic);
    }
}

/// Writes to standard error directly, because the test harness hides the output of passing tests.
fn skip(why: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), format!("SKIP plugin: {why}\n").as_bytes());
}

impl Node {
    /// Moves the calling thread into new namespaces.
    fn set_up() -> Self {
        let folder = tempfile::Builder::new().prefix("ferrule-plugin-").tempdir().unwrap();
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        // The plugin's default log must not be written to the machine that runs the tests.
        mount(Some("tmpfs"), "/var/log", Some("tmpfs"), MsFlags::empty(), none).unwrap();
        let node = Self { folder };
        fs::create_dir(node.path("netns")).unwrap();
        node.ip("link set lo up");
        for (eni, address) in [("eth0", "10.0.0.10/24"), ("eth1", "10.0.0.11/24")] {
            node.ip(&format!("link add {eni} type veth peer name {eni}-vpc"));
            node.ip(&format!("link set {eni} up"));
            node.ip(&format!("link set {eni}-vpc up"));
            node.ip(&format!("addr add {address} dev {eni}"));
        }
        node.ip("route add 10.0.0.1 dev eth1 table 2");
        node.ip("route add default via 10.0.0.1 dev eth1 table 2 onlink");
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of a network namespace. Creates it if necessary.
    pub(crate) fn netns(&self, name: &str) -> PathBuf {
        let path = self.path("netns").join(name);
        if !path.exists() {
            File::create(&path).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    unshare(CloneFlags::CLONE_NEWNET).unwrap();
                    bind(Path::new("/proc/thread-self/ns/net"), &path);
                });
            });
        }
        path
    }

    pub(crate) fn delete_netns(&self, name: &str) {
        let path = self.path("netns").join(name);
        umount2(&path, MntFlags::MNT_DETACH).unwrap();
        fs::remove_file(&path).unwrap();
    }

    /// Runs `work` in a pod's namespace.
    pub(crate) fn inside<T: Send>(&self, netns: &Path, work: impl FnOnce() -> T + Send) -> T {
        let work = || {
            setns(File::open(netns).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    /// Runs `ip WORDS` in the host's namespace. Fails if the command fails.
    pub(crate) fn ip(&self, words: &str) {
        run_ip(words);
    }

    /// Runs `ip -j WORDS` in the host's namespace.
    pub(crate) fn show(&self, words: &str) -> Vec<Value> {
        show(words)
    }

    /// Runs `ip -j WORDS` in a pod's namespace.
    pub(crate) fn show_inside(&self, netns: &Path, words: &str) -> Vec<Value> {
        self.inside(netns, || show(words))
    }

    pub(crate) fn ip_inside(&self, netns: &Path, words: &str) {
        self.inside(netns, || run_ip(words));
    }

    /// Returns the host's links, routes and rules as sorted lines, without counters and states that the kernel changes
    /// asynchronously.
    pub(crate) fn host_state(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .show("-d link")
            .iter()
            .map(|link| {
                format!("link {} alias {} group {}", link["ifname"], link["ifalias"], link["group"])
            })
            .collect();
        lines.extend(self.show("-4 route show table all").iter().map(|route| {
            format!(
                "route {} {} {} {}",
                route["dst"], route["dev"], route["table"], route["protocol"]
            )
        }));
        lines.extend(self.show("rule").iter().map(Value::to_string));
        lines.sort();
        lines
    }

    /// Returns the rules of the two priorities of pods, as `pref from|to address table`.
    pub(crate) fn pod_rules(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut rules: Vec<String> = self
            .show("rule")
            .iter()
            .filter(|rule| [512, 1536].contains(&rule["priority"].as_u64().unwrap()))
            .map(|rule| {
                let (src, dst) = (text(&rule["src"]), text(&rule["dst"]));
                let what = if dst.is_empty() { format!("from {src}") } else { format!("to {dst}") };
                format!("{} {what} {}", rule["priority"], text(&rule["table"]))
            })
            .collect();
        rules.sort();
        rules
    }

    /// Returns the routes in table main on host veths, as `address dev`.
    pub(crate) fn pod_routes(&self) -> Vec<String> {
        let mut routes: Vec<String> = self
            .show("route show table main")
            .iter()
            .filter(|route| route["dev"].as_str().is_some_and(|dev| dev.starts_with("eni")))
            .map(|route| {
                format!("{} {}", route["dst"].as_str().unwrap(), route["dev"].as_str().unwrap())
            })
            .collect();
        routes.sort();
        routes
    }

    /// Returns the host's link with this name.
    pub(crate) fn link(&self, name: &str) -> Option<Value> {
        self.show("-d link").into_iter().find(|link| link["ifname"] == name)
    }

    /// Returns the names of the host veths.
    pub(crate) fn veths(&self) -> Vec<String> {
        let names =
            self.show("link").into_iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("eni")).collect()
    }
}

impl Drop for Node {
    /// Unmounts the namespaces, because a folder with mount points cannot be removed.
    fn drop(&mut self) {
        let Ok(entries) = fs::read_dir(self.path("netns")) else { return };
        for entry in entries.flatten() {
            // A test may have unmounted it already, and the mount namespace is removed with the thread.
            let _ = umount2(&entry.path(), MntFlags::MNT_DETACH);
        }
    }
}

fn bind(from: &Path, to: &Path) {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

fn run_ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn show(words: &str) -> Vec<Value> {
    let output = Command::new("ip")
        .args(["-j", "-N"])
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    if output.stdout.trim_ascii().is_empty() {
        return Vec::new();
    }
    let list: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    // Old versions of iproute2 print empty objects for filtered entries.
    list.into_iter().filter(|value| value.as_object().is_some_and(|map| !map.is_empty())).collect()
}
