//! An API server that is away, comes back, and has forgotten.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{World, network_policy, pod, until},
};
use std::net::SocketAddr;
use tests_cluster::Identity;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Stands between a replica and the API server, and can be shut.
struct Between {
    at: SocketAddr,
    open: watch::Sender<bool>,
}

impl Between {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (open, state) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut state = state.clone();
                if *state.borrow() {
                    tokio::spawn(async move {
                        let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else {
                            return;
                        };
                        tokio::select! {
                            _ = copy_bidirectional(&mut near, &mut far) => {}
                            _ = state.wait_for(|open| !*open) => {}
                        }
                    });
                }
            }
        });
        Self { at, open }
    }
}

/// What was deleted while the replica could not see it is found by listing anew: the API server has forgotten
/// where the watch was.
#[tokio::test]
async fn what_goes_while_the_watch_is_cut_is_gone_and_meanwhile_all_stands() {
    let mut world = World::alone().await;
    let node = world.node("n1").await;
    let (old, kept) = (network_policy("old", "web", "db"), network_policy("kept", "web", "db"));
    for object in
        [&old, &kept, &pod("default", "web-1", "n1", "web"), &pod("default", "web-2", "n1", "web")]
    {
        world.make(object.clone()).await;
    }
    let between = Between::to(world.cluster.port()).await;
    let user = format!("system:serviceaccount:kube-system:{}", config_crds::CONTROLLER_ACCOUNT);
    let server = format!("https://{}", between.at);
    let kubeconfig = world.cluster.kubeconfig_at("cut", &Identity::user(&user), &server).unwrap();
    let replica = Replica::start(&kubeconfig, &[]).await;
    replica.ready().await;
    let token = world.token(&node, "ferrule-controller").await;
    let mut agent = Agent::new(token.clone(), &world.bundle().await);
    agent.begins(replica.at).await;
    let begun =
        |agent: &Agent| agent.policies() == ["kept", "old"] && agent.pods() == ["web-1", "web-2"];
    agent.until("what there is", begun).await;
    between.open.send_replace(false);
    until("it says that pods are not read", || async {
        let shown = replica.get("/readyz").await?;
        shown.contains("Pod: failing").then_some(())
    })
    .await;
    world.delete(&old).await;
    world.delete(&pod("default", "web-2", "n1", "web")).await;
    world.make(network_policy("new", "web", "db")).await;
    world.cluster.stop_api_server();
    // It still serves what it has, to one whose token it has seen.
    assert!(replica.get("/readyz").await.unwrap().starts_with("HTTP/1.0 200"));
    assert!(begun(&agent));
    world.cluster.start_api_server().unwrap();
    between.open.send_replace(true);
    let ended = |agent: &Agent| agent.policies() == ["kept", "new"] && agent.pods() == ["web-1"];
    agent.until("what there is now", ended).await;
    until("all is read again", || async {
        let shown = replica.get("/readyz").await?;
        (!shown.contains("failing")).then_some(())
    })
    .await;
    let relists = replica.metric("ferrule_controller_relists_total", "").await;
    assert!(relists >= 1.0, "nothing was listed anew");
    world.make(pod("default", "web-3", "n1", "web")).await;
    agent.until("the watch goes on", |agent| agent.pods() == ["web-1", "web-3"]).await;
}
