//! The life of an instance, as the operator orders it.

use crate::{
    Cloud, Instance, InstanceState, InstanceType, Launch, OperateError, address::Wanted, rng::mix,
    transition::Transition,
};
use config_model::{EniId, InstanceId, Time};
use std::{net::Ipv4Addr, sync::Arc};

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
        let public = if subnet.map_public_ip_on_launch { Some(self.new_public()?) } else { None };
        let requester = format!("arn:aws:iam::{}:root", self.spec.account);
        let made = self.make_eni(&subnet.id, &Wanted::default(), groups, "", requester);
        let eni = match made {
            Ok(eni) => eni,
            Err(_) => {
                if let Some(public) = public {
                    self.give_back(public);
                }
                return Err(OperateError::SubnetFull(subnet.id.clone()));
            }
        };
        let mut tags = launch.tags;
        tags.insert("Name".to_owned(), launch.name);
        let instance = Instance {
            id: InstanceId::new(self.rng.id("i")),
            reservation_id: self.rng.id("r"),
            image_id: format!("ami-0{:016x}", mix(self.seed)),
            instance_type: kind.name.to_owned(),
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
        let attachment = self.plug(&eni, &instance, 0, 0, true);
        self.edit(|state, stamp| state.instances.insert(stamp, id.clone(), instance));
        self.set_public(&eni, public);
        self.after(config_model::Span(0), Transition::Attached(eni, attachment));
        self.after(self.spec.timing.boot, Transition::Running(id.clone()));
        self.settle();
        Ok(id)
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

    /// Sets the IP TTL of IMDS answers.
    ///
    /// # Errors
    /// If there is no such instance.
    pub fn set_hop_limit(
        &mut self,
        now: Time,
        instance: &InstanceId,
        hops: u8,
    ) -> Result<(), OperateError> {
        self.advance(now);
        self.instance(instance)?;
        self.edit_instance(instance, |instance| instance.metadata_hop_limit = hops);
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
