//! What a node image and a DaemonSet put on a node: the plugin, its network configuration, and how
//! the daemon is started.

use super::{LabError, SeenCluster, cluster::KUBECONFIG, plugin::POD_ANNOTATIONS};
use config_model::registry;
use lab_fabric::{Node, enter::HOST_PROC_SYS_NET};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

/// How the daemon of a node is started.
pub(super) struct DaemonCommand {
    pub(super) node: Node,
    pub(super) program: PathBuf,
    pub(super) env: BTreeMap<String, String>,
}

impl DaemonCommand {
    /// Starts it, contained; what it says is appended to [`DAEMON_LOG`].
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
    cluster: Option<&SeenCluster>,
    settings: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let fixed = [
        ("AWS_ENDPOINT_URL_EC2", ec2_url),
        ("AWS_VPC_K8S_CNI_LOG_FILE", "stdout"),
        ("CLUSTER_NAME", "lab"),
        ("FERRULE_PROC_SYS_NET", HOST_PROC_SYS_NET),
        ("MY_NODE_NAME", node),
    ];
    let mut env: BTreeMap<String, String> =
        fixed.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    env.extend(cluster.map(SeenCluster::env).unwrap_or_default());
    env.extend(settings.clone());
    env
}

/// Puts plugin and network configuration in their places.
pub(super) fn prepare(
    node: &Node,
    bin_dir: &Path,
    cluster: Option<&SeenCluster>,
    settings: &BTreeMap<String, String>,
) -> Result<(), LabError> {
    let (from, to) = (bin_dir.join(PLUGIN), on_machine(node, PLUGIN_PATH)?);
    // A lab without the plugin is good for other software.
    if from.exists() {
        make_parent(&to)?;
        // Beside it, then in its place: a plugin that runs cannot be written to.
        let beside = to.with_extension("new");
        fs::copy(&from, &beside).map_err(LabError::file("copy", &from))?;
        fs::rename(&beside, &to).map_err(LabError::file("rename to", &to))?;
    }
    make_parent(&on_machine(node, PLUGIN_LOG)?)?;
    if let Some(text) = cluster.and_then(|cluster| cluster.kubeconfig.as_ref()) {
        write_secret(&on_machine(node, KUBECONFIG)?, text)?;
    }
    write_conflist(node, settings)
}

/// Writes a file that is for its owner alone.
fn write_secret(path: &Path, text: &str) -> Result<(), LabError> {
    make_parent(path)?;
    let mut options = fs::File::options();
    let file = options.create(true).write(true).truncate(true).mode(0o600).open(path);
    let mut file = file.map_err(LabError::file("open", path))?;
    file.write_all(text.as_bytes()).map_err(LabError::file("write", path))
}

/// Writes the network configuration that goes with the daemon's settings.
pub(super) fn write_conflist(
    node: &Node,
    settings: &BTreeMap<String, String>,
) -> Result<(), LabError> {
    let path = on_machine(node, CONFLIST)?;
    make_parent(&path)?;
    let text = format!("{:#}\n", conflist(settings));
    let beside = path.with_extension("new");
    fs::write(&beside, text).map_err(LabError::file("write", &beside))?;
    fs::rename(&beside, &path).map_err(LabError::file("rename to", &path))
}

fn conflist(settings: &BTreeMap<String, String>) -> Value {
    let setting = |name: &str| settings.get(name).map(String::as_str);
    let mut plugin = json!({
        "type": PLUGIN,
        "mtu": setting("AWS_VPC_ENI_MTU").unwrap_or("9001"),
        "vethPrefix": setting("AWS_VPC_K8S_CNI_VETHPREFIX").unwrap_or("eni"),
        "pluginLogFile": PLUGIN_LOG,
        "pluginLogLevel": setting("AWS_VPC_K8S_PLUGIN_LOG_LEVEL").unwrap_or("DEBUG"),
    });
    let wait = setting("FERRULE_ADD_WAIT").and_then(|text| text.parse::<u64>().ok());
    plugin["capabilities"] = json!({ POD_ANNOTATIONS: true });
    plugin["addWait"] = json!(wait.unwrap_or(45));
    json!({
        "cniVersion": "1.0.0",
        "cniVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
        "name": registry::CNI_NETWORK,
        "plugins": [plugin],
    })
}

/// Where a node's file lies on this machine.
pub(super) fn on_machine(node: &Node, inside: &str) -> Result<PathBuf, LabError> {
    let outside = "it lies in no folder of the node's own";
    node.on_machine(Path::new(inside))
        .ok_or_else(|| LabError::BadNetconf { path: inside.into(), why: outside.to_owned() })
}

fn make_parent(path: &Path) -> Result<(), LabError> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(LabError::file("make", parent))
}

/// The daemon's log as the node sees it.
pub(crate) const DAEMON_LOG: &str = "/var/log/ferrule/ipamd.log";
/// The plugin's log as the node sees it.
pub(crate) const PLUGIN_LOG: &str = "/var/log/ferrule/plugin.log";
/// Where runtimes look for network configurations.
pub(super) const CONFIG_DIR: &str = "/etc/cni/net.d";
const CONFLIST: &str = "/etc/cni/net.d/05-ferrule.conflist";
const PLUGIN: &str = "ferrule-cni";
const PLUGIN_PATH: &str = "/opt/cni/bin/ferrule-cni";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_settings_reach_daemon_and_plugin() {
        let settings = BTreeMap::from([
            ("FERRULE_ADD_WAIT".to_owned(), "5".to_owned()),
            ("CLUSTER_NAME".to_owned(), "mine".to_owned()),
        ]);
        let env = daemon_env("node1", "http://10.0.0.3", None, &settings);
        assert_eq!(env["CLUSTER_NAME"], "mine");
        assert_eq!(env["AWS_ENDPOINT_URL_EC2"], "http://10.0.0.3");
        assert_eq!(conflist(&settings)["plugins"][0]["addWait"], 5);
        assert_eq!(conflist(&BTreeMap::new())["plugins"][0]["addWait"], 45);
    }
}
