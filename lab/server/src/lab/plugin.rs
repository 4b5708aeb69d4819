//! Runs CNI plugins as a container runtime does, after libcni's rules.

use super::{
    LabError, cache,
    call::Call,
    provision::{self, PLUGIN_DIR},
};
use lab_fabric::Node;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path, process::Stdio, time::Duration};
use tokio::io::AsyncWriteExt;

impl Call<'_> {
    /// ADD: the result of the last plugin, which is kept for the others.
    pub(super) async fn add(&self) -> Result<Value, LabError> {
        let list = List::read(self.node)?;
        let mut result = None;
        for plugin in &list.plugins {
            result = self.run("ADD", &self.netconf(&list, plugin, result.as_ref())).await?;
        }
        let result = result.ok_or_else(|| LabError::Plugin {
            verb: "ADD",
            plugin: list.name.clone(),
            why: "it printed no result".to_owned(),
            object: None,
        })?;
        cache::keep(self, &list.name, IFNAME, &result)?;
        Ok(result)
    }

    pub(super) async fn check(&self) -> Result<(), LabError> {
        let list = List::read(self.node)?;
        let previous = self.recall(&list)?;
        for plugin in &list.plugins {
            self.run("CHECK", &self.netconf(&list, plugin, previous.as_ref())).await?;
        }
        Ok(())
    }

    /// DEL, the last plugin first.
    pub(super) async fn del(&self) -> Result<(), LabError> {
        let list = List::read(self.node)?;
        let previous = self.recall(&list)?;
        for plugin in list.plugins.iter().rev() {
            self.run("DEL", &self.netconf(&list, plugin, previous.as_ref())).await?;
        }
        cache::forget(self.node, &list.name, self.container_id, IFNAME)
    }

    /// The result of the ADD.
    fn recall(&self, list: &List) -> Result<Option<Value>, LabError> {
        cache::recall(self.node, &list.name, &list.version, self.container_id, IFNAME)
    }

    fn netconf(&self, list: &List, plugin: &Value, previous: Option<&Value>) -> Value {
        list.netconf(plugin, self.annotations, previous)
    }

    async fn run(&self, verb: &'static str, netconf: &Value) -> Result<Option<Value>, LabError> {
        let plugin = netconf["type"].as_str().unwrap_or_default().to_owned();
        let program = format!("{PLUGIN_DIR}/{plugin}");
        let spawn = |cause| LabError::Spawn {
            program: program.clone(),
            node: self.node.name().to_owned(),
            cause,
        };
        let mut child = self.command(verb, &program).spawn().map_err(spawn)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin that ends without reading has reported the reason elsewhere.
            let _ = stdin.write_all(netconf.to_string().as_bytes()).await;
        }
        let failed =
            |why: String, object| LabError::Plugin { verb, plugin: plugin.clone(), why, object };
        let Ok(output) = tokio::time::timeout(RUNTIME_PATIENCE, child.wait_with_output()).await
        else {
            return Err(failed(format!("it took more than {RUNTIME_PATIENCE:?}"), None));
        };
        let output = output.map_err(spawn)?;
        let printed: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        if output.status.success() {
            return Ok(printed);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let why = match &printed {
            Some(object) => error_text(object),
            None => format!("{}, no error object on its output; {}", output.status, stderr.trim()),
        };
        Err(failed(why, printed))
    }

    fn command(&self, verb: &str, program: &str) -> tokio::process::Command {
        let mut command = self.node.command(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", self.container_id)
            .env("CNI_NETNS", self.netns)
            .env("CNI_IFNAME", IFNAME)
            .env("CNI_PATH", PLUGIN_DIR)
            .env("CNI_ARGS", self.args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        command
    }
}

/// A network configuration list.
struct List {
    name: String,
    version: String,
    plugins: Vec<Value>,
}

impl List {
    /// The first one of the node, in the order of file names.
    fn read(node: &Node) -> Result<Self, LabError> {
        let dir = provision::on_machine(node, provision::CONFIG_DIR)?;
        let entries = fs::read_dir(&dir).map_err(LabError::file("list", &dir))?;
        let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "conflist"));
        files.sort();
        let none = || LabError::BadNetconf { path: dir.clone(), why: "there is none".to_owned() };
        let path = files.first().ok_or_else(none)?;
        let text = fs::read(path).map_err(LabError::file("read", path))?;
        Self::parse(&text, path)
    }

    fn parse(text: &[u8], path: &Path) -> Result<Self, LabError> {
        let bad = |why: &str| LabError::BadNetconf { path: path.into(), why: why.to_owned() };
        let list: Value = serde_json::from_slice(text).map_err(|err| bad(&err.to_string()))?;
        let text = |key: &str| list[key].as_str().map(str::to_owned);
        Ok(Self {
            name: text("name").ok_or_else(|| bad("it has no name"))?,
            version: text("cniVersion").ok_or_else(|| bad("it has no cniVersion"))?,
            plugins: list["plugins"].as_array().cloned().ok_or_else(|| bad("it has no plugins"))?,
        })
    }

    /// Input of a plugin: its own part with the list's name and version, its declared capabilities, and the result
    /// so far.
    fn netconf(
        &self,
        plugin: &Value,
        annotations: &BTreeMap<String, String>,
        previous: Option<&Value>,
    ) -> Value {
        let mut netconf = plugin.clone();
        if let Some(object) = netconf.as_object_mut()
            && let Some(capabilities) = object.remove("capabilities")
            && capabilities[POD_ANNOTATIONS] == true
            && !annotations.is_empty()
        {
            object.insert("runtimeConfig".to_owned(), json!({ POD_ANNOTATIONS: annotations }));
        }
        netconf["name"] = json!(self.name);
        netconf["cniVersion"] = json!(self.version);
        if let Some(previous) = previous {
            netconf["prevResult"] = previous.clone();
        }
        netconf
    }
}

