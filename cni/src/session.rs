//! Calls to the daemon, over one connection. They block: the plugin has no tokio runtime.

use crate::fault::{Code, Fault};
use config_model::{HostLink, PodKey, PodName, causes};
use datapath_rpc::{Admitted, AgentAt, AgentError, AgentPod};
use ipamd_npa::{PolicyAgent, PolicyError};
use ipamd_rpc::{
    Assignment, Client, Collect, Collected, Confirm, Enforcer, PoolStatus, Reason, Refusal,
    Release, Released, Reserve, ReserveOutcome, RpcError, TraceParent,
};
use runtime_socket::{block_on, block_on_while};
use std::{
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

/// The daemon's socket, and the trace of the call.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    pub(crate) socket: PathBuf,
    pub(crate) trace: Option<TraceParent>,
}

/// A connection to the daemon. Its calls block.
pub(crate) struct Session {
    client: Client,
}

/// The daemon answers a reservation this long before the caller's own deadline, so that its reason arrives in time.
const HEARING: Duration = Duration::from_millis(500);
/// The pause after a lost connection, so that a crashing daemon is not flooded.
const REST: Duration = Duration::from_millis(100);

impl Session {
    /// Connects, waiting for the socket until the deadline.
    pub(crate) fn open(daemon: &Daemon, deadline: Instant) -> Result<Self, RpcError> {
        let Daemon { socket, trace } = daemon;
        let client = block_on(Client::connect(socket, deadline))?.traced(trace.clone());
        Ok(Self { client })
    }

    /// Connects and reserves. Repeats this until the deadline if the connection is lost or the daemon is stopping: a
    /// restart must not fail a pod. If there is no later answer, the refusal of the stopping daemon is returned.
    pub(crate) fn reserve(
        daemon: &Daemon,
        request: &Reserve,
        deadline: Instant,
    ) -> Result<(Self, ReserveOutcome, Option<Enforcer>), RpcError> {
        let mut going_away = None;
        loop {
            let answer = Self::reserve_once(daemon, request, deadline);
            let is_passing = match &answer {
                Ok((_, ReserveOutcome::Refused(refusal), _)) => refusal.reason == Reason::Stopping,
                Ok((_, ReserveOutcome::Reserved(_) | ReserveOutcome::ReservedBranch(_), _)) => {
                    false
                }
                Err(error) => matches!(error, RpcError::Lost { .. }),
            };
            if !is_passing || Instant::now() + REST >= deadline {
                return answer.or_else(|error| match going_away {
                    Some(refusal) if is_silence(&error) => Ok(refusal),
                    _ => Err(error),
                });
            }
            going_away = answer.ok().or(going_away);
            std::thread::sleep(REST);
        }
    }

    fn reserve_once(
        daemon: &Daemon,
        request: &Reserve,
        deadline: Instant,
    ) -> Result<(Self, ReserveOutcome, Option<Enforcer>), RpcError> {
        let session = Self::open(daemon, deadline)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = left.saturating_sub(HEARING.min(left / 4));
        let mut request = request.clone();
        request.wait =
            config_model::Span::millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let reserving = session.client.reserve_with_policy(request, deadline);
        let (outcome, agent) = block_on(reserving)?;
        Ok((session, outcome, agent))
    }

    /// Confirms, over another connection if this one is lost: a daemon that was restarted knows the
    /// reservation.
    pub(crate) fn confirm(
        &mut self,
        daemon: &Daemon,
        request: &Confirm,
        deadline: Instant,
    ) -> Result<bool, RpcError> {
        loop {
            match block_on(self.client.confirm(request.clone(), deadline)) {
                Err(RpcError::Lost { .. }) if Instant::now() + REST < deadline => {
                    std::thread::sleep(REST);
                    *self = Self::open(daemon, deadline)?;
                }
                answer => return answer,
            }
        }
    }

    pub(crate) fn release(
        &self,
        request: Release,
        deadline: Instant,
    ) -> Result<(Released, Option<Enforcer>), RpcError> {
        self.release_while(request, deadline, || ())
    }

    /// Releases, and does `work` after the request was sent.
    pub(crate) fn release_while(
        &self,
        request: Release,
        deadline: Instant,
        work: impl FnOnce(),
    ) -> Result<(Released, Option<Enforcer>), RpcError> {
        block_on_while(self.client.release_with_policy(request, deadline), work).0
    }

    /// Has the policies of a pod hold, before anything of it runs.
    pub(crate) fn enforce(
        &self,
        agent: &PolicyAgent,
        pod: &PodName,
        interfaces: usize,
        deadline: Instant,
    ) -> Result<(), PolicyError> {
        block_on(agent.enforce(pod, interfaces, deadline))
    }

