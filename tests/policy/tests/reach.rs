//! Coverage of the generators: each class of cases decides some packets.

use policy_core::{Exemption, Half, Reason, RuleName, Verdict, WhyNot, verdict};
use policy_objects::{
    AntreaAction, AntreaAppliedTo, AntreaEntry, AntreaPeer, AntreaPolicy, AntreaPort,
    ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, ClusterTier, Dialect, Flavor, Group,
    GroupSpec, NamespaceMatch, NetworkPeer, NetworkPolicy, NetworkRule, Object, ProtocolMatch,
    Read, TargetPort,
};
use proptest::{
    collection::vec,
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngSeed, TestRunner},
};
use std::collections::BTreeMap;
use tests_policy::{
    compare,
    scenario::{Scenario, id, sketch, world},
};

const WORLDS: usize = 2000;
const LEAST: usize = 3;

/// Every class of cases.
const CLASSES: &[&str] = &[
    "antrea before: Allow",
    "antrea before: Drop",
    "antrea before: Reject",
    "antrea before: Pass",
    "antrea baseline: Allow",
    "antrea baseline: Drop",
    "antrea baseline: Reject",
    "antrea baseline: Pass",
    "antrea not understood",
    "antrea: a rule's own subject",
    "antrea: a baseline tier after a Pass before NetworkPolicies",
    "antrea: a baseline tier after a Pass in another baseline tier",
    "antrea: namespaced policy",
    "antrea: peer Block",
    "antrea: peer Fqdn",
    "antrea: peer Group of blocks",
    "antrea: peer Group of children",
    "antrea: peer Group of nodes",
    "antrea: peer Group of pods",
    "antrea: peer Group of a Service",
    "antrea: peer Group, unusable",
    "antrea: peer Nodes",
    "antrea: peer Pods",
    "antrea: peer Same",
    "antrea: peer SameLabels",
    "antrea: peer ServiceAccount",
    "antrea: peers, any",
    "antrea: port ICMP",
    "antrea: port named",
    "antrea: port numbers",
    "antrea: source port",
    "antrea: ports, any",
    "antrea: subject Group",
    "antrea: subject Group, not understood",
    "antrea: subject Service",
    "antrea: subject ServiceAccount",
    "antrea: tier custom",
    "antrea: tier late",
    "antrea: tier missing",
    "antrea: toServices",
    "cluster Admin: Accept",
    "cluster Admin: Deny",
    "cluster Admin: Pass",
    "cluster Baseline: Accept",
    "cluster Baseline: Deny",
    "cluster Baseline: Pass",
    "cluster not understood",
    "cluster: AWS dialect",
    "cluster: peer Domains",
    "cluster: peer Networks",
    "cluster: peer Nodes",
    "cluster: peer Pods",
    "cluster: port named",
    "cluster: port numbers",
    "default",
    "exempt: FollowsItsFlow",
    "exempt: FromOwnNode",
    "exempt: OwnAddress",
    "exempt: hairpin, and ClusterNetworkPolicy drops it",
    "isolation: Egress",
    "isolation: Ingress",
    "network: an ApplicationNetworkPolicy",
    "network: peer Block",
    "network: peer Domains",
    "network: peer Pods",
    "network: peers, any",
    "network: port named",
    "network: port numbers",
    "network: a NetworkPolicy",
    "to a loopback address",
    "why not: Exempt",
    "why not: NotUnderstood",
    "why not: PassesOn",
    "why not: Peer",
    "why not: Port",
    "why not: Protocol",
    "why not: Skipped",
    "why not: Subject",
    "why not: exempt Hairpin",
    "why not: exempt ToOwnNode",
];

