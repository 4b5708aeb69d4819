//! The life of an installation. No change of it breaks a connection of pods.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its counts"
)]

use std::time::Duration;
use tests_whole::{Flows, Installed, LaneInputs};

/// Returns the time for which the control plane is stopped: `FERRULE_AWAY_SECONDS`, by default 20 seconds.
fn away() -> Duration {
    let seconds = std::env::var("FERRULE_AWAY_SECONDS").ok();
    Duration::from_secs(seconds.map_or(20, |seconds| seconds.parse().unwrap()))
}

#[test]
fn connections_survive_each_change_of_the_installation() {
    let test = "connections_survive_each_change_of_the_installation";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    let cluster = Installed::bare(inputs, "life", 2).unwrap();
    cluster.install(&[]).unwrap();
    let pods = cluster.probes("steady").unwrap();
    let [one, other] = &pods[..] else { panic!("{pods:?}") };
    let flows = Flows::between(one, other).unwrap();

    println!("upgrade");
    cluster.install(&["env.WARM_IP_TARGET=3", "podAnnotations.version=two"]).unwrap();
    println!("roll back");
    cluster.helm(&["rollback", "ferrule", "1"]).unwrap();
    cluster.rolled_out().unwrap();

    println!("stop the control plane");
    for part in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"] {
        cluster.lab().run(&["cluster", "stop", part]).unwrap();
    }
    std::thread::sleep(away());
    for part in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        cluster.lab().run(&["cluster", "start", part]).unwrap();
    }
    cluster.rolled_out().unwrap();
    let later = cluster.probes("later").unwrap();
    assert_eq!(later.len(), 2, "{later:?}");

    println!("a node joins, is drained and is terminated");
    let joined = cluster.lab().json(&["node", "add"]).unwrap();
    let joined = joined["name"].as_str().unwrap_or_default().to_owned();
    cluster.lab().run(&["cluster", "join", &joined]).unwrap();
    cluster.load_image(&["--node", &joined]).unwrap();
    cluster.rolled_out().unwrap();
    let with_it = cluster.probes("steady").unwrap();
    assert_eq!(with_it.len(), 3, "{with_it:?}");
    let newest = with_it.iter().find(|pod| pod.node == joined).unwrap();
    let with_newest = Flows::between(one, newest).unwrap();
    with_newest.wait_for_answers(100).unwrap();
    with_newest.end().unwrap();
    cluster.kubectl(&["drain", &joined, "--ignore-daemonsets", "--timeout=120s"]).unwrap();
    cluster.lab().run(&["node", "terminate", &joined]).unwrap();
    cluster.kubectl(&["delete", "node", &joined]).unwrap();
    cluster.rolled_out().unwrap();

    println!("uninstall");
    cluster.helm(&["uninstall", "ferrule", "--wait"]).unwrap();
    flows.end().unwrap();
    let after = cluster.pods("default", "app=steady").unwrap();
    let after: Vec<_> = after.into_iter().filter(|pod| pod.node != joined).collect();
    assert_eq!(after, pods, "pods were restarted or changed");
}
