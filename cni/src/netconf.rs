//! The network configuration on standard input, as typed settings.
//!
//! Every message contains the field and the rule, never the value: a secret may be in the wrong field.

use crate::{
    fault::{Code, Fault},
    log::{Destination, Level},
    result::AddResult,
    version::SpecVersion,
};
use config_model::{PodKey, registry};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, path::PathBuf, time::Duration};

/// The settings of one call.
#[derive(Clone, Debug)]
pub struct NetConf {
    /// The version that result and errors must be in.
    pub version: SpecVersion,
    /// The network's name.
    pub network: String,
    /// The MTU of both ends of a pod's link, in bytes.
    pub mtu: u32,
    /// The prefix of host interface names.
    pub veth_prefix: String,
    /// The longest wait of an ADD for the daemon and an address together.
    pub add_wait: Duration,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The folder that contains the tombstones' folder.
    pub state_dir: PathBuf,
    /// The network cards on which the pod gets an interface.
    pub cards: Cards,
    /// The result of the plugins before this one; for DEL and CHECK, of the whole chain.
    pub prev_result: PrevResult,
}

/// The value of the pod's annotation `NIC_CONFIG`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cards {
    /// The first alone.
    #[default]
    First,
    /// One interface of each.
    Every,
    /// An unknown value: the first card alone.
    Unknown,
}

/// The pod's annotation that asks for several network cards.
pub const NIC_CONFIG: &str = "k8s.amazonaws.com/nicConfig";
/// Its one value.
const EVERY_CARD: &str = "multi-nic-attachment";
/// The key in `runtimeConfig` for the pod's annotations, if the runtime has this capability.
const POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// `prevResult`. Each verb decides whether it may be absent or unreadable.
#[derive(Clone, Debug, Default)]
pub enum PrevResult {
    /// There is none.
    #[default]
    Absent,
    /// Not a result of a supported version.
    Unreadable,
    /// A readable result.
    Given(AddResult),
}

impl PrevResult {
    /// The result, if there is a readable one.
    pub fn given(&self) -> Option<&AddResult> {
        match self {
            Self::Given(result) => Some(result),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// The log's destination and level. They are parsed apart from the rest, so that errors of the configuration reach the
/// right file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    pub destination: Destination,
    /// From which level on.
    pub level: Level,
}

/// The keys of the list of valid attachments: the name in the specification's definition, and the one in its earlier
/// text.
const VALID_ATTACHMENTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];
const ATTACHMENTS: &str = "a list of objects with containerID and ifname";

/// The longest wait of an ADD: kubelet gives a sandbox four minutes.
const ADD_WAIT_MAX_S: u64 = 180;
const ADD_WAIT_DEFAULT_S: u64 = 45;
const MTU_MIN: u64 = 576;
/// The kernel's limit of a path in a socket address.
const SOCKET_PATH_MAX: usize = 107;
/// amazon-vpc-cni's limit: the hash takes the other eleven bytes of an interface name.
const PREFIX_MAX: usize = 4;
/// Prefixes that other links of a node have.
const PREFIXES_TAKEN: [&str; 3] = ["eth", "lo", "vlan"];

/// A configuration that is a JSON object; nothing in it has been checked yet.
pub struct RawConf(Map<String, Value>);

impl RawConf {
    /// Reads JSON.
    ///
    /// # Errors
    /// With code 6, if it is not a JSON object.
    pub fn parse(stdin: &[u8]) -> Result<Self, Fault> {
        let not_json = |why: String| {
            Fault::new(
                Code::Undecodable,
                format!("the network configuration on standard input {why}"),
                "look at the conflist that the runtime loaded, by default in /etc/cni/net.d",
            )
        };
        match serde_json::from_slice(stdin) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(_) => Err(not_json("is JSON, but not an object".to_owned())),
            Err(_) if stdin.trim_ascii().is_empty() => Err(not_json("is empty".to_owned())),
            Err(error) => Err(not_json(format!(
                "is not JSON (line {}, column {})",
                error.line(),
                error.column()
            ))),
        }
    }

    /// The version it names, if it is one that we speak: even a refusal should be in it.
    pub fn version(&self) -> Option<SpecVersion> {
        SpecVersion::of(self.0.get("cniVersion")?.as_str()?)
    }

    /// Destination of the log. A missing or invalid value means the default.
    pub fn log_settings(&self) -> LogSettings {
        let text = |key: &str| self.0.get(key).and_then(Value::as_str).unwrap_or_default();
        LogSettings {
            destination: Destination::of(text("pluginLogFile")),
            level: Level::of(text("pluginLogLevel")),
        }
    }

    /// Checks every field that we know; the others belong to libcni or to the future.
    ///
    /// # Errors
    /// With code 1, if the version is not supported, or code 7, naming the field and its rule.
    pub fn resolve(&self) -> Result<NetConf, Fault> {
        let version = self.resolve_version()?;
        let network = self.text("name")?.unwrap_or_default();
        if network.is_empty() {
            return Err(invalid("name", "is missing", "the network's name, `aws-cni` as a rule"));
        }
        let mtu =
            self.number("mtu", u64::from(registry::ENI_MTU), MTU_MIN..=registry::ENI_MTU.into())?;
        let add_wait = self.number("addWait", ADD_WAIT_DEFAULT_S, 1..=ADD_WAIT_MAX_S)?;
        Ok(NetConf {
            version,
            network: network.to_owned(),
            mtu: u32::try_from(mtu).expect("the range was checked"),
            veth_prefix: self.veth_prefix()?,
            add_wait: Duration::from_secs(add_wait),
            socket: self.socket()?,
            state_dir: self.absolute_path("stateDir", registry::STATE_DIR)?,
            cards: self.cards(),
            prev_result: self.prev_result(),
        })
    }

