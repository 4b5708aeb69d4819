//! The conflist that we write, and how it is known again.

use crate::conf::{Conf, PLUGIN};
use config_model::registry;
use serde::Serialize;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::PathBuf,
};

/// The conflist's name: runtimes take the first of the folder.
pub const CONFLIST: &str = "05-ferrule.conflist";

/// The plugin for host ports.
pub(crate) const PORTMAP: &str = "portmap";
const BANDWIDTH: &str = "bandwidth";

/// The CNI versions of the plugin, oldest first.
pub const CNI_VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The assumed versions of a plugin that did not answer. Plugins of the CNI project before 1.6 do not support 1.1.0.
const ASSUMED_VERSIONS: [&str; 4] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0"];

/// The `cniVersion` of a conflist if no plugin on the node requires another.
pub(crate) const CNI_VERSION: &str = "1.0.0";

/// The key with the version and the digest of a conflist that we wrote, and [`TAKEN_OVER`] if a takeover wrote it.
/// The digest shows whether it was edited.
const WRITTEN: &str = "ferrule.io/written";

/// Follows the digest if a takeover wrote the conflist.
const TAKEN_OVER: &str = "taken-over";

/// Placeholder of the digest during its computation, with the same length.
const NO_DIGEST: &str = "0000000000000000000000000000000000000000";

/// The plugin's settings in the conflist.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflist {
    /// The `cniVersion`. `None` is the version of the node's cached results, or 1.0.0 without any.
    pub cni_version: Option<String>,
    /// The MTU of pods' links, in bytes.
    pub mtu: u32,
    /// The prefix of host veths' names.
    pub veth_prefix: String,
    /// Deadline of an ADD in seconds.
    pub add_wait: u64,
    /// The daemon's socket as a path on the host.
    pub socket: PathBuf,
    /// The parent folder of the tombstones, as a path on the host.
    pub state_dir: PathBuf,
    /// The plugin's log as a path on the host, or `stderr`.
    pub log_file: String,
    /// The least severe line of that log.
    pub log_level: String,
    /// True if pods' bandwidth annotations are enforced.
    pub bandwidth: bool,
    /// The plugins that come last.
    pub chained: Vec<Value>,
    /// True if a takeover made it from another network's conflist. An installer does not change it then.
    pub taken_over: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    cni_version: &'a str,
    cni_versions: &'a [&'a str],
    name: &'a str,
    plugins: Vec<Value>,
    #[serde(rename = "ferrule.io/written")]
    written: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ours<'a> {
    r#type: &'a str,
    mtu: String,
    veth_prefix: &'a str,
    plugin_log_file: &'a str,
    plugin_log_level: &'a str,
    add_wait: u64,
    ipamd_socket: &'a str,
    state_dir: &'a str,
    capabilities: BTreeMap<&'a str, bool>,
}

impl Conflist {
    /// The file, in this `cniVersion`, with no plugins after ours but those that were asked for.
    pub fn text(&self, cni_version: &str) -> String {
        let chain = self.chain(false);
        self.text_with(cni_version, &chain, &common_versions(&chain, &BTreeMap::new()))
    }

    /// The file, in this `cniVersion`, with these plugins after ours, which all support `common_versions`.
    pub(crate) fn text_with(
        &self,
        cni_version: &str,
        chain: &[Value],
        common_versions: &[&str],
    ) -> String {
        let (socket, state_dir) = (self.socket.to_string_lossy(), self.state_dir.to_string_lossy());
        let ours = Ours {
            r#type: PLUGIN,
            mtu: self.mtu.to_string(),
            veth_prefix: &self.veth_prefix,
            plugin_log_file: &self.log_file,
            plugin_log_level: &self.log_level,
            add_wait: self.add_wait,
            ipamd_socket: &socket,
            state_dir: &state_dir,
            capabilities: BTreeMap::from([(POD_ANNOTATIONS, true)]),
        };
        let ours = serde_json::to_value(ours).expect("texts and numbers always encode");
        let written = Written {
            cni_version,
            cni_versions: common_versions,
            name: registry::CNI_NETWORK,
            plugins: [&[ours], chain].concat(),
            written: {
                let mark = if self.taken_over { format!(" {TAKEN_OVER}") } else { String::new() };
                format!("{} {NO_DIGEST}{mark}", env!("CARGO_PKG_VERSION"))
            },
        };
        let text = serde_json::to_string_pretty(&written).expect("texts always encode") + "\n";
        let digest = digest(&text);
        // The last one: a setting may hold forty zeros too.
        let at = text.rfind(NO_DIGEST).expect("it was written above");
        format!("{}{digest}{}", &text[..at], &text[at + NO_DIGEST.len()..])
    }

