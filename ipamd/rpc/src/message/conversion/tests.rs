#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use super::*;
use crate::SUPPORTED;
use config_model::HostEndMode;

fn key() -> PodKey {
    PodKey::new("aws-cni", "a1b2", "eth0").unwrap()
}

fn pod() -> Pod {
    let name = PodName { namespace: "default".into(), name: "web-0".into() };
    Pod { name, uid: Some("u-1".into()), infra_container_id: None }
}

fn address() -> PodAddress {
    PodAddress {
        ipv4: Some("10.0.1.7".parse().unwrap()),
        ipv6: Some("2001:db8::7".parse().unwrap()),
        device: DeviceIndex(2),
        table: TableId(3),
        eni: Some("eni-1".into()),
    }
}

fn reservation() -> Reservation {
    Reservation {
        addresses: vec![address()],
        vpc_v4_cidrs: vec!["10.0.0.0/16".parse().unwrap(), "100.64.0.0/10".parse().unwrap()],
        use_external_snat: true,
        rules: RuleLayout::Compact,
        egress: true,
        host_end: HostEndMode::bridged("eni"),
    }
}

fn branch() -> Branch {
    Branch {
        eni: "eni-b".into(),
        mac: "02:00:00:00:00:07".parse().unwrap(),
        vlan: 7,
        address: "10.0.3.9".parse().unwrap(),
        gateway: "10.0.3.1".parse().unwrap(),
        trunk: "02:00:00:00:00:01".parse().unwrap(),
        enforcing: Enforcing::Strict,
    }
}

fn reply(outcome: ReserveOutcome) -> wire::ReserveReply {
    wire::ReserveReply {
        version: 1,
        outcome: Some(outcome.into()),
        policy_agent: None,
        agent: None,
    }
}

#[test]
fn every_request_is_equal_after_a_conversion_to_the_wire_and_back() {
    let reserve = Reserve {
        key: key(),
        pod: pod(),
        netns: "/run/netns/x".into(),
        wait: Span::seconds(45),
        multi_nic: true,
    };
    assert_eq!(Reserve::try_from(reserve.clone().into_wire(SUPPORTED)), Ok(reserve));

    let confirm = Confirm { key: key(), host_interface: "eni0d7763386da".into() };
    assert_eq!(Confirm::try_from(confirm.clone().into_wire(SUPPORTED)), Ok(confirm));

    for cause in [ReleaseCause::PodDeleted, ReleaseCause::SetupFailed] {
        for pod in [Some(pod()), None] {
            let release = Release { key: key(), pod, cause };
            assert_eq!(Release::try_from(release.clone().into_wire(SUPPORTED)), Ok(release));
        }
    }
}

#[test]
fn every_answer_is_equal_after_a_conversion_to_the_wire_and_back() {
    let reserved = ReserveOutcome::Reserved(reservation());
    assert_eq!(reply(reserved.clone()).try_into(), Ok(reserved));

    for reason in [Reason::TryAgain, Reason::Exhausted, Reason::Invalid, Reason::Stopping] {
        let refused = ReserveOutcome::Refused(Refusal {
            reason,
            message: "subnet-1 is full".into(),
            next_step: "add a subnet".into(),
        });
        assert_eq!(reply(refused.clone()).try_into(), Ok(refused));
    }

    for answer in [Released::Known(vec![address()]), Released::Unknown] {
        assert_eq!(reply::released(answer.clone(), None, 1).try_into(), Ok(answer));
    }
    let pod = PodName { namespace: "shop".to_owned(), name: "web-0".to_owned() };
    let plain = |rules| Assignment {
        pod: Some(pod.clone()),
        addresses: vec![address()],
        branch: None,
        confirmed: true,
        rules,
        host_end: HostEndMode::bridged("eni"),
    };
    let of_branch = Assignment {
        pod: None,
        addresses: Vec::new(),
        branch: Some(branch()),
        confirmed: false,
        rules: RuleLayout::PerPod,
        host_end: HostEndMode::Routed,
    };
    let [per_pod, compact] = [RuleLayout::PerPod, RuleLayout::Compact].map(plain);
    for answer in [Some(per_pod), Some(compact), Some(of_branch), None] {
        assert_eq!(held(reply::inspected(answer.clone(), 1)), Ok(answer));
    }
}

#[test]
fn a_wait_beyond_the_wires_range_becomes_the_longest_possible() {
    let long = Reserve {
        key: key(),
        pod: pod(),
        netns: String::new(),
        wait: Span::millis(u64::MAX),
        multi_nic: false,
    };
    assert_eq!(long.into_wire(SUPPORTED).wait_ms, u32::MAX);
}

