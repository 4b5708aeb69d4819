//! `ferrule version`: the versions of this tool, of Kubernetes and of Ferrule's programs in the cluster.

use super::{
    api::{Api, Selector},
    args::VersionArgs,
    forward::{self, PodPort},
    parallel,
    status::{self, OURS},
};
use crate::{output, progress::Progress};
use anyhow::Result;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use view_cluster::{Container, DaemonAnswer, Pod, Program, VersionReport, version_of_metrics};

/// Prints the versions and returns the exit code.
pub(super) async fn run(args: &VersionArgs) -> Result<u8> {
    if args.client {
        return print(args, &VersionReport::of(VERSION, None, Vec::new()));
    }
    let read = read(args).await;
    if read.is_err() {
        // The tool's own version is known without a cluster.
        print(args, &VersionReport::of(VERSION, None, Vec::new()))?;
    }
    print(args, &read?)
}

fn print(args: &VersionArgs, report: &VersionReport) -> Result<u8> {
    match args.output.is_text() {
        true => output::write(&report.text(output::columns()))?,
        false => args.output.write(&json!(report))?,
    }
    Ok(0)
}

async fn read(args: &VersionArgs) -> Result<VersionReport> {
    let api = Api::connect(&args.target).await?;
    let kubernetes: Kubernetes = api.get("/version", "version").await?;
    let path = format!("/api/v1/namespaces/{}/pods", api.namespace);
    let pods: Vec<Pod> = api.list(&path, Selector::Label(OURS), "pods").await?;
    let calls = pods.into_iter().flat_map(|pod| calls(&api, args, pod)).collect();
    let programs = parallel::all(calls, "reading versions", &mut Progress::new()).await?;
    Ok(VersionReport::of(VERSION, Some(kubernetes.git_version), programs))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kubernetes {
    git_version: String,
}

/// Returns a call for each of Ferrule's programs in the pod.
fn calls(api: &Api, args: &VersionArgs, pod: Pod) -> Vec<impl Future<Output = Program> + use<>> {
    let calls = PROGRAMS.iter().filter_map(|(container, name)| {
        let container = pod.spec.containers.iter().find(|it| it.name == *container)?.clone();
        let (client, namespace, pod) =
            (api.client(), api.namespace.clone(), pod.metadata.name.clone());
        let within = Duration::from_secs(args.target.timeout);
        let introspection = args.target.introspection_port;
        Some(async move {
            let port = if container.name == status::DAEMON {
                Some(introspection)
            } else {
                metrics_port(&container)
            };
            let version = match port {
                Some(port) => {
                    let at = PodPort { namespace: &namespace, pod: &pod, port };
                    ask(&client, &container, &at, within).await
                }
                None => Err("its metrics are off".to_owned()),
            };
            Program { name, pod, image: container.image, version }
        })
    });
    calls.collect()
}

async fn ask(
    client: &Client,
    container: &Container,
    at: &PodPort<'_>,
    within: Duration,
) -> Result<String, String> {
    if container.name == status::DAEMON {
        return match status::ask(client, at, within).await {
            DaemonAnswer::Status(status) => Ok(status.version),
            DaemonAnswer::Failed(why) => Err(why),
        };
    }
    let page = forward::get(client, at, "/metrics", within).await?;
    let version = version_of_metrics(&String::from_utf8_lossy(&page)).map(str::to_owned);
    version.ok_or_else(|| "its metrics lack ferrule_build_info".to_owned())
}

/// The port of a container's metrics; `None` if they are off.
pub(super) fn metrics_port(container: &Container) -> Option<u16> {
    let port = container.ports.iter().find(|port| port.name.ends_with("metrics"))?;
    Some(port.container_port)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Containers and their programs.
const PROGRAMS: [(&str, &str); 3] = [
    (status::DAEMON, "ferrule-ipamd"),
    (status::AGENT, "ferrule-agent"),
    (status::CONTROLLER, "ferrule-controller"),
];