#[test]
fn every_class_of_cases_is_reached() {
    let config =
        Config { rng_seed: RngSeed::Fixed(6), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let mut reached = Reached::default();
    let strategy = (world(), vec(sketch(), 60));
    for _ in 0..WORLDS {
        let case = strategy.new_tree(&mut runner).expect("the strategy generates every world");
        let (scenario, sketches) = case.current();
        let model = compare::world(&scenario);
        for packet in sketches.iter().filter_map(|sketch| sketch.packet(&scenario)) {
            let verdict = verdict(&model, &compare::packet(&packet));
            if packet.destination.is_loopback() && verdict.egress.is_some() {
                reached.count("to a loopback address");
            }
            reached.verdict(&scenario, &verdict);
        }
    }
    let counts = &reached.0;
    let rare = CLASSES.iter().filter(|class| counts.get(**class).is_none_or(|n| *n < LEAST));
    let rare = rare.collect::<Vec<_>>();
    assert!(rare.is_empty(), "hardly reached: {rare:?}\nall: {counts:#?}");
    let unlisted = counts.keys().filter(|class| !CLASSES.contains(&class.as_str()));
    let unlisted = unlisted.collect::<Vec<_>>();
    assert!(unlisted.is_empty(), "reached, but not in CLASSES: {unlisted:?}");
}

/// Number of occurrences of each class.
#[derive(Default)]
struct Reached(BTreeMap<String, usize>);

impl Reached {
    fn count(&mut self, class: impl Into<String>) {
        *self.0.entry(class.into()).or_default() += 1;
    }

    fn verdict(&mut self, scenario: &Scenario, verdict: &Verdict) {
        for half in verdict.halves() {
            self.half(scenario, half);
            for earlier in &half.earlier {
                self.why_not(scenario, &earlier.rule, &earlier.why);
            }
        }
    }

    fn half(&mut self, scenario: &Scenario, half: &Half) {
        match &half.reason {
            Reason::Rule { rule } => self.decider(scenario, half, rule, false),
            Reason::NotUnderstood { rule, .. } => self.decider(scenario, half, rule, true),
            Reason::Isolation { .. } => self.count(format!("isolation: {:?}", half.direction)),
            Reason::Exemption { exemption } => self.count(format!("exempt: {exemption:?}")),
            Reason::Default => self.count("default"),
        }
    }

    fn why_not(&mut self, scenario: &Scenario, rule: &RuleName, why: &WhyNot) {
        let kind = match why {
            WhyNot::Subject => "Subject",
            WhyNot::Peer { .. } => "Peer",
            WhyNot::Protocol { .. } => "Protocol",
            WhyNot::Port { .. } => "Port",
            WhyNot::NotUnderstood { .. } => "NotUnderstood",
            WhyNot::PassesOn => {
                self.action(scenario, rule, "Pass");
                "PassesOn"
            }
            WhyNot::Skipped { .. } => "Skipped",
            WhyNot::Exempt { exemption } => {
                self.count(format!("why not: exempt {exemption:?}"));
                "Exempt"
            }
        };
        self.count(format!("why not: {kind}"));
    }

    fn decider(&mut self, scenario: &Scenario, half: &Half, rule: &RuleName, denies_all: bool) {
        let Some(object) = object_of(scenario, rule) else { panic!("no object has {rule:?}") };
        let exempt = half
            .earlier
            .iter()
            .any(|earlier| matches!(earlier.why, WhyNot::Exempt { exemption: Exemption::Hairpin }));
        if exempt && half.decision != policy_core::Decision::Allow {
            self.count("exempt: hairpin, and ClusterNetworkPolicy drops it");
        }
        self.after_pass(scenario, half, object);
        let egress = rule.direction == policy_core::Direction::Egress;
        match object {
            Object::NetworkPolicy(policy) => {
                let rules = if egress { &policy.egress } else { &policy.ingress };
                self.network(policy, rules[rule.index].known().expect("it allowed"));
            }
            Object::ClusterPolicy(policy) => {
                let rules = if egress { &policy.egress } else { &policy.ingress };
                match rules[rule.index].known() {
                    Some(known) if !denies_all => self.cluster(scenario, policy, known, rule),
                    _ => self.count("cluster not understood"),
                }
            }
            Object::AntreaPolicy(policy) => {
                let rules = if egress { &policy.egress } else { &policy.ingress };
                self.antrea(scenario, policy, &rules[rule.index], rule, denies_all);
            }
            Object::Pod(_)
            | Object::Namespace(_)
            | Object::Node(_)
            | Object::Service(_)
            | Object::Tier(_)
            | Object::Group(_) => panic!("{object:?} is no policy"),
        }
    }

    /// Counts deciders that follow a Pass of their family.
    fn after_pass(&mut self, scenario: &Scenario, half: &Half, decider: &Object) {
        let Object::AntreaPolicy(decider) = decider else { return };
        let passed = half.earlier.iter().filter(|earlier| earlier.why == WhyNot::PassesOn);
        for earlier in passed {
            if let Some(Object::AntreaPolicy(policy)) = object_of(scenario, &earlier.rule) {
                let baseline = ["baseline", "late"].contains(&policy.tier.as_str());
                if baseline && policy.tier != decider.tier {
                    self.count("antrea: a baseline tier after a Pass in another baseline tier");
                } else {
                    self.count("antrea: a baseline tier after a Pass before NetworkPolicies");
                }
            }
        }
    }

    fn network(&mut self, policy: &NetworkPolicy, rule: &NetworkRule) {
        self.count(match policy.flavor {
            Flavor::Kubernetes => "network: a NetworkPolicy",
            Flavor::Aws => "network: an ApplicationNetworkPolicy",
        });
        match &rule.peers[..] {
            [] => self.count("network: peers, any"),
            [NetworkPeer::Pods { .. }] => self.count("network: peer Pods"),
            [NetworkPeer::Block(_)] => self.count("network: peer Block"),
            [NetworkPeer::Domains(_)] => self.count("network: peer Domains"),
            _ => {}
        }
        if let [port] = &rule.ports[..] {
            self.target("network", port.port.as_ref());
        }
    }

    fn target(&mut self, kind: &str, target: Option<&TargetPort>) {
        match target {
            None => {}
            Some(TargetPort::Numbers(_)) => self.count(format!("{kind}: port numbers")),
            Some(TargetPort::Named(_)) => self.count(format!("{kind}: port named")),
        }
    }

    /// Counts the tier and the action of a ClusterNetworkPolicy or an Antrea policy.
    fn action(&mut self, scenario: &Scenario, rule: &RuleName, action: &str) {
        match object_of(scenario, rule) {
            Some(Object::ClusterPolicy(policy)) => {
                let tier = match policy.tier {
                    ClusterTier::Admin => "Admin",
                    ClusterTier::Baseline => "Baseline",
                };
                self.count(format!("cluster {tier}: {action}"));
            }
            Some(Object::AntreaPolicy(policy)) => match policy.tier.as_str() {
                "baseline" => self.count(format!("antrea baseline: {action}")),
                "emergency" | "application" => self.count(format!("antrea before: {action}")),
                _ => {}
            },
            other => panic!("{other:?} has no action"),
        }
    }

    fn cluster(
        &mut self,
        scenario: &Scenario,
        policy: &ClusterPolicy,
        known: &ClusterRule,
        rule: &RuleName,
    ) {
        self.action(
            scenario,
            rule,
            match known.action {
                ClusterAction::Accept => "Accept",
                ClusterAction::Deny => "Deny",
                ClusterAction::Pass => "Pass",
            },
        );
        if policy.dialect == Dialect::Aws {
            self.count("cluster: AWS dialect");
        }
        match &known.peers[..] {
            [ClusterPeer::Pods(_)] => self.count("cluster: peer Pods"),
            [ClusterPeer::Networks(_)] => self.count("cluster: peer Networks"),
            [ClusterPeer::Nodes(_)] => self.count("cluster: peer Nodes"),
            [ClusterPeer::Domains(_)] => self.count("cluster: peer Domains"),
            _ => {}
        }
        match &known.protocols[..] {
            [ProtocolMatch::Ports(_, Some(_))] => self.count("cluster: port numbers"),
            [ProtocolMatch::Named(_)] => self.count("cluster: port named"),
            _ => {}
        }
    }

    fn antrea(
        &mut self,
        scenario: &Scenario,
        policy: &AntreaPolicy,
        entry: &AntreaEntry,
        name: &RuleName,
        denies_all: bool,
    ) {
        self.antrea_subject(scenario, policy, entry);
        let Some(rule) = entry.rule.known().filter(|_| !denies_all) else {
            let peers = entry.rule.known().map(|rule| &rule.peers[..]);
            let group = peers.is_some_and(|peers| matches!(peers, [AntreaPeer::Group(_)]));
            let unusable = "antrea: peer Group, unusable";
            self.count(if group { unusable } else { "antrea not understood" });
            return;
        };
        self.action(
            scenario,
            name,
            match rule.action {
                AntreaAction::Allow => "Allow",
                AntreaAction::Drop => "Drop",
                AntreaAction::Reject => "Reject",
                AntreaAction::Pass => "Pass",
            },
        );
        if !rule.services.is_empty() {
            self.count("antrea: toServices");
            return;
        }
        match &rule.peers[..] {
            [] => self.count("antrea: peers, any"),
            [peer] => self.antrea_peer(scenario, policy, peer),
            _ => {}
        }
        match &rule.ports[..] {
            [] => self.count("antrea: ports, any"),
            [AntreaPort::Icmp(_)] => self.count("antrea: port ICMP"),
            [AntreaPort::Transport { port, source, .. }] => {
                self.target("antrea", port.as_ref());
                if source.is_some() {
                    self.count("antrea: source port");
                }
            }
            _ => {}
        }
    }

    fn antrea_subject(&mut self, scenario: &Scenario, policy: &AntreaPolicy, entry: &AntreaEntry) {
        if !policy.meta.namespace.is_empty() {
            self.count("antrea: namespaced policy");
        }
        if !entry.applied_to.is_empty() {
            self.count("antrea: a rule's own subject");
        }
        let own = &entry.applied_to;
        let applied_to = if own.is_empty() { &policy.applied_to } else { own };
        if let [subject] = &applied_to[..] {
            match &subject.selects {
                AntreaAppliedTo::Pods { .. } => {}
                AntreaAppliedTo::Group(name) => {
                    let known = group(scenario, &policy.meta.namespace, name).known().is_some();
                    let unknown = "antrea: subject Group, not understood";
                    self.count(if known { "antrea: subject Group" } else { unknown });
                }
                AntreaAppliedTo::ServiceAccount(_) => self.count("antrea: subject ServiceAccount"),
                AntreaAppliedTo::Service(_) => self.count("antrea: subject Service"),
                AntreaAppliedTo::Nodes | AntreaAppliedTo::External => {
                    panic!("no pod can match this subject")
                }
            }
        }
        if ["custom", "late", "missing"].contains(&policy.tier.as_str()) {
            self.count(format!("antrea: tier {}", policy.tier));
        }
    }

    fn antrea_peer(&mut self, scenario: &Scenario, policy: &AntreaPolicy, peer: &AntreaPeer) {
        let kind = match peer {
            AntreaPeer::Pods { .. } => "Pods",
            AntreaPeer::Matching { namespaces: NamespaceMatch::Same, .. } => "Same",
            AntreaPeer::Matching { namespaces: NamespaceMatch::SameLabels(_), .. } => "SameLabels",
            AntreaPeer::Block(_) => "Block",
            AntreaPeer::Group(name) => match spec(scenario, &policy.meta.namespace, name) {
                GroupSpec::Pods { .. } => "Group of pods",
                GroupSpec::Blocks(_) => "Group of blocks",
                GroupSpec::Service(_) => "Group of a Service",
                GroupSpec::Nodes(_) => "Group of nodes",
                GroupSpec::Children(_) => "Group of children",
                GroupSpec::Empty | GroupSpec::External => panic!("no address can match this group"),
            },
            AntreaPeer::ServiceAccount(_) => "ServiceAccount",
            AntreaPeer::Nodes(_) => "Nodes",
            AntreaPeer::Fqdn(_) => "Fqdn",
        };
        self.count(format!("antrea: peer {kind}"));
    }
}

fn object_of<'a>(scenario: &'a Scenario, rule: &RuleName) -> Option<&'a Object> {
    let key = &rule.policy;
    let name = (key.kind, key.namespace.clone(), key.name.clone());
    scenario.objects.iter().find(|object| id(object) == name)
}

fn spec<'a>(scenario: &'a Scenario, namespace: &str, name: &str) -> &'a GroupSpec {
    group(scenario, namespace, name).known().expect("the group is understood")
}

fn group<'a>(scenario: &'a Scenario, namespace: &str, name: &str) -> &'a Read<GroupSpec> {
    let groups = scenario
        .objects
        .iter()
        .filter_map(|object| if let Object::Group(group) = object { Some(group) } else { None });
    let is = |group: &&Group| group.meta.namespace == namespace && group.meta.name == name;
    &{ groups }.find(is).expect("the group exists").spec
}
