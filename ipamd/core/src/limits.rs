//! The limits of the instance type. Until EC2 reports them, pods get the addresses that the node has.

use crate::{
    CardLimits, CloudFault, Limits, Severity, Topic, ctx::Ctx, explain::Blocker, warm::Targets,
};
use config_model::CardIndex;

const NEXT_STEP: &str = "allow ec2:DescribeInstanceTypes to the node's role, or use an instance type \
     that EC2 knows in this region; until then pods get the addresses that the node has";

/// The reason why the limits are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownLimits {
    instance_type: String,
    fault: String,
}

impl Limits {
    /// Limits for an unknown instance type. No node exceeds them. The planner changes nothing while they are in use.
    pub fn boundless() -> Self {
        let card = |index| CardLimits { card: CardIndex(index), enis: 64 };
        Self {
            cards: (0..32).map(card).collect(),
            ipv4_per_eni: 64,
            ipv6_per_eni: 64,
            prefixes: true,
            trunk: false,
            branch_enis: 0,
        }
    }
}

impl UnknownLimits {
    pub(crate) fn why(&self) -> Blocker {
        let Self { instance_type, fault } = self;
        let reason = format!("the limits of instance type {instance_type} are not known: {fault}");
        Blocker::LimitsUnknown { reason, next_step: NEXT_STEP }
    }
}

impl Ctx {
    /// Notes why EC2 does not report the limits, and reports each reason once.
    pub(crate) fn set_limits_unknown(&mut self, instance_type: String, fault: &CloudFault) {
        let unknown = UnknownLimits { instance_type, fault: fault.to_string() };
        if self.limits_unknown.as_ref() == Some(&unknown) {
            return;
        }
        let (object, cause) = (unknown.instance_type.clone(), unknown.fault.clone());
        self.report(Severity::Error, Topic::LimitsUnknown, object, cause, NEXT_STEP);
        self.limits_unknown = Some(unknown);
    }

    /// EC2 has reported the limits. The pool may grow and shrink from now on.
    pub(crate) fn set_limits(&mut self, limits: Limits, max_pods: u32) {
        let Some(UnknownLimits { instance_type, .. }) = self.limits_unknown.take() else { return };
        self.config.max_pods = max_pods;
        self.targets = Targets::new(&self.config, &limits);
        self.targets.max_pods = self.cluster.max_pods().unwrap_or(max_pods);
        self.limits = limits;
        self.book.prefer(self.targets.unit());
        let cause = "its limits are known now";
        self.report(Severity::Info, Topic::LimitsUnknown, instance_type, cause, "");
    }
}
