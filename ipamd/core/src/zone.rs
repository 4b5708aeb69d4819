//! The subnets of the zone, and those whose addresses pods do not get.

use crate::{
    Action, CloudAnswer, CloudCall, PoolConfig, Remedy, SeenSubnet, Severity, Topic,
    calls::{CallSubject, CloudResult},
    ctx::Ctx,
    explain::Blocker,
    placement::{self, ZoneSubnets},
    subnet_samples::SubnetSamples,
};
use config_model::{Span, SubnetId, Time};

/// The time for which an answer counts as fresh: free addresses change.
const FRESH: Span = Span::seconds(300);
/// The interval of counts of free addresses while a pod waits for one.
const RECOUNT: Span = Span::seconds(30);
/// The number of failed questions after which the planner continues without an answer.
const TRIES: u32 = 3;
/// The pause after the last failed question or a refusal.
const UNAVAILABLE_PAUSE: Span = Span::seconds(600);

/// The longest time that pods wait at the start for the subnets' tags.
const TAGS_PATIENCE: Span = Span::seconds(2);

/// EC2's last answer about the zone, and the schedule of the next question.
#[derive(Debug)]
pub(crate) struct ZoneState {
    zone: ZoneSubnets,
    samples: SubnetSamples,
    begun: Time,
    /// The start of the question whose answer is known.
    asked: Option<Time>,
    in_call: bool,
    tries: u32,
    not_before: Option<Time>,
}

impl ZoneState {
    pub(crate) fn new(now: Time) -> Self {
        let (zone, asked, not_before) = (ZoneSubnets::default(), None, None);
        let samples = SubnetSamples::default();
        Self { zone, samples, begun: now, asked, in_call: false, tries: 0, not_before }
    }

    pub(crate) fn samples(&self) -> &SubnetSamples {
        &self.samples
    }

    pub(crate) fn subnets(&self) -> &ZoneSubnets {
        &self.zone
    }

    /// EC2's last answer about a subnet.
    pub(crate) fn subnet(&self, id: &SubnetId) -> Option<&SeenSubnet> {
        match &self.zone {
            ZoneSubnets::Known(subnets) => subnets.iter().find(|subnet| subnet.id == *id),
            ZoneSubnets::Unknown | ZoneSubnets::Unavailable => None,
        }
    }

    /// Returns whether pods get no addresses in the subnet.
    pub(crate) fn excludes(&self, config: &PoolConfig, id: &SubnetId) -> bool {
        config.subnet_discovery && self.subnet(id).is_some_and(placement::is_shut)
    }

    /// Returns whether a plan may use the last answer.
    pub(crate) fn is_fresh(&self, now: Time) -> bool {
        match self.zone {
            ZoneSubnets::Unknown | ZoneSubnets::Unavailable => false,
            ZoneSubnets::Known(_) => self.asked.is_some_and(|asked| now.since(asked) < FRESH),
        }
    }
}

impl ZoneState {
    /// Returns whether the settings need subnets and EC2 has answered.
    fn reads_subnets(&self, ctx: &Ctx) -> bool {
        ctx.config.subnet_discovery && ctx.schedule.ec2_seen()
    }

    /// Asks EC2 after the start until it has answered: an attached ENI may be in an excluded subnet.
    pub(crate) fn look(&mut self, ctx: &mut Ctx) {
        if self.reads_subnets(ctx) && !matches!(self.zone, ZoneSubnets::Known(_)) {
            self.ask_for_subnets(ctx);
        }
    }

    /// Returns whether an ENI may still turn out to be in an excluded subnet, so that pods must wait. The wait is
    /// limited.
    pub(crate) fn awaits_tags(&mut self, ctx: &mut Ctx) -> bool {
        let unknown = ctx.config.subnet_discovery && self.zone == ZoneSubnets::Unknown;
        unknown && !ctx.reached(self.begun + TAGS_PATIENCE)
    }

