//! Conversion between the messages and the wire. It checks messages that arrive; messages that leave are valid by their
//! types.

pub(crate) mod host_end;

use super::{
    Assignment, Branch, Collect, Collected, Confirm, Enforcing, Malformed, Pod, PodAddress,
    PoolStatus, Reason, Refusal, Release, ReleaseCause, Released, Reservation, Reserve,
    ReserveOutcome,
};
use crate::{Enforcer, Versions, wire};
use config_model::{DeviceIndex, EnforcingMode, EniId, PodKey, PodName, RuleLayout, Span, TableId};
use std::{net::IpAddr, path::PathBuf, str::FromStr};

impl From<Versions> for wire::Versions {
    fn from(Versions { oldest, newest }: Versions) -> Self {
        Self { oldest, newest }
    }
}

impl From<PodKey> for wire::Key {
    fn from(PodKey { network, container_id, ifname }: PodKey) -> Self {
        Self { network, container_id, ifname }
    }
}

impl From<Pod> for wire::Pod {
    fn from(pod: Pod) -> Self {
        Self {
            namespace: pod.name.namespace,
            name: pod.name.name,
            uid: pod.uid.unwrap_or_default(),
            infra_container_id: pod.infra_container_id.unwrap_or_default(),
        }
    }
}

impl From<PodAddress> for wire::Address {
    fn from(address: PodAddress) -> Self {
        Self {
            ipv4: address.ipv4.map(|ip| ip.to_string()).unwrap_or_default(),
            ipv6: address.ipv6.map(|ip| ip.to_string()).unwrap_or_default(),
            device_number: i32::from(address.device.0),
            route_table: address.table.0,
            eni: address.eni.map(|eni| eni.as_str().to_owned()).unwrap_or_default(),
        }
    }
}

impl TryFrom<wire::Address> for PodAddress {
    type Error = Malformed;

    fn try_from(sent: wire::Address) -> Result<Self, Malformed> {
        if sent.ipv4.is_empty() && sent.ipv6.is_empty() {
            return Err(malformed("address of", sent.eni, "one with an IPv4 or IPv6 part"));
        }
        let device = u16::try_from(sent.device_number).map_err(|_| {
            malformed("device number", sent.device_number, "a number from 0 to 65535")
        })?;
        if sent.route_table == 0 {
            return Err(malformed("route table", sent.route_table, "a table's number"));
        }
        Ok(Self {
            ipv4: optional("IPv4 address", &sent.ipv4, "an IPv4 address without a mask")?,
            ipv6: optional("IPv6 address", &sent.ipv6, "an IPv6 address without a mask")?,
            device: DeviceIndex(device),
            table: TableId(sent.route_table),
            eni: Some(sent.eni).filter(|eni| !eni.is_empty()).map(EniId::new),
        })
    }
}

fn key(sent: Option<wire::Key>) -> Result<PodKey, Malformed> {
    let sent = sent.ok_or_else(|| malformed("key", "", "present"))?;
    PodKey::new(sent.network, sent.container_id, sent.ifname).map_err(|e| Malformed {
        field: e.field,
        value: e.value,
        wanted: "as the CNI spec asks",
    })
}

fn pod(sent: wire::Pod) -> Result<Pod, Malformed> {
    for (field, text) in [("pod namespace", &sent.namespace), ("pod name", &sent.name)] {
        if text.is_empty() {
            return Err(malformed(field, text, "a name"));
        }
    }
    Ok(Pod {
        name: PodName { namespace: sent.namespace, name: sent.name },
        uid: present(sent.uid),
        infra_container_id: present(sent.infra_container_id),
    })
}

impl Reserve {
    pub(crate) fn into_wire(self, versions: Versions) -> wire::ReserveRequest {
        wire::ReserveRequest {
            versions: Some(versions.into()),
            key: Some(self.key.into()),
            pod: Some(self.pod.into()),
            netns: self.netns,
            wait_ms: u32::try_from(self.wait.0).unwrap_or(u32::MAX),
            multi_nic: self.multi_nic,
            awaits_agent: true,
            host_end_modes: host_end::supported(),
        }
    }
}

impl TryFrom<wire::ReserveRequest> for Reserve {
    type Error = Malformed;

