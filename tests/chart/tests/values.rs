//! Every pair of choices of values. The chart is rendered, a real API server validates the objects, and the daemon's
//! settings parser reads the environment.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

#[path = "values/choices.rs"]
mod choices;
#[path = "values/monitoring.rs"]
mod monitoring;

use config_settings::Settings;
use lab_kubernetes::{Cluster, ClusterSpec};
use serde_json::{Value, json};
use tests_chart::{Chart, Rendered, pairs, server::Server};

/// Returns a description of a row and its values.
fn row(numbers: &[usize]) -> (String, Value) {
    let dimensions = choices::dimensions();
    let (mut values, mut description) = (json!({}), Vec::new());
    for ((dimension, choices), number) in dimensions.iter().zip(numbers) {
        let (name, part) = choices.get(*number).unwrap();
        merge(&mut values, part);
        description.push(format!("{dimension}: {name}"));
    }
    (description.join(", "), values)
}

fn merge(into: &mut Value, part: &Value) {
    let Some(map) = part.as_object().filter(|_| into.is_object()) else {
        *into = part.clone();
        return;
    };
    for (key, value) in map {
        merge(&mut into[key], value);
    }
}

fn rows() -> Vec<Vec<usize>> {
    let sizes: Vec<usize> = choices::dimensions().iter().map(|(_, all)| all.len()).collect();
    pairs::cover(&sizes)
}

