//! From nothing to an address book: checkpoint, instance, limits. Whatever fails is tried again;
//! the daemon says what it waits for and does not end.

mod adopt;
mod amazon;
mod owner;
pub(crate) mod terms;

use crate::{
    checkpoint::{Damage, Opened, Writer},
    clock,
    inbox::Input,
    metrics::Metrics,
    tombstones::Tombstones,
};
use config_model::{CardIndex, InstanceId, PodKey};
use config_settings::Settings;
use ipamd_cloud::Cloud;
use ipamd_core::{
    Checkpoint, CloudFault, Core, Limits, Notice, PoolConfig, Remedy, Severity, Start, Topic,
    Witness,
};
use ipnet::Ipv4Net;
use routing_netlink::Kernel;
use std::{
    fmt,
    future::Future,
    hash::{BuildHasher as _, RandomState},
    path::Path,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::sleep};

/// All that the loop needs to begin.
pub(crate) struct Beginning {
    pub(crate) core: Core,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) instance: InstanceId,
    pub(crate) limits: Limits,
    /// The instance type whose limits are not known, and why.
    pub(crate) untold: Option<(String, CloudFault)>,
    pub(crate) targets: PoolConfig,
    pub(crate) writer: Writer,
    /// What is to be told.
    pub(crate) notices: Vec<Notice>,
    /// Interfaces whose DEL was missed.
    pub(crate) buried: Vec<PodKey>,
}

impl fmt::Debug for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beginning").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Makes the way to the cloud; tried again until it works.
pub type Connect = Box<dyn Fn() -> Connecting + Send + Sync>;

/// A way to the cloud that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = anyhow::Result<Arc<dyn Cloud>>> + Send>>;

/// What starting needs.
pub(crate) struct Starter {
    pub(crate) connect: Connect,
    pub(crate) settings: Arc<Settings>,
    pub(crate) tombstones: Tombstones,
    pub(crate) boot_id: String,
    pub(crate) metrics: Arc<Metrics>,
    /// Where the present obstacle is told.
    pub(crate) obstacle: watch::Sender<String>,
    pub(crate) vpc_cidrs: watch::Sender<Vec<Ipv4Net>>,
}

impl Starter {
    /// Comes back when there is an address book to begin with.
    pub(crate) async fn start<K: Kernel>(&self, kernel: &mut K) -> (Input, Arc<dyn Cloud>) {
        let began = Instant::now();
        let folder = self.settings.state_dir.join("ipam");
        let opened = self
            .insist("open the checkpoint", || async {
                owner::is_us(&self.settings)?;
                self.tombstones.prepare().map_err(anyhow::Error::from)?;
                let opened = Opened::at(&folder)?;
                // Whoever gives the node back says so before he takes the folder.
                owner::is_us(&self.settings)?;
                Ok(opened)
            })
            .await;
        let cloud = self.insist("reach the cloud", || (self.connect)()).await;
        let node =
            self.insist("read the instance's metadata", || async { Ok(cloud.node().await?) }).await;
        let (limits, untold) = self.limits(&*cloud, &node.instance_type).await;
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
        let (journal, aside) =
            self.insist("write the checkpoint", || async { Ok(opened.begin(&checkpoint)?) }).await;
        notices.extend(opened.damage.map(|damage| damaged(damage, aside.as_deref())));
        let writer = self
            .insist_once(
                "start the checkpoint's thread",
                Writer::start(journal, checkpoint.clone()),
            )
            .await;
        if let Some(misfit) = terms::misfit(&self.settings, &node, &limits) {
            self.never("begin", &anyhow::anyhow!(misfit)).await;
        }
        let targets = terms::targets(&self.settings, &limits);
        let start = Start { boot_id: self.boot_id.clone(), seed: seed() };
        let facts = terms::facts(&node, &self.settings);
        tracing::info!(
            instance = %facts.instance_id, r#type = node.instance_type,
            primary = %facts.primary_eni, subnet = %facts.subnet,
            enis = untold.is_none().then(|| limits.enis_on(CardIndex(0))),
            ipv4_per_eni = untold.is_none().then_some(limits.ipv4_per_eni),
            "the instance is known"
        );
        let core =
            Core::new(targets.clone(), facts, limits.clone(), checkpoint, start, clock::now());
        let (buried, _) = self.tombstones.read();
        let buried = buried.into_iter().map(|found| found.tombstone.key).collect();
        self.metrics.initialized(began.elapsed());
        let instance = node.instance;
        let begin = Input::Begin(Box::new(Beginning {
            core,
            cloud: Arc::clone(&cloud),
            instance,
            limits,
            untold: untold.map(|fault| (node.instance_type, fault)),
            targets,
            writer,
            notices,
            buried,
        }));
        (begin, cloud)
    }

