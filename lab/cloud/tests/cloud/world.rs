//! A cloud with one node in it, and short ways to call it.

use config_model::{EniId, InstanceId, Span, SubnetId, Time};
use lab_cloud::{
    AssignPrivateIpAddresses, AttachNetworkInterface, CallError, Caller, Cloud, CloudSpec,
    CreateNetworkInterface, DescribeNetworkInterfaces, Ec2Error, Launch, NetworkInterface, Request,
    Response, SubnetSpec, Throttling, Timing,
};

pub(crate) struct World {
    pub(crate) cloud: Cloud,
    pub(crate) now: Time,
    pub(crate) node: InstanceId,
}

/// A cloud without delays and throttling, with a tiny subnet (11 addresses) beside the usual two.
pub(crate) fn quiet() -> CloudSpec {
    let mut spec = CloudSpec::two_zones();
    spec.timing = Timing::INSTANT;
    spec.throttling = Throttling::Off;
    spec.subnets.push(SubnetSpec::new("tiny", "10.0.32.0/28".parse().unwrap(), "eu-west-1a"));
    spec
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(quiet(), "c5.large")
    }

    pub(crate) fn of(spec: CloudSpec, instance_type: &str) -> Self {
        let mut cloud = Cloud::new(spec, 7).unwrap();
        let subnet = cloud.subnet_named("a").unwrap().id.clone();
        let node = cloud.launch(Time(0), Launch::new("node", instance_type, subnet)).unwrap();
        Self { cloud, now: Time(0), node }
    }

    pub(crate) fn pass(&mut self, span: Span) -> &mut Self {
        self.now = self.now + span;
        self
    }

    pub(crate) fn subnet(&self, name: &str) -> SubnetId {
        self.cloud.subnet_named(name).unwrap().id.clone()
    }

    pub(crate) fn try_call(&mut self, request: impl Into<Request>) -> Result<Response, CallError> {
        self.cloud.call(self.now, &Caller::Administrator, request)
    }

    pub(crate) fn call(&mut self, request: impl Into<Request>) -> Response {
        self.try_call(request).unwrap()
    }

    pub(crate) fn refusal(&mut self, request: impl Into<Request>) -> Ec2Error {
        match self.try_call(request) {
            Err(CallError::Refused(error)) => error,
            other => panic!("expected a refusal, not {other:?}"),
        }
    }

    pub(crate) fn create_with(&mut self, request: CreateNetworkInterface) -> NetworkInterface {
        let Response::CreateNetworkInterface { network_interface, .. } = self.call(request) else {
            panic!("another response")
        };
        *network_interface
    }

    pub(crate) fn create(&mut self, subnet: &str) -> EniId {
        let subnet_id = Some(self.subnet(subnet));
        self.create_with(CreateNetworkInterface { subnet_id, ..Default::default() }).id
    }

    pub(crate) fn attach(&mut self, eni: &EniId, device: u16) -> AttachNetworkInterface {
        AttachNetworkInterface {
            network_interface_id: Some(eni.clone()),
            instance_id: Some(self.node.clone()),
            device_index: Some(device),
            ..Default::default()
        }
    }

    /// Creates an ENI and plugs it in.
    pub(crate) fn attached(&mut self, device: u16) -> EniId {
        let eni = self.create("a");
        let attach = self.attach(&eni, device);
        self.call(attach);
        eni
    }

    pub(crate) fn assign(&self, eni: &EniId, count: u32) -> AssignPrivateIpAddresses {
        AssignPrivateIpAddresses {
            network_interface_id: Some(eni.clone()),
            secondary_private_ip_address_count: Some(count),
            ..Default::default()
        }
    }

    pub(crate) fn enis(&mut self) -> Vec<NetworkInterface> {
        let Response::DescribeNetworkInterfaces { network_interfaces, .. } =
            self.call(DescribeNetworkInterfaces::default())
        else {
            panic!("another response")
        };
        network_interfaces
    }

    pub(crate) fn find(&mut self, id: &EniId) -> Option<NetworkInterface> {
        self.enis().into_iter().find(|eni| eni.id == *id)
    }

    pub(crate) fn primary(&mut self) -> NetworkInterface {
        let node = self.node.clone();
        let primary = self.enis().into_iter().find(|eni| {
            eni.attachment.as_ref().is_some_and(|a| a.instance_id == node && a.device_index.0 == 0)
        });
        primary.unwrap()
    }

    pub(crate) fn imds(&mut self, path: &str) -> Option<String> {
        self.cloud.imds(self.now, &self.node, path)
    }

    /// Number of ENIs that the node really has.
    pub(crate) fn plugged(&mut self) -> usize {
        let truth = self.cloud.truth(self.now);
        truth.instances.iter().find(|i| i.id == self.node).map_or(0, |i| i.enis.len())
    }
}
