//! An instance type whose limits EC2 does not report.

use crate::world::{Cloud, World};
use config_model::Span;
use ipamd_core::{CloudFault, ClusterFact, Event, Limits, PoolConfig, Remedy, Topic};

fn limits_unknown() -> Event {
    let fault = CloudFault {
        code: "UnauthorizedOperation".to_owned(),
        message: "the node's role lacks ec2:DescribeInstanceTypes".to_owned(),
        remedy: Remedy::NotifyOperator,
    };
    Event::LimitsUnknown { instance_type: "z9.mystery".to_owned(), fault }
}

/// A node that has `there` addresses and does not know its limits.
fn world(there: u16, config: PoolConfig) -> World {
    let cloud = Cloud::new(4, 10, there);
    let node = World::node(&cloud);
    let mut world = World::start(config, Limits::boundless(), node, cloud);
    world.send(limits_unknown());
    world
}

#[test]
fn without_limits_pods_get_present_addresses_and_nothing_is_created() {
    let mut world = world(3, PoolConfig::default());
    let tickets = world.reserve_all(0..4);
    world.pass(Span::seconds(300));
    assert_eq!(tickets.iter().filter(|ticket| world.served(**ticket)).count(), 3);
    assert_eq!(world.cloud.log.len(), 0, "{:?}", world.cloud.log);
    let of = |topic| world.notices.iter().find(move |notice| notice.topic == topic).cloned();
    for topic in [Topic::LimitsUnknown, Topic::ReserveRefused] {
        let notice = of(topic).unwrap();
        let text = format!("{} {}", notice.object, notice.cause);
        assert!(text.contains("z9.mystery") && text.contains("lacks ec2:Describe"), "{notice:?}");
        assert!(notice.next_step.contains("allow ec2:DescribeInstanceTypes"), "{notice:?}");
    }
    world.send(limits_unknown());
    assert_eq!(world.count_of(Topic::LimitsUnknown), 1, "the same fault is not reported again");

    world.send(Event::LimitsReported { limits: Limits::one_card(4, 10), max_pods: 29 });
    let late = world.reserve_all(4..20);
    world.pass(Span::seconds(60));
    assert!(late.iter().all(|ticket| world.served(*ticket)));
    assert!(world.split().iter().all(|count| *count <= 9), "{:?}", world.split());
}

#[test]
fn max_pods_of_the_node_override_those_of_the_limits() {
    let mut world = world(1, PoolConfig { minimum_ip_target: Some(30), ..PoolConfig::default() });
    world.send(Event::Cluster(ClusterFact::MaxPods(5)));
    world.send(Event::LimitsReported { limits: Limits::one_card(4, 10), max_pods: 29 });
    world.pass(Span::seconds(60));
    // The first ENI already has more than five addresses.
    assert_eq!(world.split(), [9]);
}

#[test]
fn a_type_without_prefixes_gives_single_addresses_once_its_limits_are_known() {
    let config = PoolConfig { prefixes: true, ..PoolConfig::default() };
    let mut world = world(1, config);
    world.pass(Span::seconds(60));
    let limits = Limits { prefixes: false, ..Limits::one_card(4, 10) };
    world.send(Event::LimitsReported { limits, max_pods: 29 });
    world.pass(Span::seconds(60));
    assert!(world.reserve_all(0..9).len() == 9);
    world.pass(Span::seconds(60));
    assert!(world.cloud.log.iter().all(|call| !format!("{call:?}").contains("Prefixes")));
    assert!(world.split().iter().sum::<usize>() >= 9, "{:?}", world.split());
}