    /// The attachments of this network that GC leaves, as keys. A runtime that knows of none sends
    /// `null`; but a list that is not there at all could mean anything.
    ///
    /// # Errors
    /// With code 7, if the list or one of its entries cannot be read: what it stands for would be
    /// removed.
    pub fn valid_attachments(&self, network: &str) -> Result<BTreeSet<PodKey>, Fault> {
        let given = VALID_ATTACHMENTS.iter().find_map(|name| self.0.get(*name));
        let entries = match given {
            Some(Value::Array(entries)) => entries.as_slice(),
            Some(Value::Null) => &[],
            None => return Err(invalid(VALID_ATTACHMENTS[0], "is missing", ATTACHMENTS)),
            Some(_) => return Err(invalid(VALID_ATTACHMENTS[0], "is not a list", ATTACHMENTS)),
        };
        // A network's name that is none is refused here as everywhere.
        PodKey::new(network, "a", "eth0")
            .map_err(|why| invalid("name", "is not valid", why.rule))?;
        let key = |entry: &Value| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str);
            PodKey::new(network, text("containerID")?, text("ifname")?).ok()
        };
        let keys = entries.iter().map(|entry| {
            let broken = "has an entry that names no attachment";
            key(entry).ok_or_else(|| invalid(VALID_ATTACHMENTS[0], broken, ATTACHMENTS))
        });
        keys.collect()
    }

    fn cards(&self) -> Cards {
        let annotations = self.0.get("runtimeConfig").and_then(|given| given.get(POD_ANNOTATIONS));
        match annotations.and_then(|given| given.get(NIC_CONFIG)) {
            None | Some(Value::Null) => Cards::First,
            Some(Value::String(asked)) if asked == EVERY_CARD => Cards::Every,
            Some(_) => Cards::Unknown,
        }
    }

    fn resolve_version(&self) -> Result<SpecVersion, Fault> {
        let next = format!("a version of the CNI specification, as text: {}", SpecVersion::list());
        match self.0.get("cniVersion") {
            None | Some(Value::Null) => Err(invalid("cniVersion", "is missing", &next)),
            Some(Value::String(_)) => self.version().ok_or_else(|| {
                Fault::new(
                    Code::IncompatibleVersion,
                    "cniVersion in the network configuration is not a version that ferrule-cni \
                     supports",
                    format!("use one of {}", SpecVersion::list()),
                )
            }),
            Some(_) => Err(invalid("cniVersion", "is not text", &next)),
        }
    }

    fn veth_prefix(&self) -> Result<String, Fault> {
        let prefix = self.text("vethPrefix")?.unwrap_or("eni");
        let fits = (1..=PREFIX_MAX).contains(&prefix.len())
            && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if !fits || PREFIXES_TAKEN.contains(&prefix) {
            return Err(invalid(
                "vethPrefix",
                "cannot start an interface name",
                "1 to 4 letters or digits, other than eth, lo and vlan; the default is eni",
            ));
        }
        Ok(prefix.to_owned())
    }

    fn socket(&self) -> Result<PathBuf, Fault> {
        let path = self.absolute_path("ipamdSocket", registry::IPAMD_SOCKET)?;
        if path.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(invalid(
                "ipamdSocket",
                "is too long for a socket",
                "at most 107 bytes; the default is /run/ferrule/ipamd.sock",
            ));
        }
        Ok(path)
    }

    fn prev_result(&self) -> PrevResult {
        match self.0.get("prevResult") {
            None | Some(Value::Null) => PrevResult::Absent,
            Some(value @ Value::Object(_)) => serde_json::from_value(value.clone())
                .map_or(PrevResult::Unreadable, PrevResult::Given),
            Some(_) => PrevResult::Unreadable,
        }
    }

    fn text(&self, key: &str) -> Result<Option<&str>, Fault> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid(key, "is not text", "put it into quotation marks")),
        }
    }

    /// A number; amazon-vpc-cni writes numbers as text.
    fn number(
        &self,
        key: &str,
        default: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, Fault> {
        let number = match self.0.get(key) {
            None | Some(Value::Null) => Some(default),
            Some(Value::String(text)) if text.is_empty() => Some(default),
            Some(Value::String(text)) => text.parse().ok(),
            Some(value) => value.as_u64(),
        };
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let rule = format!("a number from {} to {}", range.start(), range.end());
            invalid(key, "is out of range or not a number", &rule)
        })
    }

    fn absolute_path(&self, key: &str, default: &str) -> Result<PathBuf, Fault> {
        let path = self.text(key)?.filter(|path| !path.is_empty()).unwrap_or(default);
        if !path.starts_with('/') || path.contains('\0') {
            return Err(invalid(key, "is not an absolute path", "a path that starts with /"));
        }
        Ok(PathBuf::from(path))
    }
}

fn invalid(key: &str, what: &str, rule: &str) -> Fault {
    Fault::new(
        Code::InvalidConfig,
        format!("{key} in the network configuration {what}"),
        format!("it must be {rule}"),
    )
}

#[cfg(test)]
mod tests;
