//! Answers that the lab would not give: pages, proxies, broken connections.

use crate::{
    stub::Stub,
    world::{Reports, World},
};
use config_model::Span;
use ipamd_cloud::{Cloud, Ec2, Options};
use ipamd_core::{CloudCall, CloudFault, Remedy, Witness};
use std::sync::{Arc, Mutex};

/// An adapter whose EC2 is elsewhere and whose credentials are the lab's.
async fn with_ec2_at(world: &World, url: String) -> Ec2 {
    let options = Options {
        ec2_endpoint: Some(url),
        imds_endpoint: Some(world.lab.imds_endpoint()),
        ..Options::default()
    };
    Ec2::connect(options, Reports::default().observer()).await.unwrap()
}

async fn deletion(answer: &str) -> CloudFault {
    let world = World::new().await;
    let answer = answer.to_owned();
    let stub = Stub::serve(move |_, _, _| answer.clone()).await;
    let ec2 = with_ec2_at(&world, stub.url()).await;
    ec2.execute(CloudCall::DeleteEni { eni: "eni-1".into() }).await.unwrap_err()
}

#[tokio::test]
async fn the_wait_in_the_answer_is_passed_on() {
    let body = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>m</Message>\
                </Error></Errors><RequestID>1</RequestID></Response>";
    let answer = Stub::answer(503, body).replacen("\r\n", "\r\nretry-after: 7\r\n", 1);
    let fault = deletion(&answer).await;
    assert_eq!(fault.remedy, Remedy::RetryAfter { wait: Some(Span::seconds(7)) }, "{fault}");
}

#[tokio::test]
async fn a_proxy_that_answers_in_place_of_ec2_leaves_the_outcome_unknown() {
    let fault = deletion(&Stub::answer(502, "<html>bad gateway</html>")).await;
    assert_eq!(fault.remedy, Remedy::Unknown, "{fault}");
    let fault = deletion(&Stub::answer(503, "")).await;
    assert_eq!(fault.remedy, Remedy::RetryAfter { wait: None }, "{fault}");
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_the_outcome_unknown() {
    for cut in ["", "HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n<Delete"] {
        let fault = deletion(cut).await;
        assert_eq!(fault.remedy, Remedy::Unknown, "{cut:?}: {fault}");
    }
}

#[tokio::test]
async fn a_refused_connection_means_that_the_call_did_nothing() {
    let world = World::new().await;
    let nobody = Stub::serve(|_, _, _| String::new()).await.url();
    let ec2 = with_ec2_at(&world, nobody).await;
    let fault = loop {
        // The stub's port is closed when its task has noticed that it was dropped.
        let call = CloudCall::DeleteEni { eni: "eni-1".into() };
        let fault = ec2.execute(call).await.unwrap_err();
        if fault.code == "Connect" {
            break fault;
        }
    };
    assert_eq!(fault.remedy, Remedy::RetryAfter { wait: None }, "{fault}");
}

fn page(eni: &str, next: Option<&str>) -> String {
    let next = next.map(|token| format!("<nextToken>{token}</nextToken>")).unwrap_or_default();
    let body = format!(
        "<DescribeNetworkInterfacesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
         <requestId>1</requestId><networkInterfaceSet><item>\
         <networkInterfaceId>{eni}</networkInterfaceId><subnetId>subnet-1</subnetId>\
         <macAddress>02:00:00:00:00:01</macAddress><privateIpAddress>10.0.0.9</privateIpAddress>\
         </item></networkInterfaceSet>{next}</DescribeNetworkInterfacesResponse>"
    );
    Stub::answer(200, &body)
}

#[tokio::test]
async fn a_search_reads_every_page() {
    let world = World::new().await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let stub = Stub::serve(move |_, _, body| {
        log.lock().unwrap().push(body.to_owned());
        match body {
            _ if body.contains("NextToken=two") => page("eni-2", None),
            _ => page("eni-1", Some("two")),
        }
    })
    .await;
    let ec2 = with_ec2_at(&world, stub.url()).await;
    let enis = ec2.look(Witness::Ec2, &"i-1".into()).await.unwrap();
    let ids: Vec<_> = enis.iter().map(|eni| eni.id.as_str()).collect();
    assert_eq!(ids, ["eni-1", "eni-2"]);
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|body| body.contains("Filter.1.Name=attachment.instance-id")));
    assert_eq!(asked.len(), 2);
}

#[tokio::test]
async fn endless_pages_and_enis_without_a_mac_fail_the_search() {
    let world = World::new().await;
    let endless = Stub::serve(|_, _, _| page("eni-1", Some("again"))).await;
    let fault = with_ec2_at(&world, endless.url()).await.look(Witness::Ec2, &"i-1".into()).await;
    assert_eq!(fault.unwrap_err().code, "Incomplete");
    let nameless = Stub::serve(|_, _, _| page("eni-1", None).replace("macAddress", "macAdresse"));
    let fault =
        with_ec2_at(&world, nameless.await.url()).await.look(Witness::Ec2, &"i-1".into()).await;
    assert!(fault.is_err());
}
