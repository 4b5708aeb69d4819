//! Calls of the plugin as a runtime sends them.

use crate::node::Node;
use serde_json::{Value, json};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use tests_support::Program;

/// The variables and the standard input of a call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) vars: Vec<(String, String)>,
    pub(crate) stdin: String,
}

/// The exit code and the output of a call.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A pod's sandbox, with the values that a runtime passes.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) container: String,
    pub(crate) pod: String,
    pub(crate) netns: PathBuf,
}

impl Node {
    /// Creates the sandbox of a pod in namespace `default`, with its network namespace.
    pub(crate) fn sandbox(&self, container: &str, pod: &str) -> Sandbox {
        let netns = self.netns(container);
        Sandbox { container: container.into(), pod: pod.into(), netns }
    }

    /// Returns the network configuration of the tests.
    pub(crate) fn conf(&self) -> Value {
        json!({
            "cniVersion": "1.0.0",
            "name": "aws-cni",
            "type": "ferrule-cni",
            "mtu": "9001",
            "vethPrefix": "eni",
            "addWait": "20",
            "ipamdSocket": self.path("ipamd.sock"),
            "stateDir": self.path("state"),
            "pluginLogFile": self.path("plugin.log"),
            "pluginLogLevel": "debug",
        })
    }

    /// Returns a call with this configuration.
    pub(crate) fn call_with(&self, verb: &str, sandbox: &Sandbox, conf: &Value) -> Call {
        let Sandbox { container, pod, netns } = sandbox;
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};\
             K8S_POD_INFRA_CONTAINER_ID={container};K8S_POD_UID=uid-{container}"
        );
        let vars = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", container),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", netns.to_str().unwrap()),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", &args),
        ];
        let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Call { vars, stdin: conf.to_string() }
    }

    pub(crate) fn call(&self, verb: &str, sandbox: &Sandbox) -> Call {
        self.call_with(verb, sandbox, &self.conf())
    }

    /// Runs an ADD that must succeed and returns its result.
    pub(crate) fn add(&self, sandbox: &Sandbox) -> Value {
        self.call("ADD", sandbox).run().result()
    }

    /// Returns the first DEL of a runtime: with the namespace and the result of the ADD.
    pub(crate) fn first_del(&self, sandbox: &Sandbox, result: &Value) -> Call {
        let mut conf = self.conf();
        conf["prevResult"] = result.clone();
        self.call_with("DEL", sandbox, &conf)
    }

    /// Returns a repeated DEL of a runtime: without namespace and result.
    pub(crate) fn late_del(&self, sandbox: &Sandbox) -> Call {
        self.call("DEL", sandbox).var("CNI_NETNS", "")
    }

    /// Returns the plugin's log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("plugin.log")).unwrap_or_default()
    }
}

impl Call {
    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.retain(|(key, _)| key != name);
        self.vars.push((name.into(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.vars.retain(|(key, _)| key != name);
        self
    }

    pub(crate) fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = text.into();
        self
    }

    /// Starts the plugin with an environment that has the runtime's variables only.
    pub(crate) fn start(&self) -> Child {
        let mut child = Command::new(binary())
            .env_clear()
            .envs(self.vars.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A plugin that refuses its variables does not read its input.
        let _ = child.stdin.take().unwrap().write_all(self.stdin.as_bytes());
        child
    }

    pub(crate) fn run(&self) -> Ended {
        Ended::of(self.start())
    }
}

impl Ended {
    pub(crate) fn of(child: Child) -> Self {
        let output = child.wait_with_output().unwrap();
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the result of an ADD. Fails if the ADD failed.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Fails if a DEL or CHECK failed or printed something.
    #[track_caller]
    pub(crate) fn is_silent_success(&self) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(0), ""), "{self:?}");
    }

    /// Returns message and details of an error. Fails if the call has not failed with this code.
    #[track_caller]
    pub(crate) fn error(&self, code: u32) -> (String, String) {
        assert_eq!(self.code, Some(1), "{self:?}");
        let object: Value = serde_json::from_str(&self.stdout).unwrap();
        assert_eq!(object["code"], code, "{object}");
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        assert!(!text("cniVersion").is_empty() && !text("msg").is_empty());
        (text("msg"), text("details"))
    }
}

/// Returns the binary under test.
fn binary() -> &'static Path {
    static PLUGIN: Program = Program::new("FERRULE_CNI", "cni", "ferrule-cni");
    PLUGIN.path()
}
