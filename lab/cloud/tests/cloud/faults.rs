//! Throttling, lag and other bad weather.

use crate::world::{World, quiet};
use config_model::{Span, Time};
use lab_cloud::{
    Action, AttachmentChange, AttachmentStatus, Bucket, CallError, CreateNetworkInterface,
    CreateTags, DescribeNetworkInterfaces, DescribeSubnets, DescribeVpcs, DetachNetworkInterface,
    Ec2Error, Fault, Filter, InstanceState, ModifyNetworkInterfaceAttribute, Request, Tag,
    Throttling,
};

fn describe_filtered() -> Request {
    DescribeNetworkInterfaces {
        filters: vec![Filter::new("status", ["in-use"])],
        ..Default::default()
    }
    .into()
}

/// Number of calls in a row that are answered before one is throttled.
fn burst(world: &mut World, request: &Request) -> u32 {
    for passed in 0..10_000 {
        match world.try_call(request.clone()) {
            Ok(_) => {}
            Err(CallError::Refused(error)) => {
                assert_eq!(error.code, "RequestLimitExceeded");
                assert_eq!(error.http_status, 503);
                return passed;
            }
            Err(CallError::ReplyLost) => panic!("no reply was to be lost"),
        }
    }
    panic!("never throttled");
}

#[test]
fn published_buckets_throttle_each_action_by_itself() {
    let mut spec = quiet();
    spec.throttling = Throttling::Published;
    let mut world = World::of(spec, "c5.large");
    let id = world.primary().id.to_string();
    let tag = Request::from(CreateTags {
        resources: vec![id],
        tags: vec![Tag::new("a", "b")],
        ..Default::default()
    });
    assert_eq!(burst(&mut world, &tag), 100);
    assert_eq!(burst(&mut world, &describe_filtered()), 100);
    world.pass(Span::seconds(1));
    assert_eq!(burst(&mut world, &tag), 10);
    assert_eq!(burst(&mut world, &describe_filtered()), 20);
    // Listing everything has a smaller bucket; `primary` above took one token of it.
    world.pass(Span::seconds(60));
    assert_eq!(burst(&mut world, &DescribeNetworkInterfaces::default().into()), 50);
}

#[test]
fn a_throttled_call_does_nothing() {
    let mut spec = quiet();
    spec.throttling = Throttling::Uniform(Bucket::new(1, 0));
    let mut world = World::of(spec, "c5.large");
    world.create("a");
    let version = world.cloud.version(world.now);
    let create =
        CreateNetworkInterface { subnet_id: Some(world.subnet("a")), ..Default::default() };
    assert_eq!(world.refusal(create).code, "RequestLimitExceeded");
    assert_eq!(world.cloud.version(world.now), version);
}

#[test]
fn every_second_call_can_be_throttled() {
    let mut world = World::new();
    let id = world.cloud.set_fault(world.now, Fault::ThrottleEveryNth { action: None, nth: 2 });
    let pattern: Vec<bool> =
        (0..6).map(|_| world.try_call(DescribeVpcs::default()).is_ok()).collect();
    assert_eq!(pattern, [true, false, true, false, true, false]);
    // Each action is counted by itself.
    assert!(world.try_call(DescribeSubnets::default()).is_ok());
    assert!(world.cloud.clear_fault(world.now, id));
    assert!(!world.cloud.clear_fault(world.now, id));
    assert!((0..6).all(|_| world.try_call(DescribeVpcs::default()).is_ok()));
}

#[test]
fn a_bucket_can_be_replaced() {
    let mut world = World::new();
    let fault = Fault::ThrottleBucket {
        action: Some(Action::DescribeVpcs),
        bucket: Bucket { burst: 2, refill_milli_per_second: 500 },
    };
    world.cloud.set_fault(world.now, fault);
    let vpcs = Request::from(DescribeVpcs::default());
    assert_eq!(burst(&mut world, &vpcs), 2);
    world.pass(Span::seconds(2));
    assert_eq!(burst(&mut world, &vpcs), 1);
    world.cloud.clear_faults(world.now);
    assert!((0..10).all(|_| world.try_call(DescribeVpcs::default()).is_ok()));
}