    fn try_from(sent: wire::ReserveRequest) -> Result<Self, Malformed> {
        let pod = pod(sent.pod.ok_or_else(|| malformed("pod", "", "present"))?)?;
        // Only here: a DEL of any pod must succeed.
        for (field, text) in [("pod namespace", &pod.name.namespace), ("pod name", &pod.name.name)]
        {
            if text.len() > NAME_MAX {
                let start: String = text.chars().take(NAME_SHOWN).collect();
                return Err(malformed(field, start, "a name of at most 253 bytes"));
            }
        }
        Ok(Self {
            key: key(sent.key)?,
            pod,
            netns: sent.netns,
            wait: Span::millis(u64::from(sent.wait_ms)),
            multi_nic: sent.multi_nic,
        })
    }
}

impl From<ReserveOutcome> for wire::reserve_reply::Outcome {
    fn from(outcome: ReserveOutcome) -> Self {
        match outcome {
            ReserveOutcome::Reserved(held) => {
                let (host_end_mode, gateway_port) = host_end::to_wire(held.host_end);
                Self::Reserved(wire::Reservation {
                    addresses: held.addresses.into_iter().map(Into::into).collect(),
                    vpc_v4_cidrs: held.vpc_v4_cidrs.iter().map(ToString::to_string).collect(),
                    use_external_snat: held.use_external_snat,
                    rules: wire::RuleLayout::from(held.rules).into(),
                    egress: held.egress,
                    host_end_mode,
                    gateway_port,
                })
            }
            ReserveOutcome::ReservedBranch(branch) => Self::Branch(branch.into()),
            ReserveOutcome::Refused(refusal) => Self::Refused(wire::Refusal {
                reason: wire::refusal::Reason::from(refusal.reason).into(),
                message: refusal.message,
                next_step: refusal.next_step,
            }),
        }
    }
}

impl TryFrom<wire::ReserveReply> for ReserveOutcome {
    type Error = Malformed;

    fn try_from(reply: wire::ReserveReply) -> Result<Self, Malformed> {
        use wire::reserve_reply::Outcome;
        match reply.outcome {
            Some(Outcome::Reserved(sent)) => reservation(sent).map(Self::Reserved),
            Some(Outcome::Branch(sent)) => sent.try_into().map(Self::ReservedBranch),
            Some(Outcome::Refused(sent)) => Ok(Self::Refused(Refusal {
                reason: sent.reason().into(),
                message: sent.message,
                next_step: sent.next_step,
            })),
            None => Err(malformed("outcome", "", "a reservation or a refusal")),
        }
    }
}

fn reservation(sent: wire::Reservation) -> Result<Reservation, Malformed> {
    if sent.addresses.is_empty() {
        return Err(malformed("addresses", "", "at least one address"));
    }
    let rules = sent.rules().into();
    let ranges = sent.vpc_v4_cidrs.iter().map(|text| parse("VPC range", text, "an IPv4 prefix"));
    Ok(Reservation {
        addresses: addresses(sent.addresses)?,
        vpc_v4_cidrs: ranges.collect::<Result<_, _>>()?,
        use_external_snat: sent.use_external_snat,
        rules,
        egress: sent.egress,
        host_end: host_end::from_wire(sent.host_end_mode, sent.gateway_port)?,
    })
}

impl From<RuleLayout> for wire::RuleLayout {
    fn from(layout: RuleLayout) -> Self {
        match layout {
            RuleLayout::PerPod => Self::PerPod,
            RuleLayout::Compact => Self::Compact,
        }
    }
}

impl From<wire::RuleLayout> for RuleLayout {
    fn from(sent: wire::RuleLayout) -> Self {
        match sent {
            wire::RuleLayout::PerPod => Self::PerPod,
            wire::RuleLayout::Compact => Self::Compact,
        }
    }
}

impl From<Branch> for wire::Branch {
    fn from(branch: Branch) -> Self {
        let of_v4 = |ip: IpAddr| if ip.is_ipv4() { ip.to_string() } else { String::new() };
        let of_v6 = |ip: IpAddr| if ip.is_ipv6() { ip.to_string() } else { String::new() };
        let enforcing = match branch.enforcing {
            Enforcing::Strict => wire::branch::Enforcing::Strict,
            Enforcing::Standard => wire::branch::Enforcing::Standard,
        };
        Self {
            eni: branch.eni.as_str().to_owned(),
            mac: branch.mac.to_string(),
            vlan: u32::from(branch.vlan),
            ipv4: of_v4(branch.address),
            ipv6: of_v6(branch.address),
            ipv4_gateway: of_v4(branch.gateway),
            ipv6_gateway: of_v6(branch.gateway),
            trunk_mac: branch.trunk.to_string(),
            enforcing: enforcing.into(),
        }
    }
}

impl TryFrom<wire::Branch> for Branch {
    type Error = Malformed;