fn error_text(object: &Value) -> String {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (code, message, details) = (&object["code"], text("msg"), text("details"));
    let details = if details.is_empty() { details } else { format!(" ({details})") };
    format!("code {code}: {message}{details}")
}

/// The interface that runtimes ask for.
const IFNAME: &str = "eth0";
/// The capability by which a plugin gets a pod's annotations.
pub(super) const POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";
/// kubelet gives a sandbox four minutes.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(240);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_plugin_reads_the_lists_name_and_version_and_the_result_so_far() {
        let text = br#"{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a","mtu":"9001"}]}"#;
        let list = List::parse(text, Path::new("x")).unwrap();
        let none = BTreeMap::new();
        let first = list.netconf(&list.plugins[0], &none, None);
        assert_eq!(first, json!({"type":"a","mtu":"9001","name":"n","cniVersion":"1.0.0"}));
        let result = json!({"ips":[]});
        assert_eq!(list.netconf(&list.plugins[0], &none, Some(&result))["prevResult"], result);
        assert!(List::parse(b"{}", Path::new("x")).is_err());
    }

    #[test]
    fn only_a_plugin_that_asks_for_annotations_gets_them() {
        let text = br#"{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a"},
            {"type":"b","capabilities":{"io.kubernetes.cri.pod-annotations":true}}]}"#;
        let list = List::parse(text, Path::new("x")).unwrap();
        let given = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        let read = |plugin: &Value| list.netconf(plugin, &given, None);
        assert_eq!(read(&list.plugins[0])["runtimeConfig"], Value::Null);
        assert_eq!(read(&list.plugins[1])["runtimeConfig"][POD_ANNOTATIONS]["k"], "v");
        assert_eq!(read(&list.plugins[1])["capabilities"], Value::Null);
    }

    #[test]
    fn a_plugins_error_has_code_and_details() {
        let object =
            json!({"cniVersion":"1.0.0","code":11,"msg":"try again","details":"no address"});
        assert_eq!(error_text(&object), "code 11: try again (no address)");
    }
}