#[test]
fn an_error_occurs_the_ordered_number_of_times_and_before_any_change() {
    let mut world = World::new();
    let error = Ec2Error::new("InternalError", "An internal error has occurred").with_status(500);
    let fault = Fault::Error {
        action: Some(Action::CreateNetworkInterface),
        error: error.clone(),
        times: Some(2),
    };
    let id = world.cloud.set_fault(world.now, fault.clone());
    let count = world.enis().len();
    let create =
        CreateNetworkInterface { subnet_id: Some(world.subnet("a")), ..Default::default() };
    assert_eq!(world.refusal(create.clone()), error);
    let Fault::Error { times, .. } = &world.cloud.faults()[0].1 else { panic!() };
    assert_eq!((world.cloud.faults()[0].0, *times), (id, Some(1)));
    assert_eq!(world.refusal(create.clone()), error);
    assert_eq!(world.enis().len(), count);
    world.create_with(create);
    assert_eq!(world.enis().len(), count + 1);
}

#[test]
fn a_lost_reply_is_lost_after_the_act_and_a_token_finds_what_was_made() {
    let mut world = World::new();
    let count = world.enis().len();
    let fault = Fault::LoseReply { action: Some(Action::CreateNetworkInterface), times: Some(1) };
    world.cloud.set_fault(world.now, fault);
    let create = CreateNetworkInterface {
        subnet_id: Some(world.subnet("a")),
        client_token: Some("once".to_owned()),
        ..Default::default()
    };
    assert_eq!(world.try_call(create.clone()), Err(CallError::ReplyLost));
    assert_eq!(world.enis().len(), count + 1);
    let made = world.create_with(create).id;
    assert_eq!(world.enis().len(), count + 1);
    assert!(world.find(&made).is_some());
}

#[test]
fn latency_lasts_as_long_as_the_fault() {
    let mut spec = quiet();
    spec.timing.mutate_latency = Span::millis(400);
    let mut world = World::of(spec, "c5.large");
    for ms in 0..200 {
        let usual = world.cloud.latency(Time(ms), Action::CreateNetworkInterface);
        assert!((300..=505).contains(&usual.0), "{usual:?}");
    }
    world.now = Time(200);
    let fault =
        Fault::Latency { action: Some(Action::CreateNetworkInterface), latency: Span::seconds(9) };
    let id = world.cloud.set_fault(world.now, fault);
    let create = Action::CreateNetworkInterface;
    assert_eq!(world.cloud.latency(world.now, create), Span::seconds(9));
    assert_eq!(world.cloud.latency(world.now, Action::DescribeVpcs), Span(0));
    world.cloud.clear_fault(world.now, id);
    assert!(world.cloud.latency(world.now, create) < Span::seconds(1));
}

#[test]
fn an_attach_that_hangs_completes_after_the_fault_is_cleared() {
    let mut spec = quiet();
    spec.timing.attach = Span::seconds(5);
    let mut world = World::of(spec, "c5.large");
    let fault = Fault::AttachNeverCompletes { instance: None };
    let id = world.cloud.set_fault(world.now, fault);
    let (stuck, given_up) = (world.attached(1), world.attached(2));
    world.pass(Span::seconds(86_400));
    let status = |world: &mut World, eni| world.find(eni).unwrap().attachment.map(|a| a.status);
    assert_eq!(status(&mut world, &stuck), Some(AttachmentStatus::Attaching));
    assert_eq!(world.plugged(), 1);
    // It can be given up: a forced detach of a stuck attachment works.
    let attachment_id = world.find(&given_up).unwrap().attachment.map(|a| a.id);
    world.call(DetachNetworkInterface { attachment_id, force: true, ..Default::default() });
    assert_eq!(status(&mut world, &given_up), None);
    world.cloud.clear_fault(world.now, id);
    world.pass(Span::seconds(5));
    assert_eq!(status(&mut world, &stuck), Some(AttachmentStatus::Attached));
    assert_eq!(status(&mut world, &given_up), None);
    assert_eq!(world.plugged(), 2);
}

