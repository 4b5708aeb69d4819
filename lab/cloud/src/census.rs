//! Questions of a simulation to the model: direct, without throttling and without text to parse.

use crate::{AttachmentStatus, Cloud, NetworkInterface};
use config_model::{InstanceId, Time};
use std::sync::Arc;

impl Cloud {
    /// Every ENI there is, by id, as it really is.
    pub fn every_eni(&mut self, now: Time) -> Vec<Arc<NetworkInterface>> {
        self.advance(now);
        self.state.enis.values().map(Arc::clone).collect()
    }

    /// The ENIs that are tied to an instance in any way, by card and device, as they really are.
    pub fn enis_of(&mut self, now: Time, instance: &InstanceId) -> Vec<Arc<NetworkInterface>> {
        self.advance(now);
        self.state.enis_of(instance).into_iter().map(Arc::clone).collect()
    }

    /// Every ENI of the account as it really is, attached or not.
    pub fn all_enis(&mut self, now: Time) -> Vec<Arc<NetworkInterface>> {
        self.advance(now);
        self.state.enis.values().map(Arc::clone).collect()
    }

    /// The ENIs that IMDS shows to an instance now: behind the truth as [`Cloud::imds`] is.
    pub fn imds_enis(&mut self, now: Time, instance: &InstanceId) -> Vec<Arc<NetworkInterface>> {
        self.advance(now);
        let Some(current) = self.state.instances.get(instance) else { return Vec::new() };
        let lag = self.imds_lag().min(self.now.since(current.boot_time));
        let plugged = |eni: &&Arc<NetworkInterface>| {
            eni.attachment.as_ref().is_some_and(|a| a.status != AttachmentStatus::Attaching)
        };
        self.lagged(lag).enis_of(instance).into_iter().filter(plugged).map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail")]

    use crate::{AttachNetworkInterface, CreateNetworkInterface, Response};
    use crate::{Caller, Cloud, CloudSpec, Launch};
    use config_model::Time;

    #[test]
    fn imds_shows_an_eni_later_than_the_truth_and_only_once_it_is_plugged_in() {
        let mut cloud = Cloud::new(CloudSpec::two_zones(), 1).unwrap();
        let subnet = cloud.subnet_named("a").unwrap().id.clone();
        let node = Launch::new("n1", "m5.large", subnet.clone());
        let instance = cloud.launch(Time(0), node).unwrap();
        let admin = Caller::Administrator;
        let create =
            CreateNetworkInterface { subnet_id: Some(subnet), ..CreateNetworkInterface::default() };
        let made = cloud.call(Time(1000), &admin, create).unwrap();
        let Response::CreateNetworkInterface { network_interface, .. } = made else {
            panic!("{made:?}")
        };
        assert_eq!(cloud.enis_of(Time(1000), &instance).len(), 1);
        let attach = AttachNetworkInterface {
            network_interface_id: Some(network_interface.id),
            instance_id: Some(instance.clone()),
            device_index: Some(1),
            ..AttachNetworkInterface::default()
        };
        cloud.call(Time(1000), &admin, attach).unwrap();
        // It is attached 1.5 s later; IMDS lags by one second more.
        assert_eq!(cloud.enis_of(Time(1001), &instance).len(), 2);
        assert_eq!(cloud.imds_enis(Time(2600), &instance).len(), 1);
        assert_eq!(cloud.imds_enis(Time(3600), &instance).len(), 2);
    }
}
