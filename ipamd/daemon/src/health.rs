//! The gRPC health states `live` and `ready`, and the reports that follow from them.

use crate::{
    cluster::Cluster,
    inbox::Inbox,
    install,
    nat::NatReport,
    pass_report::PassReport,
    troubles::{self, OpenProblem, ProblemTimes},
    view::{HOST_NETWORKING, KUBERNETES, Trouble, View},
};
use config_settings::Settings;
use ipamd_rpc::PoolStatus;
use runtime_socket::server::{Health, HealthName};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    time::{interval, timeout},
};

/// The results of the loops that repair the host.
pub(crate) struct HealthInputs {
    pub(crate) passes: watch::Receiver<PassReport>,
    pub(crate) nat: watch::Receiver<NatReport>,
    pub(crate) egress: watch::Receiver<Option<String>>,
    /// The path of the installer's report follows from them.
    pub(crate) settings: Arc<Settings>,
}

/// The receivers of reports.
pub(crate) struct HealthOutputs {
    pub(crate) statuses: watch::Sender<PoolStatus>,
    pub(crate) troubles: watch::Sender<Vec<OpenProblem>>,
}

/// Updates health, the node's condition in Kubernetes and the answer to STATUS, which all agree.
///
/// `live` means that the event loop answers; `ready` means that the pool can serve. An empty pool does not change
/// `live`, because a restart would not fill it.
pub(crate) async fn report(
    health: Health,
    inbox: Inbox,
    cluster: Cluster,
    inputs: HealthInputs,
    outputs: HealthOutputs,
) {
    let mut ticks = interval(EVERY);
    let mut readiness = Readiness::default();
    let mut said = None;
    let mut times = ProblemTimes::default();
    let mut network = None;
    for tick in 0_u64.. {
        ticks.tick().await;
        if tick % NETWORK_EVERY == 0 {
            network = install::NetworkReport::read(&inputs.settings);
        }
        let view = timeout(ANSWER_TIME, inbox.view()).await.ok().and_then(Result::ok);
        let live = view.is_some();
        let troubles = troubles(view.as_ref(), &cluster, &inputs);
        let ready = readiness.judge(!troubles.is_empty(), Instant::now());
        let texts: Vec<String> = troubles.iter().map(ToString::to_string).collect();
        let reasons = texts.join("; ");
        outputs.statuses.send_replace(status(view.as_ref(), &troubles, ready));
        if let Some(view) = &view {
            let disconnected = inputs.passes.borrow().disconnected.clone();
            let found =
                troubles::of(view, &cluster, &inputs.host(), &disconnected, network.as_ref());
            outputs.troubles.send_replace(times.see(found, view.now));
        }
        match troubles.first().filter(|_| !ready) {
            Some(first) => cluster.pool(false, first.reason, &reasons),
            None => cluster.pool(ready, "serves", "the pool is ready"),
        }
        if said != Some((live, ready)) {
            if live && ready {
                tracing::info!(live, ready, "health");
            } else {
                tracing::warn!(live, ready, reasons, "health");
            }
        }
        said = Some((live, ready));
        health.set(HealthName::Live, live).await;
        health.set(HealthName::Ready, ready).await;
    }
}

/// The answer to STATUS before the first check.
pub(crate) fn starting() -> PoolStatus {
    PoolStatus { unavailable: vec!["starting: the first step".to_owned()], impaired: Vec::new() }
}

/// The answer to STATUS. It omits a short problem, as `ready` does.
fn status(view: Option<&View>, troubles: &[Trouble], ready: bool) -> PoolStatus {
    let reasons: &[Trouble] = if ready { &[] } else { troubles };
    let networking = reasons.iter().filter(|trouble| trouble.reason == HOST_NETWORKING);
    let mut impaired: Vec<String> = networking.map(ToString::to_string).collect();
    impaired.extend(view.map(View::impairments).unwrap_or_default());
    PoolStatus { unavailable: reasons.iter().map(ToString::to_string).collect(), impaired }
}

fn troubles(view: Option<&View>, cluster: &Cluster, inputs: &HealthInputs) -> Vec<Trouble> {
    let trouble = |reason, text| Trouble { reason, text };
    let Some(view) = view else {
        return vec![trouble("silent", "the event loop does not answer".to_owned())];
    };
    let mut troubles = view.troubles();
    troubles.extend(cluster.lacks().map(|lacks| trouble(KUBERNETES, lacks)));
    troubles.extend(inputs.host().into_iter().map(|why| trouble(HOST_NETWORKING, why)));
    troubles
}

