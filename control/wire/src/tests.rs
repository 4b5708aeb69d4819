//! Decoded messages equal the encoded ones. An invalid message is reported and changes nothing.

use crate::{
    EncodedBookmark, Fault, NodeSnapshot, ObjectId, Positions, Progress, digest_of, encode, entry,
    model::{
        AddressGroup, Isolation, Member, NamespacePeers, PeerSet, Peers, Pod, Policy, Position,
        Rule,
    },
    parts,
    proto::{self, change},
};
use policy_core::{
    Action, Direction, Family, Log, NameMatch, PolicyKey, Priority, Stage, Standing, Traffic,
    Transport,
    index::{GroupId, Holds, MemberKey},
};
use policy_objects::{
    Block, ContainerPort, DomainName, FqdnPattern, Kind, PortRange, Protocol, TargetPort,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use prost::Message as _;
use service_objects::{
    ClientAffinity, Endpoint, Ingress, IngressMode, ObjectName, Service, ServiceKind, ServicePort,
    Slice, SlicePort, TrafficPolicy,
};
use std::net::IpAddr;

fn id() -> impl Strategy<Value = GroupId> {
    (0_u8..6).prop_map(|of| GroupId([of; 16]))
}

fn word() -> impl Strategy<Value = String> {
    select(vec!["", "a", "b", "web", "späte"]).prop_map(str::to_owned)
}

fn uid() -> impl Strategy<Value = String> {
    select(vec!["u1", "u2", "u3", "u4"]).prop_map(str::to_owned)
}

fn address() -> impl Strategy<Value = IpAddr> {
    let all = ["10.0.0.1", "10.0.0.2", "fd00::1", "::ffff:10.0.0.1"];
    select(all.to_vec()).prop_map(|text| text.parse().expect("an address"))
}

fn block() -> impl Strategy<Value = Block> {
    let net = || {
        let all = ["10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "fd00::/64", "::/0"];
        select(all.to_vec()).prop_map(|text| text.parse().expect("a range"))
    };
    (net(), vec(net(), 0..3)).prop_map(|(cidr, except)| Block { cidr, except })
}

fn protocol() -> impl Strategy<Value = Protocol> {
    select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp])
}

fn range() -> impl Strategy<Value = PortRange> {
    (any::<u16>(), any::<u16>()).prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) })
}

fn transport() -> impl Strategy<Value = Transport> {
    let port =
        prop_oneof![range().prop_map(TargetPort::Numbers), word().prop_map(TargetPort::Named)];
    prop_oneof![
        (protocol(), option::of(port), option::of(range()))
            .prop_map(|(protocol, port, source)| Transport::Ports { protocol, port, source }),
        word().prop_map(Transport::Named),
        (any::<Option<u8>>(), any::<Option<u8>>())
            .prop_map(|(kind, code)| Transport::Icmp { kind, code }),
    ]
}

fn peers() -> impl Strategy<Value = Peers> {
    let name = prop_oneof![
        word().prop_map(|name| NameMatch::Domain(DomainName::Exact(name))),
        word().prop_map(|name| NameMatch::Domain(DomainName::Below(name))),
        word().prop_map(|name| NameMatch::Pattern(FqdnPattern(name))),
    ];
    let alike =
        (vec(id(), 0..3), id()).prop_map(|(applied, address)| NamespacePeers { applied, address });
    let far =
        (vec(id(), 0..3), vec(block(), 0..2), vec(name, 0..2), vec(id(), 0..2), vec(alike, 0..2));
    let far = far.prop_map(|(groups, blocks, names, services, alike)| {
        Peers::Of(PeerSet { groups, blocks, names, services, alike })
    });
    prop_oneof![1 => Just(Peers::Any), 4 => far]
}

