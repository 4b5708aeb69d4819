//! A cloud that carries out calls, or fails as a test requires.

use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, Mac, Span, SubnetId, Time,
};
use ipamd_core::{
    Action, AttachmentState, BranchEni, CloudAnswer, CloudCall, CloudFault, EniKind, Leftover,
    Remedy, SeenAttachment, SeenEni, SeenSubnet, Want, Witness,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
};

/// The fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refused before anything happened.
    Throttle,
    /// Done, and the reply lost.
    LoseReply,
    /// Lost on its way there.
    LoseCall,
    /// Not permitted.
    Deny,
    /// The ENI is full below the limit of its type.
    Full,
}

pub(crate) struct CloudEni {
    pub(crate) seen: SeenEni,
    token: String,
    /// The time when the link appears; `None` if the fault prevents it.
    pub(crate) there_at: Option<Time>,
}

pub(crate) struct Cloud {
    pub(crate) enis: BTreeMap<EniId, CloudEni>,
    pub(crate) per_eni: u16,
    pub(crate) max_enis: usize,
    /// The free addresses of the subnet. They are taken from the front and returned to the front, so that a returned
    /// address is reused as soon as possible.
    pub(crate) subnet: VecDeque<Ipv4Addr>,
    /// Whole prefixes that it still has, beside those addresses.
    pub(crate) prefixes: VecDeque<Ipv4Net>,
    /// IPv6 prefixes that were given.
    prefixes_v6: u16,
    /// The other subnets of the zone.
    pub(crate) others: BTreeMap<SubnetId, VecDeque<Ipv4Addr>>,
    pub(crate) subnet_tags: BTreeMap<SubnetId, BTreeMap<String, String>>,
    /// ENIs of other cards than card 0, at most on each.
    pub(crate) other_cards: usize,
    /// ENIs that some node left behind.
    pub(crate) leftovers: Vec<Leftover>,
    /// The branch ENIs of the trunk.
    pub(crate) branches: Vec<SeenEni>,
    /// Subnets that refuse, whatever they have.
    pub(crate) subnet_refuses: BTreeSet<SubnetId>,
    /// EC2 accepts `DeleteOnTermination` and forgets it, so often.
    pub(crate) forgets_keeping: u32,
    /// Returned addresses that another instance has taken meanwhile would be here.
    pub(crate) log: Vec<(Time, CloudCall)>,
    /// The faults of the next calls of an action.
    pub(crate) faults: BTreeMap<Action, VecDeque<Fault>>,
    /// The faults of the next calls of any kind; `None` is a call without a fault.
    pub(crate) any_faults: VecDeque<Option<Fault>>,
    pub(crate) attach_takes: Span,
    pub(crate) attaches_never_complete: bool,
    pub(crate) taken_devices: BTreeSet<DeviceIndex>,
    pub(crate) lag: BTreeMap<Witness, Span>,
    history: Vec<(Time, Vec<SeenEni>)>,
    made: u32,
}

fn fault(code: &str, remedy: Remedy) -> CloudFault {
    CloudFault { code: code.into(), message: format!("the test's {code}"), remedy }
}

fn single(address: Ipv4Addr) -> IpNet {
    IpNet::from(IpAddr::V4(address))
}

/// The subnet that every ENI starts in.
fn home() -> SubnetId {
    SubnetId::from("subnet-1")
}

/// The range of a subnet: the number in its name is the second byte, less one.
pub(crate) fn range_of(subnet: &SubnetId) -> Ipv4Net {
    let number: u8 = subnet.as_str().trim_start_matches("subnet-").parse().unwrap();
    Ipv4Net::new(Ipv4Addr::new(10, number - 1, 0, 0), 16).unwrap()
}

fn range_v6() -> Ipv6Net {
    "fd00:0:0:1::/64".parse().unwrap()
}

fn instance() -> InstanceId {
    InstanceId::from("i-1")
}

