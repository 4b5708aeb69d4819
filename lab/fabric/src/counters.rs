//! Counters of the VPC's router.

use crate::{
    FabricError,
    table::{HOMELESS, SOURCES, SPOOFED, TABLE, TABLE_V6},
    tool,
};
use config_model::EniId;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Packets {
    pub packets: u64,
    /// IP headers included.
    pub bytes: u64,
}

/// Reason for which the router dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// Its source is no address of the ENI that it came from.
    SourceCheck,
    /// No egress rule of the sending ENI's groups allows it.
    GroupEgress,
    /// No ingress rule of the receiving ENI's groups allows it.
    GroupIngress,
    /// Its source has no public address and its destination is on the internet.
    NoPublicAddress,
    /// The destination is in the VPC, but no attached ENI has it.
    NoSuchAddress,
    /// A packet from the internet that is not for an instance.
    FromInternet,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::SourceCheck,
        Self::GroupEgress,
        Self::GroupIngress,
        Self::NoPublicAddress,
        Self::NoSuchAddress,
        Self::FromInternet,
    ];

    /// The name of the reason's counter in nftables.
    pub(crate) fn counter_name(self) -> &'static str {
        match self {
            Self::SourceCheck => "source_check",
            Self::GroupEgress => "group_egress",
            Self::GroupIngress => "group_ingress",
            Self::NoPublicAddress => "no_public_address",
            Self::NoSuchAddress => "no_such_address",
            Self::FromInternet => "from_internet",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceCheck => "a source that is not the ENI's",
            Self::GroupEgress => "an egress that no security group allows",
            Self::GroupIngress => "an ingress that no security group allows",
            Self::NoPublicAddress => "a source without a public address",
            Self::NoSuchAddress => "a destination that no ENI holds",
            Self::FromInternet => "coming uninvited from the internet",
        })
    }
}

/// Counters of one ENI's port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EniCounters {
    /// Packets that came from the node by this ENI, by source; every address of the ENI is listed.
    pub sources: BTreeMap<Ipv4Addr, Packets>,
    /// Packets that came from the node by this ENI and failed the source check, by source.
    pub spoofed: BTreeMap<Ipv4Addr, Packets>,
    /// IPv6 packets that came from the node by this ENI, by block; every block of the ENI is
    /// listed. They count from the last change of the packet filter on.
    #[serde(default)]
    pub sources_v6: BTreeMap<Ipv6Net, Packets>,
    /// IPv6 packets that failed the source check, by source, since then.
    #[serde(default)]
    pub spoofed_v6: BTreeMap<Ipv6Addr, Packets>,
    /// Packets towards the internet that had no public address, by source.
    pub no_public_address: BTreeMap<Ipv4Addr, Packets>,
}

/// Counters of the VPC's router since the creation of the lab. An ENI's counters end with its detachment, an
/// address's with its unassignment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// By ENI.
    pub enis: BTreeMap<EniId, EniCounters>,
    /// Drops by reason; every reason is listed.
    pub drops: BTreeMap<DropReason, Packets>,
}

impl Counters {
    /// Number of packets that were dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(&reason).map_or(0, |count| count.packets)
    }

    /// Sorts what the ruleset counted; `ports` names each ENI's port.
    pub(crate) fn of(ruleset: &Ruleset, v6: &RulesetV6, ports: &BTreeMap<String, EniId>) -> Self {
        let mut enis: BTreeMap<EniId, EniCounters> =
            ports.values().map(|eni| (eni.clone(), EniCounters::default())).collect();
        let mut sort =
            |set: &str, slot: fn(&mut EniCounters) -> &mut BTreeMap<Ipv4Addr, Packets>| {
                for ((port, source), count) in ruleset.set(set).into_iter().flatten() {
                    if let Some(eni) = ports.get(port).and_then(|eni| enis.get_mut(eni)) {
                        slot(eni).insert(*source, *count);
                    }
                }
            };
        sort(SOURCES, |eni| &mut eni.sources);
        sort(SPOOFED, |eni| &mut eni.spoofed);
        sort(HOMELESS, |eni| &mut eni.no_public_address);
        let count = |reason: DropReason| {
            let of = |counters: &BTreeMap<String, Packets>| {
                counters.get(reason.counter_name()).copied().unwrap_or_default()
            };
            let (four, six) = (of(&ruleset.counters), of(&v6.counters));
            let (packets, bytes) = (four.packets + six.packets, four.bytes + six.bytes);
            (reason, Packets { packets, bytes })
        };
        for ((port, block), count) in &v6.sources {
            if let Some(eni) = ports.get(port).and_then(|eni| enis.get_mut(eni)) {
                eni.sources_v6.insert(*block, *count);
            }
        }
        for ((port, block), count) in &v6.spoofed {
            if let Some(eni) = ports.get(port).and_then(|eni| enis.get_mut(eni)) {
                eni.spoofed_v6.insert(block.addr(), *count);
            }
        }
        Self { enis, drops: DropReason::ALL.into_iter().map(count).collect() }
    }
}

