//! A cloud that does what it is told, or fails as it is told.

use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, Mac, Span, SubnetId, Time,
};
use ipamd_core::{
    Action, AttachmentState, CloudAnswer, CloudCall, CloudFault, Remedy, SeenAttachment, SeenEni,
    Want, Witness,
};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
};

/// What befalls one call.
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
}

pub(crate) struct CloudEni {
    pub(crate) seen: SeenEni,
    token: String,
    /// The link appears then; never, if the fault says so.
    pub(crate) there_at: Option<Time>,
}

pub(crate) struct Cloud {
    pub(crate) enis: BTreeMap<EniId, CloudEni>,
    pub(crate) per_eni: u16,
    pub(crate) max_enis: usize,
    /// Addresses that the subnet still has; taken from the front, returned to the front, so that
    /// a returned address comes back as soon as it can.
    pub(crate) subnet: VecDeque<Ipv4Addr>,
    /// Returned addresses that another instance has taken meanwhile would be here.
    pub(crate) log: Vec<(Time, CloudCall)>,
    /// What befalls the next calls of an action.
    pub(crate) faults: BTreeMap<Action, VecDeque<Fault>>,
    /// What befalls the next calls of any kind; `None` lets one through.
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

fn address_of(block: &IpNet) -> Ipv4Addr {
    match block {
        IpNet::V4(net) => net.addr(),
        IpNet::V6(_) => panic!("an IPv6 block of an IPv4 subnet"),
    }
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
        let primary = cloud.make("primary", primary_addresses, Some(BTreeMap::from([tag])));
        cloud.put(&primary, DeviceIndex(0), Some(Time(0)));
        cloud.enis.get_mut(&primary).unwrap().seen.attachment.as_mut().unwrap().state =
            AttachmentState::Attached;
        cloud.remember(Time(0));
        cloud
    }

    pub(crate) fn primary(&self) -> EniId {
        EniId::from("eni-1")
    }

    fn make(&mut self, token: &str, count: u16, tags: Option<BTreeMap<String, String>>) -> EniId {
        self.made += 1;
        let id = EniId::new(format!("eni-{}", self.made));
        let mut taken = self.subnet.drain(..=usize::from(count));
        let primary_address = taken.next();
        let blocks = taken.map(single).collect();
        let number = u8::try_from(self.made % 250).unwrap();
        let seen = SeenEni {
            id: id.clone(),
            mac: Mac([2, 0, 0, 0, 0, number]),
            subnet: SubnetId::from("subnet-1"),
            subnet_cidr: None,
            subnet_cidr_v6: None,
            primary_address,
            ipv6_addresses: Vec::new(),
            blocks,
            attachment: None,
            kind: None,
            groups: None,
            tags: Some(tags.unwrap_or_default()),
        };
        self.enis.insert(id.clone(), CloudEni { seen, token: token.into(), there_at: None });
        id
    }

    fn put(&mut self, id: &EniId, device: DeviceIndex, there_at: Option<Time>) {
        let eni = self.enis.get_mut(id).unwrap();
        eni.there_at = there_at;
        eni.seen.attachment = Some(SeenAttachment {
            id: Some(AttachmentId::new(format!("attach-{id}"))),
            instance: instance(),
            card: CardIndex(0),
            device,
            state: AttachmentState::Attaching,
            delete_on_termination: Some(false),
        });
    }

    /// The instance was launched just now: lagging witnesses do not know of it yet.
    pub(crate) fn born_anew(&mut self, now: Time) {
        self.history = vec![(Time(0), Vec::new())];
        self.remember(now);
    }

    /// Somebody else attaches an ENI.
    pub(crate) fn attach_foreign(&mut self, device: u16, addresses: u16, now: Time) -> EniId {
        let id = self.make("foreign", addresses, None);
        self.put(&id, DeviceIndex(device), Some(now));
        self.progress(now);
        self.remember(now);
        id
    }

    /// Somebody else detaches an ENI and deletes it.
    pub(crate) fn tear_off(&mut self, id: &EniId, now: Time) {
        let eni = self.enis.remove(id).unwrap();
        self.subnet.extend(eni.seen.blocks.iter().map(address_of));
        self.remember(now);
    }