    /// Reports to the policy agent that a pod is gone.
    pub(crate) fn forget(
        &self,
        agent: &PolicyAgent,
        pod: &PodName,
        deadline: Instant,
    ) -> Result<(), PolicyError> {
        block_on(agent.forget(pod, deadline))
    }

    /// Waits until ferrule-agent answers whether the pod's policies are in force.
    pub(crate) fn admit(
        &self,
        agent: &AgentAt,
        pod: &AgentPod,
        addresses: &[IpAddr],
        links: &[HostLink],
        deadline: Instant,
    ) -> Result<Admitted, AgentError> {
        block_on(agent.admit(pod, addresses, links, deadline))
    }

    /// Reports to ferrule-agent that a pod is gone.
    pub(crate) fn ended(
        &self,
        agent: &AgentAt,
        pod: &AgentPod,
        deadline: Instant,
    ) -> Result<(), AgentError> {
        block_on(agent.forget(pod, deadline))
    }

    /// The daemon's record of this key.
    pub(crate) fn inspect(
        daemon: &Daemon,
        key: &PodKey,
        deadline: Instant,
    ) -> Result<Option<Assignment>, RpcError> {
        Self::ask(daemon, Duration::MAX, deadline, |session| {
            block_on(session.client.inspect(key.clone(), deadline))
        })
    }

    /// The daemon's readiness.
    pub(crate) fn status(
        daemon: &Daemon,
        patience: Duration,
        deadline: Instant,
    ) -> Result<PoolStatus, RpcError> {
        Self::ask(daemon, patience, deadline, |session| block_on(session.client.status(deadline)))
    }

    /// Asks what changes nothing, and asks again if the connection is lost: the daemon may be
    /// restarted in the middle.
    fn ask<T>(
        daemon: &Daemon,
        patience: Duration,
        deadline: Instant,
        question: impl Fn(&Self) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        loop {
            let until =
                Instant::now().checked_add(patience).map_or(deadline, |it| it.min(deadline));
            let answer = Self::open(daemon, until).and_then(|session| question(&session));
            match answer {
                Err(RpcError::Lost { .. }) if Instant::now() + REST < deadline => {
                    std::thread::sleep(REST);
                }
                answer => return answer,
            }
        }
    }

    pub(crate) fn collect(
        &self,
        request: Collect,
        deadline: Instant,
    ) -> Result<Collected, RpcError> {
        block_on(self.client.collect(request, deadline))
    }
}

/// True if there was no answer, false if the daemon answered with a failure.
fn is_silence(error: &RpcError) -> bool {
    matches!(
        error,
        RpcError::Missing { .. }
            | RpcError::Refused { .. }
            | RpcError::TimedOut { .. }
            | RpcError::Lost { .. }
    )
}

/// The error of an ADD or CHECK if the daemon does not answer.
pub(crate) fn unavailable(pod: &str, error: &RpcError) -> Fault {
    Fault::new(Code::TryAgainLater, format!("{pod}: {}", causes(error)), remedy(error))
}

/// The next step if the daemon does not answer.
pub(crate) fn remedy(error: &RpcError) -> &'static str {
    if let RpcError::VersionMismatch { .. } = error {
        "finish the upgrade: plugin and daemon may be one release apart, not more"
    } else if let RpcError::PermissionDenied { .. } = error {
        "the daemon answers only root and its own user; run the plugin as root"
    } else {
        "look at the log of ferrule-ipamd on this node; the runtime will try again"
    }
}

/// The error of an ADD or DEL if the policy agent fails.
pub(crate) fn unpoliced(pod: &str, error: &PolicyError) -> Fault {
    Fault::new(
        Code::PolicyAgent,
        format!("{pod}: {}", causes(error)),
        "look at the log of aws-network-policy-agent on this node; if it is not to run here, set \
         FERRULE_POLICY_AGENT=false on ferrule-ipamd. The runtime will try again",
    )
}

/// The error of an ADD if the daemon has no address.
pub(crate) fn refused(pod: &str, refusal: &Refusal) -> Fault {
    let code = match refusal.reason {
        Reason::TryAgain | Reason::Stopping => Code::TryAgainLater,
        Reason::Exhausted => Code::Exhausted,
        Reason::Invalid => Code::InvalidConfig,
    };
    Fault::new(code, format!("no address for {pod}: {}", refusal.message), &refusal.next_step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_the_code_for_a_retry_or_none() {
        for (reason, code) in [
            (Reason::TryAgain, 11),
            (Reason::Stopping, 11),
            (Reason::Exhausted, 100),
            (Reason::Invalid, 7),
        ] {
            let refusal = Refusal { reason, message: "m".into(), next_step: "n".into() };
            let fault = refused("default/web-0", &refusal);
            assert_eq!(fault.code.number(), code);
            assert_eq!(
                (fault.message.as_str(), fault.details.as_str()),
                ("no address for default/web-0: m", "n")
            );
        }
    }
}