impl Cloud {
    pub(crate) fn new(max_enis: u16, ipv4_per_eni: u16, primary_addresses: u16) -> Self {
        let mut cloud = Self {
            enis: BTreeMap::new(),
            per_eni: ipv4_per_eni - 1,
            max_enis: usize::from(max_enis),
            subnet: (10..4000_u32).map(|n| Ipv4Addr::from(0x0a00_0000 + n)).collect(),
            prefixes: (0..64_u32)
                .map(|n| Ipv4Net::new(Ipv4Addr::from(0x0a00_8000 + 16 * n), 28).unwrap())
                .collect(),
            prefixes_v6: 0,
            others: BTreeMap::new(),
            subnet_tags: BTreeMap::new(),
            other_cards: 0,
            leftovers: Vec::new(),
            branches: Vec::new(),
            subnet_refuses: BTreeSet::new(),
            forgets_keeping: 0,
            log: Vec::new(),
            faults: BTreeMap::new(),
            any_faults: VecDeque::new(),
            attach_takes: Span::seconds(1),
            attaches_never_complete: false,
            taken_devices: BTreeSet::new(),
            lag: BTreeMap::new(),
            history: Vec::new(),
            made: 0,
        };
        let tag = ("node.k8s.amazonaws.com/instance_id".to_owned(), "i-1".to_owned());
        let primary = cloud.make("primary", &home(), Want::Addresses(primary_addresses)).unwrap();
        cloud.enis.get_mut(&primary).unwrap().seen.tags = Some(BTreeMap::from([tag]));
        cloud.put(&primary, CardIndex(0), DeviceIndex(0), Some(Time(0)));
        cloud.enis.get_mut(&primary).unwrap().seen.attachment.as_mut().unwrap().state =
            AttachmentState::Attached;
        cloud.remember(Time(0));
        cloud
    }

    pub(crate) fn primary(&self) -> EniId {
        EniId::from("eni-1")
    }

    fn make(&mut self, token: &str, subnet: &SubnetId, want: Want) -> Result<EniId, CloudFault> {
        let primary_address = self.take(subnet, 1)?.pop_front();
        let blocks = match self.blocks(subnet, want) {
            Ok(blocks) => blocks,
            Err(fault) => {
                self.free(subnet).extend(primary_address);
                return Err(fault);
            }
        };
        self.made += 1;
        let id = EniId::new(format!("eni-{}", self.made));
        let number = u8::try_from(self.made % 250).unwrap();
        let seen = SeenEni {
            id: id.clone(),
            mac: Mac([2, 0, 0, 0, 0, number]),
            subnet: subnet.clone(),
            subnet_cidr: None,
            subnet_cidr_v6: None,
            primary_address,
            ipv6_addresses: Vec::new(),
            blocks,
            attachment: None,
            kind: Some(EniKind::Standard),
            groups: Some(vec!["sg-1".into()]),
            tags: Some(BTreeMap::new()),
        };
        self.enis.insert(id.clone(), CloudEni { seen, token: token.into(), there_at: None });
        Ok(id)
    }

    /// The free addresses of a subnet.
    pub(crate) fn free(&mut self, subnet: &SubnetId) -> &mut VecDeque<Ipv4Addr> {
        if *subnet == home() { &mut self.subnet } else { self.others.get_mut(subnet).unwrap() }
    }

    fn take(&mut self, subnet: &SubnetId, count: u16) -> Result<VecDeque<Ipv4Addr>, CloudFault> {
        if *subnet != home() && !self.others.contains_key(subnet) {
            return Err(fault("InvalidSubnetID.NotFound", Remedy::Gone));
        }
        let refuses = self.subnet_refuses.contains(subnet);
        let free = self.free(subnet);
        if refuses || free.len() < usize::from(count) {
            return Err(fault("InsufficientFreeAddressesInSubnet", Remedy::TryElsewhere));
        }
        Ok(free.drain(..usize::from(count)).collect())
    }

    fn blocks(&mut self, subnet: &SubnetId, want: Want) -> Result<Vec<IpNet>, CloudFault> {
        match want {
            Want::Addresses(count) => {
                Ok(self.take(subnet, count)?.into_iter().map(single).collect())
            }
            Want::Prefixes(count) => {
                if self.prefixes.len() < usize::from(count) {
                    return Err(fault("InsufficientCidrBlocks", Remedy::TryElsewhere));
                }
                Ok(self.prefixes.drain(..usize::from(count)).map(IpNet::V4).collect())
            }
            Want::Ipv6Prefixes(count) => {
                let given = (0..count).map(|_| {
                    self.prefixes_v6 += 1;
                    let mut bytes = range_v6().network().octets();
                    bytes[8..10].copy_from_slice(&self.prefixes_v6.to_be_bytes());
                    IpNet::V6(Ipv6Net::new(bytes.into(), 80).unwrap())
                });
                Ok(given.collect())
            }
        }
    }

    fn give_back(&mut self, block: &IpNet) {
        match block {
            IpNet::V4(net) if net.prefix_len() == 32 => {
                let of = |subnet: &SubnetId| range_of(subnet).contains(&net.addr());
                let other = self.others.keys().find(|subnet| of(subnet)).cloned();
                self.free(&other.unwrap_or_else(home)).push_front(net.addr());
            }
            IpNet::V4(net) => self.prefixes.push_front(*net),
            IpNet::V6(_) => {}
        }
    }

