//! The metadata service: complete, late, or broken.

use crate::{
    stub::Stub,
    world::{Reports, World},
};
use config_model::{CardIndex, DeviceIndex, Span};
use ipamd_cloud::{Cloud, Ec2, Options};
use ipamd_core::{Remedy, Witness};
use lab_cloud::Fault;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn the_node_is_described_as_it_is() {
    let world = World::new().await;
    let node = world.ec2.node().await.unwrap();
    let truth = world.truth();
    let (instance, primary) = (&truth.instances[0], &truth.instances[0].enis[0]);
    assert_eq!((&node.instance, node.instance_type.as_str()), (&instance.id, "c5.xlarge"));
    assert_eq!(
        (node.region.as_str(), node.availability_zone.as_str()),
        ("eu-west-1", "eu-west-1a")
    );
    assert_eq!((node.local_ipv4, node.primary_mac), (Some(primary.primary), primary.mac));
    assert_eq!((&node.primary_eni, &node.subnet), (&primary.id, &primary.subnet_id));
    assert_eq!(
        (node.subnet_cidr, &node.security_groups),
        (Some(primary.subnet_cidr), &primary.security_groups)
    );
    assert_eq!((&node.vpc, &node.vpc_v4_cidrs), (&truth.vpc_id, &truth.vpc_cidrs));
}

#[tokio::test]
async fn the_card_is_shown_if_there_are_several() {
    let world = World::with("p4d.24xlarge", Options::default(), |_, _| {}).await;
    let eni = world.create("token", 0).await;
    let mut attach = world.attachment(&eni.id, 1);
    if let ipamd_core::CloudCall::AttachEni { card, .. } = &mut attach {
        *card = CardIndex(2);
    }
    world.ec2.execute(attach).await.unwrap();
    let seen = world.ec2.look(Witness::Imds, &world.instance).await.unwrap();
    let places: Vec<_> =
        seen.iter().flat_map(|eni| &eni.attachment).map(|a| (a.card, a.device)).collect();
    assert!(places.contains(&(CardIndex(0), DeviceIndex(0))), "{places:?}");
    assert!(places.contains(&(CardIndex(2), DeviceIndex(1))), "{places:?}");
}

#[tokio::test]
async fn an_eni_that_the_service_does_not_list_yet_is_not_reported() {
    let world = World::new().await;
    world.set_fault(Fault::ImdsLag { lag: Span::seconds(600) });
    let eni = world.attached("token", 2, 1).await;
    let by_imds = world.ec2.look(Witness::Imds, &world.instance).await.unwrap();
    let by_ec2 = world.ec2.look(Witness::Ec2, &world.instance).await.unwrap();
    assert!(by_imds.iter().all(|seen| seen.id != eni.id) && by_imds.len() == 1);
    assert!(by_ec2.iter().any(|seen| seen.id == eni.id));
    world.clear_faults();
    let by_imds = world.ec2.look(Witness::Imds, &world.instance).await.unwrap();
    assert!(by_imds.iter().any(|seen| seen.id == eni.id));
}

#[tokio::test]
async fn a_failing_service_yields_a_fault_and_no_partial_read() {
    let world = World::new().await;
    for (status, wanted) in
        [(500, Remedy::RetryAfter { wait: None }), (403, Remedy::NotifyOperator)]
    {
        world.set_fault(Fault::ImdsStatus { instance: None, status });
        let fault = world.ec2.look(Witness::Imds, &world.instance).await.unwrap_err();
        assert_eq!(fault.remedy, wanted, "{status}: {fault}");
        world.clear_faults();
    }
    assert!(world.ec2.look(Witness::Imds, &world.instance).await.is_ok());
}

const PRIMARY: &str = "02:00:00:00:00:01";
const SECOND: &str = "02:00:00:00:00:02";

