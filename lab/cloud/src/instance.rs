//! The life of an instance, as the operator orders it.

use crate::{
    Cloud, GroupIdentifier, Instance, InstanceState, InstanceType, InterfaceKind, Launch,
    OperateError, address::AddressRequest, eni::NewEni, ipv6::AddressRequest6, rng::mix,
    transition::Transition,
};
use config_model::{EniId, InstanceId, Time};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

impl Cloud {
    /// Launches an instance with its primary ENI, which is plugged in from the start.
    ///
    /// # Errors
    /// If type, subnet or groups do not exist, or the subnet is full.
    pub fn launch(&mut self, now: Time, launch: Launch) -> Result<InstanceId, OperateError> {
        self.advance(now);
        let kind = InstanceType::require(&launch.instance_type)?;
        let subnet = self
            .state
            .subnets
            .get(&launch.subnet)
            .map(Arc::clone)
            .ok_or_else(|| OperateError::NoSubnet(launch.subnet.clone()))?;
        let known = |id| self.state.groups.contains_key(id);
        if let Some(unknown) = launch.security_groups.iter().find(|id| !known(id)) {
            return Err(OperateError::NoGroup(unknown.clone()));
        }
        let groups = self
            .groups_or_default(&launch.security_groups)
            .map_err(|error| OperateError::Refused(error.to_string()))?;
        self.check_interfaces(kind, &launch)?;
        let public = if subnet.map_public_ip_on_launch { Some(self.new_public()?) } else { None };
        let enis = match self.make_enis_of(&launch, &groups) {
            Ok(enis) => enis,
            Err(error) => {
                if let Some(public) = public {
                    self.give_back(public);
                }
                return Err(error);
            }
        };
        let mut tags = launch.tags;
        tags.insert("Name".to_owned(), launch.name);
        let instance = Instance {
            id: InstanceId::new(self.rng.id("i")),
            reservation_id: self.rng.id("r"),
            image_id: format!("ami-0{:016x}", mix(self.seed)),
            instance_type: launch.shown_type.unwrap_or_else(|| kind.name.to_owned()),
            limits_of: kind.name,
            state: InstanceState::Pending,
            launch_time: self.now,
            boot_time: self.now,
            boots: 1,
            subnet_id: subnet.id.clone(),
            vpc_id: subnet.vpc_id.clone(),
            availability_zone: subnet.availability_zone.clone(),
            metadata_hop_limit: launch.metadata_hop_limit,
            metadata_tags: launch.metadata_tags,
            role: launch.role,
            tags,
        };
        let id = instance.id.clone();
        let places = std::iter::once((0, 0))
            .chain(launch.interfaces.iter().map(|new| (new.device.0, new.card.0)));
        let places: Vec<(u16, u16)> = places.collect();
        for (eni, (device, card)) in enis.iter().zip(places) {
            let attachment = self.plug(eni, &instance, device, card, true);
            self.after(config_model::Span(0), Transition::Attached(eni.clone(), attachment));
        }
        self.edit(|state, stamp| state.instances.insert(stamp, id.clone(), instance));
        if let Some(primary) = enis.first() {
            self.set_public(primary, public);
        }
        self.after(self.spec.timing.boot, Transition::Running(id.clone()));
        self.settle();
        Ok(id)
    }

    /// Makes the ENIs of a launch, the primary first, or none of them.
    fn make_enis_of(
        &mut self,
        launch: &Launch,
        groups: &[GroupIdentifier],
    ) -> Result<Vec<EniId>, OperateError> {
        let by_subnet = usize::from(self.gives_ipv6(&launch.subnet));
        let addresses = usize::from(launch.ipv6_addresses).max(by_subnet);
        let primary = (
            InterfaceKind::Interface,
            AddressRequest6 { count: addresses, ..AddressRequest6::default() },
        );
        let others = launch.interfaces.iter().map(|new| {
            let count = if new.kind == InterfaceKind::EfaOnly { 0 } else { by_subnet };
            (new.kind, AddressRequest6 { count, ..AddressRequest6::default() })
        });
        let mut enis = Vec::new();
        for (kind, wanted6) in std::iter::once(primary).chain(others) {
            let made = self.make_eni(NewEni {
                subnet_id: launch.subnet.clone(),
                kind,
                wanted: AddressRequest::default(),
                wanted6,
                groups: groups.to_vec(),
                description: String::new(),
                requester_id: format!("arn:aws:iam::{}:root", self.spec.account),
                tags: BTreeMap::new(),
            });
            match made {
                Ok(eni) => enis.push(eni),
                Err(error) => {
                    enis.iter().for_each(|eni| self.remove_eni(eni));
                    return Err(match error.code.as_str() {
                        "InsufficientFreeAddressesInSubnet" => {
                            OperateError::SubnetFull(launch.subnet.clone())
                        }
                        _ => OperateError::Refused(error.to_string()),
                    });
                }
            }
        }
        Ok(enis)
    }

