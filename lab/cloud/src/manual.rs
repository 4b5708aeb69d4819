//! Changes by the operator without a daemon: addresses of other workloads in subnets, tags, and permissions of roles.

use crate::{Cloud, OperateError};
use config_model::{EniId, SecurityGroupId, SubnetId, Time};
use std::{net::Ipv4Addr, sync::Arc};

impl Cloud {
    /// Takes one address of each /28 of a subnet that is still whole, as other workloads would. The rest is enough
    /// for single addresses and for no prefix.
    ///
    /// # Errors
    /// If there is no such subnet.
    pub fn fragment_subnet(
        &mut self,
        now: Time,
        subnet: &SubnetId,
    ) -> Result<Vec<Ipv4Addr>, OperateError> {
        self.advance(now);
        let missing = || OperateError::NoSubnet(subnet.clone());
        let taken = self.pools.get_mut(subnet).ok_or_else(missing)?.fragment(&mut self.rng);
        self.count_free(subnet);
        Ok(taken)
    }

    /// Takes this many single addresses of a subnet, or none.
    ///
    /// # Errors
    /// If there is no such subnet, or it has fewer.
    pub fn take_addresses(
        &mut self,
        now: Time,
        subnet: &SubnetId,
        count: usize,
    ) -> Result<Vec<Ipv4Addr>, OperateError> {
        self.advance(now);
        let missing = || OperateError::NoSubnet(subnet.clone());
        let pool = self.pools.get_mut(subnet).ok_or_else(missing)?;
        let taken = pool
            .take_some(count, None, &mut self.rng)
            .map_err(|_| OperateError::SubnetFull(subnet.clone()))?;
        self.count_free(subnet);
        Ok(taken)
    }

    /// Gives back up to this many of the addresses that the operator took; all, if no number is
    /// given.
    ///
    /// # Errors
    /// If there is no such subnet.
    pub fn free_addresses(
        &mut self,
        now: Time,
        subnet: &SubnetId,
        count: Option<usize>,
    ) -> Result<Vec<Ipv4Addr>, OperateError> {
        self.advance(now);
        let missing = || OperateError::NoSubnet(subnet.clone());
        let pool = self.pools.get_mut(subnet).ok_or_else(missing)?;
        let mut freed = pool.operators();
        freed.truncate(count.unwrap_or(usize::MAX));
        freed.iter().for_each(|address| pool.release(*address));
        self.count_free(subnet);
        Ok(freed)
    }

    /// The addresses of a subnet that the operator took.
    pub fn taken_addresses(&self, subnet: &SubnetId) -> Vec<Ipv4Addr> {
        self.pools.get(subnet).map(|pool| pool.operators()).unwrap_or_default()
    }

    /// Number of /28 prefixes that a subnet can still give.
    pub fn free_prefixes(&self, subnet: &SubnetId) -> usize {
        self.pools.get(subnet).map_or(0, |pool| pool.free_prefixes())
    }

    /// Replaces the tags of a subnet, apart from its name.
    ///
    /// # Errors
    /// If there is no such subnet.
    pub fn set_subnet_tag(
        &mut self,
        now: Time,
        subnet: &SubnetId,
        key: &str,
        value: Option<&str>,
    ) -> Result<(), OperateError> {
        self.advance(now);
        let changed = self.edit(|state, stamp| {
            state.subnets.change(stamp, subnet, |subnet| match value {
                Some(value) => subnet.tags.insert(key.to_owned(), value.to_owned()),
                None => subnet.tags.remove(key),
            })
        });
        changed.map(|_| ()).ok_or_else(|| OperateError::NoSubnet(subnet.clone()))
    }

    /// Gives an ENI other security groups, without asking EC2's buckets.
    ///
    /// # Errors
    /// If there is no such ENI or group, or there are too many groups.
    pub fn set_security_groups(
        &mut self,
        now: Time,
        eni: &EniId,
        groups: &[SecurityGroupId],
    ) -> Result<(), OperateError> {
        self.advance(now);
        if !self.state.enis.contains_key(eni) {
            return Err(OperateError::NoEni(eni.clone()));
        }
        let known = |id| self.state.groups.contains_key(id);
        if let Some(unknown) = groups.iter().find(|id| !known(id)) {
            return Err(OperateError::NoGroup(unknown.clone()));
        }
        let groups = self
            .groups_or_default(groups)
            .map_err(|error| OperateError::Refused(error.to_string()))?;
        self.edit_eni(eni, |eni| eni.groups = groups);
        Ok(())
    }

    /// Sets the deletion of an ENI at the end of its instance.
    ///
    /// # Errors
    /// If there is no such ENI, or it is not attached.
    pub fn set_delete_on_termination(
        &mut self,
        now: Time,
        eni: &EniId,
        goes: bool,
    ) -> Result<(), OperateError> {
        self.advance(now);
        let found = self.state.enis.get(eni).map(Arc::clone);
        let found = found.ok_or_else(|| OperateError::NoEni(eni.clone()))?;
        if found.attachment.is_none() {
            return Err(OperateError::NotAttached(eni.clone()));
        }
        self.edit_attachment(eni, |attachment| attachment.delete_on_termination = goes);
        Ok(())
    }
}