/// A node with two ENIs; `broken` answers in place of what the second has at a path.
async fn two_enis(
    broken: impl Fn(&str) -> Option<(u16, &'static str)> + Send + Sync + 'static,
) -> Stub {
    Stub::serve(move |_, path, _| {
        let Some(path) = path.strip_prefix("/latest/") else { return Stub::answer(404, "") };
        let Some(path) = path.strip_prefix("meta-data/") else { return Stub::answer(200, "token") };
        let own = path.strip_prefix("network/interfaces/macs/").and_then(|p| p.split_once('/'));
        let (status, body) = match (path, own) {
            ("mac", _) => (200, PRIMARY.to_owned()),
            ("placement/region", _) => (200, "eu-west-1".to_owned()),
            ("network/interfaces/macs/", _) => (200, format!("{PRIMARY}/\n{SECOND}/\n")),
            (_, Some((SECOND, key))) if broken(key).is_some() => {
                let (status, body) = broken(key).unwrap();
                (status, body.to_owned())
            }
            (_, Some((mac, "interface-id"))) => (200, format!("eni-{}", &mac[15..])),
            (_, Some((_, "device-number"))) => (200, "1".to_owned()),
            (_, Some((_, "subnet-id"))) => (200, "subnet-1".to_owned()),
            (_, Some((_, "subnet-ipv4-cidr-block"))) => (200, "10.0.0.0/20".to_owned()),
            (_, Some((mac, "local-ipv4s"))) => {
                (200, format!("10.0.0.1{0}\n10.0.0.2{0}\n", &mac[16..]))
            }
            _ => (404, "not found".to_owned()),
        };
        Stub::answer(status, &body)
    })
    .await
}

async fn looked(stub: &Stub) -> Result<Vec<ipamd_core::SeenEni>, ipamd_core::CloudFault> {
    let options = Options { imds_endpoint: Some(stub.url()), ..Options::default() };
    let ec2 = Ec2::connect(options, Reports::default().observer()).await.unwrap();
    ec2.look(Witness::Imds, &"i-1".into()).await
}

#[tokio::test]
async fn the_primary_eni_is_device_0_whatever_imds_reports() {
    let enis = looked(&two_enis(|_| None).await).await.unwrap();
    let devices: Vec<_> = enis.iter().map(|eni| eni.attachment.as_ref().unwrap().device).collect();
    assert_eq!(devices, [DeviceIndex(0), DeviceIndex(1)]);
    assert_eq!(enis[1].primary_address, "10.0.0.12".parse().ok());
    assert_eq!(enis[1].blocks.len(), 1);
}

#[tokio::test]
async fn an_eni_detached_during_the_read_is_omitted() {
    for gone in ["interface-id", "device-number", "subnet-id"] {
        let stub = two_enis(move |key| (key == gone).then_some((404, ""))).await;
        let enis = looked(&stub).await.unwrap();
        assert_eq!(enis.len(), 1, "{gone}");
    }
    let asked = AtomicUsize::new(0);
    let stub = two_enis(move |key| {
        let later = key == "interface-id" && asked.fetch_add(1, Ordering::Relaxed) > 0;
        later.then_some((404, ""))
    })
    .await;
    assert_eq!(looked(&stub).await.unwrap().len(), 1, "it was gone when it had been read");
    let stub = two_enis(|key| (key == "subnet-ipv4-cidr-block").then_some((404, ""))).await;
    assert_eq!(looked(&stub).await.unwrap()[1].subnet_cidr, None);
}

#[tokio::test]
async fn an_eni_without_addresses_is_shown_as_that() {
    let stub = two_enis(|key| (key == "local-ipv4s").then_some((404, ""))).await;
    let enis = looked(&stub).await.unwrap();
    assert_eq!((enis.len(), enis[1].primary_address, enis[1].blocks.len()), (2, None, 0));
}

#[tokio::test]
async fn one_failed_or_invalid_field_fails_the_read() {
    let broken: [(&str, (u16, &str)); 4] = [
        ("local-ipv4s", (500, "")),
        ("network-card", (503, "")),
        ("local-ipv4s", (200, "10.0.0.12\nnonsense\n")),
        ("device-number", (200, "-1")),
    ];
    for (field, answer) in broken {
        let stub = two_enis(move |key| (key == field).then_some(answer)).await;
        let fault = looked(&stub).await.unwrap_err();
        assert_eq!(fault.remedy, Remedy::RetryAfter { wait: None }, "{field} {answer:?}: {fault}");
        assert!(fault.message.contains(field), "{fault}");
    }
}