    /// Somebody else takes an address away.
    pub(crate) fn take_address(&mut self, id: &EniId, address: IpAddr, now: Time) {
        self.enis.get_mut(id).unwrap().seen.blocks.retain(|b| *b != IpNet::from(address));
        self.remember(now);
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

    /// What a witness shows: the state of a while ago.
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
                eni.subnet_cidr = Some("10.0.0.0/16".parse().unwrap());
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
            Some(Fault::Deny) => return Err(fault("UnauthorizedOperation", Remedy::TellOperator)),
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
            CloudCall::CreateEni { token, want, tags, .. } => {
                let known = self.enis.values().find(|eni| eni.token == *token);
                if let Some(eni) = known {
                    return Ok(CloudAnswer::Created(eni.seen.clone()));
                }
                self.need(usize::from(want.blocks()) + 1)?;
                let id = self.make(token, want.blocks(), Some(tags.clone()));
                Ok(CloudAnswer::Created(self.enis[&id].seen.clone()))
            }
            CloudCall::AttachEni { eni, device, .. } => self.attach(eni, *device, now),
            CloudCall::KeepUntilTermination { eni, attachment } => {
                let found = self.find(eni)?.seen.attachment.as_mut();
                let found = found.filter(|found| found.id.as_ref() == Some(attachment));
                let gone = || fault("InvalidAttachmentID.NotFound", Remedy::Gone);
                found.ok_or_else(gone)?.delete_on_termination = Some(true);
                Ok(CloudAnswer::Done)
            }
            CloudCall::Assign { eni, want: Want::Addresses(count) } => {
                let per_eni = usize::from(self.per_eni);
                let has = self.find(eni)?.seen.blocks.len();
                if has + usize::from(*count) > per_eni {
                    return Err(fault("PrivateIpAddressLimitExceeded", Remedy::LimitReached));
                }
                self.need(usize::from(*count))?;
                let blocks: Vec<_> = self.subnet.drain(..usize::from(*count)).map(single).collect();
                self.find(eni)?.seen.blocks.extend(&blocks);
                Ok(CloudAnswer::Assigned { blocks })
            }
            CloudCall::Unassign { eni, blocks } => {
                let held = &mut self.find(eni)?.seen.blocks;
                if !blocks.iter().all(|block| held.contains(block)) {
                    return Err(fault("InvalidParameterValue", Remedy::TellOperator));
                }
                held.retain(|block| !blocks.contains(block));
                for block in blocks {
                    self.subnet.push_front(address_of(block));
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
                if self.find(eni)?.seen.attachment.is_some() {
                    return Err(fault("InvalidNetworkInterface.InUse", Remedy::TellOperator));
                }
                let gone = self.enis.remove(eni).unwrap().seen;
                self.subnet.extend(gone.primary_address);
                for block in &gone.blocks {
                    self.subnet.push_front(address_of(block));
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
            CloudCall::Assign { .. }
            | CloudCall::SetGroups { .. }
            | CloudCall::TagEni { .. }
            | CloudCall::DescribeSubnets { .. }
            | CloudCall::FindLeftovers { .. } => {
                Err(fault("UnsupportedOperation", Remedy::TellOperator))
            }
        }
    }

    fn attach(
        &mut self,
        eni: &EniId,
        device: DeviceIndex,
        now: Time,
    ) -> Result<CloudAnswer, CloudFault> {
        if self.find(eni)?.seen.attachment.is_some() {
            return Err(fault("InvalidNetworkInterface.InUse", Remedy::TellOperator));
        }
        let attached = self.attached();
        if attached.len() >= self.max_enis {
            return Err(fault("AttachmentLimitExceeded", Remedy::LimitReached));
        }
        let taken = attached
            .iter()
            .any(|eni| eni.seen.attachment.as_ref().is_some_and(|found| found.device == device));
        if taken || self.taken_devices.contains(&device) {
            return Err(fault("InvalidParameterValue", Remedy::TryElsewhere));
        }
        let there_at = (!self.attaches_never_complete).then_some(now + self.attach_takes);
        self.put(eni, device, there_at);
        let id = self.enis[eni].seen.attachment.as_ref().unwrap().id.clone().unwrap();
        Ok(CloudAnswer::Attached { attachment: id })
    }

    fn find(&mut self, eni: &EniId) -> Result<&mut CloudEni, CloudFault> {
        let gone = || fault("InvalidNetworkInterfaceID.NotFound", Remedy::Gone);
        self.enis.get_mut(eni).ok_or_else(gone)
    }

    fn need(&self, addresses: usize) -> Result<(), CloudFault> {
        if self.subnet.len() < addresses {
            return Err(fault("InsufficientFreeAddressesInSubnet", Remedy::TryElsewhere));
        }
        Ok(())
    }

    /// How many calls of an action there were.
    pub(crate) fn count(&self, action: Action) -> usize {
        self.log.iter().filter(|(_, call)| call.action() == action).count()
    }
}
