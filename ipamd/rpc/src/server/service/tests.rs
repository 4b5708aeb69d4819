//! The answers to plugins of a release without ferrule-agent.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::{ipam_server::Ipam as _, reserve_reply::Outcome};

/// A daemon of a node whose agent is in this mode; it counts what it is asked for, and has nothing.
struct Policed {
    mode: EnforcingMode,
    host_end: HostEndMode,
    asked: AtomicUsize,
}

fn nothing<T>() -> Result<T, CallFailed> {
    Err(CallFailed { message: "it has nothing".to_owned() })
}

impl Ipam for Policed {
    async fn reserve(&self, _: Reserve) -> Result<ReserveOutcome, CallFailed> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        nothing()
    }

    async fn confirm(&self, _: Confirm) -> Result<bool, CallFailed> {
        nothing()
    }

    async fn release(&self, _: Release) -> Result<Released, CallFailed> {
        nothing()
    }

    async fn inspect(&self, _: PodKey) -> Result<Option<Assignment>, CallFailed> {
        nothing()
    }

    async fn status(&self) -> Result<PoolStatus, CallFailed> {
        nothing()
    }

    async fn collect(&self, _: Collect) -> Result<Collected, CallFailed> {
        nothing()
    }

    async fn holds(&self, _: &PodName) -> Result<bool, CallFailed> {
        nothing()
    }

    fn host_end(&self) -> HostEndMode {
        self.host_end.clone()
    }

    fn enforcer(&self) -> Option<Enforcer> {
        let mode = self.mode;
        Some(Enforcer::FerruleAgent { socket: "/run/agent.sock".into(), mode })
    }
}

/// Returns the answer to a caller, and the number of calls that reached the daemon.
async fn answered(mode: EnforcingMode, awaits_agent: bool) -> (Result<Outcome, Status>, usize) {
    let request = wire::ReserveRequest { awaits_agent, ..wire::ReserveRequest::default() };
    answer(mode, HostEndMode::Routed, request).await
}

async fn answer(
    mode: EnforcingMode,
    host_end: HostEndMode,
    request: wire::ReserveRequest,
) -> (Result<Outcome, Status>, usize) {
    let daemon = Arc::new(Policed { mode, host_end, asked: AtomicUsize::new(0) });
    let endpoint = Endpoint::new(Arc::clone(&daemon));
    let key = wire::Key { network: "n".into(), container_id: "c".into(), ifname: "eth0".into() };
    let pod = wire::Pod { namespace: "shop".into(), name: "web-0".into(), ..wire::Pod::default() };
    let request = wire::ReserveRequest {
        versions: Some(wire::Versions {
            oldest: crate::SUPPORTED.oldest,
            newest: crate::SUPPORTED.newest,
        }),
        key: Some(key),
        pod: Some(pod),
        ..request
    };
    let reply = endpoint.reserve(Request::new(request)).await;
    let outcome = reply.map(|reply| reply.into_inner().outcome.unwrap());
    (outcome, daemon.asked.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_strict_node_refuses_a_plugin_without_agent_support() {
    let (outcome, asked) = answered(EnforcingMode::Strict, false).await;
    let Ok(Outcome::Refused(refusal)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(asked, 0);
    assert_eq!(refusal.reason(), wire::refusal::Reason::TryAgain);
    assert!(refusal.message.contains("shop/web-0"), "{refusal:?}");
    assert!(refusal.next_step.contains("ferrule-ipamd install"), "{refusal:?}");
    for (mode, awaits) in [
        (EnforcingMode::Strict, true),
        (EnforcingMode::Standard, false),
        (EnforcingMode::Standard, true),
    ] {
        let (outcome, asked) = answered(mode, awaits).await;
        assert_eq!(asked, 1, "{mode:?} {awaits}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_node_with_bridged_host_ends_refuses_a_plugin_that_cannot_build_them() {
    let routed = wire::HostEndMode::Routed.into();
    let bridged = wire::HostEndMode::Bridged.into();
    for (modes, calls) in [(vec![], 0), (vec![routed], 0), (vec![routed, bridged], 1)] {
        let request = wire::ReserveRequest {
            awaits_agent: true,
            host_end_modes: modes,
            ..wire::ReserveRequest::default()
        };
        let mode = HostEndMode::bridged("eni");
        let (outcome, asked) = answer(EnforcingMode::Strict, mode, request).await;
        assert_eq!(asked, calls, "{outcome:?}");
        if calls == 0 {
            let Ok(Outcome::Refused(refusal)) = outcome else { panic!("{outcome:?}") };
            assert!(refusal.message.contains("shop/web-0"), "{refusal:?}");
            assert!(refusal.next_step.contains("ferrule-ipamd install"), "{refusal:?}");
        }
    }
}
