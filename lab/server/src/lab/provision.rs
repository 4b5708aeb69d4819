//! Files of a node image and a DaemonSet on a node: the plugin, its network configuration, and the daemon's
//! command.

use super::{ClusterAccess, LabError, cluster::KUBECONFIG};
use config_settings::Settings;
use install_disk::{Folders, InstallError, Locked};
use install_plan::{Op, PLUGIN, Plan};
use lab_fabric::{Node, enter::HOST_PROC_SYS_NET};
use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

/// Command that starts a node's daemon.
pub(super) struct DaemonCommand {
    /// True if it does not end on SIGTERM.
    pub(super) is_deaf: bool,
    pub(super) node: Node,
    pub(super) program: PathBuf,
    pub(super) env: BTreeMap<String, String>,
}

impl DaemonCommand {
    /// Starts it with the limits of the daemon's container; appends its output to [`DAEMON_LOG`].
    pub(super) fn spawn(&self) -> Result<tokio::process::Child, LabError> {
        let path = on_machine(&self.node, DAEMON_LOG)?;
        make_parent(&path)?;
        let log = fs::File::options().create(true).append(true).open(&path);
        let log = log.map_err(LabError::file("open", &path))?;
        let errors = log.try_clone().map_err(LabError::file("open", &path))?;
        let mut command = self.node.contained_command(&self.program, &self.env);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true).spawn().map_err(|cause| LabError::Spawn {
            program: self.program.display().to_string(),
            node: self.node.name().to_owned(),
            cause,
        })
    }
}

/// The daemon's environment: where the cloud and the cluster are, who it is, then the user's
/// settings.
pub(super) fn daemon_env(
    node: &str,
    ec2_url: &str,
    cluster: Option<&ClusterAccess>,
    settings: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let fixed = [
        ("AWS_ENDPOINT_URL_EC2", ec2_url),
        ("AWS_VPC_K8S_CNI_LOG_FILE", "stdout"),
        ("AWS_VPC_K8S_PLUGIN_LOG_FILE", PLUGIN_LOG),
        ("CLUSTER_NAME", "lab"),
        ("FERRULE_PROC_SYS_NET", HOST_PROC_SYS_NET),
        ("HOST_CNI_BIN_PATH", PLUGIN_DIR),
        ("HOST_CNI_CONFDIR_PATH", CONFIG_DIR),
        ("MY_NODE_NAME", node),
    ];
    let mut env: BTreeMap<String, String> =
        fixed.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    env.extend(cluster.map(ClusterAccess::env).unwrap_or_default());
    env.extend(settings.clone());
    env
}

/// Puts plugin and kubeconfig in their places.
pub(super) fn prepare(
    node: &Node,
    bin_dir: &Path,
    cluster: Option<&ClusterAccess>,
) -> Result<(), LabError> {
    // A lab without the plugin is good for other software.
    if bin_dir.join(PLUGIN).exists() {
        // It may be a stand-in for the plugin, which the installer of a real node would refuse.
        let bring = vec![Op::Install { name: PLUGIN.to_owned() }];
        installing(node, bin_dir, |locked| {
            locked.apply(Plan { ops: bring, notes: vec![] }, |_| ())
        })?;
    }
    make_parent(&on_machine(node, PLUGIN_LOG)?)?;
    if let Some(text) = cluster.and_then(|cluster| cluster.kubeconfig.as_ref()) {
        write_secret(&on_machine(node, KUBECONFIG)?, text)?;
    }
    Ok(())
}

/// Copies a program to its place on a node.
pub(super) fn install(from: &Path, node: &Node, to: &str) -> Result<(), LabError> {
    let to = on_machine(node, to)?;
    make_parent(&to)?;
    // Beside it, then in its place: a plugin that runs cannot be written to.
    let beside = to.with_extension("new");
    fs::copy(from, &beside).map_err(LabError::file("copy", from))?;
    fs::rename(&beside, &to).map_err(LabError::file("rename to", &to))
}

/// Writes a file that is for its owner alone.
fn write_secret(path: &Path, text: &str) -> Result<(), LabError> {
    make_parent(path)?;
    let mut options = fs::File::options();
    let file = options.create(true).write(true).truncate(true).mode(0o600).open(path);
    let mut file = file.map_err(LabError::file("open", path))?;
    file.write_all(text.as_bytes()).map_err(LabError::file("write", path))
}

