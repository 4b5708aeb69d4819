//! Changes of the serving certificate.

use crate::{
    agent::{Agent, NAME, hello, trust},
    replica::Replica,
    world::{PATIENCE, World},
};
use control_rpc::{Follow, FollowError};
use control_wire::NodeSnapshot;
use rcgen::{CertificateParams, KeyPair};
use std::{collections::BTreeSet, fs, path::Path, time::Duration};
use tests_eventually::eventually_async;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn nodes_trust_both_replicas_through_each_change_of_the_authority() {
    let world = World::new().await;
    let node = world.node("n1").await;
    let lives = ["--certificate-life", "8s", "--authority-life", "24s"];
    let first = Replica::start(&world.kubeconfig, &lives).await;
    let second = Replica::start(&world.kubeconfig, &lives).await;
    first.ready().await;
    second.ready().await;
    let token = world.token(&node, "ferrule-controller").await;
    let shown = || first.metric("ferrule_controller_certificates_total", "");
    let mut bundles = BTreeSet::new();
    let last = Instant::now() + PATIENCE * 2;
    // At the first handshake, after the announcement and after the promotion, the published bundle verifies both replicas.
    while bundles.len() < 3 || shown().await < 4.0 {
        let bundle = world.bundle().await;
        for replica in [&first, &second] {
            eventually_async("the replica is known by what is published", PATIENCE, || async {
                let now = world.bundle().await;
                Agent::new(token.clone(), &now).begin(replica.at).await.ok()
            })
            .await;
        }
        bundles.insert(bundle);
        assert!(Instant::now() < last, "{} bundles, {} certificates", bundles.len(), shown().await);
        sleep(Duration::from_millis(200)).await;
    }
}

/// Writes a self-signed certificate as PEM.
fn write(folder: &Path) -> String {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    fs::write(folder.join("tls.crt"), &pem).unwrap();
    fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
    pem
}

/// A certificate from files needs no API server.
#[tokio::test]
async fn a_certificate_from_files_is_served_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let nowhere = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
        "clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
        "users":[{"name":"c","user":{"token":"t"}}],
        "contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}"#;
    fs::write(&kubeconfig, nowhere).unwrap();
    let tls = folder.path().to_str().unwrap().to_owned();
    let replica = Replica::start(&kubeconfig, &["--tls-dir", &tls]).await;
    eventually_async("it says that there is none", PATIENCE, || async {
        replica.get("/readyz").await?.contains("tls.crt").then_some(())
    })
    .await;
    for _ in 0..2 {
        let pem = write(folder.path());
        eventually_async("it is shown", PATIENCE, || async {
            let begun =
                Follow::begin(replica.at, &trust(&pem), "token", hello(&NodeSnapshot::default()))
                    .await;
            // The handshake succeeded, and then the token could not be reviewed.
            matches!(begun, Err(FollowError::Refused { .. })).then_some(())
        })
        .await;
    }
}