    /// The plugins after ours, depending on `portmap`.
    pub(crate) fn chain(&self, has_portmap: bool) -> Vec<Value> {
        let given = |name: &str| self.chained.iter().any(|plugin| plugin["type"] == name);
        let mut chain = Vec::new();
        if has_portmap && !given(PORTMAP) {
            let capabilities = json!({"portMappings": true});
            chain.push(json!({"type": PORTMAP, "capabilities": capabilities, "snat": true}));
        }
        if self.bandwidth && !given(BANDWIDTH) {
            chain.push(json!({"type": BANDWIDTH, "capabilities": {"bandwidth": true}}));
        }
        chain.extend(self.chained.iter().cloned());
        chain
    }
}

/// The versions that all of these plugins support according to their `answers`, oldest first.
pub(crate) fn common_versions(
    chain: &[Value],
    answers: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<&'static str> {
    let supports = |plugin: &Value, version: &str| {
        let answer = plugin["type"].as_str().and_then(|name| answers.get(name));
        answer.map_or_else(
            || ASSUMED_VERSIONS.contains(&version),
            |versions| versions.contains(version),
        )
    };
    let by_all = |version: &&str| chain.iter().all(|plugin| supports(plugin, version));
    CNI_VERSIONS.into_iter().filter(by_all).collect()
}

/// The origin of a file with our conflist's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// Our installer, without a later change. The value is the `cniVersion`.
    Installer(String),
    /// Another author, or a change after our installer. The value is the difference or the error.
    Other(String),
}

pub(crate) fn author(bytes: &[u8]) -> Author {
    let conf = match Conf::read(bytes) {
        Ok(conf) => conf,
        Err(why) => return Author::Other(why),
    };
    if let (Some(version), true) = (&conf.cni_version, is_untouched(bytes)) {
        return Author::Installer(version.clone());
    }
    Author::Other(conf.fault().unwrap_or("it was changed after it had been written").to_owned())
}

/// A conflist that a takeover made from another network's, as long as it calls our plugin, even if it was edited
/// since.
pub(crate) fn taken_over(bytes: &[u8]) -> Option<Conf> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let marked = value[WRITTEN].as_str()?.split(' ').nth(2) == Some(TAKEN_OVER);
    let conf = Conf::read(bytes).ok()?;
    let ours = conf.types.first().is_some_and(|first| first == PLUGIN);
    (marked && ours && conf.fault().is_none()).then_some(conf)
}

fn is_untouched(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let value: Option<Value> = serde_json::from_str(text).ok();
    let written = value.as_ref().and_then(|value| value[WRITTEN].as_str());
    let Some(stored) = written.and_then(|written| written.split(' ').nth(1)) else { return false };
    text.rfind(stored).is_some_and(|at| {
        let blank = format!("{}{NO_DIGEST}{}", &text[..at], &text[at + stored.len()..]);
        digest(&blank) == stored
    })
}