    fn try_from(sent: wire::Branch) -> Result<Self, Malformed> {
        let enforcing = match sent.enforcing() {
            wire::branch::Enforcing::Strict => Enforcing::Strict,
            wire::branch::Enforcing::Standard => Enforcing::Standard,
            // To guess here would be to open or to close a pod.
            wire::branch::Enforcing::Unspecified => {
                return Err(malformed("enforcing mode", sent.enforcing, "strict or standard"));
            }
        };
        let vlan = u16::try_from(sent.vlan).ok().filter(|vlan| (1..=4094).contains(vlan));
        let (address, gateway) = match (sent.ipv4.is_empty(), sent.ipv6.is_empty()) {
            (false, true) => (&sent.ipv4, &sent.ipv4_gateway),
            (true, false) => (&sent.ipv6, &sent.ipv6_gateway),
            (true, true) | (false, false) => {
                return Err(malformed("branch", sent.eni, "one with an address of one family"));
            }
        };
        let address: IpAddr = parse("address", address, "an address without a mask")?;
        let gateway: IpAddr = parse("gateway", gateway, "an address without a mask")?;
        if address.is_ipv4() != gateway.is_ipv4() {
            return Err(malformed("gateway", gateway, "of the address's family"));
        }
        Ok(Self {
            mac: parse("MAC address", &sent.mac, "a MAC address")?,
            vlan: vlan.ok_or_else(|| malformed("VLAN", sent.vlan, "from 1 to 4094"))?,
            trunk: parse("trunk MAC address", &sent.trunk_mac, "a MAC address")?,
            address,
            gateway,
            enforcing,
            eni: EniId::new(sent.eni),
        })
    }
}

impl From<Reason> for wire::refusal::Reason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::TryAgain => Self::TryAgain,
            Reason::Exhausted => Self::Exhausted,
            Reason::Invalid => Self::Invalid,
            Reason::Stopping => Self::Stopping,
        }
    }
}

impl From<wire::refusal::Reason> for Reason {
    fn from(sent: wire::refusal::Reason) -> Self {
        match sent {
            wire::refusal::Reason::Unspecified | wire::refusal::Reason::TryAgain => Self::TryAgain,
            wire::refusal::Reason::Exhausted => Self::Exhausted,
            wire::refusal::Reason::Invalid => Self::Invalid,
            wire::refusal::Reason::Stopping => Self::Stopping,
        }
    }
}

impl Confirm {
    pub(crate) fn into_wire(self, versions: Versions) -> wire::ConfirmRequest {
        wire::ConfirmRequest {
            versions: Some(versions.into()),
            key: Some(self.key.into()),
            host_interface: self.host_interface,
        }
    }
}

impl TryFrom<wire::ConfirmRequest> for Confirm {
    type Error = Malformed;

    fn try_from(sent: wire::ConfirmRequest) -> Result<Self, Malformed> {
        let fits = (1..=15).contains(&sent.host_interface.len());
        if !fits || sent.host_interface.contains(|c: char| c == '/' || c.is_whitespace()) {
            return Err(malformed("host interface", sent.host_interface, "an interface name"));
        }
        Ok(Self { key: key(sent.key)?, host_interface: sent.host_interface })
    }
}

impl Release {
    pub(crate) fn into_wire(self, versions: Versions) -> wire::ReleaseRequest {
        let cause = match self.cause {
            ReleaseCause::PodDeleted => wire::release_request::Cause::PodDeleted,
            ReleaseCause::SetupFailed => wire::release_request::Cause::SetupFailed,
        };
        wire::ReleaseRequest {
            versions: Some(versions.into()),
            key: Some(self.key.into()),
            pod: self.pod.map(Into::into),
            cause: cause.into(),
        }
    }
}

impl TryFrom<wire::ReleaseRequest> for Release {
    type Error = Malformed;

    /// A cause from a newer plugin counts as the pod's deletion: the address comes back either way.
    fn try_from(sent: wire::ReleaseRequest) -> Result<Self, Malformed> {
        use wire::release_request::Cause;
        let cause = match sent.cause() {
            Cause::SetupFailed => ReleaseCause::SetupFailed,
            Cause::PodDeleted | Cause::Unspecified => ReleaseCause::PodDeleted,
        };
        Ok(Self { key: key(sent.key)?, pod: sent.pod.map(pod).transpose()?, cause })
    }
}

impl TryFrom<wire::ReleaseReply> for Released {
    type Error = Malformed;

    fn try_from(reply: wire::ReleaseReply) -> Result<Self, Malformed> {
        if reply.known { addresses(reply.addresses).map(Self::Known) } else { Ok(Self::Unknown) }
    }
}

