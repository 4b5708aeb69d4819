//! The start: checkpoint, instance metadata, limits. Each step is retried until it works; the daemon reports the
//! step and does not exit.

mod adopt;
mod owner;
pub(crate) mod pool_config;
mod vpc_cni;

pub(crate) use adopt::UNKNOWN_NAMESPACE;

use crate::{
    checkpoint::{Damage, Opened, Writer},
    clock,
    messages::{Input, StartState},
    metrics::Metrics,
    tombstones::Tombstones,
};
use config_model::{CardIndex, InstanceId};
use config_settings::Settings;
use ipamd_cloud::Cloud;
use ipamd_core::{
    Checkpoint, CloudFault, Core, Limits, Notice, Remedy, Severity, Start, Topic, Witness,
};
use ipnet::Ipv4Net;
use routing_netlink::Kernel;
use std::{
    future::Future,
    hash::{BuildHasher as _, RandomState},
    path::Path,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::sleep};

/// Connects to the cloud; called again until it works.
pub type Connect = Box<dyn Fn() -> Connecting + Send + Sync>;

/// A pending connection to the cloud.
pub type Connecting = Pin<Box<dyn Future<Output = anyhow::Result<Arc<dyn Cloud>>> + Send>>;

/// The inputs of the start.
pub(crate) struct Starter {
    pub(crate) connect: Connect,
    pub(crate) settings: Arc<Settings>,
    pub(crate) tombstones: Tombstones,
    pub(crate) boot_id: String,
    pub(crate) metrics: Arc<Metrics>,
    /// Receives the step that is not complete yet.
    pub(crate) obstacle: watch::Sender<String>,
    pub(crate) vpc_cidrs: watch::Sender<Vec<Ipv4Net>>,
}

impl Starter {
    /// Returns when the event loop can start to serve.
    pub(crate) async fn start<K: Kernel>(&self, kernel: &mut K) -> (Input, Arc<dyn Cloud>) {
        let began = Instant::now();
        let folder = self.settings.state_dir.join("ipam");
        let mut opened = self
            .insist("open the checkpoint", || async {
                owner::is_us(&self.settings)?;
                self.tombstones.prepare().map_err(anyhow::Error::from)?;
                let opened = Opened::at(&folder)?;
                // A migration back to amazon-vpc-cni writes its journal before it locks the folder.
                owner::is_us(&self.settings)?;
                Ok(opened)
            })
            .await;
        let cloud = self.insist("reach the cloud", || (self.connect)()).await;
        let node =
            self.insist("read the instance metadata", || async { Ok(cloud.node().await?) }).await;
        let (limits, unknown_limits) = self.limits(&*cloud, &node.instance_type).await;
        self.vpc_cidrs.send_replace(node.vpc_v4_cidrs.clone());
        let mut notices = Vec::new();
        let checkpoint = opened.checkpoint.clone();
        let checkpoint = if opened.is_trusted() {
            checkpoint
        } else {
            let (checkpoint, adopted) =
                self.adopt(checkpoint, opened.found, kernel, &*cloud, &node.instance).await;
            notices.extend(adopted);
            checkpoint
        };
        let aside = self
            .insist("write the checkpoint", || {
                std::future::ready(opened.rewrite(&checkpoint).map_err(anyhow::Error::from))
            })
            .await;
        notices.extend(opened.damage.map(|damage| damaged(damage, aside.as_deref())));
        let writer = self
            .insist_once(
                "start the checkpoint thread",
                Writer::start(opened.journal, checkpoint.clone()),
            )
            .await;
        if let Some(misfit) = pool_config::misfit(&self.settings, &node, &limits) {
            self.never("begin", &anyhow::anyhow!(misfit)).await;
        }
        let targets = pool_config::targets(&self.settings, &limits);
        let start = Start { boot_id: self.boot_id.clone(), seed: seed() };
        let facts = pool_config::facts(&node, &self.settings);
        tracing::info!(
            instance = %facts.instance_id, r#type = node.instance_type,
            primary = %facts.primary_eni, subnet = %facts.subnet,
            enis = unknown_limits.is_none().then(|| limits.enis_on(CardIndex(0))),
            ipv4_per_eni = unknown_limits.is_none().then_some(limits.ipv4_per_eni),
            "read the instance metadata"
        );
        let core =
            Core::new(targets.clone(), facts, limits.clone(), checkpoint, start, clock::now());
        let (tombstones, _) = self.tombstones.read();
        let tombstoned = tombstones.into_iter().map(|found| found.tombstone.key).collect();
        self.metrics.initialized(began.elapsed());
        let instance = node.instance;
        let begin = Input::Start(Box::new(StartState {
            core,
            cloud: Arc::clone(&cloud),
            instance,
            limits,
            unknown_limits: unknown_limits.map(|fault| (node.instance_type, fault)),
            targets,
            writer,
            notices,
            tombstoned,
        }));
        (begin, cloud)
    }

    /// The limits of the instance type, or the error. Running pods must not wait for EC2, so this makes a few
    /// attempts, and the event loop continues later.
    async fn limits(&self, cloud: &dyn Cloud, instance_type: &str) -> (Limits, Option<CloudFault>) {
        if self.settings.imds_only {
            return (Limits::boundless(), None);
        }
        self.obstacle.send_replace("read the limits of the instance type".to_owned());
        let mut tries = 1;
        loop {
            match cloud.type_limits(instance_type).await {
                Ok(limits) => return (limits.limits(), None),
                Err(fault) if tries == TRIES || fault.remedy == Remedy::NotifyOperator => {
                    return (Limits::boundless(), Some(fault));
                }
                Err(fault) => {
                    let what = "read the limits of the instance type";
                    self.wait(what, &fault.into(), PAUSE_FIRST * tries).await;
                }
            }
            tries += 1;
        }
    }

