//! The SDK's own environment variables, which need a process of their own.

use crate::world::World;
use ipamd_cloud::{CallReport, Cloud, Ec2, Options};
use ipamd_core::Witness;
use std::process::Command;

const INSTANCE: &str = "FERRULE_TEST_INSTANCE";

/// The other half of the next test: this very test binary with another environment.
#[tokio::test]
async fn by_environment_alone() {
    let Ok(instance) = std::env::var(INSTANCE) else { return };
    let ec2 = Ec2::connect(Options::default(), |_: &CallReport<'_>| {}).await.unwrap();
    let node = ec2.node().await.unwrap();
    assert_eq!(node.instance.as_str(), instance);
    let enis = ec2.look(Witness::Ec2, &node.instance).await.unwrap();
    assert_eq!(enis[0].id, node.primary_eni);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_region_and_credentials_come_by_the_sdks_own_environment() {
    let world = World::new().await;
    let mut child = Command::new("/proc/self/exe");
    child
        .args(["--exact", "environment::by_environment_alone"])
        .env(INSTANCE, world.instance.as_str())
        .env("AWS_ENDPOINT_URL_EC2", world.lab.ec2_endpoint())
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", world.lab.imds_endpoint())
        .env("HOME", "/nonexistent");
    for variable in ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"] {
        child.env_remove(variable);
    }
    let done = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let asked = ("DescribeNetworkInterfaces".to_owned(), "ok".to_owned());
    assert_eq!(world.cloud.calls().get(&asked), Some(&1), "{said}");
}