#[tokio::test]
async fn every_pair_of_choices_is_accepted_by_a_real_api_server() {
    let chart = Chart::of_this_clone().unwrap();
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let client = cluster.client().await.unwrap();
    // All kinds of the chart's objects. The kinds for monitoring belong to the Prometheus operator.
    let everything = json!({ "crds": {
        "cniNode": true, "upstreamPolicies": true, "antreaPolicies": true, "awsPolicies": true,
    }});
    let mut definitions = monitoring::definitions();
    let rendered = chart.render(&everything).unwrap();
    definitions.extend(rendered.of_kind("CustomResourceDefinition").cloned());
    let server = Server::look(client.clone()).await.unwrap();
    for definition in &definitions {
        server.apply(definition, false).await.unwrap();
    }
    let definitions: Vec<&Value> = definitions.iter().collect();
    let server = Server::serving(client, &definitions).await.unwrap();
    let (mut wrong, mut objects) = (Vec::new(), 0);
    let rows: Vec<(String, Value)> =
        rows().iter().map(|numbers| row(numbers)).chain(choices::scenarios()).collect();
    for (description, values) in &rows {
        let rendered = match chart.render(values) {
            Ok(rendered) => rendered,
            Err(error) => {
                wrong.push(format!("[{description}] cannot be rendered: {error:#}"));
                continue;
            }
        };
        for object in &rendered.objects {
            objects += 1;
            if let Err(error) = server.apply(object, true).await {
                wrong.push(format!("[{description}] {error:#}"));
            }
        }
        wrong.extend(faults(&rendered).into_iter().map(|fault| format!("[{description}] {fault}")));
    }
    eprintln!("{} rows, {objects} objects", rows.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns violations of rules that hold for all values.
fn faults(rendered: &Rendered) -> Vec<String> {
    let mut faults = Vec::new();
    for kind in ["DaemonSet", "Deployment"] {
        for object in rendered.of_kind(kind) {
            let pod = &object["spec"]["template"]["spec"];
            if pod["securityContext"]["seccompProfile"]["type"] != "RuntimeDefault" {
                faults.push(format!("{kind}: its seccomp profile is not RuntimeDefault"));
            }
            if !pod["priorityClassName"].as_str().is_some_and(|class| class.starts_with("system-"))
            {
                faults.push(format!("{kind}: its priority is {}", pod["priorityClassName"]));
            }
            for container in containers(pod) {
                faults.extend(container_faults(kind, container));
                faults.extend(bpffs_faults(pod, container));
            }
        }
    }
    let daemon = rendered.of_kind("DaemonSet").next().unwrap();
    faults.extend(environment_faults(daemon));
    faults
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let of = |name: &str| pod[name].as_array().into_iter().flatten();
    of("initContainers").chain(of("containers"))
}

fn container_faults(kind: &str, container: &Value) -> Vec<String> {
    let (name, context) = (&container["name"], &container["securityContext"]);
    let mut faults = Vec::new();
    let mut hold = |holds: bool, what: &str| {
        if !holds {
            faults.push(format!("{kind}, container {name}: {what}"));
        }
    };
    hold(context["privileged"] != true, "privileged");
    hold(context["allowPrivilegeEscalation"] == false, "allows privilege escalation");
    hold(context["readOnlyRootFilesystem"] == true, "a writable root file system");
    hold(context["capabilities"]["drop"] == json!(["ALL"]), "does not drop all capabilities");
    let added = context["capabilities"]["add"].as_array().cloned().unwrap_or_default();
    let wanted = match name.as_str() {
        Some("ipamd") => json!(["NET_ADMIN", "NET_RAW"]),
        Some("agent") if is_ebpf(container) => json!(["BPF", "NET_ADMIN", "NET_RAW", "PERFMON"]),
        _ => json!([]),
    };
    hold(json!(added) == wanted, "other capabilities");
    hold(kind != "Deployment" || context["runAsUser"] != 0, "runs as root");
    faults
}

fn is_ebpf(container: &Value) -> bool {
    has_setting(container, "FERRULE_AGENT_BACKEND", "ebpf")
}

fn has_setting(container: &Value, name: &str, value: &str) -> bool {
    let env = container["env"].as_array();
    let mut of_name = env.into_iter().flatten().filter(|one| one["name"] == name);
    of_name.any(|one| one["value"] == value)
}

/// Returns violations of a rule: only an agent with the backend `ebpf` mounts the node's bpffs, and it is in the node's
/// network. Only an agent that serves Services mounts the node's cgroups.
fn bpffs_faults(pod: &Value, container: &Value) -> Option<String> {
    let name = &container["name"];
    let has_bpffs = *name == "agent" && is_ebpf(container);
    let has_cgroups = has_bpffs && has_setting(container, "FERRULE_SERVICES", "ebpf");
    let wanted: Vec<&str> = [("/sys/fs/bpf", has_bpffs), ("/sys/fs/cgroup", has_cgroups)]
        .into_iter()
        .filter_map(|(path, is_wanted)| is_wanted.then_some(path))
        .collect();
    let path_of = |mount: &Value| {
        let mut volumes = pod["volumes"].as_array().into_iter().flatten();
        let volume = volumes.find(|one| one["name"] == mount["name"])?;
        volume["hostPath"]["path"].as_str().filter(|path| path.starts_with("/sys"))
    };
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let mounts: Vec<&str> = mounts.filter_map(path_of).collect();
    if mounts != wanted {
        return Some(format!("container {name}: mounts of {mounts:?}, not of {wanted:?}"));
    }
    (has_bpffs && pod["hostNetwork"] != true).then(|| "the agent has its own network".to_owned())
}

/// Returns violations of two rules: all containers of a node have the same environment, and the daemon accepts it.
fn environment_faults(daemon: &Value) -> Vec<String> {
    let pod = &daemon["spec"]["template"]["spec"];
    let mut environments = containers(pod).map(|container| container["env"].clone());
    let first = environments.next().unwrap();
    let mut faults = Vec::new();
    if environments.any(|other| other != first) {
        faults.push("containers with different environments".to_owned());
    }
    let pairs = first.as_array().into_iter().flatten().map(|variable| {
        let text = |value: &Value| value.as_str().unwrap_or("node-1").to_owned();
        (text(&variable["name"]), text(&variable["value"]))
    });
    match Settings::resolve(pairs) {
        Ok((_, warnings)) => {
            faults.extend(warnings.iter().map(|warning| format!("the daemon warns: {warning}")));
        }
        Err(refusal) => faults.push(format!("the daemon refuses: {refusal}")),
    }
    faults
}
