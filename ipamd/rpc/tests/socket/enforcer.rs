//! The plugin learns the enforcer with a reservation and with a release.

use crate::daemon::{Daemon, release, reserve, soon};
use config_model::{EnforcingMode, PodName};
use ipamd_rpc::{Enforcer, Pod, Release, Released};

fn policy_agent() -> Enforcer {
    let mode = EnforcingMode::Strict;
    Enforcer::NetworkPolicyAgent { socket: "/run/npa.sock".into(), mode }
}

#[tokio::test]
async fn a_reservation_and_a_release_carry_the_enforcer() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;
    let (_, agent) = client.reserve_with_policy(reserve("a"), soon()).await.unwrap();
    assert_eq!(agent, None);
    let policy = policy_agent();
    *daemon.book.policy.lock().unwrap() = Some(policy.clone());
    let (_, agent) = client.reserve_with_policy(reserve("a"), soon()).await.unwrap();
    assert_eq!(agent, Some(policy.clone()));
    let (_, agent) = client.release_with_policy(release("a"), soon()).await.unwrap();
    assert_eq!(agent, Some(policy));
    for mode in [EnforcingMode::Strict, EnforcingMode::Standard] {
        let own = Enforcer::FerruleAgent { socket: "/run/agent.sock".into(), mode };
        *daemon.book.policy.lock().unwrap() = Some(own.clone());
        let (_, enforcer) = client.reserve_with_policy(reserve("b"), soon()).await.unwrap();
        assert_eq!(enforcer.as_ref(), Some(&own));
        let (_, enforcer) = client.release_with_policy(release("b"), soon()).await.unwrap();
        assert_eq!(enforcer, Some(own));
    }
}

#[tokio::test]
async fn a_release_carries_no_enforcer_while_another_sandbox_of_the_pod_lives() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let policy = policy_agent();
    *daemon.book.policy.lock().unwrap() = Some(policy.clone());
    let client = daemon.client().await;
    let named = |id: &str, pod: &str| {
        let pod = Pod { name: pod_named(pod), ..reserve(id).pod };
        Release { pod: Some(pod), ..release(id) }
    };
    for id in ["old", "new"] {
        client.reserve_with_policy(reserve(id), soon()).await.unwrap();
    }
    // Released, and released again when it is no longer known.
    for known in [true, false] {
        let asked = named("old", "web-0");
        let (released, agent) = client.release_with_policy(asked, soon()).await.unwrap();
        assert_eq!((released != Released::Unknown, agent), (known, None));
    }
    let (_, agent) = client.release_with_policy(named("old", "web-1"), soon()).await.unwrap();
    assert_eq!(agent, Some(policy.clone()), "this pod has no sandbox");
    for _ in 0..2 {
        let (_, agent) = client.release_with_policy(named("new", "web-0"), soon()).await.unwrap();
        assert_eq!(agent, Some(policy.clone()), "it was the last sandbox");
    }
}

fn pod_named(name: &str) -> PodName {
    PodName { namespace: "default".into(), name: name.into() }
}