    /// Without a trusted checkpoint, this finds the running pods in the kernel. The alias of a host end has the pod
    /// key; on a node that Ferrule never managed, the checkpoint of amazon-vpc-cni has it.
    async fn adopt<K: Kernel>(
        &self,
        checkpoint: Checkpoint,
        is_ours: bool,
        kernel: &mut K,
        cloud: &dyn Cloud,
        instance: &InstanceId,
    ) -> (Checkpoint, Vec<Notice>) {
        let (allocations, found, mut notices) = loop {
            let observed = match kernel.observe().await {
                Ok(observed) => observed,
                Err(error) => {
                    self.wait("observe the kernel", &error.into(), PAUSE_LAST).await;
                    continue;
                }
            };
            let prefix = &self.settings.veth_prefix;
            let store = &self.settings.backing_store;
            let (allocations, mut notices) =
                if is_ours { Default::default() } else { vpc_cni::read(store) };
            let (mut found, reports) = adopt::confirmed_entries(&allocations, &observed, prefix);
            found.extend(adopt::marked(&observed));
            let unclaimed = adopt::unclaimed(&found, &observed, prefix);
            let Some((link, address)) = unclaimed.first().filter(|_| !is_ours) else {
                notices.extend(reports);
                break (allocations, found, notices);
            };
            // The pod would lose its network, and another pod would get its address.
            let why = notices.iter().map(|notice| format!("; {}", notice.cause));
            let whose = anyhow::anyhow!(
                "{link} has the pod address {address} ({} such pods in all), and neither its alias \
                 nor the amazon-vpc-cni checkpoint {} names the pod{}; mount the host's folder of \
                 that file, start the amazon-vpc-cni agent again, which rewrites it, or delete \
                 those pods",
                unclaimed.len(),
                store.display(),
                why.collect::<String>()
            );
            self.wait("identify the running pods", &whose, LOOK_AGAIN).await;
        };
        let began = Instant::now();
        let enis = loop {
            let enis = self
                .insist("list the node's ENIs", || async {
                    let mut enis = cloud.look(Witness::Imds, instance).await?;
                    if !self.settings.imds_only {
                        enis.extend(cloud.look(Witness::Ec2, instance).await?);
                    }
                    Ok(enis)
                })
                .await;
            // IMDS and EC2 may lag behind a recent assignment, and a pod without an ENI loses its network.
            let unplaced = adopt::unplaced(&found, &enis);
            if unplaced.is_empty() || began.elapsed() >= LOOK_LONGEST {
                break enis;
            }
            let of_none = anyhow::anyhow!("no ENI has {}", unplaced.join(", "));
            self.wait("find the ENI of each pod in the kernel", &of_none, LOOK_AGAIN).await;
        };
        let now = clock::now();
        let (checkpoint, taken) = adopt::take_over(checkpoint, &found, &enis, &self.boot_id, now);
        notices.extend(taken);
        let until = (now, self.settings.cooldown);
        let checkpoint = adopt::cool(checkpoint, &allocations, &found, &enis, &self.boot_id, until);
        (checkpoint, notices)
    }

    /// Retries until the attempt succeeds.
    async fn insist<T, F>(&self, what: &str, mut attempt: impl FnMut() -> F) -> T
    where
        F: Future<Output = anyhow::Result<T>>,
    {
        self.obstacle.send_replace(what.to_owned());
        let mut pause = PAUSE_FIRST;
        loop {
            match attempt().await {
                Ok(found) => return found,
                Err(error) => self.wait(what, &error, pause).await,
            }
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    /// Waits forever after an error that a retry cannot fix: there is no checkpoint without its thread. A person must
    /// restart the daemon.
    async fn insist_once<T>(&self, what: &str, made: std::io::Result<T>) -> T {
        match made {
            Ok(made) => made,
            Err(error) => self.never(what, &error.into()).await,
        }
    }

    /// Reports the error forever. Only a person and a restart can help.
    async fn never(&self, what: &str, error: &anyhow::Error) -> ! {
        loop {
            self.wait(what, error, PAUSE_LAST).await;
        }
    }

    async fn wait(&self, what: &str, error: &anyhow::Error, pause: Duration) {
        tracing::warn!(error = format!("{error:#}"), "cannot {what}; retrying");
        self.obstacle.send_replace(format!("{what}: {error:#}"));
        sleep(pause).await;
    }
}

fn damaged(damage: Damage, aside: Option<&Path>) -> Notice {
    let kept = aside.map(|path| path.display().to_string());
    Notice {
        severity: if kept.is_some() { Severity::Error } else { Severity::Info },
        topic: Topic::Restored,
        object: "checkpoint".to_owned(),
        pod: None,
        cause: format!("the checkpoint is damaged: {damage}"),
        next_step: kept
            .map(|path| format!("check the disk; the damaged file was kept as {path}"))
            .unwrap_or_default(),
    }
}

/// Differs at each start.
fn seed() -> u64 {
    RandomState::new().hash_one(())
}

/// The longest search for the ENI of an address that no ENI has.
const LOOK_LONGEST: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Calls to EC2 for the limits before the start continues without them.
const TRIES: u32 = 3;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_LAST: Duration = Duration::from_secs(10);