/// The elements of a counting set: port and source.
pub(crate) type Counted = BTreeMap<(String, Ipv4Addr), Packets>;

/// The fabric's table, as `nft` showed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ruleset {
    pub(crate) chains: BTreeSet<String>,
    /// Sets by name, with those elements that count.
    pub(crate) sets: BTreeMap<String, Counted>,
    /// Named counters.
    pub(crate) counters: BTreeMap<String, Packets>,
}

impl Ruleset {
    /// Runs inside the VPC namespace; empty when there is no table yet.
    pub(crate) fn observe() -> Result<Self, FabricError> {
        tool::nft_list("ip", TABLE)?.map_or_else(|| Ok(Self::default()), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Result<Self, FabricError> {
        let list: Value = tool::parse(text, "the ruleset")?;
        let mut ruleset = Self::default();
        for item in list["nftables"].as_array().into_iter().flatten() {
            let name = |kind: &str| item[kind]["name"].as_str().map(str::to_owned);
            if let Some(chain) = name("chain") {
                ruleset.chains.insert(chain);
            } else if let Some(set) = name("set") {
                ruleset.sets.insert(set, counted(&item["set"]["elem"]));
            } else if let Some(counter) = name("counter") {
                ruleset.counters.insert(counter, packets(&item["counter"]));
            }
        }
        Ok(ruleset)
    }

    /// A counting set, if it exists.
    pub(crate) fn set(&self, name: &str) -> Option<&Counted> {
        self.sets.get(name)
    }
}

/// The same of IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RulesetV6 {
    pub(crate) chains: BTreeSet<String>,
    /// Sets and maps by name, with the kind of each.
    pub(crate) sets: BTreeMap<String, &'static str>,
    /// Named counters.
    pub(crate) counters: BTreeMap<String, Packets>,
    sources: BTreeMap<(String, Ipv6Net), Packets>,
    spoofed: BTreeMap<(String, Ipv6Net), Packets>,
}

impl RulesetV6 {
    /// Runs inside the VPC namespace; empty when there is no table.
    pub(crate) fn observe() -> Result<Self, FabricError> {
        let Some(text) = tool::nft_list("ip6", TABLE_V6)? else { return Ok(Self::default()) };
        let list: Value = tool::parse(&text, "the IPv6 ruleset")?;
        let mut ruleset = Self::default();
        for item in list["nftables"].as_array().into_iter().flatten() {
            let name = |kind: &str| item[kind]["name"].as_str().map(str::to_owned);
            if let Some(chain) = name("chain") {
                ruleset.chains.insert(chain);
            } else if let Some(set) = name("set") {
                let blocks = || blocks(&item["set"]["elem"]);
                match set.as_str() {
                    SOURCES => ruleset.sources = blocks(),
                    SPOOFED => ruleset.spoofed = blocks(),
                    _ => {}
                }
                ruleset.sets.insert(set, "set");
            } else if let Some(map) = name("map") {
                ruleset.sets.insert(map, "map");
            } else if let Some(counter) = name("counter") {
                ruleset.counters.insert(counter, packets(&item["counter"]));
            }
        }
        Ok(ruleset)
    }
}

fn blocks(elements: &Value) -> BTreeMap<(String, Ipv6Net), Packets> {
    let of = |element: &Value| {
        let element = element.get("elem").unwrap_or(element);
        let pair = element.get("val").unwrap_or(element).get("concat")?;
        let at = pair.get(1)?;
        let block = match at.get("prefix") {
            Some(prefix) => {
                let length = u8::try_from(prefix["len"].as_u64()?).ok()?;
                Ipv6Net::new(prefix["addr"].as_str()?.parse().ok()?, length).ok()?
            }
            None => Ipv6Net::from(at.as_str()?.parse::<Ipv6Addr>().ok()?),
        };
        Some(((pair.get(0)?.as_str()?.to_owned(), block), packets(&element["counter"])))
    };
    elements.as_array().into_iter().flatten().filter_map(of).collect()
}

fn counted(elements: &Value) -> Counted {
    let of = |element: &Value| {
        // An element without a counter of its own is written as the bare value.
        let element = element.get("elem").unwrap_or(element);
        let value = element.get("val").unwrap_or(element);
        let pair = value.get("concat")?;
        let source = pair.get(1)?.as_str()?.parse().ok()?;
        Some(((pair.get(0)?.as_str()?.to_owned(), source), packets(&element["counter"])))
    };
    elements.as_array().into_iter().flatten().filter_map(of).collect()
}

fn packets(counter: &Value) -> Packets {
    let number = |field: &str| counter[field].as_u64().unwrap_or_default();
    Packets { packets: number("packets"), bytes: number("bytes") }
}