#[test]
fn an_unknown_reason_or_cause_becomes_the_harmless_one() {
    let refused = ReserveOutcome::Refused(Refusal {
        reason: Reason::Exhausted,
        message: String::new(),
        next_step: String::new(),
    });
    let mut newer = reply(refused);
    if let Some(wire::reserve_reply::Outcome::Refused(refusal)) = &mut newer.outcome {
        refusal.reason = 99;
    }
    let Ok(ReserveOutcome::Refused(read)) = ReserveOutcome::try_from(newer) else {
        panic!("a refusal stays a refusal")
    };
    assert_eq!(read.reason, Reason::TryAgain);

    let release = Release { key: key(), pod: None, cause: ReleaseCause::SetupFailed };
    let newer = wire::ReleaseRequest { cause: 99, ..release.into_wire(SUPPORTED) };
    assert_eq!(Release::try_from(newer).unwrap().cause, ReleaseCause::PodDeleted);
}

#[test]
fn invalid_addresses_are_refused_by_name() {
    let good = wire::Address::from(address());
    type Break = fn(&mut wire::Address);
    let broken: [(Break, &str); 6] = [
        (|a| a.ipv4 = "10.0.1.7/32".into(), "IPv4 address"),
        (|a| a.ipv6 = "10.0.1.7".into(), "IPv6 address"),
        (|a| (a.ipv4, a.ipv6) = (String::new(), String::new()), "address of"),
        (|a| a.device_number = -1, "device number"),
        (|a| a.device_number = 70_000, "device number"),
        (|a| a.route_table = 0, "route table"),
    ];
    for (change, field) in broken {
        let mut sent = good.clone();
        change(&mut sent);
        assert_eq!(PodAddress::try_from(sent).unwrap_err().field, field);
    }
}

#[test]
fn incomplete_requests_are_refused_with_the_missing_field() {
    let reserve = Reserve {
        key: key(),
        pod: pod(),
        netns: String::new(),
        wait: Span::default(),
        multi_nic: false,
    };
    let good = reserve.into_wire(SUPPORTED);
    type Break = fn(&mut wire::ReserveRequest);
    let broken: [(Break, &str); 7] = [
        (|r| r.key = None, "key"),
        (|r| r.key.as_mut().unwrap().container_id = "../etc".into(), "container id"),
        (|r| r.key.as_mut().unwrap().ifname = "a/b".into(), "interface name"),
        (|r| r.pod = None, "pod"),
        (|r| r.pod.as_mut().unwrap().name.clear(), "pod name"),
        (|r| r.pod.as_mut().unwrap().name = "n".repeat(254), "pod name"),
        (|r| r.pod.as_mut().unwrap().namespace = "n".repeat(70_000), "pod namespace"),
    ];
    for (change, field) in broken {
        let mut sent = good.clone();
        change(&mut sent);
        let fault = Reserve::try_from(sent).unwrap_err();
        assert_eq!(fault.field, field);
        assert!(fault.to_string().len() < 200, "{fault}");
    }
    let mut longest = good;
    longest.pod.as_mut().unwrap().name = "n".repeat(253);
    Reserve::try_from(longest).unwrap();
    let confirm = Confirm { key: key(), host_interface: "a name with spaces".into() };
    assert!(Confirm::try_from(confirm.into_wire(SUPPORTED)).is_err());
}

#[test]
fn an_answer_without_an_outcome_or_an_address_is_refused() {
    let silent = wire::ReserveReply { version: 1, outcome: None, policy_agent: None, agent: None };
    assert_eq!(ReserveOutcome::try_from(silent).unwrap_err().field, "outcome");
    let empty = Reservation { addresses: Vec::new(), ..reservation() };
    let empty = reply(ReserveOutcome::Reserved(empty));
    assert_eq!(ReserveOutcome::try_from(empty).unwrap_err().field, "addresses");
}

#[test]
fn a_branch_is_equal_after_the_wire_and_an_incomplete_one_is_refused() {
    let v6 = Branch {
        address: "2001:db8::9".parse().unwrap(),
        gateway: "fe80:ec2::1".parse().unwrap(),
        enforcing: Enforcing::Standard,
        ..branch()
    };
    for branch in [branch(), v6] {
        let outcome = ReserveOutcome::ReservedBranch(branch);
        assert_eq!(ReserveOutcome::try_from(reply(outcome.clone())), Ok(outcome));
    }
    let good = wire::Branch::from(branch());
    for (sent, field) in [
        (wire::Branch { enforcing: 9, ..good.clone() }, "enforcing mode"),
        (wire::Branch { vlan: 0, ..good.clone() }, "VLAN"),
        (wire::Branch { vlan: 4095, ..good.clone() }, "VLAN"),
        (wire::Branch { mac: "02".into(), ..good.clone() }, "MAC address"),
        (wire::Branch { ipv4_gateway: String::new(), ..good.clone() }, "gateway"),
        (wire::Branch { trunk_mac: String::new(), ..good.clone() }, "trunk MAC address"),
        (wire::Branch { ipv4: String::new(), ipv4_gateway: String::new(), ..good }, "branch"),
    ] {
        assert_eq!(Branch::try_from(sent).unwrap_err().field, field);
    }
}