impl HealthInputs {
    /// The problems of host networking.
    fn host(&self) -> Vec<String> {
        let (passes, nat, egress) = (self.passes.borrow(), self.nat.borrow(), self.egress.borrow());
        passes.trouble.iter().chain(&nat.trouble).chain(&*egress).cloned().collect()
    }
}

/// Readiness with a delay: a burst that empties the pool for a moment is not a problem.
#[derive(Debug, Default)]
struct Readiness {
    ready: bool,
    troubled: Option<Instant>,
}

impl Readiness {
    fn judge(&mut self, troubled: bool, now: Instant) -> bool {
        if troubled {
            let since = *self.troubled.get_or_insert(now);
            self.ready &= now.saturating_duration_since(since) < PATIENCE;
        } else {
            *self = Self { ready: true, troubled: None };
        }
        self.ready
    }
}

const EVERY: Duration = Duration::from_millis(250);
/// In ticks. The installer writes its report every ten seconds.
const NETWORK_EVERY: u64 = 20;
const ANSWER_TIME: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Phase;
    use config_model::{CardIndex, DeviceIndex, EniId, Mac, SubnetId, TableId, Time};
    use ipamd_core::{Counts, EniView, Snapshot};
    use std::collections::VecDeque;

    #[test]
    fn a_pool_is_ready_from_its_first_good_moment_and_through_short_trouble() {
        let start = Instant::now();
        let mut readiness = Readiness::default();
        assert!(!readiness.judge(true, start));
        assert!(readiness.judge(false, start));
        assert!(readiness.judge(true, start), "the problem is new");
        assert!(readiness.judge(false, start + PATIENCE * 2));
        assert!(readiness.judge(true, start + PATIENCE * 2), "another problem is new");
        assert!(!readiness.judge(true, start + PATIENCE * 3));
        assert!(!readiness.judge(true, start + PATIENCE * 4));
        assert!(readiness.judge(false, start + PATIENCE * 5));
    }

    fn trouble(reason: &'static str) -> Trouble {
        Trouble { reason, text: "why".to_owned() }
    }

    #[test]
    fn a_kernel_that_refuses_what_all_pods_need_impairs_them_and_an_empty_pool_does_not() {
        let troubles = [trouble("no_usable_address"), trouble(HOST_NETWORKING)];
        let outputs = status(None, &troubles[..1], false);
        assert_eq!((outputs.unavailable.len(), outputs.impaired.len()), (1, 0));
        let outputs = status(None, &troubles, false);
        assert_eq!(outputs.unavailable, ["no_usable_address: why", "host_networking: why"]);
        assert_eq!(outputs.impaired, ["host_networking: why"]);
        assert_eq!(status(None, &troubles, true), PoolStatus::default(), "it may be over soon");
    }

    #[test]
    fn pods_whose_addresses_are_gone_from_the_node_are_impaired_also_if_others_are_served() {
        let missing = EniView { missing: true, ..eni("eni-1") };
        let robbed =
            EniView { lost: vec!["10.0.0.7/32".parse().expect("a block")], ..eni("eni-2") };
        let enis = vec![eni("eni-0"), missing, robbed];
        let view = View {
            now: Time(0),
            phase: Phase::Running,
            snapshot: Snapshot { enis, ..Snapshot::default() },
            limits: None,
            targets: None,
            checkpoint_trouble: None,
            queued: 0,
            waited: Vec::new(),
            notices: VecDeque::new(),
        };
        let outputs = status(Some(&view), &[], true);
        assert_eq!(outputs.unavailable, Vec::<String>::new());
        let [detached, taken] = outputs.impaired.as_slice() else { panic!("{outputs:?}") };
        assert!(detached.contains("eni-1 was detached"), "{detached}");
        assert!(taken.contains("10.0.0.7/32 from eni-2"), "{taken}");
    }

    fn eni(id: &str) -> EniView {
        EniView {
            id: EniId::new(id),
            attachment: None,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            card: CardIndex(0),
            device: DeviceIndex(0),
            table: TableId::MAIN,
            subnet: SubnetId::new("subnet-1"),
            subnet_cidr: None,
            subnet_cidr_v6: None,
            primary_address: None,
            primary_v6: None,
            kind: None,
            blocks: Vec::new(),
            excluded: false,
            ready: true,
            managed: true,
            leaving: false,
            missing: false,
            lost: Vec::new(),
            counts: Counts::default(),
        }
    }
}
