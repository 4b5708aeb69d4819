//! Generators of the parts of objects.

use policy_objects::{
    Block, Cidr, Labels, Meta, Named, Operator, PortRange, Protocol, Read, Requirement, Selector,
    Subject, TargetPort, Unknown,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use std::{collections::BTreeSet, net::IpAddr};

pub(super) const NAMESPACES: &[&str] = &["x", "y", "z"];
pub(super) const GROUPS: &[&str] = &["g", "h", "i"];
pub(super) const POD_ADDRESSES: &[&str] =
    &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.1.5", "10.0.1.6"];
pub(super) const POD_ADDRESSES_6: &[&str] = &["fd00::1", "fd00::2", "fd00::3"];
pub(super) const SERVICE_ADDRESSES: &[&str] = &["172.20.0.1", "172.20.0.2"];
pub(super) const OUTSIDE: &[&str] = &["198.51.100.7", "2001:db8::7"];
pub(super) const LOOPBACK: &[&str] = &["127.0.0.1", "127.9.9.9", "::1"];

const RANGES: &[&str] = &[
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/24",
    "10.0.0.0/8",
    "10.0.0.2/32",
    "fd00::/64",
    "198.51.100.0/24",
    "192.168.0.1/32",
    "192.168.0.0/24",
    "172.20.0.0/16",
];
const HOLES: &[&str] =
    &["10.0.0.1/32", "10.0.0.2/31", "10.0.1.0/24", "198.51.100.7/32", "fd00::1/128"];
const NAMES: &[&str] = &["example.com", "www.example.com", "a.b.example.com", "notexample.com"];

pub(super) fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(words).prop_map(str::to_owned)
}

pub(super) fn address(text: &str) -> IpAddr {
    text.parse().expect("a constant of this file")
}

pub(super) fn one_address(of: &'static [&'static str]) -> impl Strategy<Value = IpAddr> {
    select(of).prop_map(address)
}

pub(super) fn meta(namespace: &str, name: &str) -> Meta {
    Meta { namespace: namespace.to_owned(), name: name.to_owned(), ..Meta::default() }
}

pub(super) fn labels(key: &'static str, values: &'static [&'static str]) -> BoxedStrategy<Labels> {
    let label = move |value: Option<&str>| {
        value.map(|value| (key.to_owned(), value.to_owned())).into_iter().collect()
    };
    option::weighted(0.85, select(values)).prop_map(label).boxed()
}

/// A selector with at most one key. It often selects everything.
fn selector(key: &'static str, values: &'static [&'static str]) -> BoxedStrategy<Selector> {
    let few = vec(select(values), 1..=2);
    let some = few.prop_map(|few| few.into_iter().map(str::to_owned).collect::<BTreeSet<_>>());
    let operator = prop_oneof![
        5 => some.clone().prop_map(Operator::In),
        2 => some.prop_map(Operator::NotIn),
        1 => Just(Operator::Exists),
        1 => Just(Operator::DoesNotExist),
    ];
    let requirement =
        operator.prop_map(move |operator| Requirement { key: key.to_owned(), operator });
    let requirements = prop_oneof![
        3 => Just(Vec::new()),
        5 => vec(requirement, 1..=1),
    ];
    requirements.prop_map(|all| Selector { requirements: all.into_iter().collect() }).boxed()
}

pub(super) fn pods() -> BoxedStrategy<Selector> {
    selector("app", &["a", "b", "c"])
}

/// A selector for subjects: mostly all pods, so that most rules apply to a packet's pods.
pub(super) fn most_pods() -> BoxedStrategy<Selector> {
    prop_oneof![3 => Just(Selector::default()), 2 => pods()].boxed()
}

pub(super) fn namespaces() -> BoxedStrategy<Selector> {
    prop_oneof![
        3 => selector("team", &["red", "blue"]),
        1 => selector("kubernetes.io/metadata.name", NAMESPACES),
    ]
    .boxed()
}

pub(super) fn nodes() -> BoxedStrategy<Selector> {
    selector("role", &["cp", "worker"])
}

pub(super) fn range() -> impl Strategy<Value = Cidr> {
    select(RANGES).prop_map(|text| text.parse().expect("a constant of this file"))
}

pub(super) fn block() -> impl Strategy<Value = Block> {
    let hole =
        select(HOLES).prop_map(|text| text.parse::<Cidr>().expect("a constant of this file"));
    (range(), vec(hole, 0..=2)).prop_map(|(cidr, holes)| {
        let within = holes.into_iter().filter(|hole| cidr.contains(hole) && *hole != cidr);
        Block { cidr, except: within.collect::<BTreeSet<_>>().into_iter().collect() }
    })
}

pub(super) fn names() -> impl Strategy<Value = Vec<(IpAddr, String)>> {
    let where_to = prop_oneof![3 => one_address(OUTSIDE), 1 => one_address(POD_ADDRESSES)];
    vec((where_to, one_of(NAMES)), 1..=5)
}

pub(super) fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![7 => Just(Protocol::Tcp), 2 => Just(Protocol::Udp), 1 => Just(Protocol::Sctp)]
}

pub(super) fn ports() -> impl Strategy<Value = PortRange> {
    select(vec![(80, 80), (1, 65_535), (53, 82), (8080, 9090)])
        .prop_map(|(first, last)| PortRange { first, last })
}

pub(super) fn port_name() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("web".to_owned()), 1 => Just("dns".to_owned())]
}

pub(super) fn target() -> impl Strategy<Value = Option<TargetPort>> {
    prop_oneof![
        1 => Just(None),
        3 => ports().prop_map(|range| Some(TargetPort::Numbers(range))),
        3 => port_name().prop_map(|name| Some(TargetPort::Named(name))),
    ]
}

pub(super) fn account() -> impl Strategy<Value = Named> {
    (one_of(NAMESPACES), one_of(&["ci", "default"]))
        .prop_map(|(namespace, name)| Named { namespace, name })
}

/// A part that is not understood.
pub(super) fn unknown() -> impl Strategy<Value = Unknown> {
    let actions = &["Allow", "Accept", "Drop", "Reject", "Deny", "Pass", "allow", "Shrug"];
    option::weighted(0.9, one_of(actions)).prop_map(|action| Unknown {
        why: "scenario up".to_owned(),
        name: None,
        action,
    })
}

pub(super) fn read<T: std::fmt::Debug + Clone + 'static>(
    known: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Read<T>> {
    prop_oneof![24 => known.prop_map(Read::Known), 1 => unknown().prop_map(Read::Unknown)].boxed()
}

pub(super) fn subject<T: std::fmt::Debug + Clone + 'static>(
    selects: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Subject<T>> {
    (selects, option::weighted(0.03, Just("scenario up".to_owned())))
        .prop_map(|(selects, doubt)| Subject { selects, doubt })
        .boxed()
}
