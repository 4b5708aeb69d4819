//! amazon-vpc-cni on a node: the files of its image, and the work of its entrypoint.

use super::{
    LabError,
    provision::{CONFIG_DIR, DAEMON_LOG, PLUGIN_DIR, install, make_parent, on_machine},
};
use lab_fabric::Node;
use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// The file name of its daemon.
pub(super) const AGENT: &str = "aws-k8s-agent";

/// Installs the files that its image and its init container install on a node.
pub(super) fn prepare(node: &Node, programs: &Path) -> Result<(), LabError> {
    for plugin in ["aws-cni", "egress-cni"] {
        install(&programs.join(plugin), node, &format!("{PLUGIN_DIR}/{plugin}"))?;
    }
    // Its conflist chains these plugins, and its init container installs them.
    for plugin in ["portmap", "host-local", "bandwidth", "tuning"] {
        let from = Path::new(DEBIAN_PLUGINS).join(plugin);
        if from.exists() {
            install(&from, node, &format!("{PLUGIN_DIR}/{plugin}"))?;
        }
    }
    make_parent(&on_machine(node, VPC_CNI_PLUGIN_LOG)?)?;
    make_parent(&on_machine(node, DAEMON_LOG)?)?;
    // Without a cluster the agent reads the limit of pods per instance type from its image.
    let limits = programs.join("eni-max-pods.txt");
    let text = fs::read(&limits).map_err(LabError::file("read", &limits))?;
    let written = node.inside(|| {
        fs::create_dir_all("/app").and_then(|()| fs::write("/app/eni-max-pods.txt", text))
    })?;
    written.map_err(LabError::file("write", "/app/eni-max-pods.txt"))
}

/// Environment of its DaemonSet's manifest, without the policy agent; the caller adds the rest.
pub(super) fn env(ec2_url: &str) -> BTreeMap<String, String> {
    let fixed = [
        ("AWS_EC2_ENDPOINT", ec2_url),
        // Without a cluster there is no Node object, and the agent of 1.23.1 would exit.
        ("AWS_MANAGE_ENIS_NON_SCHEDULABLE", "true"),
        ("AWS_VPC_CNI_NODE_PORT_SUPPORT", "true"),
        ("AWS_VPC_ENI_MTU", "9001"),
        ("AWS_VPC_K8S_CNI_EXTERNALSNAT", "false"),
        ("AWS_VPC_K8S_CNI_LOGLEVEL", "DEBUG"),
        ("AWS_VPC_K8S_CNI_RANDOMIZESNAT", "prng"),
        ("ENABLE_IPv4", "true"),
        ("ENABLE_SUBNET_DISCOVERY", "true"),
        ("VPC_CNI_VERSION", "v1.23.1"),
        ("WARM_ENI_TARGET", "1"),
        ("WARM_PREFIX_TARGET", "1"),
    ];
    fixed.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// True if its agent serves.
pub(super) fn serves(node: &Node) -> bool {
    on_machine(node, SOCKET).is_ok_and(|socket| UnixStream::connect(socket).is_ok())
}

/// Writes its conflist, as its entrypoint does once the agent serves.
pub(super) fn write_conflist(
    node: &Node,
    programs: &Path,
    settings: &BTreeMap<String, String>,
    address: Ipv4Addr,
) -> Result<(), LabError> {
    let template = programs.join(CONFLIST);
    let text = fs::read_to_string(&template).map_err(LabError::file("read", &template))?;
    let path = on_machine(node, &format!("{CONFIG_DIR}/{CONFLIST}"))?;
    make_parent(&path)?;
    let beside: PathBuf = path.with_extension("tmp");
    fs::write(&beside, rendered(&text, settings, address))
        .map_err(LabError::file("write", &beside))?;
    fs::rename(&beside, &path).map_err(LabError::file("rename to", &path))
}

fn rendered(template: &str, settings: &BTreeMap<String, String>, address: Ipv4Addr) -> String {
    let setting = |name: &str, default: &str| -> String {
        settings.get(name).cloned().unwrap_or_else(|| default.to_owned())
    };
    let mtu = setting("POD_MTU", &setting("AWS_VPC_ENI_MTU", "9001"));
    let v6 = setting("ENABLE_IPv6", "false") == "true";
    let (subnet, dst, folder, log, node_ip) = if v6 {
        let log = "/var/log/aws-routed-eni/egress-v4-plugin.log";
        let address = address.to_string();
        ("169.254.172.0/22", "0.0.0.0/0", "/run/cni/v6pd/egress-v4-ipam", log, address)
    } else {
        let log = "/var/log/aws-routed-eni/egress-v6-plugin.log";
        ("fd00::ac:00/118", "::/0", "/run/cni/v4pd/egress-v6-ipam", log, String::new())
    };
    let values = [
        ("__VETHPREFIX__", setting("AWS_VPC_K8S_CNI_VETHPREFIX", "eni")),
        ("__MTU__", mtu),
        ("__PODSGENFORCINGMODE__", setting("POD_SECURITY_GROUP_ENFORCING_MODE", "strict")),
        ("__PLUGINLOGFILE__", VPC_CNI_PLUGIN_LOG.to_owned()),
        ("__PLUGINLOGLEVEL__", setting("AWS_VPC_K8S_PLUGIN_LOG_LEVEL", "DEBUG")),
        ("__EGRESSPLUGINLOGFILE__", log.to_owned()),
        ("__EGRESSPLUGINENABLED__", v6.to_string()),
        ("__EGRESSPLUGINIPAMSUBNET__", subnet.to_owned()),
        ("__EGRESSPLUGINIPAMDST__", dst.to_owned()),
        ("__EGRESSPLUGINIPAMDATADIR__", folder.to_owned()),
        ("__RANDOMIZESNAT__", setting("AWS_VPC_K8S_CNI_RANDOMIZESNAT", "prng")),
        ("__NODEIP__", node_ip),
    ];
    values.iter().fold(template.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Interval between two attempts to connect to the agent's socket.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);
const CONFLIST: &str = "10-aws.conflist";
const SOCKET: &str = "/run/aws-node/ipamd.sock";
const VPC_CNI_PLUGIN_LOG: &str = "/var/log/aws-routed-eni/plugin.log";
/// Debian's containernetworking-plugins.
const DEBIAN_PLUGINS: &str = "/usr/lib/cni";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_template_is_filled_from_the_settings() {
        let template = r#"{"mtu":"__MTU__","enabled":"__EGRESSPLUGINENABLED__","ip":"__NODEIP__"}"#;
        let address = "10.0.0.9".parse().unwrap();
        let none = rendered(template, &BTreeMap::new(), address);
        assert_eq!(none, r#"{"mtu":"9001","enabled":"false","ip":""}"#);
        let settings = [("ENABLE_IPv6", "true"), ("POD_MTU", "1500")];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let six = rendered(template, &settings, address);
        assert_eq!(six, r#"{"mtu":"1500","enabled":"true","ip":"10.0.0.9"}"#);
    }
}