/// The component that enforces policy. Without a socket it could not be asked, and the pod would be open.
pub(crate) fn enforcer(
    policy_agent: Option<wire::PolicyAgent>,
    own: Option<wire::Agent>,
) -> Result<Option<Enforcer>, Malformed> {
    if let Some(wire::Agent { socket, mode }) = own {
        let socket = absolute("agent", socket)?;
        return Ok(Some(Enforcer::FerruleAgent { socket, mode: mode_of(&mode) }));
    }
    let Some(wire::PolicyAgent { socket, mode }) = policy_agent else { return Ok(None) };
    let socket = absolute("policy agent", socket)?;
    Ok(Some(Enforcer::NetworkPolicyAgent { socket, mode: mode_of(&mode) }))
}

fn absolute(field: &'static str, socket: String) -> Result<PathBuf, Malformed> {
    match socket.starts_with('/') {
        true => Ok(socket.into()),
        false => Err(malformed(field, socket, "an absolute path")),
    }
}

/// An unknown mode is strict: it starts no pod that another mode would not start.
fn mode_of(text: &str) -> EnforcingMode {
    text.parse().unwrap_or(EnforcingMode::Strict)
}

#[cfg(feature = "server")]
pub(crate) fn enforcer_to_wire(
    enforcer: Option<Enforcer>,
) -> (Option<wire::PolicyAgent>, Option<wire::Agent>) {
    let text = |socket: PathBuf| socket.to_string_lossy().into_owned();
    match enforcer {
        Some(Enforcer::NetworkPolicyAgent { socket, mode }) => {
            let agent = wire::PolicyAgent { socket: text(socket), mode: mode.to_string() };
            (Some(agent), None)
        }
        Some(Enforcer::FerruleAgent { socket, mode }) => {
            (None, Some(wire::Agent { socket: text(socket), mode: mode.to_string() }))
        }
        None => (None, None),
    }
}

pub(crate) fn inspect_request(key: PodKey, versions: Versions) -> wire::InspectRequest {
    wire::InspectRequest { versions: Some(versions.into()), key: Some(key.into()) }
}

pub(crate) fn held(reply: wire::InspectReply) -> Result<Option<Assignment>, Malformed> {
    if !reply.known {
        return Ok(None);
    }
    let (confirmed, rules) = (reply.confirmed, reply.rules().into());
    let host_end = host_end::from_wire(reply.host_end_mode, reply.gateway_port)?;
    let branch = reply.branch.map(TryInto::try_into).transpose()?;
    let addresses = addresses(reply.addresses)?;
    let pod = reply.pod.map(|pod| PodName { namespace: pod.namespace, name: pod.name });
    Ok(Some(Assignment { pod, addresses, branch, confirmed, rules, host_end }))
}

pub(crate) fn status_request(versions: Versions) -> wire::StatusRequest {
    wire::StatusRequest { versions: Some(versions.into()) }
}

impl From<wire::StatusReply> for PoolStatus {
    fn from(reply: wire::StatusReply) -> Self {
        Self { unavailable: reply.unavailable, impaired: reply.impaired }
    }
}

impl From<PodKey> for wire::Attachment {
    fn from(PodKey { container_id, ifname, .. }: PodKey) -> Self {
        Self { container_id, ifname }
    }
}

fn attached(network: &str, sent: Option<wire::Attachment>) -> Result<PodKey, Malformed> {
    let sent = sent.ok_or_else(|| malformed("attachment", "", "present"))?;
    let wire::Attachment { container_id, ifname } = sent;
    key(Some(wire::Key { network: network.to_owned(), container_id, ifname }))
}

