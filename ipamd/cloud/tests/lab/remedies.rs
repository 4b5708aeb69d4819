//! Every way in which EC2 fails, and what is to be done about it.

use crate::world::World;
use config_model::Span;
use ipamd_cloud::{Cloud, Options};
use ipamd_core::{CloudCall, Remedy, Want};
use ipnet::Ipv4Net;
use lab_cloud::{Action, Ec2Error, Fault, Iam};
use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

const AGAIN: Remedy = Remedy::RetryAfter { wait: None };

#[tokio::test]
async fn each_error_of_ec2_has_its_remedy() {
    let world = World::new().await;
    for (code, status, wanted) in [
        ("RequestLimitExceeded", 503, AGAIN),
        ("Throttling", 400, AGAIN),
        ("InternalError", 500, AGAIN),
        ("Unavailable", 503, AGAIN),
        ("IncorrectState", 400, AGAIN),
        ("InsufficientFreeAddressesInSubnet", 400, Remedy::TryElsewhere),
        ("InsufficientCidrBlocks", 400, Remedy::TryElsewhere),
        ("NetworkInterfaceLimitExceeded", 400, Remedy::LimitReached),
        ("PrivateIpAddressLimitExceeded", 400, Remedy::LimitReached),
        ("InvalidSubnetID.NotFound", 400, Remedy::Gone),
        ("AuthFailure", 401, Remedy::NotifyOperator),
        ("InvalidParameterValue", 400, Remedy::NotifyOperator),
    ] {
        let error = Ec2Error::new(code, "as the test requires").with_status(status);
        world.set_fault(Fault::Error { action: None, error, times: Some(1) });
        let fault = world.ec2.execute(world.creation("token", 1)).await.unwrap_err();
        assert_eq!((fault.remedy, fault.code.as_str()), (wanted, code), "{fault}");
        assert!(fault.message.contains("as the test requires"), "{fault}");
    }
    // The adapter repeated no call, because the core has the budget.
    let asked: u64 = world.cloud.calls().values().sum();
    assert_eq!(asked, 12);
}

#[tokio::test]
async fn throttling_leads_to_a_retry_and_the_next_call_succeeds() {
    let world = World::new().await;
    world.set_fault(Fault::ThrottleEveryNth { action: None, nth: 2 });
    let mut outcomes = Vec::new();
    for token in ["a", "b", "c", "d"] {
        let result = world.ec2.execute(world.creation(token, 1)).await;
        outcomes.push(result.map(drop).map_err(|fault| fault.remedy));
    }
    let throttled = outcomes.iter().filter(|outcome| **outcome == Err(AGAIN)).count();
    assert_eq!((throttled, outcomes.iter().filter(|o| o.is_ok()).count()), (2, 2), "{outcomes:?}");
    let refused = world.cloud.calls();
    let key = ("CreateNetworkInterface".to_owned(), "RequestLimitExceeded".to_owned());
    assert_eq!(refused.get(&key), Some(&2));
}

#[tokio::test]
async fn limits_of_the_instance_differ_from_a_device_index_in_use() {
    let world = World::new().await;
    let first = world.attached("token-1", 1, 1).await;
    let assign = CloudCall::Assign { eni: first.id.clone(), want: Want::Addresses(14) };
    let fault = world.ec2.execute(assign).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::LimitReached, "{fault}");

    let second = world.create("token-2", 0).await;
    let fault = world.ec2.execute(world.attachment(&second.id, 1)).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::TryElsewhere, "{fault}");
    world.ec2.execute(world.attachment(&second.id, 2)).await.unwrap();
    world.attached("token-3", 0, 3).await;
    let fifth = world.create("token-4", 0).await;
    let fault = world.ec2.execute(world.attachment(&fifth.id, 4)).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::LimitReached, "{fault}");
}

#[tokio::test]
async fn a_full_subnet_leads_creation_and_assignment_elsewhere() {
    let world = World::with("c5.xlarge", Options::default(), |spec, _| {
        spec.subnets[0].cidr = Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 28);
    })
    .await;
    let eni = world.attached("token-1", 5, 1).await;
    let fault = world.ec2.execute(world.creation("token-2", 8)).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::TryElsewhere, "{fault}");
    let assign = CloudCall::Assign { eni: eni.id, want: Want::Addresses(8) };
    let fault = world.ec2.execute(assign).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::TryElsewhere, "{fault}");
}

