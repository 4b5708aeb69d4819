//! The installer on whole nodes, and two releases that are one apart. Plugin and daemon of both work together, and
//! upgrades fail no ADD or DEL.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(120);
const BIN: &str = "/opt/cni/bin";
const CONF: &str = "/etc/cni/net.d";

/// A lab with a folder of its own for the programs, like an image. The test replaces them while the lab runs.
struct Node {
    lab: Lab,
    image: TempDir,
    this: PathBuf,
    next: PathBuf,
}

impl Node {
    fn up(test: &str, name: &str, args: &[&str]) -> Result<Option<Self>> {
        let Some(this) = programs(test) else { return Ok(None) };
        let next = std::env::var_os("FERRULE_NEXT_DIR");
        let next = next.context("FERRULE_NEXT_DIR is not set; `cargo xtask test lab` sets it")?;
        let image = tempfile::tempdir()?;
        for program in ["ferrule-lab", "ferrule-ipamd", "ferrule-cni"] {
            place(&this.join(program), &image.path().join(program))?;
        }
        let lab = Lab::up(image.path(), name, &[&["--nodes", "1"], args].concat())?;
        Ok(Some(Self { lab, image, this, next: next.into() }))
    }

    /// Puts a program of a release into the image, without an effect on the node yet.
    fn pull(&self, program: &str, release: &Path) -> Result<()> {
        place(&release.join(program), &self.image.path().join(program))
    }

    /// Installs the plugin of a release, as the init container does.
    fn install_plugin(&self, release: &Path) -> Result<()> {
        self.pull("ferrule-cni", release)?;
        self.installer(&["install", "--only-programs"]).map(drop)
    }

    /// Replaces the running daemon with the daemon of a release.
    fn restart_daemon(&self, release: &Path) -> Result<()> {
        self.pull("ferrule-ipamd", release)?;
        self.lab.run(&["daemon", "stop", "node1"])?;
        self.lab.run(&["daemon", "start", "node1"]).map(drop)
    }

    /// Runs the image's installer on the node.
    fn installer(&self, words: &[&str]) -> Result<String> {
        let output = self.installing(words)?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{words:?}: {printed}");
        Ok(printed)
    }

    fn installing(&self, words: &[&str]) -> Result<Output> {
        let installer = self.image.path().join("ferrule-ipamd");
        let installer = installer.to_str().context("the path is not UTF-8")?;
        let env = ["HOST_CNI_BIN_PATH", "HOST_CNI_CONFDIR_PATH", "AWS_VPC_K8S_PLUGIN_LOG_FILE"];
        let values = [BIN, CONF, "/var/log/ferrule/plugin.log"];
        let env: Vec<_> =
            env.iter().zip(values).map(|(name, value)| format!("{name}={value}")).collect();
        let words = env.iter().map(String::as_str).chain([installer]).chain(words.iter().copied());
        let exec = ["node", "exec", "node1", "--", "env"];
        self.lab.output(&exec.into_iter().chain(words).collect::<Vec<_>>())
    }

    fn file(&self, path: &str) -> Result<String> {
        self.lab.on_node("node1", &["cat", path])
    }

    /// The files of a folder, without the installer's lock.
    fn names(&self, folder: &str) -> Result<Vec<String>> {
        let listed = self.lab.on_node("node1", &["ls", "-A", folder])?;
        let names = listed.lines().filter(|name| *name != ".ferrule.lock");
        Ok(names.map(str::to_owned).collect())
    }

    /// Creates, checks and deletes a pod with the current plugin and daemon.
    fn ensure_pod_lifecycle(&self, name: &str) -> Result<()> {
        self.lab.run(&["pod", "add", "node1", "--pod", name])?;
        self.check_pod(name)?;
        self.lab.run(&["pod", "delete", name]).map(drop)
    }

    /// Checks a pod. CHECK has code 11 if the daemon takes more than some seconds to start; then it is repeated.
    fn check_pod(&self, name: &str) -> Result<()> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.lab.run(&["pod", "check", name]) {
                Err(err) if Instant::now() < give_up && err.to_string().contains("code 11") => {}
                checked => return checked.map(drop),
            }
        }
    }

    /// Waits until no object of a pod is left on the node.
    fn is_clean(&self) -> Result<()> {
        wait_for("the removal of all objects of pods", PATIENCE, || {
            let book = self.lab.metric("node1", "awscni_assigned_ip_addresses", &[])?;
            ensure!(book == Some(0.0), "the address book has {book:?}");
            let left = "ip rule | grep -E '^(512|1536):'; ip -o link | grep -oE ' eni[0-9a-f]{11}@'; \
                        find /var/lib/ferrule/tombstones -type f 2>/dev/null; true";
            let left = self.lab.on_node("node1", &["bash", "-c", left])?;
            ensure!(left.trim().is_empty(), "{left}");
            Ok(true)
        })
    }
}