    /// Checks that the type has room for the ENIs of a launch at their places.
    fn check_interfaces(&self, kind: &InstanceType, launch: &Launch) -> Result<(), OperateError> {
        let mut places = BTreeMap::from([(0, BTreeSet::from([0]))]);
        for new in &launch.interfaces {
            let refuse = |why: &str| {
                let (device, card) = (new.device.0, new.card.0);
                let text = format!("ENI at device {device} of card {card}: {why}");
                Err(OperateError::Refused(text))
            };
            if matches!(new.kind, InterfaceKind::Trunk | InterfaceKind::Branch) {
                return refuse("no instance is launched with a trunk or a branch");
            }
            let devices: &mut BTreeSet<u16> = places.entry(new.card.0).or_default();
            if !devices.insert(new.device.0) {
                return refuse("this place is taken twice");
            }
            match kind.interfaces_of_card(new.card.0) {
                None => return refuse("the type has no such card"),
                Some(most) if devices.len() > usize::from(most) => {
                    return refuse("the type has no room for it");
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Boots a running instance again; it stays `running`, its boot count grows.
    ///
    /// # Errors
    /// If it is not running.
    pub fn reboot(&mut self, now: Time, instance: &InstanceId) -> Result<(), OperateError> {
        self.advance(now);
        self.expect_state(instance, InstanceState::Running)?;
        let now = self.now;
        self.edit_instance(instance, |instance| {
            instance.boot_time = now;
            instance.boots += 1;
        });
        Ok(())
    }

    /// Stops an instance; ENIs and private addresses stay, the public address goes.
    ///
    /// # Errors
    /// If it is not running.
    pub fn stop(&mut self, now: Time, instance: &InstanceId) -> Result<(), OperateError> {
        self.advance(now);
        self.expect_state(instance, InstanceState::Running)?;
        self.edit_instance(instance, |instance| instance.state = InstanceState::Stopping);
        if let Some(primary) = self.primary_eni(instance) {
            self.set_public(&primary, None);
        }
        self.after(self.spec.timing.shutdown, Transition::Stopped(instance.clone()));
        self.settle();
        Ok(())
    }

    /// Starts a stopped instance.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn start(&mut self, now: Time, instance: &InstanceId) -> Result<(), OperateError> {
        self.advance(now);
        let subnet = self.expect_state(instance, InstanceState::Stopped)?.subnet_id.clone();
        let subnet = self.state.subnets.get(&subnet);
        if subnet.is_some_and(|subnet| subnet.map_public_ip_on_launch) {
            let public = self.new_public()?;
            match self.primary_eni(instance) {
                Some(primary) => self.set_public(&primary, Some(public)),
                None => self.give_back(public),
            }
        }
        let now = self.now;
        self.edit_instance(instance, |instance| {
            instance.state = InstanceState::Pending;
            instance.launch_time = now;
            instance.boot_time = now;
            instance.boots += 1;
        });
        self.after(self.spec.timing.boot, Transition::Running(instance.clone()));
        self.settle();
        Ok(())
    }

    /// Terminates an instance: ENIs with DeleteOnTermination go, the others become available.
    ///
    /// # Errors
    /// If there is none.
    pub fn terminate(&mut self, now: Time, instance: &InstanceId) -> Result<(), OperateError> {
        self.advance(now);
        let state = self.instance(instance)?.state;
        if matches!(state, InstanceState::ShuttingDown | InstanceState::Terminated) {
            return Ok(());
        }
        self.edit_instance(instance, |instance| instance.state = InstanceState::ShuttingDown);
        self.after(self.spec.timing.shutdown, Transition::Terminated(instance.clone()));
        self.settle();
        Ok(())
    }

    fn instance(&self, id: &InstanceId) -> Result<&Instance, OperateError> {
        let found = self.state.instances.get(id);
        found.map(Arc::as_ref).ok_or_else(|| OperateError::NoInstance(id.clone()))
    }

    fn expect_state(
        &self,
        id: &InstanceId,
        wanted: InstanceState,
    ) -> Result<&Instance, OperateError> {
        let instance = self.instance(id)?;
        if instance.state == wanted {
            return Ok(instance);
        }
        Err(OperateError::WrongState {
            instance: id.clone(),
            state: instance.state.as_str(),
            wanted: wanted.as_str(),
        })
    }

    fn edit_instance(&mut self, id: &InstanceId, change: impl FnOnce(&mut Instance)) {
        self.edit(|state, stamp| state.instances.change(stamp, id, change));
    }

    fn primary_eni(&self, id: &InstanceId) -> Option<EniId> {
        Some(self.state.enis_of(id).first()?.id.clone())
    }

    /// Gives an ENI another public address, or none.
    fn set_public(&mut self, eni: &EniId, public: Option<Ipv4Addr>) {
        let old = self.state.enis.get(eni).and_then(|eni| eni.public_ip);
        if let Some(old) = old {
            self.give_back(old);
        }
        self.edit_eni(eni, |eni| eni.public_ip = public);
    }

    fn give_back(&mut self, public: Ipv4Addr) {
        self.public.remove(&public);
    }

    /// Takes a public address from the pool.
    fn new_public(&mut self) -> Result<Ipv4Addr, OperateError> {
        let pool = self.spec.public_pool;
        let size = 1_u64 << (32 - u32::from(pool.prefix_len()));
        let start = self.rng.below(size);
        let first = u64::from(u32::from(pool.network()));
        let free = (0..size)
            .map(|step| (start + step) % size)
            .filter(|offset| *offset != 0 && *offset != size - 1)
            .filter_map(|offset| u32::try_from(first + offset).ok())
            .map(Ipv4Addr::from)
            .find(|address| !self.public.contains(address))
            .ok_or(OperateError::PublicPoolEmpty(pool))?;
        self.public.insert(free);
        Ok(free)
    }
}