    fn put(&mut self, id: &EniId, card: CardIndex, device: DeviceIndex, there_at: Option<Time>) {
        let eni = self.enis.get_mut(id).unwrap();
        eni.there_at = there_at;
        eni.seen.attachment = Some(SeenAttachment {
            id: Some(AttachmentId::new(format!("attach-{id}"))),
            instance: instance(),
            card,
            device,
            state: AttachmentState::Attaching,
            delete_on_termination: Some(false),
        });
    }

    /// The instance was launched just now: lagging witnesses do not know of it yet.
    pub(crate) fn launch_again(&mut self, now: Time) {
        self.history = vec![(Time(0), Vec::new())];
        self.remember(now);
    }

    /// Somebody else attaches an ENI.
    pub(crate) fn attach_foreign(&mut self, device: u16, addresses: u16, now: Time) -> EniId {
        self.attach_other(CardIndex(0), device, EniKind::Standard, addresses, now)
    }

    /// Somebody else attaches an ENI of some kind.
    pub(crate) fn attach_other(
        &mut self,
        card: CardIndex,
        device: u16,
        kind: EniKind,
        addresses: u16,
        now: Time,
    ) -> EniId {
        let id = self.make("foreign", &home(), Want::Addresses(addresses)).unwrap();
        self.enis.get_mut(&id).unwrap().seen.kind = Some(kind);
        self.put(&id, card, DeviceIndex(device), Some(now));
        self.progress(now);
        self.remember(now);
        id
    }

    /// The VPC resource controller creates a branch ENI on the trunk.
    pub(crate) fn list_branch(&mut self, branch: &BranchEni, trunk: &EniId) {
        let tag = |key: &str, value: String| (format!("vpcresources.k8s.aws/{key}"), value);
        let tags =
            [tag("trunk-eni-id", trunk.to_string()), tag("vlan-id", branch.vlan.to_string())];
        self.branches.push(SeenEni {
            id: branch.eni.clone(),
            mac: branch.mac,
            subnet: home(),
            subnet_cidr: None,
            subnet_cidr_v6: None,
            primary_address: branch.address,
            ipv6_addresses: branch.address_v6.into_iter().collect(),
            blocks: Vec::new(),
            attachment: None,
            kind: Some(EniKind::Branch),
            groups: Some(vec!["sg-1".into()]),
            tags: Some(tags.into()),
        });
    }

    /// Somebody else detaches an ENI and deletes it.
    pub(crate) fn tear_off(&mut self, id: &EniId, now: Time) {
        let eni = self.enis.remove(id).unwrap();
        for block in &eni.seen.blocks {
            match block.addr() {
                IpAddr::V4(address) if block.prefix_len() == 32 => self.subnet.push_back(address),
                IpAddr::V4(_) | IpAddr::V6(_) => self.give_back(block),
            }
        }
        self.remember(now);
    }

    /// Somebody else takes an address away.
    pub(crate) fn take_address(&mut self, id: &EniId, address: IpAddr, now: Time) {
        self.take_block(id, IpNet::from(address), now);
    }

    /// Another program removes an address or a prefix. The subnet does not get it back.
    pub(crate) fn take_block(&mut self, id: &EniId, block: IpNet, now: Time) {
        self.enis.get_mut(id).unwrap().seen.blocks.retain(|b| *b != block);
        self.remember(now);
    }

    /// Another program removes a prefix, and EC2 assigns it to the next request.
    pub(crate) fn free_prefix(&mut self, id: &EniId, block: IpNet, now: Time) {
        self.take_block(id, block, now);
        self.give_back(&block);
    }

    /// Attachments that have become complete by now.
    pub(crate) fn progress(&mut self, now: Time) {
        for eni in self.enis.values_mut() {
            let there = eni.there_at.is_some_and(|at| at <= now);
            if let Some(attachment) = eni.seen.attachment.as_mut().filter(|_| there)
                && attachment.state == AttachmentState::Attaching
            {
                attachment.state = AttachmentState::Attached;
            }
        }
    }

    fn remember(&mut self, now: Time) {
        let seen = self.enis.values().map(|eni| eni.seen.clone()).collect();
        self.history.push((now, seen));
    }

    pub(crate) fn attached(&self) -> Vec<&CloudEni> {
        let mut attached: Vec<_> =
            self.enis.values().filter(|eni| eni.seen.attachment.is_some()).collect();
        attached.sort_by_key(|eni| eni.seen.attachment.as_ref().unwrap().device);
        attached
    }