/// Replaces the file `to`, which may be a running program, with a copy of `from`.
fn place(from: &Path, to: &Path) -> Result<()> {
    let beside = to.with_extension("new");
    // A separate process copies the file. Otherwise a process that another thread forks could inherit the file open for
    // writing, and the program could not be executed.
    let copied = Command::new("cp").arg(from).arg(&beside).status()?;
    ensure!(copied.success(), "cannot copy {}: {copied}", from.display());
    fs::rename(&beside, to).with_context(|| format!("cannot rename to {}", to.display()))
}

/// Returns the version that a program prints.
fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn plugin_and_daemon_one_release_apart_work_together() -> Result<()> {
    let test = "plugin_and_daemon_one_release_apart_work_together";
    let Some(node) = Node::up(test, "t-skew", &[])? else { return Ok(()) };
    let daemons = [&node.this, &node.next].map(|dir| version(&dir.join("ferrule-ipamd")));
    let [this, next] = daemons;
    ensure!(this? != next?, "both releases are the same");
    node.lab.run(&["pod", "add", "node1", "--pod", "older"])?;
    node.install_plugin(&node.next)?;
    node.lab.run(&["pod", "check", "older"]).context("a newer plugin's CHECK")?;
    node.ensure_pod_lifecycle("a").context("a newer plugin beside this daemon")?;
    let status = node.installer(&["install"]).context("a newer plugin's installer")?;
    ensure!(status.contains("installed"), "{status}");
    node.lab.run(&["pod", "add", "node1", "--pod", "newer"])?;

    node.restart_daemon(&node.next)?;
    node.ensure_pod_lifecycle("b").context("both newer")?;
    node.install_plugin(&node.this)?;
    node.ensure_pod_lifecycle("c").context("this plugin beside a newer daemon")?;
    // Each release's pod is deleted by the other's plugin and daemon.
    node.lab.run(&["pod", "delete", "newer"])?;
    node.restart_daemon(&node.this)?;
    node.ensure_pod_lifecycle("d").context("back again")?;
    node.lab.run(&["pod", "check", "older"])?;
    node.lab.run(&["pod", "delete", "older"])?;
    node.is_clean()?;
    node.lab.down()
}