#[tokio::test]
async fn missing_objects_count_as_deleted_and_objects_in_use_are_retried() {
    let world = World::new().await;
    let nowhere = || "eni-00000000000000000".into();
    for call in [
        CloudCall::DescribeEni { eni: nowhere() },
        CloudCall::DeleteEni { eni: nowhere() },
        CloudCall::Assign { eni: nowhere(), want: Want::Addresses(1) },
        CloudCall::DetachEni { eni: nowhere(), attachment: "eni-attach-00000000".into() },
        world.attachment(&nowhere(), 1),
    ] {
        let fault = world.ec2.execute(call.clone()).await.unwrap_err();
        assert_eq!(fault.remedy, Remedy::Gone, "{call:?}: {fault}");
    }
    let eni = world.attached("token-1", 0, 1).await;
    let fault = world.ec2.execute(CloudCall::DeleteEni { eni: eni.id }).await.unwrap_err();
    assert_eq!(fault.remedy, AGAIN, "{fault}");
}

#[tokio::test]
async fn a_missing_permission_is_reported_by_name() {
    let world = World::new().await;
    let deny = BTreeSet::from(["CreateNetworkInterface".to_owned()]);
    world.cloud.with(|cloud, _| cloud.set_iam("lab-node", Iam { deny }));
    let fault = world.ec2.execute(world.creation("token", 1)).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::NotifyOperator);
    assert!(fault.message.contains("lacks ec2:CreateNetworkInterface"), "{fault}");
    let secret = world.cloud.with(|cloud, now| {
        let path = "/latest/meta-data/iam/security-credentials/lab-node";
        cloud.imds(now, &world.instance, path).unwrap()
    });
    let secret = secret.split("SecretAccessKey").nth(1).unwrap();
    let secret = secret.split('"').nth(2).unwrap();
    assert!(secret.starts_with("lab"), "{secret}");
    let shown = format!("{fault} {fault:?} {:?}", world.ec2);
    assert!(!shown.contains(secret), "{shown}");
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_the_token_finds_the_eni() {
    let world = World::new().await;
    let create = Some(Action::CreateNetworkInterface);
    world.set_fault(Fault::LoseReply { action: create, times: Some(1) });
    let fault = world.ec2.execute(world.creation("token", 2)).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::Unknown, "{fault}");
    let found = world.create("token", 2).await;
    let assign = Some(Action::AssignPrivateIpAddresses);
    world.set_fault(Fault::LoseReply { action: assign, times: Some(1) });
    let call = CloudCall::Assign { eni: found.id.clone(), want: Want::Addresses(1) };
    let fault = world.ec2.execute(call).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::Unknown, "{fault}");
    assert_eq!(world.describe(&found.id).await.unwrap().blocks.len(), 3);
    // Lost once, asked once.
    let lost = ("AssignPrivateIpAddresses".to_owned(), "reply-lost".to_owned());
    assert_eq!(world.cloud.calls().get(&lost), Some(&1));
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_unknown() {
    let options = Options { call_timeout: Duration::from_millis(500), ..Options::default() };
    let world = World::with("c5.xlarge", options, |_, _| {}).await;
    let eni = world.create("token", 0).await;
    let assign = Some(Action::AssignPrivateIpAddresses);
    world.set_fault(Fault::Latency { action: assign, latency: Span::seconds(60) });
    let call = CloudCall::Assign { eni: eni.id, want: Want::Addresses(1) };
    let fault = world.ec2.execute(call).await.unwrap_err();
    assert_eq!((fault.remedy, fault.code.as_str()), (Remedy::Unknown, "Timeout"), "{fault}");
}

#[tokio::test]
async fn a_missing_role_is_reported_to_the_operator() {
    let world = World::with("c5.xlarge", Options::default(), |_, launch| launch.role = None).await;
    let fault = world.ec2.execute(world.creation("token", 0)).await.unwrap_err();
    assert_eq!((fault.remedy, fault.code.as_str()), (Remedy::NotifyOperator, "NoCredentials"));
}

#[tokio::test]
async fn unavailable_credentials_are_retried_later() {
    let world = World::new().await;
    world.set_fault(Fault::ImdsStatus { instance: None, status: 500 });
    let fault = world.ec2.execute(world.creation("token", 0)).await.unwrap_err();
    assert_eq!((fault.remedy, fault.code.as_str()), (AGAIN, "Credentials"), "{fault}");
    world.clear_faults();
    world.create("token", 0).await;
}
