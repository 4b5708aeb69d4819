//! The node of a life and its settings.

use crate::random::Rng;
use config_model::Span;
use ipnet::{IpNet, Ipv4Net};
use std::{fmt, str::FromStr};

/// The source of the pods' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Secondary addresses.
    Secondary,
    /// /28 prefixes, switched on and off, in subnets that other tenants fragment.
    Prefixes,
    /// IPv6: one /80 per ENI.
    Ipv6,
    /// Several network cards, with pods on all of them.
    Cards,
    /// New ENIs by an ENIConfig.
    Custom,
    /// New ENIs in any subnet whose tags allow it.
    Discovery,
    /// A node that becomes unschedulable.
    Unschedulable,
    /// The daemon may not change EC2.
    NotProvisioned,
    /// EC2 gets no calls at all.
    ImdsOnly,
    /// Some pods have branch ENIs of a trunk that the resource controller attaches.
    Trunk,
    /// Pods also get addresses of the node's pod CIDR, which the node loses and gets back.
    NodeCidr,
}

impl Mode {
    /// The modes from which a seed selects. Another one would change the lives of old seeds.
    pub const DRAWN: &[Self] = &[
        Self::Secondary,
        Self::Prefixes,
        Self::Ipv6,
        Self::Cards,
        Self::Custom,
        Self::Discovery,
        Self::Unschedulable,
        Self::NotProvisioned,
        Self::ImdsOnly,
    ];

    /// All modes.
    pub const ALL: &[Self] = &[
        Self::Secondary,
        Self::Prefixes,
        Self::Ipv6,
        Self::Cards,
        Self::Custom,
        Self::Discovery,
        Self::Unschedulable,
        Self::NotProvisioned,
        Self::ImdsOnly,
        Self::Trunk,
        Self::NodeCidr,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secondary => "secondary",
            Self::Prefixes => "prefixes",
            Self::Ipv6 => "ipv6",
            Self::Cards => "cards",
            Self::Custom => "custom",
            Self::Discovery => "discovery",
            Self::Unschedulable => "unschedulable",
            Self::NotProvisioned => "not-provisioned",
            Self::ImdsOnly => "imds-only",
            Self::Trunk => "trunk",
            Self::NodeCidr => "node-cidr",
        }
    }

    /// Returns whether the daemon changes EC2.
    pub(crate) fn provisions(self) -> bool {
        !matches!(self, Self::NotProvisioned | Self::ImdsOnly)
    }

    /// Returns whether pods get addresses of the primary ENI.
    pub(crate) fn uses_primary(self) -> bool {
        self != Self::Custom
    }

    /// The node's pod CIDR, outside the VPC: 13 addresses for pods.
    pub(crate) fn pod_cidr(self) -> Option<IpNet> {
        let cidr = Ipv4Net::new_assert([100, 64, 7, 0].into(), 28);
        (self == Self::NodeCidr).then_some(IpNet::V4(cidr))
    }

    /// The preferred subnet of new ENIs.
    pub(crate) fn subnet(self) -> &'static str {
        if self == Self::Custom { "more" } else { "pods" }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.iter().map(|mode| mode.name()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().find(|mode| mode.name() == text).copied();
        found.ok_or_else(|| format!("unknown mode {text:?}; the modes are {}", names()))
    }
}

/// The warm targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// `WARM_ENI_TARGET`.
    pub warm_enis: u32,
    /// `WARM_IP_TARGET`; 0 is *not set*.
    pub warm_ips: u32,
    /// `MINIMUM_IP_TARGET`; 0 is *not set*.
    pub minimum_ips: u32,
    /// `WARM_PREFIX_TARGET`; 0 is *not set*.
    pub warm_prefixes: u32,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    pub mode: Mode,
    /// Name of the instance type.
    pub instance_type: &'static str,
    /// The length of its subnet's prefix.
    pub subnet_len: u8,
    pub targets: Targets,
    /// `MAX_ENI`.
    pub max_eni: Option<u32>,
    /// True if prefixes are requested.
    pub prefixes: bool,
    /// `IP_COOLDOWN_PERIOD`.
    pub cooldown: Span,
    /// The most pods that the kubelet runs.
    pub max_pods: u32,
    /// The usual time of an attach.
    pub attach: Span,
    /// True if EC2 throttles by its documented limits.
    pub throttled: bool,
}

impl Targets {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let unset = Self { warm_enis: 1, warm_ips: 0, minimum_ips: 0, warm_prefixes: 0 };
        match rng.below(6) {
            0 | 1 => Self { warm_ips: 1 + small(rng, 9), ..unset },
            2 => Self { warm_ips: 1 + small(rng, 4), minimum_ips: 2 + small(rng, 18), ..unset },
            3 => Self { minimum_ips: 1 + small(rng, 19), ..unset },
            4 => Self { warm_enis: small(rng, 2), ..unset },
            _ => Self { warm_prefixes: 1 + small(rng, 2), ..unset },
        }
    }
}

/// A number up to `most`, usually a low one.
fn small(rng: &mut Rng, most: u32) -> u32 {
    u32::try_from(rng.skewed(0, most.into())).unwrap_or(most)
}

impl Setup {
    pub(super) fn draw(mode: Mode, rng: &mut Rng) -> Self {
        let instance_type = match mode {
            Mode::Cards => "p4d.24xlarge",
            // A node that does not use its primary ENI needs another.
            Mode::Custom => rng.pick(&["t3.medium", "c5.large", "m5.xlarge"]),
            // Few addresses of ENIs, so that pods need the CIDR.
            Mode::NodeCidr => rng.pick(&["t3.micro", "t3.small", "t3.medium"]),
            // The smallest types that can have a trunk.
            Mode::Trunk => rng.pick(&["c5.large", "c5.large", "m5.xlarge"]),
            _ => {
                let of = ["t3.medium", "t3.small", "c5.large", "c5.large", "m5.xlarge", "t3.micro"];
                rng.pick(&of)
            }
        };
        let kind = lab_cloud::InstanceType::named(instance_type);
        let (enis, per_eni) = kind.map_or((2, 2), |kind| {
            (kind.maximum_network_interfaces(), u32::from(kind.ipv4_per_interface))
        });
        let most = enis * (per_eni - 1) + 2;
        Self {
            mode,
            instance_type,
            subnet_len: rng.pick(match mode {
                // Four cards need four times as many addresses.
                Mode::Cards => &[20, 20, 21, 21, 22, 22],
                // Branches also use addresses of the subnet.
                Mode::Trunk => &[20, 22, 24, 25],
                _ => &[20, 20, 22, 24, 25, 26],
            }),
            targets: Targets::draw(rng),
            max_eni: (mode != Mode::Custom && rng.percent(15)).then(|| 1 + small(rng, 2)),
            prefixes: mode == Mode::Ipv6 || (mode == Mode::Prefixes && rng.percent(75)),
            cooldown: Span::seconds(rng.pick(&[30, 30, 10, 1, 60])),
            max_pods: if mode == Mode::Cards || (mode == Mode::Prefixes && rng.percent(70)) {
                110
            } else if rng.percent(25) {
                3 + small(rng, 27)
            } else {
                most
            },
            attach: Span::millis(rng.between(300, 6000)),
            throttled: rng.percent(70),
        }
    }
}
