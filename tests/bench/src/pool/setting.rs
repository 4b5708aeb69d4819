//! Settings that both daemons have at their start.

use config_model::{EniId, InstanceId, SecurityGroupId, Span, SubnetId, VpcId};
use ipnet::Ipv4Net;
use lab_cloud::InstanceType;

/// Settings of the pool, with amazon-vpc-cni's names if it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSetting {
    /// `ENABLE_PREFIX_DELEGATION`.
    pub prefixes: bool,
    /// `WARM_ENI_TARGET`.
    pub warm_eni: u32,
    /// `WARM_PREFIX_TARGET`.
    pub warm_prefix: u32,
    /// `WARM_IP_TARGET`; 0 is off.
    pub warm_ip: u32,
    /// `MINIMUM_IP_TARGET`; 0 is off.
    pub minimum_ip: u32,
    /// `FERRULE_ANTICIPATE=pods`. amazon-vpc-cni has no such setting.
    pub anticipate: bool,
}

/// `IP_COOLDOWN_PERIOD`, the same for both.
pub(crate) const COOLDOWN: Span = Span::seconds(30);

impl PoolSetting {
    /// The defaults of the manifest.
    pub const fn defaults(prefixes: bool) -> Self {
        Self { prefixes, warm_eni: 1, warm_prefix: 1, warm_ip: 0, minimum_ip: 0, anticipate: false }
    }

    /// The same settings with announced pods.
    pub const fn announced(self) -> Self {
        Self { anticipate: true, ..self }
    }

    /// The defaults with address targets.
    pub const fn addresses(prefixes: bool, warm_ip: u32, minimum_ip: u32) -> Self {
        Self { warm_ip, minimum_ip, ..Self::defaults(prefixes) }
    }
}

/// The node of a daemon.
#[derive(Clone, Debug)]
pub(crate) struct NodeSetting {
    pub(crate) instance: InstanceId,
    pub(crate) kind: &'static InstanceType,
    pub(crate) vpc: VpcId,
    pub(crate) zone: String,
    pub(crate) subnet: SubnetId,
    pub(crate) subnet_cidr: Ipv4Net,
    pub(crate) primary_eni: EniId,
    pub(crate) groups: Vec<SecurityGroupId>,
    pub(crate) max_pods: u32,
}

impl NodeSetting {
    /// Maximum number of ENIs on card 0.
    pub(crate) fn max_enis(&self) -> u16 {
        self.kind.interfaces_of_card(0).unwrap_or(1)
    }

    /// Addresses or prefixes of one ENI besides its primary address.
    pub(crate) fn slots_per_eni(&self) -> u16 {
        self.kind.ipv4_per_interface.saturating_sub(1)
    }
}
