//! Replicas that are found through the EndpointSlices of a real API server.

use crate::{
    node::{Node, PATIENCE},
    replica::{Authority, Replica, hub},
};
use config_model::EnforcingMode;
use datapath_rpc::Admitted;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use std::{env, net::SocketAddr, process::Command};
use tests_cluster::{Cluster, ClusterSpec, Program};
use tests_eventually::eventually;
use tokio::runtime::Runtime;

/// The API server takes no loopback address in a slice: a network of our own has others.
const NETWORK: &str = "ip link set lo up; for last in 1 2 3; do ip address add 10.99.0.$last/32 dev lo; done; \
                       exec \"$@\"";
/// Set in a process that runs in that network.
const INSIDE: &str = "FERRULE_TEST_IN_OWN_NETWORK";

/// Runs the test of this name in a network of its own, by this same program; false if it is to run here.
fn runs_in_own_network(test: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return false;
    }
    if !unshare().args(["--net", "--", "true"]).status().is_ok_and(|status| status.success()) {
        println!("SKIP {test}: needs the right to make a network namespace");
        return true;
    }
    // Without a network it could not be built.
    Program::ready().unwrap();
    let mut command = unshare();
    command.args([
        "--net",
        "--",
        "setpriv",
        "--pdeathsig",
        "KILL",
        "--",
        "sh",
        "-ec",
        NETWORK,
        "sh",
    ]);
    command.arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let ended = command.env(INSIDE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}\n{told}");
    true
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
}

/// The slices of the controller's Service.
struct Slices {
    runtime: Runtime,
    api: Api<EndpointSlice>,
}

impl Slices {
    fn of(cluster: &Cluster) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let client: Client = runtime.block_on(cluster.client()).unwrap();
        Self { runtime, api: Api::namespaced(client, "kube-system") }
    }

    /// A slice is as the controller of slices would write it: of these, each is ready or not.
    fn put(&self, name: &str, replicas: &[(&Replica, bool)]) {
        let endpoint = |(replica, ready): &(&Replica, bool)| {
            serde_json::json!({"addresses": [replica.at.ip()],
                "conditions": {"ready": ready, "serving": true, "terminating": false}})
        };
        let slice = serde_json::json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name,
                "labels": {"kubernetes.io/service-name": "ferrule-controller"}},
            "ports": [{"name": "metrics", "port": 1}, {"name": "policy", "port": PORT}],
            "endpoints": replicas.iter().map(endpoint).collect::<Vec<_>>(),
        });
        let (how, slice) = (PatchParams::apply("test").force(), Patch::Apply(slice));
        // The namespace may come a moment after the API server.
        eventually("the slice is taken", PATIENCE, || {
            let put = self.api.patch(name, &how, &slice);
            self.runtime.block_on(put).ok()
        });
    }

    fn delete(&self, name: &str) {
        let how = DeleteParams::default();
        self.runtime.block_on(self.api.delete(name, &how)).unwrap();
    }
}

fn replica(authority: &Authority, number: u8) -> Replica {
    let at = SocketAddr::from(([10, 99, 0, number], PORT));
    let replica = Replica::start_at(authority, hub(number, 100), at);
    replica.pod("n1", "web-0", "u-0");
    replica
}

fn follows(node: &Node, replica: &Replica) {
    let at = replica.at.to_string();
    node.until(&format!("{at} is followed"), |status| status.replica == at && status.pods > 0);
}

/// Waits until the agent knows of the replica: it announces pods to all that it knows.
fn knows(node: &Node, replica: &Replica) {
    replica.calls.announced.lock().unwrap().clear();
    eventually(&format!("{} is known", replica.at), PATIENCE, || {
        assert_eq!(node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap(), Admitted::Enforced);
        (!replica.calls.announced.lock().unwrap().is_empty()).then_some(())
    });
}

#[test]
fn replicas_are_found_left_and_kept_by_the_endpoint_slices() {
    if runs_in_own_network("endpoints::replicas_are_found_left_and_kept_by_the_endpoint_slices") {
        return;
    }
    let mut cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let slices = Slices::of(&cluster);
    let authority = Authority::new();
    let [first, second, third] = [1, 2, 3].map(|number| replica(&authority, number));
    let node = Node::new(&authority);
    let mut command = node.command(&[]);
    command.arg("--kubeconfig").arg(cluster.kubeconfig());
    let _agent = node.spawn(command);
    node.until("it knows of none", |s| {
        s.disconnected.contains("no replica of the controller is known")
    });

    slices.put("one", &[(&first, true)]);
    follows(&node, &first);
    slices.put("one", &[(&first, true), (&second, true)]);
    knows(&node, &second);
    // The replica may have lost the API server only; its stream continues.
    slices.put("one", &[(&first, false), (&second, true)]);
    follows(&node, &second);
    node.until_log("the replica is no longer ready, and others are");

    slices.put("two", &[(&first, true)]);
    knows(&node, &first);
    slices.delete("one");
    follows(&node, &first);

    slices.put("two", &[(&first, true), (&second, true)]);
    knows(&node, &second);
    cluster.stop_api_server();
    node.until_log("cannot watch the EndpointSlices");
    first.kill();
    follows(&node, &second);
    second.pod("n1", "web-1", "u-1");
    node.until("the other tells it", |status| status.pods == 2);

    third.pod("n1", "web-1", "u-1");
    cluster.start_api_server().unwrap();
    slices.put("two", &[(&third, true)]);
    follows(&node, &third);
}

const PORT: u16 = 7443;
