//! Laws that hold for any actions in any order.

use crate::world::quiet;
use config_model::{AttachmentId, EniId, InstanceId, Span, SubnetId, Time};
use ipnet::Ipv4Net;
use lab_cloud::{
    Action, AssignIpv6Addresses, AssignPrivateIpAddresses, AssociateTrunkInterface,
    AttachNetworkInterface, AttachmentChange, AttachmentStatus, CallError, Caller, Cloud,
    CreateNetworkInterface, DeleteNetworkInterface, DescribeNetworkInterfaces,
    DescribeTrunkInterfaceAssociations, DetachNetworkInterface, EniStatus, Fault, Filter,
    InstanceState, InstanceType, InterfaceKind, Launch, ModifyNetworkInterfaceAttribute,
    NetworkInterface, Request, Response, Throttling, UnassignIpv6Addresses,
    UnassignPrivateIpAddresses,
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// One step; numbers pick among the existing objects.
#[derive(Clone, Debug)]
enum Step {
    Create { subnet: usize, count: u32, token: Option<u8> },
    CreateWithPrefixes { subnet: usize, count: u32 },
    Attach { eni: usize, instance: usize, device: u16 },
    Detach { eni: usize, force: bool },
    Delete { eni: usize },
    Assign { eni: usize, count: u32 },
    AssignPrefix { eni: usize },
    Steal { from: usize, to: usize },
    Unassign { eni: usize, keep: usize },
    KeepOrDrop { eni: usize, delete: bool },
    Launch { subnet: usize },
    Stop { instance: usize },
    Start { instance: usize },
    Reboot { instance: usize },
    Terminate { instance: usize },
    Pull { eni: usize },
    CreateWithIpv6 { subnet: usize, prefixes: u32 },
    AssignIpv6 { eni: usize, prefixes: bool },
    UnassignIpv6 { eni: usize },
    CreateTrunk { subnet: usize },
    Associate { branch: usize, trunk: usize, vlan: u16 },
    Fragment { subnet: usize },
    Take { subnet: usize, count: usize },
    Free { subnet: usize },
    LoseReply,
    Stick,
    ClearFaults,
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || 0..64_usize;
    prop_oneof![
        5 => (0..3_usize, 0..9_u32, prop::option::of(0..6_u8))
            .prop_map(|(subnet, count, token)| Step::Create { subnet, count, token }),
        1 => (0..3_usize, 1..3_u32)
            .prop_map(|(subnet, count)| Step::CreateWithPrefixes { subnet, count }),
        5 => (pick(), pick(), 0..5_u16)
            .prop_map(|(eni, instance, device)| Step::Attach { eni, instance, device }),
        3 => (pick(), any::<bool>()).prop_map(|(eni, force)| Step::Detach { eni, force }),
        3 => pick().prop_map(|eni| Step::Delete { eni }),
        5 => (pick(), 1..9_u32).prop_map(|(eni, count)| Step::Assign { eni, count }),
        1 => pick().prop_map(|eni| Step::AssignPrefix { eni }),
        1 => (pick(), pick()).prop_map(|(from, to)| Step::Steal { from, to }),
        4 => (pick(), 0..6_usize).prop_map(|(eni, keep)| Step::Unassign { eni, keep }),
        2 => (pick(), any::<bool>()).prop_map(|(eni, delete)| Step::KeepOrDrop { eni, delete }),
        2 => (0..3_usize).prop_map(|subnet| Step::Launch { subnet }),
        1 => pick().prop_map(|instance| Step::Stop { instance }),
        1 => pick().prop_map(|instance| Step::Start { instance }),
        1 => pick().prop_map(|instance| Step::Reboot { instance }),
        1 => pick().prop_map(|instance| Step::Terminate { instance }),
        1 => pick().prop_map(|eni| Step::Pull { eni }),
        1 => (0..3_usize, 1..3_u32)
            .prop_map(|(subnet, prefixes)| Step::CreateWithIpv6 { subnet, prefixes }),
        2 => (pick(), any::<bool>()).prop_map(|(eni, prefixes)| Step::AssignIpv6 { eni, prefixes }),
        1 => pick().prop_map(|eni| Step::UnassignIpv6 { eni }),
        1 => (0..3_usize).prop_map(|subnet| Step::CreateTrunk { subnet }),
        3 => (pick(), pick(), 1..6_u16)
            .prop_map(|(branch, trunk, vlan)| Step::Associate { branch, trunk, vlan }),
        1 => (0..3_usize).prop_map(|subnet| Step::Fragment { subnet }),
        1 => (0..3_usize, 1..12_usize).prop_map(|(subnet, count)| Step::Take { subnet, count }),
        1 => (0..3_usize).prop_map(|subnet| Step::Free { subnet }),
        1 => Just(Step::LoseReply),
        1 => Just(Step::Stick),
        1 => Just(Step::ClearFaults),
        6 => (0..12_000_u64).prop_map(|ms| Step::Pass { ms }),
    ]
}

const SUBNETS: [&str; 3] = ["a", "b", "tiny"];
/// Few places, and it can have a trunk.
const TYPE: &str = "c5.large";
const LAG: Span = Span::millis(700);

struct Simulation {
    cloud: Cloud,
    now: Time,
    enis: BTreeSet<EniId>,
    instances: BTreeSet<InstanceId>,
    tokens: BTreeMap<(u8, usize, u32), EniId>,
    seen: BTreeMap<EniId, NetworkInterface>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut spec = quiet().with_ipv6();
        spec.timing.create = Span::millis(300);
        spec.timing.attach = Span::millis(2_000);
        spec.timing.detach = Span::millis(4_000);
        spec.timing.force_detach = Span::millis(900);
        spec.timing.boot = Span::millis(1_500);
        spec.timing.shutdown = Span::millis(2_500);
        spec.timing.read_lag = LAG;
        spec.throttling = Throttling::Off;
        Self {
            cloud: Cloud::new(spec, seed).unwrap(),
            now: Time(0),
            enis: BTreeSet::new(),
            instances: BTreeSet::new(),
            tokens: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn subnet(&self, pick: usize) -> SubnetId {
        self.cloud.subnet_named(SUBNETS[pick % SUBNETS.len()]).unwrap().id.clone()
    }

    fn eni(&self, pick: usize) -> Option<EniId> {
        self.enis.iter().nth(pick % self.enis.len().max(1)).cloned()
    }

    fn instance(&self, pick: usize) -> Option<InstanceId> {
        self.instances.iter().nth(pick % self.instances.len().max(1)).cloned()
    }

    fn attachment(&self, eni: &EniId) -> Option<AttachmentId> {
        self.seen.get(eni)?.attachment.as_ref().map(|a| a.id.clone())
    }

    fn call(&mut self, request: impl Into<Request>) -> Option<Response> {
        match self.cloud.call(self.now, &Caller::Administrator, request) {
            Ok(response) => Some(response),
            Err(CallError::ReplyLost) => None,
            Err(CallError::Refused(error)) => {
                assert!(!error.code.is_empty() && !error.message.is_empty(), "{error:?}");
                assert!((400..600).contains(&error.http_status), "{error:?}");
                None
            }
        }
    }

    /// All ENIs as they are, read without lag.
    fn look(&mut self) {
        let id = self.cloud.set_fault(self.now, Fault::ReadLag { lag: Span(0) });
        let request = DescribeNetworkInterfaces::default();
        let answer = self.cloud.call(self.now, &Caller::Administrator, request).unwrap();
        self.cloud.clear_fault(self.now, id);
        let Response::DescribeNetworkInterfaces { network_interfaces, .. } = answer else {
            panic!()
        };
        self.seen = network_interfaces.into_iter().map(|eni| (eni.id.clone(), eni)).collect();
        self.enis = self.seen.keys().cloned().collect();
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Create { subnet, count, token } => self.create(*subnet, *count, *token),
            Step::CreateWithPrefixes { subnet, count } => {
                let subnet_id = Some(self.subnet(*subnet));
                self.call(CreateNetworkInterface {
                    subnet_id,
                    ipv4_prefix_count: Some(*count),
                    ..Default::default()
                });
            }
            Step::Attach { eni, instance, device } => {
                let request = AttachNetworkInterface {
                    network_interface_id: self.eni(*eni),
                    instance_id: self.instance(*instance),
                    device_index: Some(*device),
                    ..Default::default()
                };
                self.call(request);
            }
            Step::Detach { eni, force } => {
                let attachment_id = self.eni(*eni).and_then(|eni| self.attachment(&eni));
                let force = *force;
                self.call(DetachNetworkInterface { attachment_id, force, ..Default::default() });
            }
            Step::Delete { eni } => {
                let network_interface_id = self.eni(*eni);
                self.call(DeleteNetworkInterface { network_interface_id, ..Default::default() });
            }
            Step::Assign { eni, count } => self.assign(*eni, *count),
            Step::AssignPrefix { eni } => {
                let network_interface_id = self.eni(*eni);
                self.call(AssignPrivateIpAddresses {
                    network_interface_id,
                    ipv4_prefix_count: Some(1),
                    ..Default::default()
                });
            }
            Step::Steal { from, to } => self.steal(*from, *to),
            Step::Unassign { eni, keep } => self.unassign(*eni, *keep),
            Step::KeepOrDrop { eni, delete } => {
                let eni = self.eni(*eni);
                let attachment_id = eni.as_ref().and_then(|eni| self.attachment(eni));
                let delete_on_termination = Some(*delete);
                self.call(ModifyNetworkInterfaceAttribute {
                    network_interface_id: eni,
                    attachment: Some(AttachmentChange { attachment_id, delete_on_termination }),
                    ..Default::default()
                });
            }
            Step::Launch { subnet } => {
                let launch = Launch::new("n", TYPE, self.subnet(*subnet));
                if let Ok(id) = self.cloud.launch(self.now, launch) {
                    self.instances.insert(id);
                }
            }
            Step::Stop { instance } => self.operate(*instance, Cloud::stop),
            Step::Start { instance } => self.operate(*instance, Cloud::start),
            Step::Reboot { instance } => self.operate(*instance, Cloud::reboot),
            Step::Terminate { instance } => self.operate(*instance, Cloud::terminate),
            Step::Pull { eni } => {
                if let Some(eni) = self.eni(*eni) {
                    let _ = self.cloud.pull_eni(self.now, &eni);
                }
            }
            Step::CreateWithIpv6 { subnet, prefixes } => {
                let subnet_id = Some(self.subnet(*subnet));
                self.call(CreateNetworkInterface {
                    subnet_id,
                    ipv6_prefix_count: Some(*prefixes),
                    ..Default::default()
                });
            }
            Step::AssignIpv6 { eni, prefixes } => {
                let network_interface_id = self.eni(*eni);
                self.call(AssignIpv6Addresses {
                    network_interface_id,
                    ipv6_prefix_count: prefixes.then_some(1),
                    ipv6_address_count: (!prefixes).then_some(2),
                    ..Default::default()
                });
            }
            Step::UnassignIpv6 { eni } => {
                let Some(eni) = self.eni(*eni).map(|id| self.seen[&id].clone()) else { return };
                self.call(UnassignIpv6Addresses {
                    network_interface_id: Some(eni.id),
                    ipv6_addresses: eni.ipv6_addresses,
                    ipv6_prefixes: eni.ipv6_prefixes,
                    ..Default::default()
                });
            }
            Step::CreateTrunk { subnet } => {
                let subnet_id = Some(self.subnet(*subnet));
                let interface_type = Some("trunk".to_owned());
                self.call(CreateNetworkInterface {
                    subnet_id,
                    interface_type,
                    ..Default::default()
                });
            }
            Step::Associate { branch, trunk, vlan } => {
                let trunks: Vec<EniId> = self
                    .seen
                    .values()
                    .filter(|eni| eni.kind == InterfaceKind::Trunk)
                    .map(|eni| eni.id.clone())
                    .collect();
                let trunk_interface_id = trunks.get(trunk % trunks.len().max(1)).cloned();
                let branch_interface_id = self.eni(*branch);
                self.call(AssociateTrunkInterface {
                    branch_interface_id,
                    trunk_interface_id,
                    vlan_id: Some(*vlan),
                    ..Default::default()
                });
            }
            Step::Fragment { subnet } => {
                let id = self.subnet(*subnet);
                self.cloud.fragment_subnet(self.now, &id).unwrap();
                assert_eq!(self.cloud.free_prefixes(&id), 0);
            }
            Step::Take { subnet, count } => {
                let id = self.subnet(*subnet);
                let _ = self.cloud.take_addresses(self.now, &id, *count);
            }
            Step::Free { subnet } => {
                let id = self.subnet(*subnet);
                self.cloud.free_addresses(self.now, &id, None).unwrap();
            }
            Step::LoseReply => {
                let fault = Fault::LoseReply {
                    action: Some(Action::CreateNetworkInterface),
                    times: Some(1),
                };
                self.cloud.set_fault(self.now, fault);
            }
            Step::Stick => {
                self.cloud.set_fault(self.now, Fault::AttachNeverCompletes { instance: None });
            }
            Step::ClearFaults => self.cloud.clear_faults(self.now),
            Step::Pass { ms } => self.now = self.now + Span(*ms),
        }
    }

    fn operate(
        &mut self,
        pick: usize,
        order: fn(&mut Cloud, Time, &InstanceId) -> Result<(), lab_cloud::OperateError>,
    ) {
        if let Some(instance) = self.instance(pick) {
            let _ = order(&mut self.cloud, self.now, &instance);
        }
    }

    /// The same token and arguments must always give the same ENI.
    fn create(&mut self, subnet: usize, count: u32, token: Option<u8>) {
        let request = CreateNetworkInterface {
            subnet_id: Some(self.subnet(subnet)),
            secondary_private_ip_address_count: (count > 0).then_some(count),
            client_token: token.map(|token| format!("{token}-{subnet}-{count}")),
            ..Default::default()
        };
        let Some(Response::CreateNetworkInterface { network_interface, .. }) = self.call(request)
        else {
            return;
        };
        if let Some(token) = token {
            let key = (token, subnet, count);
            let first = self.tokens.entry(key).or_insert_with(|| network_interface.id.clone());
            assert_eq!(*first, network_interface.id, "a token made a second ENI");
        }
    }

    fn assign(&mut self, eni: usize, count: u32) {
        let Some(id) = self.eni(eni) else { return };
        let before: BTreeSet<Ipv4Addr> =
            self.seen[&id].private_addresses.iter().map(|a| a.address).collect();
        let request = AssignPrivateIpAddresses {
            network_interface_id: Some(id.clone()),
            secondary_private_ip_address_count: Some(count),
            ..Default::default()
        };
        let Some(Response::AssignPrivateIpAddresses(assigned)) = self.call(request) else { return };
        let given: BTreeSet<Ipv4Addr> = assigned.private_ip_addresses.iter().copied().collect();
        assert_eq!(given.len(), usize::try_from(count).unwrap());
        assert!(given.is_disjoint(&before), "an old address was called new");
        self.look();
        let after: BTreeSet<Ipv4Addr> =
            self.seen[&id].private_addresses.iter().map(|a| a.address).collect();
        assert_eq!(after, &before | &given);
    }

    fn steal(&mut self, from: usize, to: usize) {
        let Some(from) = self.eni(from).map(|id| self.seen[&id].clone()) else { return };
        let request = AssignPrivateIpAddresses {
            network_interface_id: self.eni(to),
            private_ip_addresses: from.secondary_addresses().take(2).collect(),
            allow_reassignment: true,
            ..Default::default()
        };
        self.call(request);
    }

    fn unassign(&mut self, eni: usize, keep: usize) {
        let Some(eni) = self.eni(eni).map(|id| self.seen[&id].clone()) else { return };
        self.call(UnassignPrivateIpAddresses {
            network_interface_id: Some(eni.id.clone()),
            private_ip_addresses: eni.secondary_addresses().skip(keep).collect(),
            ipv4_prefixes: eni.ipv4_prefixes.clone(),
            ..Default::default()
        });
    }

    fn check(&mut self) {
        self.look();
        self.no_address_is_held_twice();
        self.subnets_count_exactly();
        self.limits_hold();
        self.ipv6_is_held_once_and_within_the_subnet();
        self.branches_ride_on_trunks();
        self.the_index_finds_what_a_search_finds();
        self.truth_agrees();
    }

    fn no_address_is_held_twice(&self) {
        let mut holders: BTreeMap<Ipv4Addr, &EniId> = BTreeMap::new();
        let mut macs = BTreeSet::new();
        for eni in self.seen.values() {
            assert!(macs.insert(eni.mac), "{} has another's MAC", eni.id);
            let single = eni.private_addresses.iter().map(|a| a.address);
            for address in single.chain(eni.ipv4_prefixes.iter().flat_map(all_of)) {
                let other = holders.insert(address, &eni.id);
                assert_eq!(other, None, "{address} is held by {} as well", eni.id);
            }
            assert_eq!(eni.private_addresses.iter().filter(|a| a.primary).count(), 1);
        }
    }

    fn subnets_count_exactly(&self) {
        for name in SUBNETS {
            let subnet = self.cloud.subnet_named(name).unwrap();
            let held: usize = self
                .seen
                .values()
                .filter(|eni| eni.subnet_id == subnet.id)
                .map(|eni| eni.private_addresses.len() + 16 * eni.ipv4_prefixes.len())
                .sum();
            let size = 1_usize << (32 - subnet.cidr.prefix_len());
            let free = usize::try_from(subnet.available_ip_address_count).unwrap();
            let others = self.cloud.taken_addresses(&subnet.id).len();
            assert_eq!(free, size - 5 - held - others, "{name}");
        }
    }

    fn ipv6_is_held_once_and_within_the_subnet(&self) {
        let mut prefixes = BTreeSet::new();
        for eni in self.seen.values() {
            let subnet = SUBNETS.iter().map(|name| self.cloud.subnet_named(name).unwrap());
            let cidr = subnet.clone().find(|s| s.id == eni.subnet_id).unwrap().ipv6_cidr.unwrap();
            for prefix in &eni.ipv6_prefixes {
                assert!(prefixes.insert(*prefix), "{prefix} is held twice");
                assert!(cidr.contains(prefix) && prefix.prefix_len() == 80, "{prefix}");
            }
        }
        let mut addresses = BTreeSet::new();
        for address in self.seen.values().flat_map(|eni| &eni.ipv6_addresses) {
            assert!(addresses.insert(*address), "{address} is held twice");
            assert!(prefixes.iter().all(|p| !p.contains(address)), "{address} is in a prefix");
        }
    }

    fn branches_ride_on_trunks(&mut self) {
        let request = DescribeTrunkInterfaceAssociations::default();
        let answer = self.cloud.call(self.now, &Caller::Administrator, request).unwrap();
        let Response::DescribeTrunkInterfaceAssociations { associations, .. } = answer else {
            panic!()
        };
        let mut vlans = BTreeSet::new();
        let mut branches = BTreeSet::new();
        for association in associations {
            assert_eq!(self.seen[&association.trunk].kind, InterfaceKind::Trunk);
            assert!(vlans.insert((association.trunk.clone(), association.vlan)), "{association:?}");
            assert!(branches.insert(association.branch.clone()), "{association:?}");
        }
        let shown: BTreeSet<EniId> = self
            .seen
            .values()
            .filter(|eni| eni.status == EniStatus::Associated)
            .map(|eni| eni.id.clone())
            .collect();
        assert_eq!(shown, branches);
    }

    /// A pattern is searched for among all ENIs, an id is looked up; both as it was a while ago.
    fn the_index_finds_what_a_search_finds(&mut self) {
        for instance in self.instances.clone() {
            let mut found = [String::new(), "*".to_owned()].map(|wild| {
                let filters =
                    vec![Filter::new("attachment.instance-id", [format!("{instance}{wild}")])];
                let request = DescribeNetworkInterfaces { filters, ..Default::default() };
                let answer = self.cloud.call(self.now, &Caller::Administrator, request).unwrap();
                let Response::DescribeNetworkInterfaces { network_interfaces, .. } = answer else {
                    panic!()
                };
                network_interfaces
            });
            let searched = std::mem::take(&mut found[1]);
            assert_eq!(found[0], searched, "{instance}");
        }
    }

    fn limits_hold(&mut self) {
        let kind = InstanceType::named(TYPE).unwrap();
        let mut places: BTreeMap<&InstanceId, BTreeSet<u16>> = BTreeMap::new();
        for eni in self.seen.values() {
            assert_eq!(eni.status == EniStatus::InUse, eni.attachment.is_some(), "{eni:?}");
            let Some(attachment) = &eni.attachment else { continue };
            let devices = places.entry(&attachment.instance_id).or_default();
            assert!(devices.insert(attachment.device_index.0), "two ENIs in one place");
            let filled = eni.private_addresses.len() + eni.ipv4_prefixes.len();
            assert!(filled <= usize::from(kind.ipv4_per_interface), "{eni:?}");
            let filled = eni.ipv6_addresses.len() + eni.ipv6_prefixes.len();
            assert!(filled <= usize::from(kind.ipv6_per_interface), "{eni:?}");
        }
        for (instance, devices) in places {
            assert!(devices.contains(&0), "{instance} lost its primary ENI");
            assert!(devices.len() <= usize::from(kind.cards[0].maximum_network_interfaces));
        }
    }

    fn truth_agrees(&mut self) {
        let truth = self.cloud.truth(self.now);
        let mut plugged = BTreeSet::new();
        for instance in &truth.instances {
            if instance.state == InstanceState::Terminated {
                assert_eq!(instance.enis, [], "a terminated instance kept ENIs");
            }
            plugged.extend(instance.enis.iter().map(|eni| eni.id.clone()));
        }
        let shown: BTreeSet<EniId> = self
            .seen
            .values()
            .filter(|eni| {
                eni.attachment.as_ref().is_some_and(|a| a.status != AttachmentStatus::Attaching)
            })
            .map(|eni| eni.id.clone())
            .collect();
        assert_eq!(plugged, shown);
        assert_eq!(self.cloud.truth(self.now), truth, "looking changed something");
        if let Some(next) = self.cloud.next_change_at(self.now) {
            assert!(next > self.now, "something is overdue");
        }
    }

    /// Once nothing is under way, a lagging reader sees the truth after the lag.
    fn check_convergence(&mut self) {
        self.cloud.clear_faults(self.now);
        self.now = self.now + Span::seconds(60);
        self.look();
        self.now = self.now + LAG;
        let request = DescribeNetworkInterfaces::default();
        let answer = self.cloud.call(self.now, &Caller::Administrator, request).unwrap();
        let Response::DescribeNetworkInterfaces { network_interfaces, .. } = answer else {
            panic!()
        };
        assert_eq!(network_interfaces, self.seen.values().cloned().collect::<Vec<_>>());
        assert!(network_interfaces.iter().all(|eni| {
            eni.status != EniStatus::Pending
                && eni.attachment.as_ref().is_none_or(|a| a.status == AttachmentStatus::Attached)
        }));
    }
}

fn all_of(prefix: &Ipv4Net) -> impl Iterator<Item = Ipv4Addr> {
    let first = u32::from(prefix.network());
    (first..first + 16).map(Ipv4Addr::from)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_after_any_operation(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut play = Simulation::new(seed);
        for step in &steps {
            play.take(step);
            play.check();
        }
        play.check_convergence();
        play.check();
    }

    #[test]
    fn the_same_seed_and_steps_give_the_same_cloud(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..25),
    ) {
        let run = || {
            let mut play = Simulation::new(seed);
            for step in &steps {
                play.take(step);
                play.look();
            }
            (play.cloud.truth(play.now), play.seen)
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn lagging_reads_show_the_state_as_it_was(
        gaps in prop::collection::vec(0..1_000_u64, 1..12),
        probe in 0..3_000_u64,
    ) {
        let mut play = Simulation::new(1);
        let subnet = play.subnet(0);
        let mut made: Vec<(Time, EniId)> = Vec::new();
        for gap in gaps {
            play.now = play.now + Span(gap);
            let request =
                CreateNetworkInterface { subnet_id: Some(subnet.clone()), ..Default::default() };
            let Some(Response::CreateNetworkInterface { network_interface, .. }) =
                play.call(request)
            else {
                panic!()
            };
            made.push((play.now, network_interface.id));
        }
        play.now = play.now + Span(probe);
        let Some(Response::DescribeNetworkInterfaces { network_interfaces, .. }) =
            play.call(DescribeNetworkInterfaces::default())
        else {
            panic!()
        };
        let shown: BTreeSet<EniId> = network_interfaces.into_iter().map(|eni| eni.id).collect();
        let visible: BTreeSet<EniId> = made
            .into_iter()
            .filter(|(at, _)| *at + LAG <= play.now)
            .map(|(_, id)| id)
            .collect();
        prop_assert_eq!(shown, visible);
    }
}