impl Collect {
    pub(crate) fn into_wire(self, versions: Versions) -> wire::CollectRequest {
        wire::CollectRequest {
            versions: Some(versions.into()),
            network: self.network,
            valid: self.valid.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<wire::CollectRequest> for Collect {
    type Error = Malformed;

    /// One entry that cannot be read refuses the whole: what it stood for would be released.
    fn try_from(sent: wire::CollectRequest) -> Result<Self, Malformed> {
        if sent.network.is_empty() {
            return Err(malformed("network name", sent.network, "a name"));
        }
        let valid = sent.valid.into_iter().map(|valid| attached(&sent.network, Some(valid)));
        Ok(Self { valid: valid.collect::<Result<_, _>>()?, network: sent.network })
    }
}

pub(crate) fn collected(network: &str, reply: wire::CollectReply) -> Result<Collected, Malformed> {
    let released = reply.released.into_iter().map(|released| {
        Ok((attached(network, released.attachment)?, addresses(released.addresses)?))
    });
    let spared = reply.spared.into_iter().map(|spared| attached(network, Some(spared)));
    let failed = reply.failed.into_iter();
    let failed = failed.map(|failed| Ok((attached(network, failed.attachment)?, failed.why)));
    Ok(Collected {
        released: released.collect::<Result<_, Malformed>>()?,
        spared: spared.collect::<Result<_, _>>()?,
        failed: failed.collect::<Result<_, Malformed>>()?,
    })
}

fn addresses(sent: Vec<wire::Address>) -> Result<Vec<PodAddress>, Malformed> {
    sent.into_iter().map(TryInto::try_into).collect()
}

fn optional<T: FromStr>(
    field: &'static str,
    text: &str,
    wanted: &'static str,
) -> Result<Option<T>, Malformed> {
    if text.is_empty() { Ok(None) } else { parse(field, text, wanted).map(Some) }
}

fn parse<T: FromStr>(
    field: &'static str,
    text: &str,
    wanted: &'static str,
) -> Result<T, Malformed> {
    text.parse().map_err(|_| malformed(field, text, wanted))
}

fn present(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The longest name of a Kubernetes object in bytes. The daemon's checkpoint has a limit for each record.
const NAME_MAX: usize = 253;
/// The characters of a longer name in a message.
const NAME_SHOWN: usize = 64;

fn malformed(field: &'static str, value: impl ToString, wanted: &'static str) -> Malformed {
    Malformed { field, value: value.to_string(), wanted }
}

/// The conversions of the daemon's side.
#[cfg(feature = "server")]
pub(crate) mod reply {
    use super::{
        Assignment, Collected, Enforcer, Malformed, PodKey, PoolStatus, Released, Versions, wire,
    };

    /// Returns the versions of a request. A request without versions gets a range that shares no version with any
    /// build.
    pub(crate) fn versions(sent: Option<wire::Versions>) -> Versions {
        let wire::Versions { oldest, newest } = sent.unwrap_or_default();
        Versions { oldest, newest }
    }

    pub(crate) fn inspected_key(sent: wire::InspectRequest) -> Result<PodKey, Malformed> {
        super::key(sent.key)
    }

    pub(crate) fn released(
        released: Released,
        enforcer: Option<Enforcer>,
        version: u32,
    ) -> wire::ReleaseReply {
        let (known, held) = match released {
            Released::Known(held) => (true, held),
            Released::Unknown => (false, Vec::new()),
        };
        let addresses = held.into_iter().map(Into::into).collect();
        let (policy_agent, agent) = super::enforcer_to_wire(enforcer);
        wire::ReleaseReply { version, known, addresses, policy_agent, agent }
    }

    pub(crate) fn status(status: PoolStatus, version: u32) -> wire::StatusReply {
        let PoolStatus { unavailable, impaired } = status;
        wire::StatusReply { version, unavailable, impaired }
    }

    pub(crate) fn collected(collected: Collected, version: u32) -> wire::CollectReply {
        let Collected { released, spared, failed } = collected;
        let released = released.into_iter().map(|(key, held)| wire::Collected {
            attachment: Some(key.into()),
            addresses: held.into_iter().map(Into::into).collect(),
        });
        let failed = failed
            .into_iter()
            .map(|(key, why)| wire::Uncollected { attachment: Some(key.into()), why });
        wire::CollectReply {
            version,
            released: released.collect(),
            spared: spared.into_iter().map(Into::into).collect(),
            failed: failed.collect(),
        }
    }

    pub(crate) fn inspected(held: Option<Assignment>, version: u32) -> wire::InspectReply {
        match held {
            Some(Assignment { pod, addresses, branch, confirmed, rules, host_end }) => {
                let pod = pod.map(|pod| wire::Pod {
                    namespace: pod.namespace,
                    name: pod.name,
                    ..wire::Pod::default()
                });
                let (host_end_mode, gateway_port) = super::host_end::to_wire(host_end);
                let addresses = addresses.into_iter().map(Into::into).collect();
                let branch = branch.map(Into::into);
                let rules = wire::RuleLayout::from(rules).into();
                wire::InspectReply {
                    version,
                    known: true,
                    confirmed,
                    addresses,
                    branch,
                    rules,
                    host_end_mode,
                    gateway_port,
                    pod,
                }
            }
            None => wire::InspectReply { version, ..Default::default() },
        }
    }
}

#[cfg(test)]
mod tests;