    /// Returns a witness's observation: the state of a while ago.
    pub(crate) fn look(&mut self, witness: Witness, now: Time) -> Vec<SeenEni> {
        self.progress(now);
        self.remember(now);
        let mut enis = self.at(now - self.lag.get(&witness).copied().unwrap_or_default());
        enis.retain(|eni| eni.attachment.is_some());
        if witness == Witness::Imds {
            let there = |eni: &SeenEni| {
                eni.attachment.as_ref().is_some_and(|a| a.state == AttachmentState::Attached)
            };
            enis.retain(there);
            for eni in &mut enis {
                eni.subnet_cidr = Some(range_of(&eni.subnet));
                eni.subnet_cidr_v6 = Some(range_v6());
                eni.kind = None;
                eni.tags = None;
                let attachment = eni.attachment.as_mut().unwrap();
                attachment.id = None;
                attachment.delete_on_termination = None;
            }
        }
        enis
    }

    fn at(&self, then: Time) -> Vec<SeenEni> {
        let before = self.history.iter().rev().find(|(at, _)| *at <= then);
        before.or(self.history.first()).map(|(_, enis)| enis.clone()).unwrap()
    }

    /// Executes one call.
    pub(crate) fn call(&mut self, call: &CloudCall, now: Time) -> Result<CloudAnswer, CloudFault> {
        self.progress(now);
        self.log.push((now, call.clone()));
        let specific = self.faults.get_mut(&call.action()).and_then(VecDeque::pop_front);
        let befalls = specific.or_else(|| self.any_faults.pop_front().flatten());
        match befalls {
            Some(Fault::Throttle) => {
                return Err(fault("RequestLimitExceeded", Remedy::RetryAfter { wait: None }));
            }
            Some(Fault::Deny) => {
                return Err(fault("UnauthorizedOperation", Remedy::NotifyOperator));
            }
            Some(Fault::Full) => {
                return Err(fault("PrivateIpAddressLimitExceeded", Remedy::LimitReached));
            }
            Some(Fault::LoseCall) => return Err(fault("Timeout", Remedy::Unknown)),
            Some(Fault::LoseReply) | None => {}
        }
        let result = self.execute(call, now);
        self.remember(now);
        if befalls == Some(Fault::LoseReply) {
            return Err(fault("Timeout", Remedy::Unknown));
        }
        result
    }

    fn execute(&mut self, call: &CloudCall, now: Time) -> Result<CloudAnswer, CloudFault> {
        match call {
            CloudCall::CreateEni { token, want, tags, subnet, groups, .. } => {
                let known = self.enis.values().find(|eni| eni.token == *token);
                if let Some(eni) = known {
                    return Ok(CloudAnswer::Created(eni.seen.clone()));
                }
                let id = self.make(token, subnet, *want)?;
                let seen = &mut self.find(&id)?.seen;
                seen.tags = Some(tags.clone());
                seen.groups = Some(groups.clone());
                Ok(CloudAnswer::Created(seen.clone()))
            }
            CloudCall::AttachEni { eni, card, device, .. } => self.attach(eni, *card, *device, now),
            CloudCall::KeepUntilTermination { eni, attachment } => {
                let forgets = self.forgets_keeping;
                let found = self.find(eni)?.seen.attachment.as_mut();
                let found = found.filter(|found| found.id.as_ref() == Some(attachment));
                let gone = || fault("InvalidAttachmentID.NotFound", Remedy::Gone);
                found.ok_or_else(gone)?.delete_on_termination = Some(forgets == 0);
                self.forgets_keeping = forgets.saturating_sub(1);
                Ok(CloudAnswer::Done)
            }
            CloudCall::Assign { eni, want } => {
                let per_eni = usize::from(self.per_eni);
                let seen = &self.find(eni)?.seen;
                let (has, subnet) = (seen.blocks.len(), seen.subnet.clone());
                if has + usize::from(want.blocks()) > per_eni {
                    return Err(fault("PrivateIpAddressLimitExceeded", Remedy::LimitReached));
                }
                let blocks = self.blocks(&subnet, *want)?;
                self.find(eni)?.seen.blocks.extend(&blocks);
                Ok(CloudAnswer::Assigned { blocks })
            }
            CloudCall::Unassign { eni, blocks } => {
                let held = &mut self.find(eni)?.seen.blocks;
                if !blocks.iter().all(|block| held.contains(block)) {
                    return Err(fault("InvalidParameterValue", Remedy::NotifyOperator));
                }
                held.retain(|block| !blocks.contains(block));
                for block in blocks {
                    self.give_back(block);
                }
                Ok(CloudAnswer::Done)
            }
            CloudCall::DetachEni { eni, attachment } => {
                let found = self.find(eni)?;
                if found.seen.attachment.as_ref().and_then(|a| a.id.as_ref()) != Some(attachment) {
                    return Err(fault("InvalidAttachmentID.NotFound", Remedy::Gone));
                }
                found.seen.attachment = None;
                found.there_at = None;
                Ok(CloudAnswer::Done)
            }
            CloudCall::DeleteEni { eni } => {
                if let Some(at) = self.leftovers.iter().position(|left| left.eni == *eni) {
                    self.leftovers.remove(at);
                    return Ok(CloudAnswer::Done);
                }
                if self.find(eni)?.seen.attachment.is_some() {
                    return Err(fault("InvalidNetworkInterface.InUse", Remedy::NotifyOperator));
                }
                let gone = self.enis.remove(eni).unwrap().seen;
                self.free(&gone.subnet).extend(gone.primary_address);
                for block in &gone.blocks {
                    self.give_back(block);
                }
                Ok(CloudAnswer::Done)
            }
            CloudCall::DescribeEni { eni } => {
                let lag = self.lag.get(&Witness::Ec2).copied().unwrap_or_default();
                let then = self.at(now - lag);
                let seen = then.into_iter().find(|seen| seen.id == *eni);
                seen.map(CloudAnswer::Described)
                    .ok_or_else(|| fault("InvalidNetworkInterfaceID.NotFound", Remedy::Gone))
            }
            CloudCall::SetGroups { eni, groups } => {
                self.find(eni)?.seen.groups = Some(groups.clone());
                Ok(CloudAnswer::Done)
            }
            CloudCall::TagEni { eni, tags } => {
                self.find(eni)?.seen.tags.get_or_insert_default().extend(tags.clone());
                Ok(CloudAnswer::Done)
            }
            CloudCall::DescribeBranches { .. } => Ok(CloudAnswer::Branches(self.branches.clone())),
            CloudCall::DescribeSubnets { .. } => Ok(CloudAnswer::Subnets(self.subnets())),
            CloudCall::FindLeftovers { .. } => Ok(CloudAnswer::Leftovers(self.leftovers.clone())),
        }
    }