    /// Asks EC2 again while a pod waits and only a full subnet is left: its count shows new free addresses.
    pub(crate) fn recount(&mut self, ctx: &mut Ctx) {
        let full = |why: &Blocker| matches!(why, Blocker::SubnetFull { until: Some(_), .. });
        if ctx.queue.is_empty() || !self.reads_subnets(ctx) || !ctx.blockers().iter().any(full) {
            return;
        }
        let Some((since, asked)) = ctx.subnets.empty_since().zip(self.asked) else { return };
        if asked < since || ctx.reached(asked + RECOUNT) {
            self.ask_for_subnets(ctx);
        }
    }

    /// Returns whether a question is under way.
    pub(crate) fn is_counting(&self) -> bool {
        self.in_call
    }

    /// Returns whether the subnets are known well enough to place an ENI; if not, EC2 is asked.
    pub(crate) fn knows_zone(&mut self, ctx: &mut Ctx) -> bool {
        let needed = self.reads_subnets(ctx) && !ctx.config.custom_networking;
        if !needed || self.is_fresh(ctx.now) {
            return true;
        }
        self.ask_for_subnets(ctx);
        // An older answer is better than none while EC2 does not answer.
        !self.in_call && self.zone != ZoneSubnets::Unknown
    }

    fn ask_for_subnets(&mut self, ctx: &mut Ctx) {
        if self.in_call
            || !self.not_before.is_none_or(|at| ctx.reached(at))
            || !ctx.may(Action::DescribeSubnets)
        {
            return;
        }
        self.in_call = true;
        let (vpc, zone) = (ctx.node.vpc.clone(), ctx.node.zone.clone());
        ctx.call(CallSubject::Zone, CloudCall::DescribeSubnets { vpc, zone });
    }

    pub(crate) fn subnets_seen(&mut self, ctx: &mut Ctx, result: CloudResult, started: Time) {
        self.in_call = false;
        let fault = match result {
            Ok(CloudAnswer::Subnets(subnets)) => {
                self.asked = Some(started);
                self.tries = 0;
                self.not_before = None;
                for subnet in subnets.iter().filter(|subnet| subnet.free_addresses > 0) {
                    ctx.subnets.has_free_ones(&subnet.id, started);
                }
                self.samples.take(&subnets, started);
                self.zone = ZoneSubnets::Known(subnets);
                self.mark_excluded(ctx);
                return;
            }
            Ok(_) => None,
            Err(fault) => Some(fault),
        };
        self.tries += 1;
        let refused = fault.as_ref().is_some_and(|fault| fault.remedy == Remedy::NotifyOperator);
        let gives_up = refused || self.tries >= TRIES;
        if gives_up {
            self.not_before = Some(ctx.now + UNAVAILABLE_PAUSE);
        }
        if gives_up && self.zone == ZoneSubnets::Unknown {
            self.zone = ZoneSubnets::Unavailable;
            let cause = fault.map_or_else(String::new, |fault| format!(" ({fault})"));
            let cause = format!("the zone's subnets are not known{cause}");
            let next_step = "allow ec2:DescribeSubnets to the node's role; new ENIs go to the \
                             node's own subnet meanwhile";
            ctx.report(Severity::Warning, Topic::NoSubnet, "DescribeSubnets", cause, next_step);
        }
        self.asked.get_or_insert(started);
    }

    /// Marks ENIs whose subnet is excluded, and unmarks the others.
    fn mark_excluded(&mut self, ctx: &mut Ctx) {
        let mut changed = Vec::new();
        for eni in ctx.book.enis() {
            let (id, subnet) = (eni.facts.id.clone(), eni.facts.subnet.clone());
            let without_pods = eni.facts.is_primary && ctx.config.custom_networking;
            let excluded = without_pods || self.excludes(&ctx.config, &subnet);
            if eni.facts.managed && eni.facts.excluded != excluded {
                changed.push((id, subnet, excluded));
            }
        }
        for (id, subnet, excluded) in changed {
            if let Some(eni) = ctx.book.eni_mut(&id) {
                eni.facts.excluded = excluded;
            }
            let cause = if excluded {
                format!("its subnet {subnet} is tagged kubernetes.io/role/cni=0: no new pods")
            } else {
                format!("its subnet {subnet} is no longer excluded")
            };
            ctx.report(Severity::Info, Topic::NoSubnet, id, cause, "");
            ctx.node_changed();
        }
    }
}