fn digest(text: &str) -> String {
    Sha1::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The capability by which the plugin gets a pod's annotations.
const POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn conflist() -> Conflist {
        Conflist {
            cni_version: None,
            mtu: 9001,
            veth_prefix: "eni".to_owned(),
            add_wait: 45,
            socket: registry::IPAMD_SOCKET.into(),
            state_dir: registry::STATE_DIR.into(),
            log_file: "/var/log/aws-routed-eni/plugin.log".to_owned(),
            log_level: "DEBUG".to_owned(),
            bandwidth: false,
            chained: Vec::new(),
            taken_over: false,
        }
    }

    #[test]
    fn the_conflist_contains_the_plugins_settings() {
        let conflist = Conflist { mtu: 1500, add_wait: 5, ..conflist() };
        let value: Value = serde_json::from_str(&conflist.text("0.4.0")).expect("JSON");
        assert_eq!((&value["cniVersion"], &value["name"]), (&"0.4.0".into(), &"aws-cni".into()));
        let plugin = &value["plugins"][0];
        assert_eq!((&plugin["type"], &plugin["mtu"]), (&"ferrule-cni".into(), &"1500".into()));
        assert_eq!((&plugin["addWait"], &plugin["vethPrefix"]), (&5.into(), &"eni".into()));
        assert_eq!(plugin["capabilities"][POD_ANNOTATIONS], true);
        assert_eq!(plugin["ipamdSocket"], "/run/ferrule/ipamd.sock");
    }

    #[test]
    fn an_unchanged_conflist_is_recognized_and_any_change_is_detected() {
        let text = conflist().text("1.0.0");
        assert_eq!(author(text.as_bytes()), Author::Installer("1.0.0".to_owned()));
        let version = env!("CARGO_PKG_VERSION");
        let other = format!("{version}-rc1");
        for (from, to) in [("9001", "1500"), ("DEBUG", "DEBUg"), ("\n", " \n"), (version, &other)] {
            let changed = text.replacen(from, to, 1);
            let Author::Other(why) = author(changed.as_bytes()) else {
                panic!("{from} to {to} was not seen")
            };
            assert!(why.contains("changed"), "{why}");
        }
        let zeros = Conflist { log_file: format!("/{NO_DIGEST}"), ..conflist() };
        let text = zeros.text("1.0.0");
        assert_eq!(author(text.as_bytes()), Author::Installer("1.0.0".to_owned()));
        let text = Conflist { taken_over: true, ..conflist() }.text("1.0.0");
        assert_eq!(author(text.as_bytes()), Author::Installer("1.0.0".to_owned()));
    }

    #[test]
    fn the_fault_of_an_edited_conflist_is_reported() {
        let text = conflist().text("1.0.0");
        for (bytes, why) in [
            (text.replace("45,", "45"), "is not JSON"),
            (String::new(), "is not JSON"),
            ("[]".to_owned(), "no JSON object"),
            (text.replace("\"ferrule-cni\"", "\"bridge\""), "ferrule-cni is not among its plugins"),
            (text.replace("\"plugins\"", "\"plugin\""), "has no plugins"),
            (text.replace("\"aws-cni\"", "\"ours\""), "network is not called aws-cni"),
            (text.replace("\"cniVersion\"", "\"cni\""), "has no cniVersion"),
        ] {
            let Author::Other(fault) = author(bytes.as_bytes()) else { panic!("{bytes}") };
            assert!(fault.contains(why), "{fault} does not contain {why}");
        }
    }

    #[test]
    fn host_ports_and_bandwidth_precede_chained_plugins() {
        let names = |conflist: &Conflist, has_portmap| {
            let chain = conflist.chain(has_portmap).into_iter();
            chain.map(|plugin| plugin["type"].to_string()).collect::<Vec<_>>().join(" ")
        };
        let bare = conflist();
        assert_eq!((&*names(&bare, false), &*names(&bare, true)), ("", "\"portmap\""));
        let tuned = Conflist { bandwidth: true, chained: vec![json!({"type": "tuning"})], ..bare };
        assert_eq!(names(&tuned, true), "\"portmap\" \"bandwidth\" \"tuning\"");
        let own = json!({"type": "portmap", "capabilities": {"portMappings": true}, "snat": false});
        let own = Conflist { chained: vec![own.clone()], ..conflist() };
        assert_eq!(own.chain(true), own.chained);
        let text = tuned.text("1.0.0");
        assert_eq!(author(text.as_bytes()), Author::Installer("1.0.0".to_owned()));
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["plugins"][1]["capabilities"]["bandwidth"], true);
        assert_eq!(value["plugins"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn a_version_is_offered_only_if_every_plugin_supports_it() {
        let chain = Conflist { bandwidth: true, ..conflist() }.chain(true);
        let common = |of: &[(&str, &[&str])]| {
            let answers = of.iter().map(|(name, versions)| {
                ((*name).to_owned(), versions.iter().map(|&it| it.to_owned()).collect())
            });
            common_versions(&chain, &answers.collect()).join(" ")
        };
        assert_eq!(common_versions(&[], &BTreeMap::new()), CNI_VERSIONS);
        // A plugin that does not answer is treated as an old one.
        assert_eq!(common(&[]), "0.3.0 0.3.1 0.4.0 1.0.0");
        let all: &[&str] = &["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "2.0.0"];
        assert_eq!(common(&[("portmap", all)]), "0.3.0 0.3.1 0.4.0 1.0.0");
        assert_eq!(common(&[("portmap", all), ("bandwidth", all)]), CNI_VERSIONS.join(" "));
        assert_eq!(common(&[("portmap", all), ("bandwidth", &["0.4.0"])]), "0.4.0");
    }
}