fn standing() -> impl Strategy<Value = Standing> {
    prop_oneof![
        3 => Just(Standing::Understood),
        1 => word().prop_map(|why| Standing::MatchesNothing { why }),
        1 => word().prop_map(|why| Standing::DeniesAll { why }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let traffic = prop_oneof![Just(Traffic::Any), vec(transport(), 0..3).prop_map(Traffic::Of)];
    let action = select(vec![Action::Allow, Action::Drop, Action::Reject, Action::Pass]);
    let way = select(vec![Direction::Ingress, Direction::Egress]);
    let options = (option::of(word()), option::of(word()), option::of(word()), option::of(id()));
    (way, 0_usize..9, action, vec(id(), 0..3), peers(), traffic, standing(), options).prop_map(
        |(direction, index, action, applied, peers, traffic, standing, options)| {
            let (name, doubt, label, names) = options;
            let log = label.map(|label| Log { label });
            Rule {
                direction,
                index,
                name,
                action,
                applied,
                doubt,
                peers,
                traffic,
                log,
                standing,
                names,
                requires: Vec::new(),
            }
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let stage = select(vec![Stage::Before, Stage::NetworkPolicies, Stage::Baseline]);
    let family = select(vec![Family::Cluster, Family::Antrea, Family::NetworkPolicy]);
    let place = (stage, any::<u8>(), family, -9.5_f64..9.5).prop_map(
        |(stage, number, family, priority)| Position {
            stage,
            number,
            family,
            priority: Priority::new(priority),
        },
    );
    let isolation = (vec(id(), 0..3), option::of(word()), any::<bool>(), any::<bool>()).prop_map(
        |(applied, doubt, ingress, egress)| Isolation { applied, doubt, ingress, egress },
    );
    let key = (select(Kind::ALL.to_vec()), word(), word())
        .prop_map(|(kind, namespace, name)| PolicyKey { kind, namespace, name });
    (uid(), key, any::<i64>(), place, option::of(isolation), vec(rule(), 0..4)).prop_map(
        |(uid, key, generation, place, isolation, rules)| Policy {
            uid,
            key,
            generation,
            place,
            isolation,
            rules,
        },
    )
}

fn ports() -> impl Strategy<Value = Vec<ContainerPort>> {
    let port = (word(), protocol(), any::<u16>())
        .prop_map(|(name, protocol, port)| ContainerPort { name, protocol, port });
    vec(port, 0..3)
}

fn pod() -> impl Strategy<Value = Pod> {
    (uid(), word(), word(), vec(address(), 0..3), ports(), "[a-f0-9]{0,4}").prop_map(
        |(uid, namespace, name, addresses, ports, runtime_uid)| Pod {
            uid,
            namespace,
            name,
            addresses,
            ports,
            runtime_uid,
        },
    )
}

fn member() -> impl Strategy<Value = (MemberKey, Member)> {
    (word(), word(), uid(), vec(address(), 0..3), ports()).prop_map(
        |(namespace, name, uid, addresses, ports)| {
            (MemberKey { namespace, name, uid }, Member { addresses, ports })
        },
    )
}

fn holds() -> impl Strategy<Value = Holds> {
    (vec(block(), 0..3), vec(address(), 0..2), option::of(word()))
        .prop_map(|(blocks, vips, unusable)| Holds { blocks, vips, unusable })
}

fn object_name() -> impl Strategy<Value = ObjectName> {
    (word(), word()).prop_map(|(namespace, name)| ObjectName::new(namespace, name))
}

fn service_protocol() -> impl Strategy<Value = service_objects::Protocol> {
    use service_objects::Protocol::{Sctp, Tcp, Udp};
    select(vec![Tcp, Udp, Sctp])
}

fn service() -> impl Strategy<Value = Service> {
    let kinds = [
        ServiceKind::ClusterIp,
        ServiceKind::NodePort,
        ServiceKind::LoadBalancer,
        ServiceKind::ExternalName,
    ];
    let policy = || select(vec![TrafficPolicy::Cluster, TrafficPolicy::Local]);
    let mode = select(vec![IngressMode::Vip, IngressMode::Proxy]);
    let ingress = (address(), mode).prop_map(|(address, mode)| Ingress { address, mode });
    let number = || 1..=u16::MAX;
    let port = (word(), service_protocol(), number(), option::of(number())).prop_map(
        |(name, protocol, port, node_port)| ServicePort { name, protocol, port, node_port },
    );
    let range = select(vec!["10.0.0.0/8", "fd00::/64"]).prop_map(|of| of.parse().expect("a range"));
    let head = (object_name(), word(), select(kinds.to_vec()), option::of(word()), any::<bool>());
    let addresses = (vec(address(), 0..3), vec(address(), 0..3), vec(ingress, 0..3));
    let rest = (policy(), policy(), option::of(number()), option::of(1_u32..9));
    (head, addresses, option::of(vec(range, 0..3)), vec(port, 0..3), rest).prop_map(
        |(head, (cluster_ips, external_ips, ingress), source_ranges, ports, rest)| {
            let (name, created, kind, other_proxy, headless) = head;
            let (internal_policy, external_policy, health_check_node_port, seconds) = rest;
            let affinity = seconds.map(|timeout_seconds| ClientAffinity { timeout_seconds });
            Service {
                name,
                created,
                kind,
                other_proxy,
                headless,
                cluster_ips,
                external_ips,
                ingress,
                source_ranges,
                ports,
                internal_policy,
                external_policy,
                health_check_node_port,
                affinity,
                problems: Vec::new(),
            }
        },
    )
}

fn slice() -> impl Strategy<Value = Slice> {
    let port = (word(), service_protocol(), any::<u16>())
        .prop_map(|(name, protocol, port)| SlicePort { name, protocol, port });
    let states = (any::<bool>(), any::<bool>(), any::<bool>());
    let names = || vec(word(), 0..3);
    let endpoint = (address(), states, option::of(word()), option::of(word()), names(), names())
        .prop_map(
            |(address, (ready, serving, terminating), node, zone, zone_hints, node_hints)| {
                Endpoint {
                    address,
                    ready,
                    serving,
                    terminating,
                    node,
                    zone,
                    zone_hints,
                    node_hints,
                }
            },
        );
    let family = select(vec![service_objects::Family::V4, service_objects::Family::V6]);
    let time = option::of(any::<u64>());
    let head = (object_name(), word(), family, option::of(word()), any::<bool>(), time);
    (head, vec(port, 0..3), vec(endpoint, 0..3)).prop_map(|(head, ports, endpoints)| {
        let (name, service, family, other_proxy, headless, triggered_ms) = head;
        let service = ObjectName::new(name.namespace.clone(), service);
        let problems = Vec::new();
        Slice {
            name,
            service,
            family,
            other_proxy,
            headless,
            ports,
            endpoints,
            triggered_ms,
            problems,
        }
    })
}

fn whole() -> impl Strategy<Value = proto::Change> {
    let group = (id(), vec(member(), 0..4), holds()).prop_map(|(id, members, holds)| {
        let members = members.into_iter().collect();
        encode::address_group(id, &AddressGroup { members, holds: holds.into() })
    });
    prop_oneof![
        policy().prop_map(|policy| (&policy).into()),
        pod().prop_map(|pod| (&pod).into()),
        group,
        (id(), vec(uid(), 0..4))
            .prop_map(|(id, pods)| encode::applied_group(id, &pods.into_iter().collect())),
        (vec(address(), 0..3), proptest::option::of("[a-c]"), any::<bool>()).prop_map(
            |(addresses, zone, leaving)| { encode::node(&addresses, zone.as_deref(), leaving) }
        ),
        service().prop_map(|service| (&service).into()),
        slice().prop_map(|slice| (&slice).into()),
    ]
}

fn some() -> impl Strategy<Value = proto::Change> {
    let object = prop_oneof![
        uid().prop_map(|uid| ObjectId::policy(&uid)),
        uid().prop_map(|uid| ObjectId::pod(&uid)),
        id().prop_map(ObjectId::address),
        id().prop_map(ObjectId::applied),
        Just(ObjectId::node()),
    ];
    let removed = object.prop_map(|object| change::Of::Removed(object.to_proto()).into());
    let applied = (id(), vec(uid(), 0..3), vec(uid(), 0..3)).prop_map(|(id, added, removed)| {
        change::Of::AppliedChange(proto::AppliedChange { id: id.0.to_vec(), added, removed }).into()
    });
    let address = (id(), vec(member(), 0..3), vec(member(), 0..3), option::of(holds())).prop_map(
        |(id, added, removed, holds)| {
            change::Of::AddressChange(proto::AddressChange {
                id: id.0.to_vec(),
                added: added.iter().map(|(key, member)| encode::member(key, member)).collect(),
                removed: removed.iter().map(|(key, _)| encode::member_key(key)).collect(),
                holds: holds.as_ref().map(encode::holds),
            })
            .into()
        },
    );
    prop_oneof![4 => whole(), 1 => removed, 1 => applied, 1 => address]
}

fn sent(generation: u64, changes: &[proto::Change]) -> Vec<proto::Part> {
    let entries: Vec<_> = changes.iter().map(entry).collect();
    let parts = parts(generation, &entries);
    parts.iter().map(|part| proto::Part::decode(&**part).expect("a part")).collect()
}

fn take(held: &mut NodeSnapshot, parts: Vec<proto::Part>) -> Result<Progress, Fault> {
    parts.into_iter().map(|part| held.receive(part)).last().expect("at least one part")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_returns_the_received_objects(change in whole()) {
        let mut held = NodeSnapshot::default();
        prop_assert!(matches!(take(&mut held, sent(1, std::slice::from_ref(&change))), Ok(Progress::Applied(_))));
        let again: Vec<_> = held.objects().collect();
        prop_assert_eq!(again.len(), 1);
        prop_assert_eq!(&again[0].1, &change);
        prop_assert_eq!(held.digests()[0].1, digest_of(&change));
        prop_assert_eq!(entry(&change).digest(), digest_of(&change));
    }

    #[test]
    fn a_generation_is_applied_whole_or_not_at_all(
        first in vec(whole(), 0..8),
        then in vec(some(), 0..8),
    ) {
        let mut held = NodeSnapshot::default();
        take(&mut held, sent(1, &first)).expect("whole objects");
        let before = held.clone();
        let mut one_by_one = held.clone();
        let each = then.iter().zip(2_u64..);
        let each = each.map(|(change, at)| take(&mut one_by_one, sent(at, std::slice::from_ref(change))));
        let stands: Result<Vec<_>, _> = each.collect();
        match take(&mut held, sent(2, &then)) {
            Ok(_) => {
                prop_assert!(stands.is_ok());
                one_by_one.generation = held.generation;
                prop_assert_eq!(held, one_by_one);
            }
            Err(_) => {
                prop_assert!(stands.is_err());
                prop_assert_eq!(held, before);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), change in some(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut held = NodeSnapshot::default();
        if let Ok(part) = proto::Part::decode(&*bytes) {
            let _ = held.receive(part);
        }
        let mut bytes = change.encode_to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        if let Ok(change) = proto::Change::decode(&*bytes) {
            let mut held = NodeSnapshot::default();
            let part = proto::Part { generation: 1, changes: vec![change], last: true };
            if held.receive(part).is_err() {
                prop_assert_eq!(held, NodeSnapshot::default());
            }
        }
    }
}

fn a_policy(change: impl FnOnce(&mut proto::Rule)) -> proto::Change {
    let mut rule = proto::Rule {
        direction: proto::Direction::Ingress.into(),
        action: proto::Action::Allow.into(),
        ..proto::Rule::default()
    };
    change(&mut rule);
    let place = proto::Place {
        stage: proto::Stage::Before.into(),
        number: 5,
        family: proto::Family::Antrea.into(),
        priority: 1.0,
    };
    change::Of::Policy(proto::Policy {
        uid: "u".to_owned(),
        kind: Kind::AntreaClusterNetworkPolicy.text().to_owned(),
        name: "p".to_owned(),
        place: Some(place),
        rules: vec![rule],
        ..proto::Policy::default()
    })
    .into()
}

fn read(change: proto::Change) -> (Action, Standing) {
    let mut held = NodeSnapshot::default();
    take(&mut held, sent(1, &[change])).expect("it can be placed");
    let rule = &held.policies["u"].rules[0];
    (rule.action, rule.standing.clone())
}

#[test]
fn of_a_newer_controllers_rule_what_is_not_known_here_fails_closed() {
    let odd = proto::Transport { of: None };
    let odd = || Some(proto::Traffic { transports: vec![odd.clone()] });
    let (action, standing) = read(a_policy(|rule| rule.traffic = odd()));
    assert_eq!(action, Action::Allow);
    assert!(matches!(standing, Standing::MatchesNothing { .. }));
    for denies in [proto::Action::Drop, proto::Action::Reject, proto::Action::Pass] {
        let (action, standing) = read(a_policy(|rule| {
            rule.action = denies.into();
            rule.traffic = odd();
        }));
        assert_eq!(action, Action::Drop);
        assert!(matches!(standing, Standing::DeniesAll { .. }));
    }
    let (action, standing) = read(a_policy(|rule| rule.action = 77));
    assert_eq!(action, Action::Drop);
    let why = "action 77 is not known here".to_owned();
    assert_eq!(standing, Standing::DeniesAll { why });
}

#[test]
fn what_cannot_be_placed_is_refused_by_name() {
    let mut held = NodeSnapshot::default();
    let fault = take(&mut held, sent(3, &[a_policy(|rule| rule.direction = 9)])).expect_err("it");
    let message = "generation 3 cannot be read: policy p (u): direction 9 is not known here";
    assert_eq!(fault.to_string(), message);
    let id = GroupId([7; 16]);
    let change = proto::AddressChange { id: id.0.to_vec(), ..proto::AddressChange::default() };
    let change = change::Of::AddressChange(change).into();
    let fault = take(&mut held, sent(4, &[change])).expect_err("a change of nothing");
    assert_eq!(fault, Fault::Unknown { generation: 4, object: ObjectId::address(id) });
    assert_eq!(held, NodeSnapshot::default());
}

#[test]
fn many_changes_are_several_parts_and_nothing_before_the_last() {
    let pod = |at: u32| {
        let (uid, name) = (format!("uid-{at}"), "n".repeat(200));
        proto::Change::from(&Pod { uid, name, ..Pod::default() })
    };
    let pods: Vec<_> = (0..4_000).map(pod).collect();
    let mut parts = sent(9, &pods);
    assert!(parts.len() > 2, "{}", parts.len());
    assert!(parts.iter().all(|part| part.encoded_len() < crate::PART_BYTES + 1_000));
    let last = parts.pop().expect("parts");
    let mut held = NodeSnapshot::default();
    for part in parts {
        assert_eq!(held.receive(part), Ok(Progress::Incomplete));
    }
    assert_eq!((held.generation, held.pods.len()), (0, 0));
    assert!(matches!(held.receive(last), Ok(Progress::Applied(of)) if of.len() == 4_000));
    assert_eq!((held.generation, held.pods.len()), (9, 4_000));
}

#[test]
fn parts_out_of_order_are_refused_and_a_new_stream_restarts_the_order() {
    let part = |generation, last| proto::Part { generation, changes: Vec::new(), last };
    let mut held = NodeSnapshot::default();
    assert!(held.receive(part(5, true)).is_ok());
    assert_eq!(held.receive(part(5, true)), Err(Fault::OutOfOrder { generation: 5, held: 5 }));
    assert!(held.receive(part(6, false)).is_ok());
    assert_eq!(held.receive(part(7, true)), Err(Fault::OutOfOrder { generation: 7, held: 6 }));
    assert_eq!(held.generation, 5);
    held.start_stream(&[]);
    assert!(held.receive(part(5, true)).is_ok(), "a new stream may start with the held generation");
    assert!(held.receive(part(5, true)).is_err());
    held.start_stream(&[1; 16]);
    assert_eq!(held.generation, 0, "another replica restarts the generations");
}

#[test]
fn a_large_group_has_the_digest_of_its_content() {
    let id = GroupId([7; 16]);
    let member = |number: u16, last: u8| {
        let (namespace, name) = ("shop".to_owned(), format!("web-{number}"));
        let [high, low] = number.to_be_bytes();
        let addresses = vec![IpAddr::from([10, high, low, last])];
        let key = MemberKey { namespace, name, uid: format!("uid of {number}") };
        (key, Member { addresses, ports: Vec::new() })
    };
    let digest = |group: &AddressGroup| digest_of(&encode::address_group(id, group));
    for many in [256, 257, 2_000] {
        let members = (0..many).map(|number| member(number, 1)).collect();
        let first = AddressGroup { members, holds: Holds::default().into() };
        let mut digests = std::collections::BTreeSet::from([digest(&first)]);
        let mut others = vec![first.clone(); 4];
        others[0].members.extend([member(3, 2)]);
        others[1].members.extend([member(many, 1)]);
        others[2].members.pop_first();
        std::sync::Arc::make_mut(&mut others[3].holds).unusable =
            Some("it is not there".to_owned());
        digests.extend(others.iter().map(digest));
        assert_eq!(digests.len(), 5, "{many} members");
        let held = |group: &AddressGroup| {
            let mut held = NodeSnapshot::default();
            take(&mut held, sent(1, &[encode::address_group(id, group)])).expect("a group");
            held.digests()[0].1
        };
        assert_eq!(held(&first), digest(&first));
        // As it came to be does not matter.
        let mut again = others[0].clone();
        again.members.extend([member(3, 1)]);
        assert_eq!(digest(&again), digest(&first));
    }
}

#[test]
fn a_bookmark_encoded_once_for_all_is_read_as_a_bookmark() {
    let reach = Positions::new([("Pod", 7), ("Tier.crd.antrea.io", u64::MAX)], "10.0.0.9:9443");
    for (generation, reach) in [(0, reach.clone()), (u64::MAX, reach), (3, Positions::default())] {
        let mark = EncodedBookmark { generation, reach };
        let mut bytes = Vec::new();
        mark.encode(&mut bytes);
        assert_eq!(bytes.len(), mark.encoded_len());
        let read = proto::Bookmark::decode(bytes.as_slice()).expect("a bookmark");
        assert_eq!(read, mark.message());
        assert_eq!(read.generation, generation);
    }
    let mark =
        EncodedBookmark { generation: 5, reach: Positions::new([("Pod", 7)], "10.0.0.9:9443") };
    let reached = vec![proto::Reached { kind: "Pod".to_owned(), version: 7 }];
    let reports_to = "10.0.0.9:9443".to_owned();
    assert_eq!(mark.message(), proto::Bookmark { generation: 5, reached, reports_to });
}