/// Makes ours the node's network, as `ferrule-ipamd install` does it with these variables of the
/// daemon, but without waiting for the daemon. Settings that the daemon refuses make none.
pub(super) fn make_network(
    node: &Node,
    bin_dir: &Path,
    env: &BTreeMap<String, String>,
) -> Result<(), LabError> {
    let settings = match Settings::resolve(env.clone()) {
        Ok((settings, _)) => settings,
        Err(refusal) => {
            tracing::warn!(node = node.name(), %refusal, "no conflist");
            return Ok(());
        }
    };
    let there = on_machine(node, PLUGIN_DIR)?.join(PLUGIN);
    if there.exists() {
        let wanted = install_disk::conflist(&settings);
        installing(node, bin_dir, |locked| locked.make_network(&wanted, |_| ()))?;
    }
    Ok(())
}

/// Runs the production installer on the node. It installs the network once the daemon is ready.
pub(super) async fn run_installer(
    node: &Node,
    bin_dir: &Path,
    env: &BTreeMap<String, String>,
) -> Result<(), LabError> {
    let program = bin_dir.join(DAEMON);
    let mut command = node.command(&program);
    command.args(["install", "--timeout", "120"]).envs(env).stdin(Stdio::null());
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output().await.map_err(|cause| LabError::Spawn {
        program: program.display().to_string(),
        node: node.name().to_owned(),
        cause,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Installer { node: node.name().to_owned(), output })
}

fn installing<T>(
    node: &Node,
    bin_dir: &Path,
    act: impl FnOnce(&Locked<'_>) -> Result<T, InstallError>,
) -> Result<T, LabError> {
    let (bin, conf) = (on_machine(node, PLUGIN_DIR)?, on_machine(node, CONFIG_DIR)?);
    for folder in [&bin, &conf] {
        fs::create_dir_all(folder).map_err(LabError::file("create", folder))?;
    }
    let failed = |cause| LabError::Install { node: node.name().to_owned(), cause };
    let folders = Folders::new(bin_dir, &bin, &conf);
    let done = folders.lock().and_then(|locked| act(&locked));
    done.map_err(failed)
}

/// Path of a node's file on this machine.
pub(super) fn on_machine(node: &Node, inside: &str) -> Result<PathBuf, LabError> {
    let outside = "it is not in a folder of the node";
    node.on_machine(Path::new(inside))
        .ok_or_else(|| LabError::BadNetconf { path: inside.into(), why: outside.to_owned() })
}

pub(super) fn make_parent(path: &Path) -> Result<(), LabError> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(LabError::file("create", parent))
}

/// The daemon's log as the node sees it.
pub(crate) const DAEMON_LOG: &str = "/var/log/ferrule/ipamd.log";
/// The plugin's log as the node sees it.
pub(crate) const PLUGIN_LOG: &str = "/var/log/ferrule/plugin.log";
/// The file name of the daemon's program, which is the installer as well.
pub(super) const DAEMON: &str = "ferrule-ipamd";
/// Folder in which runtimes look for network configurations.
pub(super) const CONFIG_DIR: &str = "/etc/cni/net.d";
/// Folder in which runtimes look for plugins.
pub(super) const PLUGIN_DIR: &str = "/opt/cni/bin";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_settings_reach_daemon_and_plugin() {
        let settings = BTreeMap::from([
            ("FERRULE_ADD_WAIT".to_owned(), "60".to_owned()),
            ("CLUSTER_NAME".to_owned(), "mine".to_owned()),
        ]);
        let env = daemon_env("node1", "http://10.0.0.3", None, &settings);
        assert_eq!(env["CLUSTER_NAME"], "mine");
        assert_eq!(env["AWS_ENDPOINT_URL_EC2"], "http://10.0.0.3");
        let (settings, warnings) = Settings::resolve(env).expect("settings of a lab");
        assert_eq!(warnings, []);
        let conflist = install_disk::conflist(&settings);
        assert_eq!((conflist.add_wait, &*conflist.log_file), (60, PLUGIN_LOG));
    }
}
