//! Which subnets does the zone have, and in which of them do pods get no addresses?

use crate::{
    Action, CloudAnswer, CloudCall, PoolConfig, Remedy, SeenSubnet, Severity, Topic,
    calls::{About, CloudResult},
    ctx::Ctx,
    explain::Why,
    placement::{self, Zone},
};
use config_model::{Span, SubnetId, Time};

/// What is known is new enough for so long: free addresses come and go.
const FRESH: Span = Span::seconds(300);
/// Free addresses are counted again so often while somebody waits for one.
const RECOUNT: Span = Span::seconds(30);
/// After so many questions in vain it goes on without an answer.
const TRIES: u32 = 3;
/// A question that came to nothing, or was refused for good, is asked again so often.
const UNTOLD_PAUSE: Span = Span::seconds(600);

/// So long pods wait at the start for what the subnets' tags say; then they are served all the same.
const TAGS_PATIENCE: Span = Span::seconds(2);

/// What EC2 has told of the zone, and when it is asked again.
#[derive(Debug)]
pub(crate) struct ZoneWatch {
    zone: Zone,
    begun: Time,
    /// When the answer that is known was asked for.
    asked: Option<Time>,
    in_call: bool,
    tries: u32,
    not_before: Option<Time>,
}

impl ZoneWatch {
    pub(crate) fn new(now: Time) -> Self {
        let (zone, asked, not_before) = (Zone::default(), None, None);
        Self { zone, begun: now, asked, in_call: false, tries: 0, not_before }
    }

    pub(crate) fn subnets(&self) -> &Zone {
        &self.zone
    }

    /// What is known of a subnet.
    pub(crate) fn subnet(&self, id: &SubnetId) -> Option<&SeenSubnet> {
        match &self.zone {
            Zone::Known(subnets) => subnets.iter().find(|subnet| subnet.id == *id),
            Zone::Unknown | Zone::Untold => None,
        }
    }

    /// Whether pods get no addresses in the subnet.
    pub(crate) fn excludes(&self, config: &PoolConfig, id: &SubnetId) -> bool {
        config.subnet_discovery && self.subnet(id).is_some_and(placement::is_shut)
    }

    /// Whether what is known may be planned with.
    pub(crate) fn is_fresh(&self, now: Time) -> bool {
        match self.zone {
            Zone::Unknown | Zone::Untold => false,
            Zone::Known(_) => self.asked.is_some_and(|asked| now.since(asked) < FRESH),
        }
    }
}

impl ZoneWatch {
    /// Whether subnets matter at all, and EC2 may be asked.
    fn reads_subnets(&self, ctx: &Ctx) -> bool {
        ctx.config.subnet_discovery && ctx.schedule.ec2_seen()
    }

    /// Asks at the start, until EC2 has told: ENIs that are there may lie in an excluded subnet.
    pub(crate) fn look(&mut self, ctx: &mut Ctx) {
        if self.reads_subnets(ctx) && !matches!(self.zone, Zone::Known(_)) {
            self.ask_for_subnets(ctx);
        }
    }

    /// Whether it may still turn out that an ENI lies in an excluded subnet: then nobody is given of
    /// any. EC2 that does not answer holds nobody up for long.
    pub(crate) fn awaits_tags(&mut self, ctx: &mut Ctx) -> bool {
        let unknown = ctx.config.subnet_discovery && self.zone == Zone::Unknown;
        unknown && !ctx.reached(self.begun + TAGS_PATIENCE)
    }

    /// Asks again while somebody waits and a full subnet is all that there is: its free addresses
    /// tell when it has some.
    pub(crate) fn recount(&mut self, ctx: &mut Ctx) {
        let full = |why: &Why| matches!(why, Why::SubnetFull { until: Some(_), .. });
        if ctx.queue.is_empty() || !self.reads_subnets(ctx) || !ctx.whys().iter().any(full) {
            return;
        }
        let Some((since, asked)) = ctx.subnets.empty_since().zip(self.asked) else { return };
        if asked < since || ctx.reached(asked + RECOUNT) {
            self.ask_for_subnets(ctx);
        }
    }

    /// Whether EC2 is counting free addresses right now.
    pub(crate) fn is_counting(&self) -> bool {
        self.in_call
    }

    /// Whether the subnets are known well enough to place an ENI; if not, EC2 is asked.
    pub(crate) fn knows_zone(&mut self, ctx: &mut Ctx) -> bool {
        let needed = self.reads_subnets(ctx) && !ctx.config.custom_networking;
        if !needed || self.is_fresh(ctx.now) {
            return true;
        }
        self.ask_for_subnets(ctx);
        // An older answer is better than none while EC2 does not answer.
        !self.in_call && self.zone != Zone::Unknown
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
        ctx.call(About::Zone, CloudCall::DescribeSubnets { vpc, zone });
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
                self.zone = Zone::Known(subnets);
                self.mark_excluded(ctx);
                return;
            }
            Ok(_) => None,
            Err(fault) => Some(fault),
        };
        self.tries += 1;
        let refused = fault.as_ref().is_some_and(|fault| fault.remedy == Remedy::TellOperator);
        let gives_up = refused || self.tries >= TRIES;
        if gives_up {
            self.not_before = Some(ctx.now + UNTOLD_PAUSE);
        }
        if gives_up && self.zone == Zone::Unknown {
            self.zone = Zone::Untold;
            let cause = fault.map_or_else(String::new, |fault| format!(" ({fault})"));
            let cause = format!("the zone's subnets are not known{cause}");
            let next_step = "allow ec2:DescribeSubnets to the node's role; new ENIs go to the \
                             node's own subnet meanwhile";
            ctx.report(Severity::Warning, Topic::NoSubnet, "DescribeSubnets", cause, next_step);
        }
        self.asked.get_or_insert(started);
    }

    /// ENIs whose subnet is excluded by now, or is not any more.
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
                format!("its subnet {subnet} is not excluded any more")
            };
            ctx.report(Severity::Info, Topic::NoSubnet, id, cause, "");
            ctx.node_changed();
        }
    }
}
