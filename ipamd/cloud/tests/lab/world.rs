//! A cloud with one instance, and an adapter on this instance.

use config_model::{CardIndex, DeviceIndex, EniId, InstanceId, SubnetId};
use ipamd_cloud::{CallReport, Cloud, Ec2, Options};
use ipamd_core::{CloudAnswer, CloudCall, CloudFault, SeenEni, Want};
use lab_cloud::{CloudSpec, Fault, Launch, Throttling, Timing, Truth};
use lab_server::{LiveCloud, Loopback, serve_loopback};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// A call as the observer received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) action: &'static str,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Reports(Arc<Mutex<Vec<Reported>>>);

impl Reports {
    pub(crate) fn observer(&self) -> impl Fn(&CallReport<'_>) + Send + Sync + 'static {
        let reports = Arc::clone(&self.0);
        move |report| {
            reports.lock().unwrap().push(Reported {
                action: report.action,
                status: report.status,
                error: report.error.map(str::to_owned),
            });
        }
    }

    pub(crate) fn take(&self) -> Vec<Reported> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub(crate) struct World {
    pub(crate) cloud: LiveCloud,
    pub(crate) lab: Loopback,
    pub(crate) instance: InstanceId,
    pub(crate) subnet: SubnetId,
    pub(crate) ec2: Ec2,
    pub(crate) reports: Reports,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with("c5.xlarge", Options::default(), |_, _| {}).await
    }

    /// A world in which nothing takes time, unless the spec is changed.
    pub(crate) async fn with(
        instance_type: &str,
        options: Options,
        change: impl FnOnce(&mut CloudSpec, &mut Launch),
    ) -> Self {
        let mut spec = CloudSpec { timing: Timing::INSTANT, ..CloudSpec::two_zones() };
        spec.throttling = Throttling::Off;
        let mut launch = Launch::new("n1", instance_type, SubnetId::new(""));
        change(&mut spec, &mut launch);
        let cloud = LiveCloud::new(spec, 7).unwrap();
        let (instance, subnet) = cloud.with(|cloud, now| {
            launch.subnet = cloud.subnet_named("a").unwrap().id.clone();
            (cloud.launch(now, launch.clone()).unwrap(), launch.subnet)
        });
        let lab = serve_loopback(cloud.clone(), instance.clone()).await.unwrap();
        let reports = Reports::default();
        let options = Options {
            ec2_endpoint: Some(lab.ec2_endpoint()),
            imds_endpoint: Some(lab.imds_endpoint()),
            ..options
        };
        let ec2 = Ec2::connect(options, reports.observer()).await.unwrap();
        Self { cloud, lab, instance, subnet, ec2, reports }
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        self.cloud.with(|cloud, now| cloud.set_fault(now, fault));
    }

    pub(crate) fn clear_faults(&self) {
        self.cloud.with(|cloud, now| cloud.clear_faults(now));
    }

    pub(crate) fn truth(&self) -> Truth {
        self.cloud.truth()
    }

    pub(crate) fn creation(&self, token: &str, secondary_count: u16) -> CloudCall {
        self.creation_of(token, Want::Addresses(secondary_count))
    }

    pub(crate) fn creation_of(&self, token: &str, want: Want) -> CloudCall {
        CloudCall::CreateEni {
            token: token.to_owned(),
            subnet: self.subnet.clone(),
            groups: Vec::new(),
            want,
            tags: BTreeMap::from([("owner".to_owned(), "ferrule".to_owned())]),
            description: "ferrule n1".to_owned(),
        }
    }

    pub(crate) async fn create(&self, token: &str, secondary_count: u16) -> SeenEni {
        self.creates(token, Want::Addresses(secondary_count)).await
    }

    pub(crate) async fn creates(&self, token: &str, want: Want) -> SeenEni {
        let answer = self.ec2.execute(self.creation_of(token, want)).await.unwrap();
        let CloudAnswer::Created(eni) = answer else { panic!("{answer:?}") };
        eni
    }

    pub(crate) fn attachment(&self, eni: &EniId, device: u16) -> CloudCall {
        CloudCall::AttachEni {
            eni: eni.clone(),
            instance: self.instance.clone(),
            card: CardIndex(0),
            device: DeviceIndex(device),
        }
    }

    pub(crate) async fn attached(&self, token: &str, secondary_count: u16, device: u16) -> SeenEni {
        let eni = self.create(token, secondary_count).await;
        self.ec2.execute(self.attachment(&eni.id, device)).await.unwrap();
        self.describe(&eni.id).await.unwrap()
    }

    pub(crate) async fn describe(&self, eni: &EniId) -> Result<SeenEni, CloudFault> {
        let answer = self.ec2.execute(CloudCall::DescribeEni { eni: eni.clone() }).await?;
        let CloudAnswer::Described(eni) = answer else { panic!("{answer:?}") };
        Ok(eni)
    }
}