    /// What the instance type allows, or why that is not known. Pods that run are not to wait for
    /// it, so it is asked a few times here, and later by the loop.
    async fn limits(&self, cloud: &dyn Cloud, instance_type: &str) -> (Limits, Option<CloudFault>) {
        if self.settings.imds_only {
            return (Limits::boundless(), None);
        }
        self.obstacle.send_replace("learn the limits of the instance type".to_owned());
        let mut tries = 1;
        loop {
            match cloud.type_limits(instance_type).await {
                Ok(limits) => return (limits.limits(), None),
                Err(fault) if tries == TRIES || fault.remedy == Remedy::TellOperator => {
                    return (Limits::boundless(), Some(fault));
                }
                Err(fault) => {
                    let what = "learn the limits of the instance type";
                    self.wait(what, &fault.into(), PAUSE_FIRST * tries).await;
                }
            }
            tries += 1;
        }
    }

    /// Without a trustworthy checkpoint, pods that run are found in the kernel: their host ends
    /// carry their keys, or amazon-vpc-cni's checkpoint tells whose they are. That one counts only
    /// where ours has never been.
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
                if is_ours { Default::default() } else { amazon::read(store) };
            let (mut found, told) = adopt::borne_out(&allocations, &observed, prefix);
            found.extend(adopt::marked(&observed));
            let unclaimed = adopt::unclaimed(&found, &observed, prefix);
            let Some((link, address)) = unclaimed.first().filter(|_| !is_ours) else {
                notices.extend(told);
                break (allocations, found, notices);
            };
            // It would lose its networking, and its address would be given out again.
            let why = notices.iter().map(|notice| format!("; {}", notice.cause));
            let whose = anyhow::anyhow!(
                "{link} leads to {address}, {} pods in all, and neither its alias nor \
                 amazon-vpc-cni's checkpoint {} says whose it is{}; give the daemon the host's \
                 folder of that file, start amazon-vpc-cni's agent once more, which writes it anew, \
                 or delete those pods",
                unclaimed.len(),
                store.display(),
                why.collect::<String>()
            );
            self.wait("tell whose the pods are that run here", &whose, LOOK_AGAIN).await;
        };
        let began = Instant::now();
        let enis = loop {
            let enis = self
                .insist("see the node's ENIs", || async {
                    let mut enis = cloud.look(Witness::Imds, instance).await?;
                    if !self.settings.imds_only {
                        enis.extend(cloud.look(Witness::Ec2, instance).await?);
                    }
                    Ok(enis)
                })
                .await;
            // Each may lag behind what was assigned a moment ago, and a pod that is not taken over
            // loses its networking.
            let unplaced = adopt::unplaced(&found, &enis);
            if unplaced.is_empty() || began.elapsed() >= LOOK_LONGEST {
                break enis;
            }
            let of_none = anyhow::anyhow!("{} is of none", unplaced.join(", "));
            self.wait("find the ENI of each pod in the kernel", &of_none, LOOK_AGAIN).await;
        };
        let now = clock::now();
        let (checkpoint, taken) = adopt::take_over(checkpoint, &found, &enis, &self.boot_id, now);
        notices.extend(taken);
        let until = (now, self.settings.cooldown);
        let checkpoint = adopt::cool(checkpoint, &allocations, &found, &enis, &self.boot_id, until);
        (checkpoint, notices)
    }

    /// Tries until it works.
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

    /// What cannot be tried again: without a thread there is no checkpoint, so this waits until a
    /// person has looked, and says so.
    async fn insist_once<T>(&self, what: &str, made: std::io::Result<T>) -> T {
        match made {
            Ok(made) => made,
            Err(error) => self.never(what, &error.into()).await,
        }
    }

    /// Only a person can help, and another start.
    async fn never(&self, what: &str, error: &anyhow::Error) -> ! {
        loop {
            self.wait(what, error, PAUSE_LAST).await;
        }
    }

    async fn wait(&self, what: &str, error: &anyhow::Error, pause: Duration) {
        tracing::warn!(error = format!("{error:#}"), "cannot {what}; trying again");
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
        cause: format!("the checkpoint was damaged: {damage}"),
        next_step: kept
            .map(|path| format!("check the disk; the damaged file is kept as {path}"))
            .unwrap_or_default(),
    }
}

/// Drawn anew at each start, from the operating system's randomness.
fn seed() -> u64 {
    RandomState::new().hash_one(())
}

/// What no ENI is seen to have is looked for this long.
const LOOK_LONGEST: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// So often is EC2 asked what the instance type allows before it goes on without.
const TRIES: u32 = 3;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_LAST: Duration = Duration::from_secs(10);