    fn subnets(&self) -> Vec<SeenSubnet> {
        let others = self.others.iter().map(|(id, free)| (id.clone(), free.len()));
        let all = std::iter::once((home(), self.subnet.len())).chain(others);
        all.map(|(id, free)| SeenSubnet {
            cidr: Some(range_of(&id)),
            cidr_v6: Some(range_v6()),
            free_addresses: u32::try_from(free).unwrap(),
            tags: self.subnet_tags.get(&id).cloned().unwrap_or_default(),
            id,
        })
        .collect()
    }

    fn attach(
        &mut self,
        eni: &EniId,
        card: CardIndex,
        device: DeviceIndex,
        now: Time,
    ) -> Result<CloudAnswer, CloudFault> {
        if self.find(eni)?.seen.attachment.is_some() {
            return Err(fault("InvalidNetworkInterface.InUse", Remedy::NotifyOperator));
        }
        let max = if card == CardIndex(0) { self.max_enis } else { self.other_cards };
        let places: Vec<DeviceIndex> = self.places(card);
        if places.len() >= max {
            return Err(fault("AttachmentLimitExceeded", Remedy::LimitReached));
        }
        if places.contains(&device) || self.taken_devices.contains(&device) {
            return Err(fault("InvalidParameterValue", Remedy::TryElsewhere));
        }
        let there_at = (!self.attaches_never_complete).then_some(now + self.attach_takes);
        self.put(eni, card, device, there_at);
        let id = self.enis[eni].seen.attachment.as_ref().unwrap().id.clone().unwrap();
        Ok(CloudAnswer::Attached { attachment: id })
    }

    fn find(&mut self, eni: &EniId) -> Result<&mut CloudEni, CloudFault> {
        let gone = || fault("InvalidNetworkInterfaceID.NotFound", Remedy::Gone);
        self.enis.get_mut(eni).ok_or_else(gone)
    }

    /// The places of a card that are taken.
    pub(crate) fn places(&self, card: CardIndex) -> Vec<DeviceIndex> {
        let attached = self.enis.values().filter_map(|eni| eni.seen.attachment.as_ref());
        attached.filter(|found| found.card == card).map(|found| found.device).collect()
    }

    /// The number of calls of an action.
    pub(crate) fn count(&self, action: Action) -> usize {
        self.log.iter().filter(|(_, call)| call.action() == action).count()
    }
}