#[test]
fn reads_are_behind_by_the_lag_and_the_truth_is_not() {
    let mut spec = quiet();
    spec.timing.read_lag = Span::seconds(3);
    // Somebody else looks further back, so older states are kept.
    spec.timing.imds_lag = Span::seconds(30);
    let mut world = World::of(spec, "c5.large");
    world.pass(Span::seconds(100));
    let eni = world.attached(1);
    let describe = DescribeNetworkInterfaces {
        network_interface_ids: vec![eni.clone()],
        ..Default::default()
    };
    assert_eq!(world.plugged(), 2);
    assert_eq!(world.refusal(describe.clone()).code, "InvalidNetworkInterfaceID.NotFound");
    assert_eq!(world.find(&eni), None);
    world.pass(Span::millis(2_999));
    assert_eq!(world.refusal(describe.clone()).code, "InvalidNetworkInterfaceID.NotFound");
    world.pass(Span::millis(1));
    world.call(describe);
}

#[test]
fn a_lag_that_begins_now_does_not_show_the_past() {
    let mut world = World::new();
    let before = world.attached(1);
    world.pass(Span::seconds(5));
    let id = world.cloud.set_fault(world.now, Fault::ReadLag { lag: Span::seconds(30) });
    let imds = world.cloud.set_fault(world.now, Fault::ImdsLag { lag: Span::seconds(30) });
    let after = world.attached(2);
    let macs = |world: &mut World| {
        world.imds("/latest/meta-data/network/interfaces/macs/").unwrap().lines().count()
    };
    for _ in 0..29 {
        assert!(world.find(&before).is_some());
        assert_eq!(world.find(&after), None);
        assert_eq!(macs(&mut world), 2);
        world.pass(Span::seconds(1));
    }
    world.pass(Span::seconds(1));
    assert!(world.find(&after).is_some());
    assert_eq!(macs(&mut world), 3);
    world.cloud.clear_fault(world.now, id);
    world.cloud.clear_fault(world.now, imds);
    let at_once = world.create("a");
    assert!(world.find(&at_once).is_some());
}

#[test]
fn imds_can_be_made_to_fail_for_one_instance() {
    let mut world = World::new();
    let node = world.node.clone();
    let other = config_model::InstanceId::new("i-other");
    let fault = Fault::ImdsStatus { instance: Some(node.clone()), status: 503 };
    world.cloud.set_fault(world.now, fault);
    assert_eq!(world.cloud.imds_outage(&node), Some(503));
    assert_eq!(world.cloud.imds_outage(&other), None);
    world.cloud.clear_faults(world.now);
    assert_eq!(world.cloud.imds_outage(&node), None);
}

#[test]
fn time_that_goes_back_is_taken_as_the_latest() {
    let mut spec = quiet();
    spec.timing.boot = Span::seconds(5);
    let mut world = World::of(spec, "c5.large");
    let state = |world: &mut World, now| world.cloud.truth(now).instances[0].state;
    assert_eq!(state(&mut world, Time(4_999)), InstanceState::Pending);
    assert_eq!(state(&mut world, Time(5_000)), InstanceState::Running);
    assert_eq!(state(&mut world, Time(0)), InstanceState::Running);
}

#[test]
fn ec2_may_accept_delete_on_termination_and_forget_it() {
    let mut world = World::new();
    let eni = world.attached(1);
    let forgets = Fault::ForgetDeleteOnTermination { times: Some(1) };
    world.cloud.set_fault(world.now, forgets);
    let mut keep = || {
        let attachment_id = world.find(&eni).unwrap().attachment.map(|a| a.id);
        let attachment =
            Some(AttachmentChange { attachment_id, delete_on_termination: Some(true) });
        world.call(ModifyNetworkInterfaceAttribute {
            network_interface_id: Some(eni.clone()),
            attachment,
            ..Default::default()
        });
        world.find(&eni).unwrap().attachment.unwrap().delete_on_termination
    };
    assert_eq!([keep(), keep()], [false, true]);
}