#[test]
fn upgrades_and_downgrades_under_a_stream_of_adds_and_dels_fail_none() -> Result<()> {
    let test = "upgrades_and_downgrades_under_a_stream_of_adds_and_dels_fail_none";
    // Few warm addresses, so that some ADDs wait for one when the daemon stops.
    let settings = ["--env", "WARM_IP_TARGET=2", "--env", "IP_COOLDOWN_PERIOD=5"];
    let Some(node) = Node::up(test, "t-upgrade", &settings)? else { return Ok(()) };
    node.lab.run(&["pod", "add", "node1", "--prefix", "steady-", "--count", "3"])?;
    let streaming = AtomicBool::new(true);
    let lives = [const { AtomicUsize::new(0) }; STREAMS];
    let stream = |number: usize| -> Result<()> {
        for round in 0.. {
            if !streaming.load(Ordering::Relaxed) {
                break;
            }
            let pod = format!("s{number}-{round}");
            node.ensure_pod_lifecycle(&pod)
                .inspect_err(|_| streaming.store(false, Ordering::Relaxed))?;
            lives[number].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    // After each change, every stream creates and deletes some pods.
    let wait_for_progress = || {
        let before: Vec<_> = lives.iter().map(|of| of.load(Ordering::Relaxed)).collect();
        wait_for("pods of every stream to live", PATIENCE, || {
            let now = lives.iter().map(|of| of.load(Ordering::Relaxed));
            let all = now.zip(&before).all(|(now, before)| now >= before + 3);
            Ok(all || !streaming.load(Ordering::Relaxed))
        })?;
        ensure!(streaming.load(Ordering::Relaxed), "a stream failed");
        Ok(())
    };
    thread::scope(|scope| -> Result<()> {
        let streams: Vec<_> =
            (0..STREAMS).map(|number| scope.spawn(move || stream(number))).collect();
        let upgrade = || -> Result<()> {
            wait_for_progress()?;
            for release in [&node.next, &node.this, &node.next] {
                // The order of a DaemonSet's upgrade: the programs, the daemon, the conflist.
                node.install_plugin(release)?;
                node.restart_daemon(release)?;
                node.installer(&["install"])?;
                wait_for_progress()?;
            }
            Ok(())
        };
        let upgraded = upgrade();
        streaming.store(false, Ordering::Relaxed);
        for stream in streams {
            stream.join().map_err(|_| anyhow::anyhow!("a stream panicked"))??;
        }
        upgraded
    })?;
    node.lab.run(&["pod", "check"])?;
    node.lab.run(&["check", "--tcp", "2"])?;
    node.lab.run(&["pod", "delete", "--node", "node1"])?;
    node.is_clean()?;
    node.lab.down()
}

#[test]
fn the_installer_takes_a_node_over_and_gives_it_back() -> Result<()> {
    let test = "the_installer_takes_a_node_over_and_gives_it_back";
    let Some(node) = Node::up(test, "t-install", &[])? else { return Ok(()) };
    // The lab has installed already. The installer removes that installation first.
    node.installer(&["uninstall"])?;
    ensure!(node.names(CONF)?.is_empty() && node.names(BIN)?.is_empty(), "files are left");
    let theirs = r#"{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni"}]}"#;
    let write = format!("echo '{theirs}' > {CONF}/10-aws.conflist; echo '{{' > {CONF}/00-bad.conf");
    node.lab.on_node("node1", &["bash", "-c", &write])?;

    // Without the daemon the installer keeps the other conflist.
    node.lab.run(&["daemon", "stop", "node1"])?;
    let early = node.installing(&["install", "--timeout", "1"])?;
    let printed = String::from_utf8_lossy(&early.stderr);
    ensure!(early.status.code() == Some(1) && printed.contains("ipamd.sock"), "{printed}");
    ensure!(node.names(CONF)? == ["00-bad.conf", "10-aws.conflist"], "{:?}", node.names(CONF)?);
    node.lab.run(&["daemon", "start", "node1"])?;
    node.installer(&["install"])?;
    let conflist: Value =
        serde_json::from_str(&node.file(&format!("{CONF}/05-ferrule.conflist"))?)?;
    ensure!(conflist["cniVersion"] == "0.4.0", "{conflist}");
    let names = node.names(CONF)?;
    let aside = ["00-bad.conf.ferrule-aside", "10-aws.conflist.ferrule-aside"];
    ensure!(names == [aside[0], "05-ferrule.conflist", aside[1]], "{names:?}");
    node.ensure_pod_lifecycle("a")?;

    // A person edits the conflist wrongly. ADDs fail with the field's name, and the installer reports the edit.
    let edit =
        format!("sed -i 's/\"mtu\": \"9001\"/\"mtu\": \"90010\"/' {CONF}/05-ferrule.conflist");
    node.lab.on_node("node1", &["bash", "-c", &edit])?;
    let printed = node.lab.refused(&["pod", "add", "node1", "--pod", "b"])?;
    ensure!(printed.contains("code 7") && printed.contains("mtu"), "{printed}");
    let printed = node.installer(&["install"])?;
    let kept = "05-ferrule.conflist.ferrule-edited";
    ensure!(printed.contains(kept) && printed.contains("changed"), "{printed}");
    ensure!(node.file(&format!("{CONF}/{kept}"))?.contains("90010"), "the edited file is lost");
    node.ensure_pod_lifecycle("b")?;

    // With a read-only folder the installer changes nothing, and reports the folder and the next step.
    let seal = format!("mount --bind {CONF} {CONF} && mount -o remount,ro,bind {CONF}");
    node.lab.on_node("node1", &["bash", "-c", &seal])?;
    let sealed = node.installing(&["uninstall"])?;
    let printed = String::from_utf8_lossy(&sealed.stderr);
    let is_reported =
        printed.contains("HOST_CNI_CONFDIR_PATH") && printed.contains("mount it writable");
    ensure!(sealed.status.code() == Some(1) && is_reported, "{printed}");
    ensure!(node.names(BIN)?.contains(&"ferrule-cni".to_owned()), "the plugin is removed");
    node.lab.on_node("node1", &["umount", CONF])?;

    for _ in 0..2 {
        node.installer(&["uninstall"])?;
        let names = node.names(CONF)?;
        ensure!(names == ["00-bad.conf", kept, "10-aws.conflist"], "{names:?}");
        ensure!(node.names(BIN)?.is_empty(), "{:?}", node.names(BIN)?);
    }
    let other = node.file(&format!("{CONF}/10-aws.conflist"))?;
    ensure!(other.trim() == theirs, "amazon-vpc-cni's conflist has changed: {other}");
    node.lab.down()
}

const STREAMS: usize = 3;
